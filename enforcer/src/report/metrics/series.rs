//! Which metrics there are, and what of a report becomes which series.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    audit::{Audit, AuditedWorkload, Verdict},
    finding::Severity,
    id::NodeId,
    model::TrafficSource,
    owner::Owner,
    policy::Mode,
    sample::{EventCounts, NodeSample},
    workload::Origin,
};
use prometheus::proto::MetricFamily;

use super::{
    demotion,
    family::{Family, Scrape, Whose},
    identity, kernel_side,
    label::Labels,
    moves, pressure, rebalance, runtime, widening,
};
use crate::report::tick::TickReport;

/// Workloads with series of their own.
pub const MAX_WORKLOADS: usize = 1_000;

/// Series of counters of single workloads; those of the worst workloads come first.
pub(super) const MAX_COUNTERS: usize = 10_000;

const NODE_MEMORY_TOTAL: Family =
    Family::gauge("numa_node_memory_total_bytes", &["numa_node"], "Memory of the NUMA node.");
const NODE_MEMORY_FREE: Family =
    Family::gauge("numa_node_memory_free_bytes", &["numa_node"], "Free memory of the NUMA node.");
const NODE_ALLOCATIONS: Family = Family::counter(
    "numa_node_page_allocations_total",
    &["numa_node", "kind"],
    "Pages that were allocated on the NUMA node, by the kernel's own kinds: hit is as wanted, miss was wanted elsewhere, \
     foreign was wanted here and is elsewhere, local and other by the CPU of the task.",
);
const DISTANCE: Family = Family::gauge(
    "numa_distance",
    &["src_numa", "dst_numa"],
    "Distance between NUMA nodes as the firmware tells it; 10 is local.",
);
const WORKLOAD_MEMORY: Family = Family::gauge(
    "workload_memory_bytes",
    &["workload", "numa_node"],
    "Memory of the workload on the NUMA node.",
);
const REMOTE_RESIDENCY: Family = Family::gauge(
    "workload_remote_residency_ratio",
    &["workload"],
    "Share of the workload's memory on other NUMA nodes than its CPUs, 0 to 1.",
);
const REMOTE_TRAFFIC: Family = Family::gauge(
    "workload_remote_traffic_ratio",
    &["workload", "source"],
    "Share of the workload's memory accesses that go to another NUMA node, 0 to 1.",
);
const TRAFFIC_SAMPLES: Family = Family::gauge(
    "workload_remote_traffic_samples",
    &["workload", "source"],
    "Observations behind the remote traffic ratio: clock ticks, faulted pages or hardware samples.",
);
const ALIGNED: Family = Family::gauge(
    "workload_aligned",
    &["workload"],
    "1 when the workload's CPUs and memory are on the same NUMA nodes.",
);
const OMITTED: Family = Family::gauge(
    "workloads_omitted",
    &[],
    "Workloads without series of their own: lone processes, and those above the limit.",
);
const COUNTERS_OMITTED: Family = Family::gauge(
    "workload_counters_omitted",
    &[],
    "Workloads with series whose counters have none, because those of others are as many as there may be.",
);
const REFUSED: Family =
    Family::gauge("workloads_refused", &[], "Declared workloads that are left where they are.");
const OWNERS: Family = Family::gauge(
    "workloads_by_owner",
    &["owner"],
    "Workloads by whose word counts for their cpuset; those of others are never corrected.",
);
const FINDINGS: Family = Family::gauge("findings", &["severity"], "Findings of the latest turn.");
const DEGRADED: Family = Family::gauge("degraded", &["feature"], "Sources that are missing.");
const EVENTS: Family = Family::counter(
    "kernel_events_total",
    &["result"],
    "Tasks that came to a wrong NUMA node: told one by one, or why not. The counters have all of them.",
);
const BUILD_INFO: Family = Family::gauge("build_info", &["version"], "Version of numa-enforcer.");
const ENFORCING: Family =
    Family::gauge("enforcing", &[], "1 when the daemon may write: in enforce mode, and not paused.");
const PAUSED: Family =
    Family::gauge("paused", &[], "1 while somebody has paused enforcement over the control socket.");
