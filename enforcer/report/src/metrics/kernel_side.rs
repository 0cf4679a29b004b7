//! Counters of the kernel side, since a workload is watched.
//!
//! Counters of all workloads together always, of each workload where the configuration asks for it. Ratios
//! are left to the query: one over a chosen time says more than one over a turn. A counter restarts from 0
//! when its cgroup is created again.

use enforcer_core::sample::{KernelSide, Placements};

use super::{
    family::{CountedFamilies, CountedFamily, CounterScope, Family, FamilyOf, Scrape},
    moves,
    number::to_f64,
    values,
};
use crate::counters::Counters;

/// Nanoseconds of a second.
pub(super) const SECOND: f64 = 1e9;

const MOVES: CountedFamily<3, 2> = CountedFamily::new(
    "workload_task_moves_total",
    ["workload", "src_numa", "dst_numa"],
    "Tasks of the workload that moved to a CPU of another NUMA node.",
    "Tasks of workloads that moved to a CPU of another NUMA node.",
);
const STARTS: CountedFamily<3, 2> = CountedFamily::new(
    "workload_task_starts_total",
    ["workload", "src_numa", "dst_numa"],
    "Tasks of the workload that started, by the NUMA nodes of the parent and of the first CPU.",
    "Tasks of workloads that started, by the NUMA nodes of the parent and of the first CPU.",
);
const MISPLACED: CountedFamily<3, 2> = CountedFamily::new(
    "workload_misplaced_tasks_total",
    ["workload", "src_numa", "dst_numa"],
    "Moves and starts that ended on a NUMA node where the workload should not be.",
    "Moves and starts that ended on a NUMA node where the task's workload should not be.",
);
const RUN_TIME: CountedFamily<2, 1> = CountedFamily::new(
    "workload_run_time_seconds_total",
    ["workload", "numa_node"],
    "Time on CPUs of the NUMA node.",
    "Time of workloads on CPUs of the NUMA node.",
);
const MISPLACED_TIME: CountedFamily<2, 1> = CountedFamily::new(
    "workload_misplaced_run_time_seconds_total",
    ["workload", "numa_node"],
    "Time on CPUs of the NUMA node while the workload should not be there.",
    "Time on CPUs of the NUMA node of workloads that should not be there.",
);
const HINT_FAULTS: CountedFamily<3, 2> = CountedFamily::new(
    "workload_numa_hint_fault_pages_total",
    ["workload", "numa_node", "memory"],
    "Pages of NUMA hinting faults taken on CPUs of the NUMA node, by where the memory was.",
    "Pages of NUMA hinting faults that workloads took on CPUs of the NUMA node, by where the memory was.",
)
.of(&[values::MEMORY]);
const ACCESSES: CountedFamily<3, 2> = CountedFamily::new("workload_memory_accesses_total",
    ["workload", "numa_node", "memory"],
    "Accesses to DRAM from CPUs of the NUMA node, by where the memory was, as the CPU's counters tell them.",
    "Accesses of workloads to DRAM from CPUs of the NUMA node, by where the memory was, as the CPU's counters tell them.",
)
.of(&[values::MEMORY]);
const ACCESS_SAMPLES: CountedFamily<2, 1> = CountedFamily::new(
    "workload_memory_access_samples_total",
    ["workload", "numa_node"],
    "Overflows of the CPU's counters behind the accesses to DRAM.",
    "Overflows of the CPU's counters behind these accesses to DRAM.",
);
const LOST: FamilyOf<1> =
    Family::counter("kernel_side_lost_total", ["reason"], "What the kernel side saw that is in no counter.")
        .of(&[values::LOST]);
const WATCHED: FamilyOf<0> =
    Family::gauge("kernel_side_cgroups_watched", [], "Cgroups that the kernel side watches.");
const ROOM: FamilyOf<0> =
    Family::gauge("kernel_side_cgroups_room", [], "Cgroups that the kernel side has room for.");

