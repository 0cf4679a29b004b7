//! Interrupts of devices, as of a turn.

use std::collections::BTreeMap;

use enforcer_core::interrupts::{InterruptAssessment, InterruptRefusal, InterruptsOfWorkload};
use numa_topology::id::NodeId;
use serde::Serialize;

use super::text;

/// Interrupts of devices.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterruptReport {
    /// The daemon sets their CPUs.
    pub steers: bool,
    /// Process of irqbalance, beside which nothing is set.
    pub irqbalance: Option<u32>,
    /// Interrupts whose CPUs the daemon has set.
    pub set: usize,
    /// Interrupts that keep their CPUs, and why; the first of them.
    pub refused: Vec<InterruptRefusal>,
    /// Interrupts that concern workloads.
    pub workloads: Vec<InterruptsOfWorkload>,
    /// Since the daemon started.
    pub totals: InterruptTotals,
}

/// Counts since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InterruptTotals {
    /// Interrupts by node of the CPU that handled them.
    pub by_node: BTreeMap<NodeId, u64>,
    /// Those on exclusive CPUs of a workload that does not use the device.
    pub on_exclusive: BTreeMap<NodeId, u64>,
    /// Writes that took effect.
    pub set: u64,
    /// Writes that the kernel refused.
    pub refused: u64,
}

impl InterruptTotals {
    /// Adds those of a turn.
    pub fn add(&mut self, found: &InterruptAssessment) {
        for (node, count) in &found.by_node {
            *self.by_node.entry(*node).or_default() += count;
            // A counter begins at 0, not with its first event.
            self.on_exclusive.entry(*node).or_default();
        }
        for (node, count) in &found.on_exclusive {
            *self.on_exclusive.entry(*node).or_default() += count;
        }
    }
}

/// One line for each interrupt that concerns a workload.
pub fn lines(of: &InterruptsOfWorkload) -> Vec<String> {
    let parts = [
        ("on its exclusive CPUs", &of.on_exclusive),
        ("of its device, on another node", &of.remote),
        ("of its device, on its nodes", &of.local),
    ];
    let line = |(place, lines): (&str, &Vec<String>)| -> Vec<String> {
        lines.iter().map(|line| format!("{place}: {}", text::escape(line))).collect()
    };
    parts.into_iter().flat_map(line).collect()
}
