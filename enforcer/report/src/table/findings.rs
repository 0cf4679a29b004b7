//! The findings of the audit, with evidence, impact and remedy.
//!
//! One workload often breaks several rules for the same reason, and one command fixes all of them. So
//! findings are grouped by workload: each has its line and impact, and the group has the evidence and the
//! remedy once.

use enforcer_core::finding::Finding;

use super::heading;
use crate::{
    grouped::{FindingGroup, by_object},
    style::{Style, Tone},
    text, words,
};

/// As wide as the labels before evidence, impact and remedy.
const LABEL: &str = "              ";

pub(super) fn render(out: &mut String, findings: &[Finding], style: Style) {
    if findings.is_empty() {
        return;
    }
    heading(out, style, "Findings");
    for group in by_object(findings) {
        text::wrap(out, group.object, style.width, "  ", "      ");
        for finding in &group.findings {
            one(out, finding, style);
        }
        shared(out, &group, style);
    }
}

fn one(out: &mut String, finding: &Finding, style: Style) {
    // Colour goes in last: it has no width.
    let word = words::severity(finding.severity);
    let mut head = String::new();
    let sentence = format!("{}: {}", finding.rule, finding.summary);
    text::wrap(&mut head, &sentence, style.width, &format!("    {word:<10}"), LABEL);
    out.push_str(&head.replacen(word, &style.paint(Tone::from(finding.severity), word).to_string(), 1));
    labelled(out, "impact", &finding.impact, style.width);
}

/// Evidence and remedies, each once.
fn shared(out: &mut String, group: &FindingGroup<'_>, style: Style) {
    for evidence in group.evidence() {
        labelled(out, "evidence", &format!("{}: {}", evidence.source, evidence.value), style.width);
    }
    for remedy in group.remedies() {
        // A command is there to be copied: the terminal may wrap it, we must not.
        labelled(out, "remedy", remedy, usize::MAX);
    }
    for obstacle in group.obstacles() {
        labelled(out, "obstacle", &format!("no remedy: {obstacle}"), style.width);
    }
}

fn labelled(out: &mut String, label: &str, value: &str, width: usize) {
    if !value.is_empty() {
        text::wrap(out, value, width, &format!("    {label:<10}"), LABEL);
    }
}