const ROWS: FamilyOf<0> = Family::gauge(
    "kernel_side_workloads_watched",
    [],
    "Workloads that have a row in the counters of the kernel side.",
);
const ROWS_ROOM: FamilyOf<0> = Family::gauge(
    "kernel_side_workloads_room",
    [],
    "Workloads that the counters of the kernel side have rows for.",
);
const RUNS: FamilyOf<1> = Family::counter(
    "kernel_side_program_runs_total",
    ["program"],
    "Times that the eBPF program ran; only while kernel.bpf_stats_enabled is 1.",
);
const PROGRAM_TIME: FamilyOf<1> = Family::counter(
    "kernel_side_program_run_time_seconds_total",
    ["program"],
    "Time that the eBPF program ran; only while kernel.bpf_stats_enabled is 1.",
);
const RECURSION_MISSES: FamilyOf<1> = Family::counter(
    "kernel_side_program_recursion_misses_total",
    ["program"],
    "Runs of the eBPF program that the kernel skipped because the program was preempted on the same CPU: the \
     events are in no counter; since Linux 5.12.",
);
const VERIFIED: FamilyOf<1> = Family::gauge(
    "kernel_side_program_verified_instructions",
    ["program"],
    "Instructions that the verifier went through to admit the eBPF program; since Linux 5.16.",
);

/// Every counter of workloads.
pub(super) const COUNTED: [CountedFamilies; 8] = [
    MOVES.both(),
    STARTS.both(),
    MISPLACED.both(),
    RUN_TIME.both(),
    MISPLACED_TIME.both(),
    HINT_FAULTS.both(),
    ACCESSES.both(),
    ACCESS_SAMPLES.both(),
];

/// Every metric of the kernel side itself.
pub(super) const STATE: &[&Family] =
    &[&LOST, &WATCHED, &ROOM, &ROWS, &ROWS_ROOM, &RUNS, &PROGRAM_TIME, &RECURSION_MISSES, &VERIFIED];

/// The counters of a workload, or of all.
pub(super) fn counted(scope: CounterScope<'_>, counters: &Counters, scrape: &mut Scrape) {
    for one in counters.placements.iter().flatten() {
        let (src, dst) = (one.src_numa.to_string(), one.dst_numa.to_string());
        let mut put = |family, count: fn(&Placements) -> u64| {
            scrape.put_counted(family, scope, [&src, &dst], Some(to_f64(count(one))));
        };
        if src != dst {
            put(&MOVES, |one| one.migrated);
        }
        put(&STARTS, |one| one.started);
        put(&MISPLACED, |one| one.misplaced);
    }
    for (node, time) in counters.run_time.iter().flatten() {
        let node = node.to_string();
        scrape.put_counted(&RUN_TIME, scope, [&node], Some(to_f64(time.ns) / SECOND));
        scrape.put_counted(&MISPLACED_TIME, scope, [&node], Some(to_f64(time.misplaced_ns) / SECOND));
    }
    for (node, faults) in counters.hint_faults.iter().flatten() {
        let node = node.to_string();
        for (memory, pages) in [("local", faults.local), ("remote", faults.remote)] {
            scrape.put_counted(&HINT_FAULTS, scope, [&node, memory], Some(to_f64(pages)));
        }
    }
    accesses(scope, counters, scrape);
    moves::counted(scope, counters, scrape);
}

fn accesses(scope: CounterScope<'_>, counters: &Counters, scrape: &mut Scrape) {
    for (node, accesses) in counters.hardware.iter().flatten() {
        let node = node.to_string();
        for (memory, count) in [("local", accesses.local), ("remote", accesses.remote)] {
            scrape.put_counted(&ACCESSES, scope, [&node, memory], Some(to_f64(count)));
        }
        scrape.put_counted(&ACCESS_SAMPLES, scope, [&node], Some(to_f64(accesses.samples)));
    }
}

/// Lost events, and the fill of its maps.
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
        scrape.put(&RECURSION_MISSES, &[program], cost.recursion_misses.map(to_f64));
        scrape.put(&VERIFIED, &[program], cost.verified_instructions.map(to_f64));
    }
}
