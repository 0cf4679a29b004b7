//! The findings of the audit, with evidence, impact and remedy.
//!
//! They are grouped by workload: each has its line and impact, and the group has the evidence and the remedy
//! once.

use enforcer_core::{finding::Finding, named::Named as _};

use crate::{
    style::{Style, Tone},
    text,
    view::groups::{FindingGroup, by_object},
};

pub(super) fn render(out: &mut String, findings: &[Finding], style: Style) {
    if findings.is_empty() {
        return;
    }
    style.heading(out, "Findings");
    groups(out, findings, style);
}

pub(super) fn groups(out: &mut String, findings: &[Finding], style: Style) {
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
    let word = finding.severity.name();
    let mut head = String::new();
    let sentence = format!("{}: {}", finding.rule, finding.summary);
    text::hang(&mut head, &format!("    {word:<10}"), &sentence, style.width);
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
        text::hang(out, &format!("    {label:<10}"), value, width);
    }
}