const ACTIONS: Family = Family::counter("actions_total", &["action", "result"], "Steps of plans by result.");
const PAGE_MOVE_CALLS: Family = Family::histogram(
    "page_move_call_duration_seconds",
    "What the calls took that moved pages of workloads to other NUMA nodes; those for tiers of memory are not among them.",
);
const DRIFT: Family = Family::counter(
    "cpuset_drift_total",
    &["result"],
    "Cpusets that are ours to keep and that somebody else wrote: repaired, failed to be, or left-alone from then on because \
     three repairs within an hour did not last.",
);
const TICKS: Family = Family::counter("ticks_total", &[], "Turns that were completed.");
const TICK_ERRORS: Family = Family::counter("tick_errors_total", &[], "Turns that failed.");
const TICK_DURATION: Family =
    Family::gauge("tick_duration_seconds", &[], "Duration of the latest completed turn.");
const CONFIG_GOOD: Family =
    Family::gauge("config_last_reload_successful", &[], "1 when the configuration was good.");

/// Metrics that come from the same place.
#[cfg_attr(not(test), expect(dead_code, reason = "only docs/metrics.md is written from the words"))]
pub(super) struct Section {
    /// What they are of.
    pub(super) title: &'static str,
    /// Where their values come from, and when there are none.
    pub(super) source: &'static str,
    pub(super) families: Vec<&'static Family>,
}

/// Every metric there is.
pub(super) fn sections() -> [Section; 13] {
    let counted = || kernel_side::COUNTED.into_iter().chain(moves::COUNTED);
    let of_all = counted().map(|one| &one.all).collect();
    let of_each = counted().map(|one| &one.each).chain([&COUNTERS_OMITTED]).collect();
    [
        Section {
            title: "The machine",
            source: "`meminfo`, `numastat` and `distance` of `/sys/devices/system/node/nodeN`, read in each turn.",
            families: vec![&NODE_MEMORY_TOTAL, &NODE_MEMORY_FREE, &NODE_ALLOCATIONS, &DISTANCE],
        },
        Section {
            title: "Workloads",
            source: "The model of the latest two turns: `memory.numa_stat` or `numa_maps`, cpusets and affinities, and what \
                 the kernel side counted between the two. A ratio that cannot be told has no series; `source` says what \
                 a traffic ratio is from, and `remote_traffic_samples` how far it can be trusted (one standard deviation \
                 is at most 0.5 / sqrt(samples)).",
            families: vec![
                &identity::INFO,
                &WORKLOAD_MEMORY,
                &REMOTE_RESIDENCY,
                &REMOTE_TRAFFIC,
                &TRAFFIC_SAMPLES,
                &ALIGNED,
                &OMITTED,
            ],
        },
        Section {
            title: "All workloads together, counted in the kernel",
            source: "eBPF programs: in all workloads since the daemon started, those that are gone included. Absent where their \
                 hook is not attached (`degraded`). Pages count for whose thread moves them, which is not whose they are \
                 where somebody moves those of others.",
            families: of_all,
        },
        Section {
            title: "Each workload, counted in the kernel",
            source: "As above, where the configuration has `metrics.workload_counters`. They count from when the workload is \
                 first seen, and from 0 again when its cgroup is made again or the daemon restarts.",
            families: of_each,
        },
        Section {
            title: "Pages that no workload moved",
            source: "As above, since the daemon started.",
            families: moves::OTHERS.to_vec(),
        },
        Section {
            title: "The kernel side itself",
            source: "Its maps, and `/proc/self/fdinfo` of its programs. Runs and time are absent, not 0, unless \
                 `kernel.bpf_stats_enabled` is 1; the reason is `kernelSide.runTimeSilent` of `/report.json`. Switching \
                 it on costs some 60 ns for each run of each eBPF program of the host.",
            families: kernel_side::STATE.to_vec(),
        },
        Section {
            title: "Memory pressure",
            source: "eBPF programs on the tracepoints of reclaim and of the OOM killer; their ring wakes the daemon.",
            families: pressure::ALL.to_vec(),
        },
        Section {
            title: "Memory nodes that are added",
            source: "The thread that adds memory nodes to workloads whose own ones are nearly full. Absent in observe mode.",
            families: widening::ALL.to_vec(),
        },
        Section {
            title: "Decisions",
            source: "What the latest turn found, and what was done since the daemon started.",
            families: vec![&FINDINGS, &OWNERS, &REFUSED, &ACTIONS, &PAGE_MOVE_CALLS, &DRIFT],
        },
        Section {
            title: "Tiers of memory",
            source: "Rounds of `memory.demotion`, of workloads that are declared for it; absent for others.",
            families: demotion::ALL.to_vec(),
        },
        Section {
            title: "Workloads that run and are moved",
            source: "The plan of the latest turn, and what became of earlier ones. Absent where `rebalance.enabled` is off.",
            families: rebalance::FAMILIES.to_vec(),
        },
        Section {
            title: "The container runtime",
            source: "The NRI link. Absent where `nri.enabled` is off or no runtime was looked for yet.",
            families: runtime::ALL.to_vec(),
        },
        Section {
            title: "The daemon",
            source: "The daemon itself.",
            families: vec![
                &BUILD_INFO,
                &ENFORCING,
                &PAUSED,
                &TICKS,
                &TICK_ERRORS,
                &TICK_DURATION,
                &CONFIG_GOOD,
                &DEGRADED,
                &EVENTS,
            ],
        },
    ]
}

