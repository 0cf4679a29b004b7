//! Every workload, in groups by the node of its CPUs, worst first in each.
//!
//! One table with a body per group, so that it reads in order without a script; with it, it can be sorted
//! over all groups and filtered. Columns that hold sizes or shares carry the exact number for that, because
//! the text is rounded.
//!
//! Thousands of rows have to stay light: a row is its cells, a link and nothing more (a test counts), and on
//! a screen `page.css` lays rows out as boxes of their own, so that a browser skips those that are out of
//! sight. That takes the meaning of a table from them in some browsers; the roles give it back.

use std::{collections::BTreeMap, fmt};

use enforcer_core::{
    audit::{Audit, AuditVerdict, AuditedWorkload},
    model::TrafficSource,
    named::Named as _,
};
use maud::{Markup, html};
use numa_topology::{Locality, id::NodeId};

use super::{
    parts::{called, tall},
    residency::{self, WorkloadMemory},
};
use crate::{
    text, units,
    view::{
        verdicts::{VerdictCounts, rank},
        words,
        workload::{WorkloadRow, worst_first},
    },
};

/// Columns of a path in a tooltip.
const PATH: usize = 120;

/// Titles, and how the script sorts by them.
const COLUMNS: [(&str, &str); 9] = [
    ("Workload", "text"),
    ("Verdict", "number"),
    ("Kind", "text"),
    ("Owner", "text"),
    ("CPUs", "text"),
    ("Nodes", "text"),
    ("Memory by node", "number"),
    ("Remote residency", "number"),
    ("Remote traffic", "number"),
];

/// Column of a workload's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Home {
    One(NodeId),
    Several,
    Unknown,
}

impl Home {
    fn of(workload: &AuditedWorkload) -> Self {
        match workload.numa_nodes.first() {
            Some(node) if workload.numa_nodes.len() == 1 => Self::One(node),
            Some(_) => Self::Several,
            None => Self::Unknown,
        }
    }
}

impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(node) => write!(f, "node {node}"),
            Self::Several => f.write_str("several nodes"),
            Self::Unknown => f.write_str("node unknown"),
        }
    }
}

pub(super) fn table(audit: &Audit) -> Markup {
    if audit.workloads.is_empty() {
        return html! { p { "No workload to show." } };
    }
    let locality = Locality::new(&audit.topology);
    let mut groups: BTreeMap<Home, Vec<WorkloadRow<'_>>> = BTreeMap::new();
    for row in worst_first(&audit.workloads) {
        groups.entry(Home::of(row.workload)).or_default().push(row);
    }
    html! {
        p { "Residency is where the memory is, traffic is what is accessed." }
        (residency::legend())
        (controls())
        (tall("Workloads", &html! {
            table id="workloads" role="table" {
                caption role="caption" { "Workloads by the node of their CPUs, worst first" }
                thead role="rowgroup" { tr role="row" {
                    @for (title, sorts) in COLUMNS {
                        th scope="col" role="columnheader" data-sorts=(sorts) { (title) }
                    }
                } }
                @for (home, rows) in &groups {
                    tbody role="rowgroup" {
                        tr.group role="row" {
                            th scope="rowgroup" role="rowheader" colspan=(COLUMNS.len()) {
                                (heading(*home, rows, &locality))
                            }
                        }
                        @for one in rows { (row(one, &locality)) }
                    }
                }
            }
        }))
    }
}

/// Hidden until the script shows that it runs.
fn controls() -> Markup {
    let verdicts =
        [AuditVerdict::Misaligned, AuditVerdict::Partial, AuditVerdict::Unknown, AuditVerdict::Aligned]
            .map(|verdict| verdict.name());
    html! {
        div id="controls" role="search" aria-label="Workloads" hidden {
            label for="filter" { "Filter by name " }
            input id="filter" type="search" autocomplete="off" spellcheck="false" aria-controls="workloads";
            label for="verdict" { " verdict " }
            select id="verdict" aria-controls="workloads" {
                option value="" { "any" }
                @for verdict in verdicts { option value=(verdict) { (verdict) } }
            }
            button id="regroup" type="button" { "Group by node" }
            p id="shown" role="status" {}
        }
    }
}

/// `node 1: 12 workloads, 1 misaligned, 11 aligned; 38 GiB`.
fn heading(home: Home, rows: &[WorkloadRow<'_>], locality: &Locality) -> String {
    let counts: VerdictCounts = rows.iter().map(|row| row.workload.verdict).collect();
    let memory = rows.iter().filter_map(|row| WorkloadMemory::of(row.workload, locality));
    let bytes = memory.map(|memory| memory.total()).fold(0, u64::saturating_add);
    let total = units::count(rows.len(), "workload");
    format!("{home}: {total}, {counts}; {}", units::bytes(bytes))
}

fn row(row: &WorkloadRow<'_>, locality: &Locality) -> Markup {
    let WorkloadRow { place, workload, .. } = row;
    let verdict = workload.verdict.name();
    let path = text::fit(workload.cgroup.as_str(), PATH);
    let share = |share: Option<f64>| share.map(|share| format!("{share:.4}"));
    let memory = WorkloadMemory::of(workload, locality);
    html! {
        tr role="row" id={ "w" (place) } data-verdict=(verdict) {
            th scope="row" role="rowheader" title=(path) { (called(row)) }
            td role="cell" data-n=(rank(workload.verdict)) {
                (verdict)
                @if !workload.findings.is_empty() {
                    ", " a href={ "#" (super::findings::anchor(*place)) } {
                        (units::count(workload.findings.len(), "finding"))
                    }
                }
            }
            td role="cell" { (words::origin(&workload.origin)) }
            td role="cell" { (row.owner().name()) }
            td role="cell" { (row.cpus(24)) }
            td role="cell" { (row.nodes(16)) }
            td role="cell" class=[memory.as_ref().and_then(WorkloadMemory::bar)] data-n=[memory.as_ref().map(WorkloadMemory::total)] {
                (units::known(memory, |memory| memory.in_words()))
            }
            td role="cell" data-n=[share(workload.remote_residency)] {
                (row.remote_residency())
            }
            td role="cell" data-n=[share(row.remote_ratio())] {
                (units::measured(row.remote_ratio()))
                @if let Some(traffic) = &workload.traffic { " " (source(traffic.source)) }
            }
        }
    }
}

/// Source of a figure, in a word.
const fn source(source: TrafficSource) -> &'static str {
    match source {
        TrafficSource::Placement => "estimated",
        TrafficSource::HintFaults => "by faults",
        TrafficSource::Hardware => "measured",
    }
}
