//! The rule of a finding as it is typed, which shells can complete.

use std::ffi::OsStr;

use clap::{
    Arg, Command, Error,
    builder::{PossibleValue, TypedValueParser},
};
use enforcer_core::finding::Rule;

/// Takes a code, and also the id of a finding, which begins with one.
#[derive(Debug, Clone, Copy)]
pub struct RuleParser;

impl TypedValueParser for RuleParser {
    type Value = Rule;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Rule, Error> {
        (|text: &str| text.parse::<Rule>()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Rule::ALL.iter().map(|rule| PossibleValue::new(rule.code()))))
    }
}
