//! Which metrics there are, and what of a report becomes which series.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    audit::{AuditedWorkload, Verdict},
    finding::Severity,
    model::TrafficSource,
    policy::Mode,
    workload::Origin,
};
use prometheus::proto::MetricFamily;

use super::{
    family::{Family, Scrape},
    kernel_side,
};
use crate::report::tick::TickReport;

/// Workloads with series of their own.
pub const MAX_WORKLOADS: usize = 1_000;

const NODE_MEMORY_TOTAL: Family =
    Family::gauge("numa_node_memory_total_bytes", &["numa_node"], "Memory of the NUMA node.");
const NODE_MEMORY_FREE: Family =
    Family::gauge("numa_node_memory_free_bytes", &["numa_node"], "Free memory of the NUMA node.");
const DISTANCE: Family = Family::gauge(
    "numa_distance",
    &["src_numa", "dst_numa"],
    "Distance between NUMA nodes as the firmware tells it; 10 is local.",
);
const WORKLOAD_MEMORY: Family = Family::gauge(
    "workload_memory_bytes",
    &["workload", "cgroup", "numa_node"],
    "Memory of the workload on the NUMA node.",
);
const REMOTE_RESIDENCY: Family = Family::gauge(
    "workload_remote_residency_ratio",
    &["workload", "cgroup"],
    "Share of the workload's memory on other NUMA nodes than its CPUs, 0 to 1.",
);
const REMOTE_TRAFFIC: Family = Family::gauge(
    "workload_remote_traffic_ratio",
    &["workload", "cgroup", "source"],
    "Share of the workload's memory accesses that go to another NUMA node, 0 to 1.",
);
const TRAFFIC_SAMPLES: Family = Family::gauge(
    "workload_remote_traffic_samples",
    &["workload", "cgroup", "source"],
    "Observations behind the remote traffic ratio: clock ticks, faulted pages or hardware samples.",
);
const ALIGNED: Family = Family::gauge(
    "workload_aligned",
    &["workload", "cgroup"],
    "1 when the workload's CPUs and memory are on the same NUMA nodes.",
);
const OMITTED: Family = Family::gauge(
    "workloads_omitted",
    &[],
    "Workloads without series of their own: lone processes, and those above the limit.",
);
const REFUSED: Family =
    Family::gauge("workloads_refused", &[], "Declared workloads that are left where they are.");
const FINDINGS: Family = Family::gauge("findings", &["severity"], "Findings of the latest turn.");
const DEGRADED: Family = Family::gauge("degraded", &["feature"], "Sources that are missing.");
const EVENTS: Family = Family::counter(
    "kernel_events_total",
    &["result"],
    "Tasks that came to a wrong NUMA node: told one by one, or why not. The counters have all of them.",
);
const BUILD_INFO: Family = Family::gauge("build_info", &["version"], "Version of numa-enforcer.");
const ENFORCING: Family = Family::gauge("enforcing", &[], "1 when the daemon may write.");
const ACTIONS: Family = Family::counter("actions_total", &["action", "result"], "Steps of plans by result.");
const TICKS: Family = Family::counter("ticks_total", &[], "Turns that were completed.");
const TICK_ERRORS: Family = Family::counter("tick_errors_total", &[], "Turns that failed.");
const TICK_DURATION: Family =
    Family::gauge("tick_duration_seconds", &[], "Duration of the latest completed turn.");
const CONFIG_GOOD: Family =
    Family::gauge("config_last_reload_successful", &[], "1 when the configuration was good.");

/// Every metric of this file.
const OWN: [&Family; 20] = [
    &NODE_MEMORY_TOTAL,
    &NODE_MEMORY_FREE,
    &DISTANCE,
    &WORKLOAD_MEMORY,
    &REMOTE_RESIDENCY,
    &REMOTE_TRAFFIC,
    &TRAFFIC_SAMPLES,
    &ALIGNED,
    &OMITTED,
    &REFUSED,
    &FINDINGS,
    &DEGRADED,
    &EVENTS,
    &BUILD_INFO,
    &ENFORCING,
    &ACTIONS,
    &TICKS,
    &TICK_ERRORS,
    &TICK_DURATION,
    &CONFIG_GOOD,
];

/// Every metric there is.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    OWN.into_iter().chain(kernel_side::ALL)
}

/// The report's values.
pub(super) fn collect(report: &TickReport) -> Vec<MetricFamily> {
    let mut scrape = Scrape::default();
    machine(report, &mut scrape);
    workloads(report, &mut scrape);
    decisions(report, &mut scrape);
    daemon(report, &mut scrape);
    kernel_side::state(report.kernel_side.as_ref(), &mut scrape);
    scrape.into_families()
}

fn machine(report: &TickReport, scrape: &mut Scrape) {
    for (node, sample) in &report.nodes {
        let node = node.to_string();
        scrape.put(&NODE_MEMORY_TOTAL, &[&node], sample.mem_total_bytes.map(to_f64));
        scrape.put(&NODE_MEMORY_FREE, &[&node], sample.mem_free_bytes.map(to_f64));
    }
    let machine = &report.audit.topology;
    for from in &machine.nodes {
        for to in &machine.nodes {
            let labels = [from.id.to_string(), to.id.to_string()];
            scrape.put(&DISTANCE, &[&labels[0], &labels[1]], machine.distance(from.id, to.id).map(f64::from));
        }
    }
}

