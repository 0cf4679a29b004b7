//! What the kernel side counted: counters since a workload is watched, as the kernel side keeps them.
//!
//! Shares are left to whoever asks: a ratio of two counters over a time of one's own choice says more than
//! one that was computed for a turn. A counter starts from 0 again when a cgroup is made again.

use enforcer_core::sample::{KernelSide, Placements};

use super::{
    family::{Family, Scrape},
    series::to_f64,
};
use crate::report::tick::Counters;

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

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
const LOST: Family =
    Family::counter("kernel_side_lost_total", &["reason"], "What the kernel side saw that is in no counter.");
const WATCHED: Family =
    Family::gauge("kernel_side_cgroups_watched", &[], "Cgroups that the kernel side watches.");
const ROOM: Family =
    Family::gauge("kernel_side_cgroups_room", &[], "Cgroups that the kernel side has room for.");

/// Every metric of this file.
pub(super) const ALL: [&Family; 9] =
    [&MOVES, &STARTS, &MISPLACED, &RUN_TIME, &MISPLACED_TIME, &HINT_FAULTS, &LOST, &WATCHED, &ROOM];

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
}

/// What was lost, and how full its maps are.
pub(super) fn state(state: Option<&KernelSide>, scrape: &mut Scrape) {
    let Some(state) = state else { return };
    for (reason, count) in &state.lost {
        scrape.put(&LOST, &[reason], Some(to_f64(*count)));
    }
    scrape.put(&WATCHED, &[], Some(to_f64(state.cgroups_watched)));
    scrape.put(&ROOM, &[], Some(to_f64(state.cgroups_room)));
}
