//! The host while a plan is made: what is free where, after the groups that were chosen so far.
//!
//! [`PlanState::after`] tries a group. It returns the state after the group if every bound holds at each move
//! of the group, else the bound that does not hold. The state itself is never changed by a trial.
//!
//! CPUs: exclusive CPUs of a workload are not free. Workloads that share CPUs keep as many as they want, or
//! no fewer than before. Memory: arriving bytes must be available, and the node keeps enough after them; one
//! side of an exchange moves first, so the other node needs room for it. Promises are compared at the end of
//! a group.

use std::collections::BTreeMap;

use super::{
    view::{CpusHeld, FreeResources, HostState, Mover},
    worth::{Footprint, lost_per_second, of_move, of_shortage, to_f64},
};
use crate::{policy::RebalanceSettings, words};
use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

/// Nodes that are short of memory: below the lower threshold, or below the upper one if they were short
/// before.
pub(super) fn short(host: &HostState<'_>, settings: &RebalanceSettings) -> NodeSet {
    let is_short = |(node, room): (&NodeId, &FreeResources)| {
        let below = if host.short.contains(*node) { settings.enough_above } else { settings.short_below };
        let total = room.total_bytes.filter(|total| *total > 0);
        let share = room.available_bytes.zip(total).map(|(has, total)| to_f64(has) / to_f64(total));
        share.is_some_and(|share| share < below).then_some(*node)
    };
    host.rooms.iter().filter_map(is_short).collect()
}

/// One workload that settles on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Settle {
    /// Index of the mover.
    pub(super) index: usize,
    pub(super) to: NodeId,
    /// Its CPUs after the move; absent if they stay.
    pub(super) cpus: Option<CpusHeld>,
}

/// A workload that settles, with the bytes that this moves.
#[derive(Debug, Clone)]
pub(super) struct SettleStep {
    pub(super) settle: Settle,
    pub(super) from: BTreeMap<NodeId, u64>,
    pub(super) bytes: u64,
}

/// Why a group is not possible. The variant closest to being possible comes last.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GroupBound {
    NoNode,
    Cpus(String),
    Memory(String),
    Budget(String),
    Worth(String),
}

impl GroupBound {
    pub(super) fn into_reason(self) -> String {
        match self {
            Self::NoNode => "there is no node on which it may settle and fares better".into(),
            Self::Cpus(reason) | Self::Memory(reason) | Self::Worth(reason) | Self::Budget(reason) => reason,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct PlanState<'a> {
    pub(super) host: &'a HostState<'a>,
    pub(super) movers: &'a [&'a Mover],
    pub(super) settings: &'a RebalanceSettings,
    pub(super) cpus: Vec<CpusHeld>,
    pub(super) standing: Vec<Footprint>,
    pub(super) moved: Vec<bool>,
    pub(super) budget: u64,
    free: BTreeMap<NodeId, CpuSet>,
    available: BTreeMap<NodeId, Option<u64>>,
    unpromised: BTreeMap<NodeId, Option<u64>>,
    /// Nodes that are short of memory, or were short and are still below the upper threshold.
    short: NodeSet,
}

impl<'a> PlanState<'a> {
    pub(super) fn new(
        host: &'a HostState<'a>,
        movers: &'a [&'a Mover],
        settings: &'a RebalanceSettings,
        budget: u64,
    ) -> Self {
        let rooms = || host.rooms.iter();
        let mut state = Self {
            host,
            movers,
            settings,
            cpus: movers.iter().map(|mover| mover.cpus.clone()).collect(),
            standing: movers.iter().map(|mover| Footprint::of(mover)).collect(),
            moved: vec![false; movers.len()],
            budget,
            free: rooms().map(|(node, room)| (*node, room.free.clone())).collect(),
            available: rooms().map(|(node, room)| (*node, room.available_bytes)).collect(),
            unpromised: rooms().map(|(node, room)| (*node, room.unpromised_bytes)).collect(),
            short: NodeSet::new(),
        };
        state.short = short(host, settings);
        state
    }

    /// Nodes that are short of memory.
    pub(super) fn short(&self) -> NodeSet {
        self.short.iter().filter(|node| self.missing(*node) > 0).collect()
    }

    /// Nodes on which sharing workloads want more CPU time than there is.
    pub(super) fn crowded(&self) -> NodeSet {
        self.host.rooms.keys().copied().filter(|node| self.excess_milli(*node) > 0).collect()
    }

