//! Explanations of the broken rules; each finding links here.

use std::collections::BTreeSet;

use enforcer_core::{audit::Audit, finding::Rule};
use maud::{Markup, html};

/// Id of a rule's words.
pub(super) fn anchor(rule: Rule) -> String {
    format!("rule-{}", rule.code())
}

pub(super) fn rules(audit: &Audit) -> Markup {
    let broken: BTreeSet<Rule> = audit.findings.iter().map(|finding| finding.rule).collect();
    html! {
        @if broken.is_empty() { p { "None is broken." } }
        @for rule in broken {
            @let words = rule.words();
            article id=(anchor(rule)) {
                h3 { (rule.code()) }
                p { strong { (words.title) } }
                p { (words.when) }
                p { (words.why) }
                p { (words.remedy) }
            }
        }
    }
}
