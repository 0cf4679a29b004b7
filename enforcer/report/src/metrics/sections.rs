//! Sections of metrics with their sources: for announcement, and for docs/metrics.md.

use super::{
    claims, daemon, decisions, demotion, family::Family, gate, identity, interrupts, kernel_side, machine,
    moves, pressure, rebalance, runtime, scheduler, widening, workloads,
};

/// Metrics that come from the same place.
#[cfg_attr(not(test), expect(dead_code, reason = "only docs/metrics.md is written from the words"))]
pub(super) struct Section {
    /// Heading.
    pub(super) title: &'static str,
    /// Source of the values, and when they are absent.
    pub(super) source: &'static str,
    pub(super) families: Vec<&'static Family>,
}

/// Metrics of a daemon.
pub(super) fn sections() -> [Section; 15] {
    let counted = || kernel_side::COUNTED.into_iter().chain(moves::COUNTED);
    let of_all = counted().map(|one| one.all).collect();
    let of_each = counted().map(|one| one.each).chain([&workloads::COUNTERS_OMITTED as &Family]).collect();
    [
        Section {
            title: "The machine",
            source: "`meminfo`, `numastat` and `distance` of `/sys/devices/system/node/nodeN`, read in each turn.",
            families: machine::ALL.to_vec(),
        },
        Section {
            title: "Workloads",
            source: "The model of the latest two turns: `memory.numa_stat` or `numa_maps`, cpusets and affinities, and what \
                 the kernel side counted between the two. A ratio that cannot be told has no series; `source` says what \
                 a traffic ratio is from, and `remote_traffic_samples` how far it can be trusted (one standard deviation \
                 is at most 0.5 / sqrt(samples)).",
            families: std::iter::once(&identity::INFO as &Family)
                .chain(workloads::ALL.iter().copied())
                .collect(),
        },
        Section {
            title: "All workloads together, counted in the kernel",
            source: "eBPF programs: in all workloads since the daemon started, those that are gone included. Absent where their \
                 hook is not attached (`degraded`). Pages count for the workload of the thread that moves them, which is not \
                 always the workload that they belong to.",
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
            source: "The thread that adds memory nodes to workloads on nearly full nodes. Absent in observe mode.",
            families: widening::ALL.to_vec(),
        },
        Section {
            title: "Decisions",
            source: "What the latest turn found, and what was done since the daemon started.",
            families: decisions::ALL.to_vec(),
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
            title: "Resource claims",
            source: "The DRA driver, as of the latest turn; counted since the daemon started. Absent where `dra.enabled` is off.",
            families: claims::ALL.to_vec(),
        },
        Section {
            title: "Interrupts of devices",
            source: "`/proc/interrupts` of the latest two turns, summed since the daemon started. Absent while no workload has \
                 exclusive CPUs or devices of its own, and where `interrupts.mode` is `off`.",
            families: interrupts::ALL.to_vec(),
        },
        Section { title: "The daemon", source: "The daemon itself.", families: daemon::ALL.to_vec() },
    ]
}

/// Metrics of an extender.
pub(super) fn of_scheduler() -> Section {
    Section {
        title: "The scheduler",
        source: "`numa-enforcer scheduler serve` and `scheduler gate`, at `/metrics` of their own ports; as of the scrape, and \
                 counted since their start. Those of the gate are of the second alone.",
        families: [scheduler::ALL, gate::ALL].concat(),
    }
}

/// Every metric of a daemon.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    sections().into_iter().flat_map(|section| section.families)
}

/// Every metric there is.
#[cfg(test)]
pub(super) fn every() -> impl Iterator<Item = &'static Family> {
    all().chain(of_scheduler().families)
}