fn workloads(report: &TickReport, scrape: &mut Scrape) {
    let (shown, omitted) = shown(&report.audit.workloads);
    scrape.put(&OMITTED, &[], Some(count(omitted)));
    for workload in shown {
        let (name, cgroup) = (workload.name.as_str(), workload.cgroup.as_str());
        for (node, bytes) in workload.bytes_by_numa.iter().flatten() {
            let total = bytes.anon.saturating_add(bytes.file).saturating_add(bytes.kernel.unwrap_or(0));
            scrape.put(&WORKLOAD_MEMORY, &[name, cgroup, &node.to_string()], Some(to_f64(total)));
        }
        scrape.put(&REMOTE_RESIDENCY, &[name, cgroup], workload.remote_residency);
        if let Some(traffic) = &workload.traffic {
            let source = source_name(traffic.source);
            scrape.put(&REMOTE_TRAFFIC, &[name, cgroup, source], Some(traffic.remote_ratio));
            scrape.put(&TRAFFIC_SAMPLES, &[name, cgroup, source], Some(to_f64(traffic.samples)));
        }
        if let Some(counters) = report.counters.get(&workload.cgroup) {
            kernel_side::workload([name, cgroup], counters, scrape);
        }
        let aligned = match workload.verdict {
            Verdict::Aligned => Some(1.0),
            Verdict::Partial | Verdict::Misaligned => Some(0.0),
            Verdict::Unknown => None,
        };
        scrape.put(&ALIGNED, &[name, cgroup], aligned);
    }
}

/// The workloads with series, worst first, and how many have none. No two have the same labels.
fn shown(workloads: &[AuditedWorkload]) -> (Vec<&AuditedWorkload>, usize) {
    let mut names = BTreeSet::new();
    let mut shown: Vec<_> = workloads
        .iter()
        .filter(|workload| !matches!(workload.origin, Origin::Process { .. }))
        .filter(|workload| names.insert((&workload.cgroup, &workload.name)))
        .collect();
    let badness = |workload: &AuditedWorkload| match workload.verdict {
        Verdict::Misaligned => 0,
        Verdict::Partial => 1,
        Verdict::Aligned => 2,
        Verdict::Unknown => 3,
    };
    shown.sort_by_key(|workload| badness(workload));
    shown.truncate(MAX_WORKLOADS);
    let omitted = workloads.len() - shown.len();
    (shown, omitted)
}

fn decisions(report: &TickReport, scrape: &mut Scrape) {
    for (severity, name) in
        [(Severity::Info, "info"), (Severity::Warning, "warning"), (Severity::Critical, "critical")]
    {
        let findings = report.audit.findings.iter().filter(|finding| finding.severity == severity);
        scrape.put(&FINDINGS, &[name], Some(count(findings.count())));
    }
    scrape.put(&REFUSED, &[], Some(count(report.decision.refused.len())));
    for (action, results) in &report.totals.actions {
        for (result, steps) in results {
            scrape.put(&ACTIONS, &[action, result], Some(to_f64(*steps)));
        }
    }
}

fn daemon(report: &TickReport, scrape: &mut Scrape) {
    let mut degraded: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &report.audit.degraded {
        // `cgroup:/a/b` counts as `cgroup`: the objects are for the report, not for labels.
        let feature = entry.source.split_once(':').map_or(entry.source.as_str(), |(kind, _)| kind);
        *degraded.entry(feature).or_default() += 1;
    }
    for (feature, entries) in degraded {
        scrape.put(&DEGRADED, &[feature], Some(count(entries)));
    }
    if let Some(events) = report.events {
        for (result, count) in [
            ("told", events.told),
            ("forgotten", events.forgotten),
            ("ring-full", events.ring_full),
            ("limited", events.limited),
        ] {
            scrape.put(&EVENTS, &[result], Some(to_f64(count)));
        }
    }
    let totals = &report.totals;
    scrape.put(&BUILD_INFO, &[&report.audit.tool.version], Some(1.0));
    scrape.put(&ENFORCING, &[], Some(truth(report.mode == Mode::Enforce)));
    scrape.put(&TICKS, &[], Some(to_f64(totals.ticks)));
    scrape.put(&TICK_ERRORS, &[], Some(to_f64(totals.failed_ticks)));
    scrape.put(&TICK_DURATION, &[], totals.last_tick_seconds);
    scrape.put(&CONFIG_GOOD, &[], Some(truth(totals.config_good)));
}

fn source_name(source: TrafficSource) -> &'static str {
    match source {
        TrafficSource::Placement => "placement",
        TrafficSource::HintFaults => "hint-faults",
        TrafficSource::Hardware => "hardware",
    }
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn count(number: usize) -> f64 {
    to_f64(number as u64)
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
pub(super) fn to_f64(value: u64) -> f64 {
    value as f64
}
