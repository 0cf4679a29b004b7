//! Selectors of devices: the part of CEL that classes and claims use.
//!
//! Problem: the API selects devices by expressions, and a whole CEL would be larger than everything else of a
//! plan. Idea: a parser and an evaluator of the subset that selectors use: attributes and capacities of the
//! device, comparisons, `in`, `has()`, optional fields, `cel.bind`, quantities, semantic versions and the
//! plain functions of texts. Anything else is [`NotUnderstood`], and a plan says so.
//!
//! Invariants: as in Kubernetes, an unknown field is an error and not false, an unknown domain is an empty
//! map, `&&` and `||` pass over an error that does not decide, and values of two types are unequal. Text,
//! nesting and steps are bounded: no expression costs more than [`STEPS`].

mod eval;
mod lexer;
mod parser;
#[cfg(test)]
mod tests;
mod value;

use thiserror::Error;

use super::objects::Device;

/// Longest expression (`CELSelectorExpressionMaxLength` of resource/v1/types.go).
pub(super) const MAX_LENGTH: usize = 10 << 10;
/// Most steps of one evaluation.
const STEPS: u32 = 100_000;
/// Deepest nesting, and most operators and fields in a row that nest.
const NESTING: usize = 20;
const CHAIN: usize = 16;

/// A selector.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Selector {
    text: String,
    root: parser::Node,
}

/// An expression outside the subset, or no expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not understood: {text} ({problem})")]
pub(super) struct NotUnderstood {
    /// The expression, shortened.
    text: String,
    problem: String,
}

/// Why a selector has no answer for a device; the scheduler gives the pod up then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub(super) struct EvalError(String);

impl Selector {
    /// The selector of an expression.
    pub(super) fn parse(text: &str) -> Result<Self, NotUnderstood> {
        let not_understood = |problem: String| NotUnderstood { text: super::shown(text.trim()), problem };
        if text.len() > MAX_LENGTH {
            return Err(not_understood(format!("longer than {MAX_LENGTH} bytes")));
        }
        let tokens = lexer::tokens(text).map_err(not_understood)?;
        let root = parser::parse(&tokens).map_err(not_understood)?;
        Ok(Self { text: text.trim().to_owned(), root })
    }

    /// Its expression.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Does it hold for a device of this driver?
    pub(super) fn holds(&self, driver: &str, device: &Device) -> Result<bool, EvalError> {
        eval::holds(&self.root, driver, device)
    }
}
