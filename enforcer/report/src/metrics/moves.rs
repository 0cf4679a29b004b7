//! Moves of pages and tasks of a workload by the kernel: counters since it is watched.

use enforcer_core::{
    named::Named as _,
    sample::{OtherPageMoves, PageMovesByReason},
};

use super::{
    family::{CountedFamilies, CountedFamily, CounterScope, Family, FamilyOf, Scrape},
    number::to_f64,
    values,
};
use crate::counters::Counters;

const PAGE_MOVES: CountedFamily<3, 2> = CountedFamily::new(
    "workload_page_moves_total",
    ["workload", "cause", "result"],
    "Pages of the base size that threads of the workload moved, by the kernel's reason: moved, or failed to.",
    "Pages of the base size that threads of workloads moved, by the kernel's reason: moved, or failed to.",
)
.of(&[values::MOVE_CAUSE, values::MOVED]);
const OTHER_PAGE_MOVES: FamilyOf<3> = Family::counter(
    "other_page_moves_total",
    ["by", "cause", "result"],
    "Pages of the base size that no workload moved, by the kernel's reason: moved, or failed to.",
)
.of(&[values::BY, values::MOVE_CAUSE, values::MOVED]);
const BALANCER: CountedFamily<2, 1> = CountedFamily::new(
    "workload_balancer_tasks_total",
    ["workload", "step"],
    "Tasks that the kernel's NUMA balancer wanted on another NUMA node.",
    "Tasks of workloads that the kernel's NUMA balancer wanted on another NUMA node.",
)
.of(&[values::STEP]);
const SCAN_SKIPS: CountedFamily<2, 1> = CountedFamily::new("workload_scan_skips_total",
    ["workload", "cause"],
    "Scans for hinting faults that the kernel did not make: of a task for one-node, of a mapping for unsuitable and passed.",
    "Scans of workloads for hinting faults that the kernel did not make: of a task for one-node, of a mapping for unsuitable and passed.",
)
.of(&[values::SKIP_CAUSE]);

const CPUSET_WRITES: CountedFamily<2, 1> = CountedFamily::new(
    "workload_cpuset_writes_total",
    ["workload", "file"],
    "Writes of others than this daemon to the workload's cpuset.",
    "Writes of others than this daemon to cpusets of workloads.",
)
.of(&[values::FILE]);
const POLICIES: CountedFamily<3, 2> = CountedFamily::new(
    "workload_memory_policies_total",
    ["workload", "scope", "mode"],
    "Memory policies that threads of the workload set.",
    "Memory policies that threads of workloads set.",
)
.of(&[values::SCOPE, values::POLICY_MODE]);

/// Every counter of workloads.
pub(super) const COUNTED: [CountedFamilies; 5] =
    [PAGE_MOVES.both(), BALANCER.both(), SCAN_SKIPS.both(), CPUSET_WRITES.both(), POLICIES.both()];

/// Metrics of everything that is not a workload.
pub(super) const OTHERS: &[&Family] = &[&OTHER_PAGE_MOVES];

/// The counters of a workload, or of all.
pub(super) fn counted(scope: CounterScope<'_>, counters: &Counters, scrape: &mut Scrape) {
    for (cause, result, pages) in counters.page_moves.iter().flat_map(each) {
        scrape.put_counted(&PAGE_MOVES, scope, [cause, result], Some(pages));
    }
    if let Some(steps) = counters.balancer {
        for (step, tasks) in [("moved", steps.moved), ("swapped", steps.swapped), ("stuck", steps.stuck)] {
            scrape.put_counted(&BALANCER, scope, [step], Some(to_f64(tasks)));
        }
    }
    for (file, writes) in counters.cpuset_writes.iter().flatten() {
        scrape.put_counted(&CPUSET_WRITES, scope, [file.name()], Some(to_f64(*writes)));
    }
    for (mode, counts) in counters.policies.iter().flatten() {
        for (reach, policies) in [("task", counts.tasks), ("range", counts.ranges)] {
            scrape.put_counted(&POLICIES, scope, [reach, mode.name()], Some(to_f64(policies)));
        }
    }
    let skips = counters.scan_skips.unwrap_or_default();
    for (cause, scans) in
        [("one-node", skips.one_node), ("unsuitable", skips.unsuitable), ("passed", skips.passed)]
    {
        scrape.put_counted(&SCAN_SKIPS, scope, [cause], scans.map(to_f64));
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
