//! Residency and traffic of workloads, each by its label.
//!
//! Any user that creates cgroups adds series, so their number is bounded, and the worst workloads come first.

use std::{cmp::Reverse, collections::BTreeSet};

use enforcer_core::{
    audit::{Audit, AuditVerdict, AuditedWorkload},
    named::Named as _,
    workload::Origin,
};

use super::{
    family::{CounterScope, Family, FamilyOf, Scrape},
    identity, kernel_side,
    label::Labels,
    number::{count, to_f64},
    values,
};
use crate::{
    tick::TickReport,
    view::{verdicts::rank, workload::bytes as bytes_of},
};

/// Workloads with series of their own.
pub const MAX_WORKLOADS: usize = 1_000;

/// Series of counters of single workloads; those of the worst workloads come first.
pub(super) const MAX_COUNTERS: usize = 10_000;

const WORKLOAD_MEMORY: FamilyOf<2> = Family::gauge(
    "workload_memory_bytes",
    ["workload", "numa_node"],
    "Memory of the workload on the NUMA node; nothing of nodes on which it has none.",
);
const REMOTE_RESIDENCY: FamilyOf<1> = Family::gauge(
    "workload_remote_residency_ratio",
    ["workload"],
    "Share of the workload's memory on other NUMA nodes than its CPUs, 0 to 1.",
);
const REMOTE_TRAFFIC: FamilyOf<2> = Family::gauge(
    "workload_remote_traffic_ratio",
    ["workload", "source"],
    "Share of the workload's memory accesses that go to another NUMA node, 0 to 1.",
)
.of(&[values::TRAFFIC_SOURCE]);
const TRAFFIC_SAMPLES: FamilyOf<2> = Family::gauge(
    "workload_remote_traffic_samples",
    ["workload", "source"],
    "Observations behind the remote traffic ratio: clock ticks, faulted pages or hardware samples.",
)
.of(&[values::TRAFFIC_SOURCE]);
const ALIGNED: FamilyOf<1> = Family::gauge(
    "workload_aligned",
    ["workload"],
    "The verdict on the workload: 1 aligned, 0 partial or misaligned; nothing while it is unknown.",
);
const OMITTED: FamilyOf<0> = Family::gauge(
    "workloads_omitted",
    [],
    "Workloads without series of their own: lone processes, and those above the limit.",
);
pub(super) const COUNTERS_OMITTED: FamilyOf<0> = Family::gauge(
    "workload_counters_omitted",
    [],
    "Workloads without per-workload counters, because the limit of such series is reached.",
);

/// Metrics of this file that a single audit has.
pub(super) const ALL: &[&Family] =
    &[&WORKLOAD_MEMORY, &REMOTE_RESIDENCY, &REMOTE_TRAFFIC, &TRAFFIC_SAMPLES, &ALIGNED, &OMITTED];

/// Series of a turn; counters of each workload only where configured.
pub(super) fn put(report: &TickReport, labels: &Labels<'_>, counters: bool, scrape: &mut Scrape) {
    let shown = shown_of(&report.audit, scrape);
    for workload in &shown {
        let label = labels.of(&workload.cgroup);
        seen(&label, workload, scrape);
        identity::put(&label, workload, report, scrape);
    }
    if !counters {
        return;
    }
    let mut omitted = 0;
    for workload in shown {
        let Some(counters) = report.counters.get(&workload.cgroup) else { continue };
        if scrape.counters_of_workloads() < MAX_COUNTERS {
            kernel_side::counted(CounterScope::One(&labels.of(&workload.cgroup)), counters, scrape);
        } else {
            omitted += 1;
        }
    }
    scrape.put(&COUNTERS_OMITTED, &[], Some(count(omitted)));
}

/// Series of a single audit.
pub(super) fn of_one_look(audit: &Audit, scrape: &mut Scrape) {
    let labels = Labels::new(&audit.workloads);
    for workload in shown_of(audit, scrape) {
        let label = labels.of(&workload.cgroup);
        seen(&label, workload, scrape);
        identity::of_one_look(&label, workload, scrape);
    }
}

fn shown_of<'a>(audit: &'a Audit, scrape: &mut Scrape) -> Vec<&'a AuditedWorkload> {
    let (shown, omitted) = shown(&audit.workloads);
    scrape.put(&OMITTED, &[], Some(count(omitted)));
    shown
}

/// Series of one workload of an audit.
fn seen(label: &str, workload: &AuditedWorkload, scrape: &mut Scrape) {
    for (node, bytes) in workload.bytes_by_numa.iter().flatten() {
        let total = bytes_of(bytes);
        // On a machine of 64 nodes these would be most of an answer.
        let total = Some(total).filter(|total| *total > 0);
        scrape.put(&WORKLOAD_MEMORY, &[label, &node.to_string()], total.map(to_f64));
    }
    scrape.put(&REMOTE_RESIDENCY, &[label], workload.remote_residency);
    if let Some(traffic) = &workload.traffic {
        let source = traffic.source.name();
        scrape.put(&REMOTE_TRAFFIC, &[label, source], Some(traffic.remote_ratio));
        scrape.put(&TRAFFIC_SAMPLES, &[label, source], Some(to_f64(traffic.samples)));
    }
    let aligned = match workload.verdict {
        AuditVerdict::Aligned => Some(1.0),
        AuditVerdict::Partial | AuditVerdict::Misaligned => Some(0.0),
        AuditVerdict::Unknown => None,
    };
    scrape.put(&ALIGNED, &[label], aligned);
}

/// The workloads with series, worst first, and how many have none. No two are in one cgroup.
fn shown(workloads: &[AuditedWorkload]) -> (Vec<&AuditedWorkload>, usize) {
    let mut cgroups = BTreeSet::new();
    let mut shown: Vec<_> = workloads
        .iter()
        .filter(|workload| !matches!(workload.origin, Origin::Process { .. }))
        .filter(|workload| cgroups.insert(&workload.cgroup))
        .collect();
    shown.sort_by_key(|workload| Reverse(rank(workload.verdict)));
    shown.truncate(MAX_WORKLOADS);
    let omitted = workloads.len() - shown.len();
    (shown, omitted)
}
