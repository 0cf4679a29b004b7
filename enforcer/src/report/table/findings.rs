//! The findings of the audit: what is wrong, how we know, what it costs, what to do.
//!
//! One workload often breaks several rules for the same reason, and one command mends all of it. So
//! the findings are grouped by what they are about; each has its line and its cost, and what proves
//! and mends them is said once.

use std::collections::BTreeMap;

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
    for (object, findings) in by_object(findings) {
        text::wrap(out, object, style.width, "  ", "      ");
        for finding in &findings {
            one(out, finding, style);
        }
        shared(out, &findings, style);
    }
}

/// Groups in the order of their first finding, which is their worst.
fn by_object(findings: &[Finding]) -> Vec<(&str, Vec<&Finding>)> {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut groups: Vec<(&str, Vec<&Finding>)> = Vec::new();
    for finding in findings {
        let object = finding.id.split_once(':').map_or(finding.object.as_str(), |(_, object)| object);
        let place = *places.entry(object).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, group)) => group.push(finding),
            None => groups.push((object, vec![finding])),
        }
    }
    groups
}

fn one(out: &mut String, finding: &Finding, style: Style) {
    // Colour goes in last: it has no width.
    let word = severity(finding.severity);
    let mut head = String::new();
    let sentence = format!("{}: {}", finding.rule, finding.summary);
    text::wrap(&mut head, &sentence, style.width, &format!("    {word:<10}"), LABEL);
    out.push_str(&head.replacen(word, &style.paint(Tone::from(finding.severity), word).to_string(), 1));
    labelled(out, "impact", &finding.impact, style.width);
}

/// Evidence and remedies, each once.
fn shared(out: &mut String, findings: &[&Finding], style: Style) {
    let mut said: Vec<String> = Vec::new();
    for evidence in findings.iter().flat_map(|finding| &finding.evidence) {
        let line = format!("{}: {}", evidence.source, evidence.value);
        if !said.contains(&line) {
            labelled(out, "evidence", &line, style.width);
            said.push(line);
        }
    }
    for finding in findings {
        if !said.contains(&finding.remedy) {
            // A command is there to be copied: the terminal may wrap it, we must not.
            labelled(out, "remedy", &finding.remedy, usize::MAX);
            said.push(finding.remedy.clone());
        }
    }
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