    /// Available share of a node's memory.
    pub(super) fn share(&self, node: NodeId) -> Option<f64> {
        let total = self.host.rooms.get(&node)?.total_bytes.filter(|total| *total > 0)?;
        Some(to_f64((*self.available.get(&node)?)?) / to_f64(total))
    }

    /// The nodes of a workload's CPUs.
    pub(super) fn nodes(&self, index: usize) -> NodeSet {
        self.cpus[index].nodes(self.host.machine)
    }

    /// Picks `count` free CPUs of a node: those of free cores before those with a busy sibling.
    pub(super) fn take(&self, node: NodeId, count: usize) -> Option<CpuSet> {
        let pinned = self.host.rooms.get(&node).map(|room| &room.pinned);
        let free = &pinned.map_or_else(
            || self.free.get(&node).cloned(),
            |pinned| Some(self.free.get(&node)?.difference(pinned)),
        )?;
        let machine = self.host.machine;
        let core = |id: CpuId| machine.cpus.iter().find(|cpu| cpu.id == id).map(|cpu| &cpu.siblings);
        let mut cpus: Vec<(bool, CpuId, CpuId)> = free
            .iter()
            .map(|id| {
                let siblings = core(id).filter(|siblings| !siblings.is_empty());
                let whole = siblings.is_none_or(|siblings| siblings.is_subset(free));
                (!whole, siblings.and_then(numa_topology::set::IdSet::first).unwrap_or(id), id)
            })
            .collect();
        cpus.sort_unstable();
        (cpus.len() >= count).then(|| cpus.into_iter().take(count).map(|(_, _, id)| id).collect())
    }

    /// The state after the group with its steps in order, or the bound that refuses the group.
    pub(super) fn after(&self, group: &[Settle]) -> Result<(Self, Vec<SettleStep>), GroupBound> {
        let mut next = self.clone();
        let mut steps: Vec<SettleStep> = group.iter().map(|settle| self.step(settle)).collect();
        let bytes = steps.iter().fold(0u64, |sum, step| sum.saturating_add(step.bytes));
        next.move_cpus(&steps);
        self.check_cpus(&next)?;
        if let Err(bound) = next.move_memory(&steps) {
            // In an exchange the other workload may move first.
            steps.reverse();
            next.available.clone_from(&self.available);
            if steps.len() < 2 || next.move_memory(&steps).is_err() {
                return Err(bound);
            }
        }
        next.move_promises(&steps)?;
        next.budget = self.budget.checked_sub(bytes).ok_or_else(|| {
            GroupBound::Budget(format!(
                "{} would have to be moved, and {} are left of the budget (rebalance.max_bytes)",
                words::size(bytes),
                words::size(self.budget)
            ))
        })?;
        for step in &steps {
            let Settle { index, to, .. } = step.settle;
            next.standing[index] = Footprint::settled(self.movers[index], self.host, to);
            next.moved[index] = true;
        }
        Ok((next, steps))
    }

    fn step(&self, settle: &Settle) -> SettleStep {
        let from = self.movers[settle.index].away(self.host, settle.to);
        let bytes = from.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        SettleStep { settle: settle.clone(), from, bytes }
    }

    fn move_cpus(&mut self, steps: &[SettleStep]) {
        for step in steps {
            let index = step.settle.index;
            let Some(new) = &step.settle.cpus else { continue };
            if let CpusHeld::Alone(had) = &self.cpus[index] {
                for (node, free) in &mut self.free {
                    if let Some(there) = self.host.machine.node(*node) {
                        free.extend(&there.cpus.intersection(had));
                    }
                }
            }
            self.cpus[index] = new.clone();
        }
        // After all removals: in an exchange each workload takes CPUs that the other has given up.
        for step in steps {
            if let Some(CpusHeld::Alone(new)) = &step.settle.cpus {
                for free in self.free.values_mut() {
                    *free = free.difference(new);
                }
            }
        }
    }

    /// Checks that no node lacks more shared CPU time than before, if it lacks any.
    fn check_cpus(&self, next: &Self) -> Result<(), GroupBound> {
        for node in self.host.rooms.keys() {
            let excess = next.excess_milli(*node);
            if excess > self.excess_milli(*node) {
                return Err(GroupBound::Cpus(format!(
                    "containers that share CPUs on node {node} would be {excess}m short of CPU time"
                )));
            }
        }
        Ok(())
    }