/// Every metric there is.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    sections().into_iter().flat_map(|section| section.families)
}

/// The values of a single look, by nobody who runs on.
pub(super) fn of_audit(audit: &Audit, nodes: &BTreeMap<NodeId, NodeSample>) -> Vec<MetricFamily> {
    let mut scrape = Scrape::default();
    machine(audit, nodes, &mut scrape);
    let shown = shown_of(audit, &mut scrape);
    let labels = Labels::new(&audit.workloads);
    for workload in shown {
        seen(&labels.of(&workload.cgroup), workload, &mut scrape);
    }
    found(audit, &mut scrape);
    looked(audit, &mut scrape);
    scrape.into_families()
}

/// The report's values; the counters of each workload only where they are wanted.
pub(super) fn collect(report: &TickReport, workload_counters: bool) -> Vec<MetricFamily> {
    let mut scrape = Scrape::default();
    let labels = Labels::new(&report.audit.workloads);
    machine(&report.audit, &report.nodes, &mut scrape);
    workloads(report, &labels, workload_counters, &mut scrape);
    kernel_side::counted(Whose::All, &report.totals.counters, &mut scrape);
    decisions(report, &mut scrape);
    daemon(report, &mut scrape);
    kernel_side::state(report.kernel_side.as_ref(), &mut scrape);
    pressure::put(report.pressure.as_ref(), &mut scrape);
    widening::put(report.widening.as_ref(), &mut scrape);
    moves::others(report.other_page_moves.as_ref(), &mut scrape);
    demotion::put(&report.demotion, |cgroup| labels.of(cgroup), &mut scrape);
    rebalance::put(report, &mut scrape);
    runtime::put(report.runtime.as_ref(), &mut scrape);
    scrape.into_families()
}

/// Names of `numastat`, and as labels.
const NUMASTAT: [(&str, &str); 6] = [
    ("numa_hit", "hit"),
    ("numa_miss", "miss"),
    ("numa_foreign", "foreign"),
    ("interleave_hit", "interleave"),
    ("local_node", "local"),
    ("other_node", "other"),
];

fn machine(audit: &Audit, nodes: &BTreeMap<NodeId, NodeSample>, scrape: &mut Scrape) {
    for (node, sample) in nodes {
        let node = node.to_string();
        scrape.put(&NODE_MEMORY_TOTAL, &[&node], sample.mem_total_bytes.map(to_f64));
        scrape.put(&NODE_MEMORY_FREE, &[&node], sample.mem_free_bytes.map(to_f64));
        for (file, kind) in NUMASTAT {
            let pages = sample.counters.get(file).copied();
            scrape.put(&NODE_ALLOCATIONS, &[&node, kind], pages.map(to_f64));
        }
    }
    let machine = &audit.topology;
    for from in &machine.nodes {
        for to in &machine.nodes {
            let labels = [from.id.to_string(), to.id.to_string()];
            scrape.put(&DISTANCE, &[&labels[0], &labels[1]], machine.distance(from.id, to.id).map(f64::from));
        }
    }
}

fn workloads(report: &TickReport, labels: &Labels<'_>, counters: bool, scrape: &mut Scrape) {
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
            kernel_side::counted(Whose::One(&labels.of(&workload.cgroup)), counters, scrape);
        } else {
            omitted += 1;
        }
    }
    scrape.put(&COUNTERS_OMITTED, &[], Some(count(omitted)));
}

fn shown_of<'a>(audit: &'a Audit, scrape: &mut Scrape) -> Vec<&'a AuditedWorkload> {
    let (shown, omitted) = shown(&audit.workloads);
    scrape.put(&OMITTED, &[], Some(count(omitted)));
    shown
}

