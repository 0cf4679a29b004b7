//! Memory pressure events of the kernel side, with their latency.

use enforcer_core::{named::Named as _, sample::PressureEvents};

use super::{
    daemon::put_counts,
    family::{Family, FamilyOf, Scrape},
    kernel_side::SECOND,
    number::to_f64,
    values,
};

const EVENTS: FamilyOf<2> = Family::counter("memory_pressure_events_total",
    ["numa_node", "kind"],
    "Signs that the NUMA node is short of memory, as they were told; the node tells each kind 100 times a second at most, \
     kills excepted.",
)
.of(&[values::PRESSURE]);
const RESULTS: FamilyOf<1> = Family::counter(
    "memory_pressure_kernel_events_total",
    ["result"],
    "Memory pressure events by outcome: reported, or the reason it was not.",
)
.of(&[values::RING]);
const DELAY: FamilyOf<0> = Family::counter(
    "memory_pressure_delay_seconds_total",
    [],
    "Total time from the kernel's sign of memory pressure to the daemon, over all reported events.",
);
const LONGEST: FamilyOf<0> = Family::gauge(
    "memory_pressure_delay_longest_seconds",
    [],
    "The longest of these times since the turn before; absent where there was no event.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[&EVENTS, &RESULTS, &DELAY, &LONGEST];

/// Absent without a source of pressure events.
pub(super) fn put(pressure: Option<&PressureEvents>, scrape: &mut Scrape) {
    let Some(pressure) = pressure else { return };
    for total in &pressure.totals {
        let node = total.numa_node.to_string();
        scrape.put(&EVENTS, &[&node, total.kind.name()], Some(to_f64(total.events)));
    }
    put_counts(&RESULTS, pressure.counts, scrape);
    scrape.put(&DELAY, &[], Some(to_f64(pressure.delay.sum_ns) / SECOND));
    scrape.put(&LONGEST, &[], pressure.delay.longest_ns.map(|ns| to_f64(ns) / SECOND));
}
