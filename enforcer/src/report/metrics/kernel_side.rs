//! What the kernel side counted: counters since a workload is watched, as the kernel side keeps them.
//!
//! Shares are left to whoever asks: a ratio of two counters over a time of one's own choice says more than
//! one that was computed for a turn. A counter starts from 0 again when a cgroup is made again.

use enforcer_core::sample::{KernelSide, Placements};

use super::{
    family::{Family, Scrape},
    moves,
    series::to_f64,
};
use crate::report::tick::Counters;

/// Nanoseconds of a second.
pub(super) const SECOND: f64 = 1e9;

const MOVES: Family = Family::counter(
    "workload_task_moves_total",
    &["workload", "cgroup", "src_numa", "dst_numa"],
    "Tasks of the workload that moved to a CPU of another NUMA node.",
);
const STARTS: Family = Family::counter(
    "workload_task_starts_total",
    &["workload", "cgroup", "src_numa", "dst_numa"],
    "Tasks of the workload that started, by the NUMA nodes of the parent and of the first CPU.",
);
const MISPLACED: Family = Family::counter(
    "workload_misplaced_tasks_total",
    &["workload", "cgroup", "src_numa", "dst_numa"],
    "Moves and starts that ended on a NUMA node where the workload should not be.",
);
const RUN_TIME: Family = Family::counter(
    "workload_run_time_seconds_total",
    &["workload", "cgroup", "numa_node"],
    "Time on CPUs of the NUMA node.",
);
const MISPLACED_TIME: Family = Family::counter(
    "workload_misplaced_run_time_seconds_total",
    &["workload", "cgroup", "numa_node"],
    "Time on CPUs of the NUMA node while the workload should not be there.",
);
const HINT_FAULTS: Family = Family::counter(
    "workload_numa_hint_fault_pages_total",
    &["workload", "cgroup", "numa_node", "memory"],
    "Pages of NUMA hinting faults taken on CPUs of the NUMA node, by where the memory was.",
);
const ACCESSES: Family = Family::counter(
    "workload_memory_accesses_total",
    &["workload", "cgroup", "numa_node", "memory"],
    "Accesses to DRAM from CPUs of the NUMA node, by where the memory was, as the CPU's counters tell them.",
);
const ACCESS_SAMPLES: Family = Family::counter(
    "workload_memory_access_samples_total",
    &["workload", "cgroup", "numa_node"],
    "Overflows of the CPU's counters behind the accesses to DRAM.",
);
const LOST: Family =
    Family::counter("kernel_side_lost_total", &["reason"], "What the kernel side saw that is in no counter.");
const WATCHED: Family =
    Family::gauge("kernel_side_cgroups_watched", &[], "Cgroups that the kernel side watches.");
const ROOM: Family =
    Family::gauge("kernel_side_cgroups_room", &[], "Cgroups that the kernel side has room for.");

const ROWS: Family = Family::gauge(
    "kernel_side_workloads_watched",
    &[],
    "Workloads that have a row in the counters of the kernel side.",
);
const ROWS_ROOM: Family = Family::gauge(
    "kernel_side_workloads_room",
    &[],
    "Workloads that the counters of the kernel side have rows for.",
);
const RUNS: Family = Family::counter(
    "kernel_side_program_runs_total",
    &["program"],
    "Times that the eBPF program ran; only while kernel.bpf_stats_enabled is 1.",
);
const PROGRAM_TIME: Family = Family::counter(
    "kernel_side_program_run_time_seconds_total",
    &["program"],
    "Time that the eBPF program ran; only while kernel.bpf_stats_enabled is 1.",
);
const VERIFIED: Family = Family::gauge(
    "kernel_side_program_verified_instructions",
    &["program"],
    "Instructions that the verifier went through to admit the eBPF program; since Linux 5.16.",
);

/// Every metric of workloads.
pub(super) const WORKLOADS: &[&Family] =
    &[&MOVES, &STARTS, &MISPLACED, &RUN_TIME, &MISPLACED_TIME, &HINT_FAULTS, &ACCESSES, &ACCESS_SAMPLES];

/// Every metric of the kernel side itself.
pub(super) const STATE: &[&Family] =
    &[&LOST, &WATCHED, &ROOM, &ROWS, &ROWS_ROOM, &RUNS, &PROGRAM_TIME, &VERIFIED];

/// The counters of a workload of this name and cgroup.
pub(super) fn workload([name, cgroup]: [&str; 2], counters: &Counters, scrape: &mut Scrape) {
    for one in counters.placements.iter().flatten() {
        let (src, dst) = (one.src_numa.to_string(), one.dst_numa.to_string());
        let mut put = |family, count: fn(&Placements) -> u64| {
            scrape.put(family, &[name, cgroup, &src, &dst], Some(to_f64(count(one))));
        };
        if src != dst {
            put(&MOVES, |one| one.migrated);
        }
        put(&STARTS, |one| one.started);
        put(&MISPLACED, |one| one.misplaced);
    }
    for (node, time) in counters.run_time.iter().flatten() {
        let labels = [name, cgroup, &node.to_string()];
        scrape.put(&RUN_TIME, &labels, Some(to_f64(time.ns) / SECOND));
        scrape.put(&MISPLACED_TIME, &labels, Some(to_f64(time.misplaced_ns) / SECOND));
    }
    for (node, faults) in counters.hint_faults.iter().flatten() {
        let node = node.to_string();
        for (memory, pages) in [("local", faults.local), ("remote", faults.remote)] {
            scrape.put(&HINT_FAULTS, &[name, cgroup, &node, memory], Some(to_f64(pages)));
        }
    }
    accesses([name, cgroup], counters, scrape);
    moves::workload([name, cgroup], counters, scrape);
}

/// The accesses of a workload of this name and cgroup.
fn accesses([name, cgroup]: [&str; 2], counters: &Counters, scrape: &mut Scrape) {
    for (node, accesses) in counters.hardware.iter().flatten() {
        let node = node.to_string();
        for (memory, count) in [("local", accesses.local), ("remote", accesses.remote)] {
            scrape.put(&ACCESSES, &[name, cgroup, &node, memory], Some(to_f64(count)));
        }
        scrape.put(&ACCESS_SAMPLES, &[name, cgroup, &node], Some(to_f64(accesses.samples)));
    }
}

/// What was lost, and how full its maps are.
pub(super) fn state(state: Option<&KernelSide>, scrape: &mut Scrape) {
    let Some(state) = state else { return };
    for (reason, count) in &state.lost {
        scrape.put(&LOST, &[reason], Some(to_f64(*count)));
    }
    scrape.put(&WATCHED, &[], Some(to_f64(state.cgroups_watched)));
    scrape.put(&ROOM, &[], Some(to_f64(state.cgroups_room)));
    scrape.put(&ROWS, &[], Some(to_f64(state.workloads_watched)));
    scrape.put(&ROWS_ROOM, &[], Some(to_f64(state.workloads_room)));
    for (program, cost) in &state.programs {
        scrape.put(&RUNS, &[program], cost.runs.map(to_f64));
        scrape.put(&PROGRAM_TIME, &[program], cost.run_ns.map(|ns| to_f64(ns) / SECOND));
        scrape.put(&VERIFIED, &[program], cost.verified_instructions.map(to_f64));
    }
}
