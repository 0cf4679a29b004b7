//! What is wrong, how we know, what it costs, what to do: by workload, worst first.
//!
//! The first [`FULL`] workloads have everything; those beyond have a row with their rules, because nobody reads more, and a page of
//! thousands would be too large to open. `audit -o json` has all of it.
//!
//! A command is there to be copied: it is shown whole or not at all, never cut.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::Audit,
    finding::{Finding, Severity},
};
use maud::{Markup, html};

use super::{name, rules, scrolling, sentence};
use crate::report::{
    grouped::{Group, by_object},
    text, units, words,
};

/// Workloads whose findings are spelled out.
const FULL: usize = 200;
/// Evidence of one workload that is listed.
const EVIDENCE: usize = 12;
/// Columns of a command.
const COMMAND: usize = 1500;

/// Id of the findings of the workload in that place of the audit.
pub(super) fn anchor(workload: usize) -> String {
    format!("f{workload}")
}

pub(super) fn findings(audit: &Audit) -> Markup {
    if audit.findings.is_empty() {
        return html! { p { "No findings." } };
    }
    let owners = workloads_by_finding(audit);
    let groups = by_object(&audit.findings);
    let (full, short) = groups.split_at(groups.len().min(FULL));
    let of = |group: &Group<'_>| group.findings.iter().find_map(|one| owners.get(one.id.as_str()).copied());
    html! {
        p { (count(audit)) }
        @for group in full { (spelled_out(group, of(group))) }
        @if !short.is_empty() {
            (scrolling("More findings", &html! {
                table {
                    caption { (units::count(short.len(), "more workload")) " with findings; audit -o json has all of each" }
                    thead { tr { th scope="col" { "Workload" } th scope="col" { "Findings" } } }
                    tbody { @for group in short { (in_a_row(group, of(group))) } }
                }
            }))
        }
    }
}

/// `3 findings: 1 critical, 2 warning`.
fn count(audit: &Audit) -> String {
    let of = |severity| audit.findings.iter().filter(|finding| finding.severity == severity).count();
    let counts =
        [Severity::Critical, Severity::Warning, Severity::Info].map(|severity| (of(severity), severity));
    let counts = counts.iter().filter(|(number, _)| *number > 0);
    let counts: Vec<String> =
        counts.map(|(number, severity)| format!("{number} {}", words::severity(*severity))).collect();
    format!("{}: {}", units::count(audit.findings.len(), "finding"), counts.join(", "))
}

/// The place of the workload that each finding is about.
fn workloads_by_finding(audit: &Audit) -> BTreeMap<&str, usize> {
    let mut places = BTreeMap::new();
    for (place, workload) in audit.workloads.iter().enumerate() {
        for id in &workload.findings {
            places.entry(id.as_str()).or_insert(place);
        }
    }
    places
}

/// The workload's name, with a link to its row where it has one.
fn title(group: &Group<'_>, workload: Option<usize>) -> Markup {
    html! {
        @match workload {
            Some(place) => { a href={ "#w" (place) } { (sentence(group.object)) } }
            None => { (sentence(group.object)) }
        }
    }
}

fn spelled_out(group: &Group<'_>, workload: Option<usize>) -> Markup {
    let evidence = group.evidence();
    let listed = &evidence[..evidence.len().min(EVIDENCE)];
    html! {
        article id=[workload.map(anchor)] class=[group.findings.first().map(|one| words::severity(one.severity))] {
            h3 { (title(group, workload)) }
            ul { @for finding in &group.findings { (one(finding)) } }
            dl {
                @if !listed.is_empty() { dt { "Evidence" } }
                @for one in listed { dd { code { (sentence(&one.source)) } ": " (sentence(&one.value)) } }
                @if evidence.len() > listed.len() { dd { "and " (evidence.len() - listed.len()) " more" } }
                dt { "Remedy" }
                @for remedy in group.remedies() { dd { (command(remedy)) } }
            }
        }
    }
}

fn one(finding: &Finding) -> Markup {
    html! {
        li {
            (severity(finding.severity)) " "
            a href={ "#" (rules::anchor(finding.rule)) } { (finding.rule.code()) } ": "
            (sentence(&finding.summary))
            @if !finding.impact.is_empty() { "; " (sentence(&finding.impact)) }
        }
    }
}

fn severity(severity: Severity) -> Markup {
    let word = words::severity(severity);
    html! { strong class={ "v " (word) } { (word) } }
}

fn command(command: &str) -> Markup {
    let whole = text::escape(command);
    html! {
        @if text::width(&whole) > COMMAND { "too long to show; audit -o json has it" }
        @else { code.command { (whole.as_ref()) } }
    }
}

fn in_a_row(group: &Group<'_>, workload: Option<usize>) -> Markup {
    let rules: Vec<String> = group
        .findings
        .iter()
        .map(|finding| format!("{} ({})", finding.rule.code(), words::severity(finding.severity)))
        .collect();
    html! {
        tr id=[workload.map(anchor)] {
            th scope="row" {
                @match workload {
                    Some(place) => { a href={ "#w" (place) } { (name(group.object)) } }
                    None => { (name(group.object)) }
                }
            }
            td { (sentence(&rules.join(", "))) }
        }
    }
}
