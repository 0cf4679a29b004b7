//! Interrupts of devices.

use super::{
    family::{Family, FamilyOf, Scrape},
    number::{count, to_f64},
    values,
};
use crate::interrupts::InterruptReport;

const HANDLED: FamilyOf<1> = Family::counter(
    "interrupts_total",
    ["numa_node"],
    "Interrupts of devices that were handled on CPUs of the NUMA node.",
);
const ON_EXCLUSIVE: FamilyOf<1> = Family::counter(
    "exclusive_cpu_interrupts_total",
    ["numa_node"],
    "Interrupts on exclusive CPUs of a workload that does not use the device.",
);
const SET: FamilyOf<0> = Family::gauge("interrupts_set", [], "Interrupts whose CPUs the daemon has set.");
const WRITES: FamilyOf<1> = Family::counter(
    "interrupt_writes_total",
    ["result"],
    "Writes of the CPUs of interrupts; failed are those that the kernel refused.",
)
.of(&[values::APPLIED]);
const IRQBALANCE: FamilyOf<0> = Family::gauge(
    "irqbalance_running",
    [],
    "1 while irqbalance runs, beside which the daemon sets no interrupt.",
);

/// Every metric of this file.
pub(super) const ALL: &[&Family] = &[&HANDLED, &ON_EXCLUSIVE, &SET, &WRITES, &IRQBALANCE];

/// Absent where no workload has exclusive CPUs or devices.
pub(super) fn put(report: Option<&InterruptReport>, scrape: &mut Scrape) {
    let Some(report) = report else { return };
    for (family, by_node) in
        [(&HANDLED, &report.totals.by_node), (&ON_EXCLUSIVE, &report.totals.on_exclusive)]
    {
        for (node, number) in by_node {
            scrape.put(family, &[&node.to_string()], Some(to_f64(*number)));
        }
    }
    scrape.put(&SET, &[], Some(count(report.set)));
    for (result, number) in [("applied", report.totals.set), ("failed", report.totals.refused)] {
        scrape.put(&WRITES, &[result], Some(to_f64(number)));
    }
    scrape.put(&IRQBALANCE, &[], Some(count(usize::from(report.irqbalance.is_some()))));
}
