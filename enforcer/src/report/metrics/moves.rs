//! What the kernel did with the pages and the tasks of a workload: counters since it is watched.

use enforcer_core::sample::{OtherPageMoves, PageMovesByReason};

use super::{
    family::{Family, Scrape},
    series::to_f64,
};
use crate::report::tick::Counters;

const PAGE_MOVES: Family = Family::counter(
    "workload_page_moves_total",
    &["workload", "cgroup", "cause", "result"],
    "Pages that threads of the workload moved, by the kernel's reason: moved, or failed to.",
);
const OTHER_PAGE_MOVES: Family = Family::counter(
    "other_page_moves_total",
    &["by", "cause", "result"],
    "Pages that no workload moved, by the kernel's reason: moved, or failed to.",
);
const BALANCER: Family = Family::counter(
    "workload_balancer_tasks_total",
    &["workload", "cgroup", "step"],
    "Tasks that the kernel's NUMA balancer wanted on another NUMA node.",
);
const SCAN_SKIPS: Family = Family::counter(
    "workload_scan_skips_total",
    &["workload", "cgroup", "cause"],
    "Scans for hinting faults that the kernel did not make: of a task for one-node, of a mapping for unsuitable and passed.",
);

const CPUSET_WRITES: Family = Family::counter(
    "workload_cpuset_writes_total",
    &["workload", "cgroup", "file"],
    "Writes of others than this daemon to the workload's cpuset.",
);
const POLICIES: Family = Family::counter(
    "workload_memory_policies_total",
    &["workload", "cgroup", "scope", "mode"],
    "Memory policies that threads of the workload set.",
);

/// Every metric of workloads.
pub(super) const WORKLOADS: &[&Family] = &[&PAGE_MOVES, &BALANCER, &SCAN_SKIPS, &CPUSET_WRITES, &POLICIES];

/// Every metric of what is no workload.
pub(super) const OTHERS: &[&Family] = &[&OTHER_PAGE_MOVES];

/// The counters of a workload of this name and cgroup.
pub(super) fn workload([name, cgroup]: [&str; 2], counters: &Counters, scrape: &mut Scrape) {
    for (cause, result, pages) in counters.page_moves.iter().flat_map(each) {
        scrape.put(&PAGE_MOVES, &[name, cgroup, cause, result], Some(pages));
    }
    if let Some(steps) = counters.balancer {
        for (step, tasks) in [("moved", steps.moved), ("swapped", steps.swapped), ("stuck", steps.stuck)] {
            scrape.put(&BALANCER, &[name, cgroup, step], Some(to_f64(tasks)));
        }
    }
    for (file, writes) in counters.cpuset_writes.iter().flatten() {
        scrape.put(&CPUSET_WRITES, &[name, cgroup, file.name()], Some(to_f64(*writes)));
    }
    for (mode, counts) in counters.policies.iter().flatten() {
        for (scope, policies) in [("task", counts.tasks), ("range", counts.ranges)] {
            scrape.put(&POLICIES, &[name, cgroup, scope, mode.name()], Some(to_f64(policies)));
        }
    }
    let skips = counters.scan_skips.unwrap_or_default();
    for (cause, scans) in
        [("one-node", skips.one_node), ("unsuitable", skips.unsuitable), ("passed", skips.passed)]
    {
        scrape.put(&SCAN_SKIPS, &[name, cgroup, cause], scans.map(to_f64));
    }
}

/// Pages that no workload moved.
pub(super) fn others(others: Option<&OtherPageMoves>, scrape: &mut Scrape) {
    let Some(others) = others else { return };
    for (by, moves) in [("own", &others.own), ("elsewhere", &others.elsewhere)] {
        for (cause, result, pages) in each(moves) {
            scrape.put(&OTHER_PAGE_MOVES, &[by, cause, result], Some(pages));
        }
    }
}

/// Cause, result and pages.
fn each(moves: &PageMovesByReason) -> impl Iterator<Item = (&'static str, &'static str, f64)> {
    moves.iter().flat_map(|(reason, moves)| {
        [("moved", moves.moved), ("failed", moves.failed)]
            .map(|(result, pages)| (reason.name(), result, to_f64(pages)))
    })
}