/// What one look at a workload tells.
fn seen(label: &str, workload: &AuditedWorkload, scrape: &mut Scrape) {
    for (node, bytes) in workload.bytes_by_numa.iter().flatten() {
        let total = bytes.anon.saturating_add(bytes.file).saturating_add(bytes.kernel.unwrap_or(0));
        scrape.put(&WORKLOAD_MEMORY, &[label, &node.to_string()], Some(to_f64(total)));
    }
    scrape.put(&REMOTE_RESIDENCY, &[label], workload.remote_residency);
    if let Some(traffic) = &workload.traffic {
        let source = source_name(traffic.source);
        scrape.put(&REMOTE_TRAFFIC, &[label, source], Some(traffic.remote_ratio));
        scrape.put(&TRAFFIC_SAMPLES, &[label, source], Some(to_f64(traffic.samples)));
    }
    let aligned = match workload.verdict {
        Verdict::Aligned => Some(1.0),
        Verdict::Partial | Verdict::Misaligned => Some(0.0),
        Verdict::Unknown => None,
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

fn found(audit: &Audit, scrape: &mut Scrape) {
    for (severity, name) in
        [(Severity::Info, "info"), (Severity::Warning, "warning"), (Severity::Critical, "critical")]
    {
        let findings = audit.findings.iter().filter(|finding| finding.severity == severity);
        scrape.put(&FINDINGS, &[name], Some(count(findings.count())));
    }
    for owner in Owner::ALL {
        let is_owner = |workload: &&AuditedWorkload| {
            workload.owner.as_ref().is_some_and(|ownership| ownership.owner == owner)
        };
        let owned = audit.workloads.iter().filter(is_owner).count();
        scrape.put(&OWNERS, &[owner.as_str()], Some(count(owned)));
    }
}

fn decisions(report: &TickReport, scrape: &mut Scrape) {
    found(&report.audit, scrape);
    scrape.put(&REFUSED, &[], Some(count(report.decision.refused.len())));
    let drift = report.totals.drift;
    for (result, count) in
        [("repaired", drift.repaired), ("failed", drift.failed), ("left-alone", drift.left_alone)]
    {
        scrape.put(&DRIFT, &[result], Some(to_f64(count)));
    }
    if let Some(times) = &report.totals.page_move_calls {
        scrape.put_times(&PAGE_MOVE_CALLS, times);
    }
    for (action, results) in &report.totals.actions {
        for (result, steps) in results {
            scrape.put(&ACTIONS, &[action, result], Some(to_f64(*steps)));
        }
    }
}

/// Who looked, and what it could not see.
fn looked(audit: &Audit, scrape: &mut Scrape) {
    let mut degraded: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &audit.degraded {
        // `cgroup:/a/b` counts as `cgroup`: the objects are for the report, not for labels.
        let feature = entry.source.split_once(':').map_or(entry.source.as_str(), |(kind, _)| kind);
        *degraded.entry(feature).or_default() += 1;
    }
    for (feature, entries) in degraded {
        scrape.put(&DEGRADED, &[feature], Some(count(entries)));
    }
    scrape.put(&BUILD_INFO, &[&audit.tool.version], Some(1.0));
}

fn daemon(report: &TickReport, scrape: &mut Scrape) {
    looked(&report.audit, scrape);
    if let Some(events) = report.events {
        put_counts(&EVENTS, events, scrape);
    }
    let totals = &report.totals;
    let paused = report.paused.is_some();
    scrape.put(&ENFORCING, &[], Some(truth(report.mode == Mode::Enforce && !paused)));
    scrape.put(&PAUSED, &[], Some(truth(paused)));
    scrape.put(&TICKS, &[], Some(to_f64(totals.ticks)));
    scrape.put(&TICK_ERRORS, &[], Some(to_f64(totals.failed_ticks)));
    scrape.put(&TICK_DURATION, &[], totals.last_tick_seconds);
    scrape.put(&CONFIG_GOOD, &[], Some(truth(totals.config_good)));
}

/// What became of the events of a ring.
pub(super) fn put_counts(family: &'static Family, events: EventCounts, scrape: &mut Scrape) {
    for (result, count) in [
        ("told", events.told),
        ("forgotten", events.forgotten),
        ("ring-full", events.ring_full),
        ("limited", events.limited),
    ] {
        scrape.put(family, &[result], Some(to_f64(count)));
    }
}

fn source_name(source: TrafficSource) -> &'static str {
    match source {
        TrafficSource::Placement => "placement",
        TrafficSource::HintFaults => "hint-faults",
        TrafficSource::Hardware => "hardware",
    }
}

pub(super) fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

pub(super) fn count(number: usize) -> f64 {
    to_f64(number as u64)
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has doubles only")]
pub(super) fn to_f64(value: u64) -> f64 {
    value as f64
}
