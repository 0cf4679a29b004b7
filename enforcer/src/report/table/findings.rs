//! The findings of the audit: what is wrong, how we know, what it costs, what to do.

use enforcer_core::finding::{Finding, Severity};

use super::heading;
use crate::report::{
    style::{Style, Tone},
    text,
};

/// As wide as the labels before evidence, impact and remedy.
const LABEL: &str = "              ";

pub(super) fn render(out: &mut String, findings: &[Finding], style: Style) {
    if findings.is_empty() {
        return;
    }
    heading(out, style, "Findings");
    for finding in findings {
        one(out, finding, style);
    }
}

fn one(out: &mut String, finding: &Finding, style: Style) {
    // Colour goes in last: it has no width.
    let word = severity(finding.severity);
    let mut head = String::new();
    text::wrap(&mut head, &finding.id, style.width, &format!("  {word:<12}"), LABEL);
    out.push_str(&head.replacen(word, &style.paint(Tone::from(finding.severity), word).to_string(), 1));
    text::wrap(out, &finding.summary, style.width, LABEL, LABEL);
    for evidence in &finding.evidence {
        labelled(out, "evidence", &format!("{}: {}", evidence.source, evidence.value), style.width);
    }
    labelled(out, "impact", &finding.impact, style.width);
    // A command is there to be copied: the terminal may wrap it, we must not.
    labelled(out, "remedy", &finding.remedy, usize::MAX);
}

fn labelled(out: &mut String, label: &str, value: &str, width: usize) {
    if !value.is_empty() {
        text::wrap(out, value, width, &format!("    {label:<10}"), LABEL);
    }
}

pub(super) const fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}
