//! The thread that makes room on a memory node for pages that cannot go elsewhere: those of processes bound
//! to it, and of workloads declared to stay.
//!
//! Problem: it reads the memory of processes and waits for the kernel to move pages, and the widening thread
//! must not wait. Idea: a thread beside it. It wakes when a node is added or refused, and when a workload is
//! declared to stay. It looks at the nodes while a workload is widened or declared to stay. The core decides
//! the moves (`enforcer_core::widening::relief`); `enforce::pages` does them at the pace that delays the
//! process least.
//!
//! When moves do not free enough on the node of a workload that is declared to stay, [`Demotion`] is asked
//! for the cold pages of its neighbours: that thread knows them.
//!
//! Invariants: nothing moves while enforcement is paused. Reading a process walks its page tables, so a
//! workload without pages to move rests. Each rest is twice as long as the one before: up to a second for
//! bound processes, up to a minute for others.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use enforcer_core::{
    demotion::PageFlow,
    widening::{
        FallbackNode, PressedNodes, PressureTracker, PressuredNodes, ProcessMemory, ProtectedWorkload,
        ReclaimSource, relief, short,
    },
    workload::CgroupPath,
};
use numa_topology::{id::NodeId, set::NodeSet};

use super::{
    relief_move::ReliefMove,
    shared::{Guards, MOST_TOLD, Widening},
};
use crate::engine::{Demotion, Gate, demotion::RELIEF_PACE};
use enforcer_act::{
    cpuset::CpusetTree,
    pages::{PageBudget, PageMoveLimits, Stop, move_flow},
};
use enforcer_kernel::{Kernel, linux::Linux};
use enforcer_observe::{HeadroomReader, ResidentsReader};

/// Interval of looks while pages move.
const BUSY: Duration = Duration::from_millis(10);
/// The same while a workload is widened and all have room.
const CALM: Duration = Duration::from_millis(100);
/// The same while none is widened or declared to stay: the first one wakes the thread.
const IDLE: Duration = Duration::from_mins(1);
/// The same while the nodes cannot be read.
const BLIND: Duration = Duration::from_secs(10);
/// Longest time for moves between one pair of nodes before the nodes are read again.
const FLOW: Duration = Duration::from_secs(2);
/// First rest of a workload without pages to move.
const REST: Duration = Duration::from_millis(20);
/// Longest rest of a workload with bound processes.
const LONGEST_BOUND: Duration = Duration::from_secs(1);
/// Longest rest of a workload without bound processes.
const LONGEST_UNBOUND: Duration = Duration::from_mins(1);

/// Observers of the relief thread.
pub struct ReliefSensors {
    /// Free memory of the nodes.
    pub rooms: HeadroomReader,
    /// Memory of processes by node.
    pub tenants: ResidentsReader,
}

/// State of the relief thread.
pub(super) struct ReliefWorker<K = Linux> {
    kernel: K,
    widening: Widening,
    senses: ReliefSensors,
    tree: CpusetTree,
    gate: Gate,
    budget: PageBudget,
    demotion: Demotion,
    pressing: PressureTracker,
    rests: BTreeMap<CgroupPath, (Instant, Duration)>,
    /// The failure to read the nodes was logged already.
    blind: bool,
}

impl<K: Kernel> ReliefWorker<K> {
    pub(super) fn new(
        kernel: K,
        widening: Widening,
        senses: ReliefSensors,
        tree: CpusetTree,
        gate: Gate,
        demotion: Demotion,
    ) -> Self {
        let limits = PageMoveLimits { pace: RELIEF_PACE, time: FLOW, ..PageMoveLimits::default() };
        let budget = PageBudget::new(limits, Stop::default());
        let (pressing, rests) = (PressureTracker::default(), BTreeMap::new());
        Self { kernel, widening, senses, tree, gate, budget, demotion, pressing, rests, blind: false }
    }

    /// Runs until the daemon ends.
    pub(super) fn run(mut self) {
        let mut longest = IDLE;
        loop {
            match self.widening.relief_waker.wait(None, longest) {
                // A workload without pages to move may have some by now.
                Ok((true, _)) => self.rests.clear(),
                Ok((false, _)) => {}
                Err(error) => {
                    tracing::error!("waiting for memory nodes to fill up: {error}");
                    std::thread::sleep(CALM);
                }
            }
            longest = self.run_round();
        }
    }

    /// Reads the nodes and moves pages where needed. Returns the time until the next look.
    fn run_round(&mut self) -> Duration {
        let (guards, added) = {
            let state = self.widening.lock();
            (Arc::clone(&state.guards), state.added.clone())
        };
        self.rests.retain(|cgroup, _| guards.guarded.iter().any(|one| one.cgroup == *cgroup));
        let rooms = match self.senses.rooms.read(Instant::now()) {
            Ok(rooms) => rooms.to_vec(),
            Err(error) => {
                if !self.blind {
                    tracing::error!("memory nodes that are nearly full are not relieved: {error}");
                }
                self.blind = true;
                self.demotion.press(PressedNodes::default());
                return BLIND;
            }
        };
        self.blind = false;
        let all: NodeSet = rooms.iter().map(|(node, _)| *node).collect();
        let short = short(&all, &rooms, &guards.settings);
        // Nothing wakes the thread for a strict workload once its neighbours are widened.
        let waits = !added.is_empty() || guards.has_strict();
        let crowd = PressuredNodes { rooms: &rooms, short: &short, settings: &guards.settings };
        let off = self.round(&guards, &added, &crowd);
        self.demotion.press(self.pressing.update(&guards.guarded, &off, &crowd));
        if !off.is_empty() {
            BUSY
        } else if waits {
            CALM
        } else {
            IDLE
        }
    }