    /// Thousandths of a CPU that sharing workloads want beyond the shared CPUs of the node.
    fn excess_milli(&self, node: NodeId) -> u64 {
        let others = self.host.rooms.get(&node).map_or(0, |room| room.others_milli);
        let wanted = self.cpus.iter().fold(others, |sum, cpus| match cpus {
            CpusHeld::Together { nodes, milli } if nodes.contains(node) => {
                sum.saturating_add(milli / u64::try_from(nodes.len()).unwrap_or(u64::MAX))
            }
            _ => sum,
        });
        let has = self.free.get(&node).map_or(0, CpuSet::len);
        wanted.saturating_sub(u64::try_from(has).unwrap_or(u64::MAX).saturating_mul(1000))
    }

    /// Moves the memory step by step: each arrival must leave its node with enough.
    fn move_memory(&mut self, steps: &[SettleStep]) -> Result<(), GroupBound> {
        for step in steps.iter().filter(|step| step.bytes > 0) {
            let to = step.settle.to;
            let enough = self.enough(to);
            let room = self.available.get(&to).copied().flatten().zip(enough);
            let Some((available, enough)) = room else {
                return Err(GroupBound::Memory(format!(
                    "how much memory node {to} has to give is not known"
                )));
            };
            let left = available.checked_sub(step.bytes).filter(|left| *left >= enough).ok_or_else(|| {
                GroupBound::Memory(format!(
                    "node {to} can give {} and must keep {} (rebalance.enough_above): {} do not fit",
                    words::size(available),
                    words::size(enough),
                    words::size(step.bytes)
                ))
            })?;
            self.available.insert(to, Some(left));
            for (from, bytes) in &step.from {
                if let Some(Some(available)) = self.available.get_mut(from) {
                    *available = available.saturating_add(*bytes);
                }
            }
        }
        Ok(())
    }

    fn move_promises(&mut self, steps: &[SettleStep]) -> Result<(), GroupBound> {
        for step in steps {
            for (node, bytes) in &self.movers[step.settle.index].promised {
                if let Some(Some(left)) = self.unpromised.get_mut(node) {
                    *left = left.saturating_add(*bytes);
                }
            }
        }
        for step in steps {
            let all = self.movers[step.settle.index].promised.values();
            let bytes = all.fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
            let to = step.settle.to;
            if let Some(Some(left)) = self.unpromised.get_mut(&to) {
                *left = left.checked_sub(bytes).ok_or_else(|| {
                    GroupBound::Memory(format!(
                        "it was promised {}, and {} of node {to} are not promised to others",
                        words::size(bytes),
                        words::size(*left)
                    ))
                })?;
            }
        }
        Ok(())
    }

    /// Bytes that a node must keep.
    fn enough(&self, node: NodeId) -> Option<u64> {
        let total = self.host.rooms.get(&node)?.total_bytes?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a positive amount"
        )]
        let enough = (to_f64(total) * self.settings.enough_above) as u64;
        Some(enough)
    }

    /// Bytes that a short node lacks.
    fn missing(&self, node: NodeId) -> u64 {
        let has = self.available.get(&node).copied().flatten();
        let missing = || Some(self.enough(node)?.saturating_sub(has?));
        if self.short.contains(node) { missing().unwrap_or(0) } else { 0 }
    }

    /// CPU seconds that the host in this state costs within the horizon: the workloads of the group, and all
    /// nodes.
    pub(super) fn lost(&self, group: &[Settle]) -> f64 {
        let horizon = self.settings.horizon.get().as_secs_f64();
        let workloads = group.iter().map(|one| self.lost_per_second(one.index)).sum::<f64>() * horizon;
        let nodes = self.host.rooms.keys().map(|node| {
            of_shortage(self.missing(*node)) + to_f64(self.excess_milli(*node)) / 1000.0 * horizon
        });
        workloads + nodes.sum::<f64>()
    }

    /// CPU seconds that a workload loses per second.
    pub(super) fn lost_per_second(&self, index: usize) -> f64 {
        lost_per_second(self.movers[index], &self.standing[index], self.host)
    }

    /// CPU seconds that the steps cost.
    pub(super) fn cost(&self, steps: &[SettleStep]) -> f64 {
        let of = |step: &SettleStep| {
            let cache = self.host.rooms.get(&step.settle.to).and_then(|room| room.cache_bytes);
            of_move(self.movers[step.settle.index], step.bytes, step.settle.cpus.is_some(), cache)
        };
        steps.iter().map(of).sum()
    }
}
