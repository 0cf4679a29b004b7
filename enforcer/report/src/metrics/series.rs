//! Series of a report, in their order.

use std::collections::BTreeMap;

use enforcer_core::{audit::Audit, sample::NodeSample};
use numa_topology::id::NodeId;
use prometheus::proto::MetricFamily;

use super::{
    claims, daemon, decisions, demotion,
    family::{CounterScope, Scrape},
    interrupts, kernel_side,
    label::Labels,
    machine, moves, pressure, rebalance, runtime, widening, workloads,
};
use crate::tick::TickReport;

/// Series of a single audit, without a daemon.
pub(super) fn of_audit(audit: &Audit, nodes: &BTreeMap<NodeId, NodeSample>) -> Vec<MetricFamily> {
    let mut scrape = Scrape::default();
    machine::put(audit, nodes, &mut scrape);
    workloads::of_one_look(audit, &mut scrape);
    decisions::found(audit, &mut scrape);
    daemon::looked(audit, &mut scrape);
    scrape.into_families()
}

/// The report's values; the counters of each workload only where they are wanted.
pub(super) fn collect(report: &TickReport, workload_counters: bool) -> Vec<MetricFamily> {
    let mut scrape = Scrape::default();
    let labels = Labels::new(&report.audit.workloads);
    machine::put(&report.audit, &report.nodes, &mut scrape);
    workloads::put(report, &labels, workload_counters, &mut scrape);
    kernel_side::counted(CounterScope::All, &report.totals.counters, &mut scrape);
    decisions::put(report, &mut scrape);
    daemon::put(report, &mut scrape);
    kernel_side::state(report.kernel_side.as_ref(), &mut scrape);
    pressure::put(report.pressure.as_ref(), &mut scrape);
    widening::put(report.widening.as_ref(), &mut scrape);
    moves::others(report.other_page_moves.as_ref(), &mut scrape);
    demotion::put(&report.demotion, |cgroup| labels.of(cgroup), &mut scrape);
    rebalance::put(report, &mut scrape);
    runtime::put(report.runtime.as_ref(), &mut scrape);
    claims::put(report.claims.as_ref(), &mut scrape);
    interrupts::put(report.interrupts.as_ref(), &mut scrape);
    scrape.into_families()
}
