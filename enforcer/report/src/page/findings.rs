//! Findings with evidence, impact and remedy: by workload, worst first.
//!
//! The first [`FULL`] workloads are shown in full. Each further one has a row with its rules, because a page
//! with thousands would be too large to open. `audit -o json` has all of it.
//!
//! A command is there to be copied: it is shown whole or not at all, never cut.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::Audit,
    finding::{Finding, Severity},
    named::Named as _,
};
use maud::{Markup, html};

use super::{
    parts::{called, scrolling, sentence},
    rules,
};
use crate::{
    text, units,
    view::{
        groups::{FindingGroup, by_object},
        workload::{WorkloadRow, rows},
    },
};

/// Workloads shown with full findings.
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
    let rows = rows(&audit.workloads);
    let mut by_finding: BTreeMap<&str, &WorkloadRow<'_>> = BTreeMap::new();
    for row in &rows {
        for id in &row.workload.findings {
            by_finding.entry(id).or_insert(row);
        }
    }
    let groups = by_object(&audit.findings);
    let (full, short) = groups.split_at(groups.len().min(FULL));
    let of = |group: &FindingGroup<'_>| {
        group.findings.iter().find_map(|one| by_finding.get(one.id.as_str()).copied())
    };
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
        counts.map(|(number, severity)| format!("{number} {}", severity.name())).collect();
    format!("{}: {}", units::count(audit.findings.len(), "finding"), counts.join(", "))
}

/// The workload's name with a link to its row, where it has one; else what the findings are about.
fn title(group: &FindingGroup<'_>, workload: Option<&WorkloadRow<'_>>) -> Markup {
    html! {
        @match workload {
            Some(row) => { a href={ "#w" (row.place) } { (called(row)) } }
            None => { (sentence(group.object)) }
        }
    }
}

/// Files of the group's own cgroup are shown by name; the path is above them.
fn source<'a>(group: &FindingGroup<'_>, source: &'a str) -> &'a str {
    let file = source.strip_prefix("/sys/fs/cgroup").and_then(|path| path.strip_prefix(group.cgroup()));
    file.and_then(|file| file.strip_prefix('/')).filter(|file| !file.contains('/')).unwrap_or(source)
}

fn spelled_out(group: &FindingGroup<'_>, workload: Option<&WorkloadRow<'_>>) -> Markup {
    let evidence = group.evidence();
    let listed = &evidence[..evidence.len().min(EVIDENCE)];
    html! {
        article id=[workload.map(|row| anchor(row.place))] class=[group.findings.first().map(|one| one.severity.name())] {
            h3 { (title(group, workload)) }
            @if workload.is_some() { p { code { (sentence(group.object)) } } }
            ul { @for finding in &group.findings { (one(finding)) } }
            dl {
                @if !listed.is_empty() { dt { "Evidence" } }
                @for one in listed { dd { code { (sentence(source(group, &one.source))) } ": " (sentence(&one.value)) } }
                @if evidence.len() > listed.len() { dd { "and " (evidence.len() - listed.len()) " more" } }
                @if !group.remedies().is_empty() { dt { "Remedy" } }
                @for remedy in group.remedies() { dd { (command(remedy)) } }
                @if !group.obstacles().is_empty() { dt { "No remedy" } }
                @for obstacle in group.obstacles() { dd { (sentence(obstacle)) } }
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
    let word = severity.name();
    html! { strong class={ "v " (word) } { (word) } }
}

fn command(command: &str) -> Markup {
    let whole = text::escape(command);
    html! {
        @if text::width(&whole) > COMMAND { "too long to show; audit -o json has it" }
        @else { code.command { (whole.as_ref()) } }
    }
}

fn in_a_row(group: &FindingGroup<'_>, workload: Option<&WorkloadRow<'_>>) -> Markup {
    let rules: Vec<String> = group
        .findings
        .iter()
        .map(|finding| format!("{} ({})", finding.rule.code(), finding.severity.name()))
        .collect();
    html! {
        tr id=[workload.map(|row| anchor(row.place))] {
            th scope="row" {
                (title(group, workload))
            }
            td { (sentence(&rules.join(", "))) }
        }
    }
}