    /// Looks at all workloads once. Returns the nodes that pages left.
    fn round(
        &mut self,
        guards: &Guards,
        added: &BTreeMap<CgroupPath, NodeSet>,
        crowd: &PressuredNodes<'_>,
    ) -> NodeSet {
        let mut off = NodeSet::default();
        if crowd.short.is_empty() {
            return off;
        }
        for one in guards.guarded.iter().filter(|one| !one.strict) {
            let extra = added.get(&one.cgroup);
            let mems = extra.map_or_else(|| one.mems.clone(), |extra| one.mems.union(extra));
            let crowded = mems.intersection(crowd.short);
            // No node of its own is short, or all of them are: moves would not help.
            if crowded.is_empty() || mems.is_subset(crowd.short) {
                continue;
            }
            let needy = |strict: &&ProtectedWorkload| strict.strict && !strict.mems.is_disjoint(&crowded);
            let strict = guards.guarded.iter().find(needy);
            if (extra.is_none() && strict.is_none()) || self.rests(&one.cgroup) {
                continue;
            }
            let tenants = match self.senses.tenants.of(&self.tree.path_of(&one.cgroup)) {
                Ok(tenants) => tenants,
                Err(error) => {
                    tracing::debug!("{}: {error}", one.cgroup);
                    Vec::new()
                }
            };
            let mut from_it = NodeSet::default();
            if extra.is_some() {
                let bound = self.relieve(ReclaimSource::Bound, one, &tenants, (&crowded, &mems), crowd, None);
                from_it.extend(&bound);
            }
            if let Some(strict) = strict {
                let from = strict.mems.intersection(&crowded);
                let strict = Some(&strict.cgroup);
                let moved =
                    self.relieve(ReclaimSource::Neighbour, one, &tenants, (&from, &mems), crowd, strict);
                from_it.extend(&moved);
            }
            let bound = tenants.iter().any(|tenant| tenant.bound_bytes() > 0);
            let longest = if bound { LONGEST_BOUND } else { LONGEST_UNBOUND };
            self.note(&one.cgroup, !from_it.is_empty(), longest);
            off.extend(&from_it);
        }
        off
    }

    /// Moves pages of one workload. Returns the nodes that pages left.
    fn relieve(
        &mut self,
        source: ReclaimSource,
        one: &ProtectedWorkload,
        tenants: &[ProcessMemory],
        (from, mems): (&NodeSet, &NodeSet),
        crowd: &PressuredNodes<'_>,
        strict: Option<&CgroupPath>,
    ) -> NodeSet {
        let order: Vec<NodeId> = one.spares.iter().map(FallbackNode::node).collect();
        let flows = relief(source, tenants, from, mems, &order, crowd);
        let mut off = NodeSet::default();
        for flow in flows {
            let Some(inside) = self.gate.enter() else { return off };
            let report = move_flow(&self.kernel, self.senses.tenants.proc(), &mut self.budget, &flow);
            drop(inside);
            let (bytes, processes, left) = (report.moved_bytes, report.processes, report.left());
            if bytes > 0 {
                off.extend(&NodeSet::from_iter([flow.from]));
                let PageFlow { from, to, .. } = flow;
                let (cgroup, strict) = (one.cgroup.clone(), strict.cloned());
                self.note_move(ReliefMove { cgroup, source, strict, from, to, bytes, processes, left });
            } else if !left.is_empty() {
                // The cpuset write may be in progress; the next look tries again.
                tracing::debug!("{}: nothing moved from node {}: {}", one.cgroup, flow.from, left.join(", "));
            }
        }
        off
    }

    fn note_move(&self, moved: ReliefMove) {
        tracing::info!("{}: {}", moved.cgroup, moved.sentence());
        let mut state = self.widening.lock();
        state.report.relieved(moved.source, moved.bytes);
        if state.moved.len() < MOST_TOLD {
            state.moved.push(moved);
        }
    }

    fn rests(&self, cgroup: &CgroupPath) -> bool {
        self.rests.get(cgroup).is_some_and(|(until, _)| Instant::now() < *until)
    }

    /// A workload without pages to move rests, twice as long each time.
    fn note(&mut self, cgroup: &CgroupPath, moved: bool, longest: Duration) {
        if moved {
            self.rests.remove(cgroup);
            return;
        }
        let (until, rest) = self.rests.entry(cgroup.clone()).or_insert((Instant::now(), REST / 2));
        *rest = (*rest * 2).min(longest);
        *until = Instant::now() + *rest;
    }
}

#[cfg(test)]
mod tests;
