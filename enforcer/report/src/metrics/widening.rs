//! Workloads that were given memory nodes because theirs were nearly full.

use enforcer_core::{named::Named as _, widening::PressureLevel};

use super::{
    family::{Family, FamilyOf, Scrape},
    kernel_side::SECOND,
    number::to_f64,
    values,
};
use crate::widening::WideningReport;

const STEPS: FamilyOf<2> = Family::counter(
    "memory_widenings_total",
    ["stage", "result"],
    "Memory nodes added to workloads on nearly full nodes: in time (widen) or late (emergency).",
)
.of(&[values::STAGE, values::APPLIED]);
const REFUSALS: FamilyOf<1> = Family::counter(
    "memory_widening_refusals_total",
    ["reason"],
    "Times that a workload ran short of memory and got no node, by reason.",
)
.of(&[values::REFUSAL]);
const KILLS: FamilyOf<1> = Family::counter("memory_oom_kills_total",
    ["cause"],
    "OOM kills in guarded workloads: because their memory nodes were full, or because of their own memory limit.",
)
.of(&[values::KILL_CAUSE]);
const WIDENED: FamilyOf<0> = Family::gauge(
    "memory_widened_workloads",
    [],
    "Workloads that have memory nodes beside those that they were granted.",
);
const RELIEVED: FamilyOf<1> = Family::counter("memory_relieved_bytes_total",
    ["cause"],
    "Bytes that were moved off memory nodes that were nearly full: of processes that are bound there (bound), or of neighbours of workloads that are declared to stay, to another node (neighbour) or, what they do not touch, to slower memory (cold).",
)
.of(&[values::RELIEF_CAUSE]);
const EXPOSED: FamilyOf<0> = Family::gauge(
    "memory_exposed_processes",
    [],
    "Processes that the OOM killer may choose because of memory nodes that were added.",
);
const LATENCY: FamilyOf<1> = Family::gauge(
    "memory_widening_latency_seconds",
    ["quantile"],
    "Time from what made a widening necessary until it was written, since the daemon started.",
)
.of(&[values::QUANTILE]);
const BRAKES: FamilyOf<1> = Family::counter("memory_brakes_total",
    ["result"],
    "Times that a workload was slowed down because it filled its memory nodes faster than one is added (applied), or should have been and was not (failed).",
)
.of(&[values::APPLIED]);
const SLOWED: FamilyOf<0> = Family::counter(
    "memory_brake_seconds_total",
    [],
    "How long workloads were slowed down together. Absent, as the other two of brakes, where the configuration never asked for that.",
);
const WATCHED: FamilyOf<0> = Family::gauge(
    "memory_brake_watched",
    [],
    "1 while a process sees to it that brakes are released when the daemon is killed; at 0 no workload is slowed down.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] =
    &[&STEPS, &REFUSALS, &KILLS, &WIDENED, &RELIEVED, &EXPOSED, &LATENCY, &BRAKES, &SLOWED, &WATCHED];

/// Absent where no workload is watched.
pub(super) fn put(report: Option<&WideningReport>, scrape: &mut Scrape) {
    let Some(report) = report else { return };
    for stage in [PressureLevel::Widen, PressureLevel::Emergency].map(|level| level.name()) {
        for (result, counts) in [("applied", &report.applied), ("failed", &report.failed)] {
            let count = counts.get(stage).copied().unwrap_or(0);
            scrape.put(&STEPS, &[stage, result], Some(to_f64(count)));
        }
    }
    let counted = [(&REFUSALS, &report.refused), (&KILLS, &report.kills), (&RELIEVED, &report.relieved)];
    for (family, counts) in counted {
        for (label, count) in counts {
            scrape.put(family, &[*label], Some(to_f64(*count)));
        }
    }
    scrape.put(&WIDENED, &[], Some(to_f64(report.widened.len() as u64)));
    scrape.put(&EXPOSED, &[], Some(to_f64(report.exposed_processes() as u64)));
    if let Some(used) = &report.brake {
        for (result, count) in [("applied", used.applied), ("failed", used.failed)] {
            scrape.put(&BRAKES, &[result], Some(to_f64(count)));
        }
        scrape.put(&SLOWED, &[], Some(to_f64(used.slowed_ns) / SECOND));
        scrape.put(&WATCHED, &[], Some(to_f64(u64::from(used.watchdog.is_some()))));
    }
    if let Some(latency) = report.latency {
        scrape.put(&LATENCY, &["0.5"], Some(to_f64(latency.p50_ns) / SECOND));
        scrape.put(&LATENCY, &["0.99"], Some(to_f64(latency.p99_ns) / SECOND));
    }
}
