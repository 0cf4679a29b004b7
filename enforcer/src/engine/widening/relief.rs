//! The thread that makes room on a memory node for those who cannot go elsewhere: processes that are bound to
//! it, and workloads that are declared to stay.
//!
//! Beside the thread that widens, because it reads what processes have where and waits for the kernel to move
//! it. It is woken when something is added or refused and when somebody is declared to stay, and looks at the
//! nodes for as long as anything is widened, and while anybody is declared to stay. What goes where is
//! decided in the core (`enforcer_core::widening::relief`), and moved as every page is (`enforce::pages`),
//! within the pace that holds the process up least.
//!
//! What moving does not free on the node of one that is declared to stay is asked of those whose cold pages
//! go to slower memory ([`Demotion`]), on the thread that knows which these are.
//!
//! Never: anything is moved while enforcement is paused; a process is read again and again for nothing: a
//! reading walks its page tables, so who had nothing to give rests for twice as long each time, up to a
//! second where something is bound and up to a minute where nothing is.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use enforcer_core::{
    demotion::Flow,
    id::NodeId,
    pacing::PaceLimits,
    set::NodeSet,
    widening::{Crowd, Guarded, Pressed, Pressing, Relieved, Spare, Tenant, relief, short},
    workload::{CgroupPath, Workload},
};

use super::{Guards, MOST_TOLD, Widening};
use crate::{
    engine::{
        Demotion, Gate,
        decisions::{entry, subject},
    },
    observe::{Rooms, Tenants},
};
use enforcer_act::{
    cpuset::CpusetTree,
    pages::{PageBudget, PageMoveLimits, Stop, move_flow},
};
use enforcer_kernel::{Kernel, linux::Linux};
use enforcer_report::{
    decision::{DecisionRecord, DecisionState, Subject},
    units,
};

/// Time between two looks while pages move.
const BUSY: Duration = Duration::from_millis(10);
/// The same while somebody is widened, and all have room.
const CALM: Duration = Duration::from_millis(100);
/// The same while nobody is: whoever is from then on has the thread woken.
const IDLE: Duration = Duration::from_mins(1);
/// The same while the nodes cannot be read.
const BLIND: Duration = Duration::from_secs(10);
/// Longest time for what goes from one node to another before all is looked at again.
const FLOW: Duration = Duration::from_secs(2);
/// First time for which nobody looks at a workload that had nothing to give.
const REST: Duration = Duration::from_millis(20);
/// The longest one of who has bound processes.
const LONGEST_BOUND: Duration = Duration::from_secs(1);
/// The longest one of who has none.
const LONGEST_UNBOUND: Duration = Duration::from_mins(1);

/// Each call of `move_pages(2)` waits for all CPUs to give up the pages that they keep aside
/// (`lru_cache_disable`, mm/swap.c), which takes the longer the less memory there is: many small calls would
/// spend the time on that. Who would be killed bears the stall.
pub(in crate::engine) const PACE: PaceLimits = PaceLimits {
    bytes_per_second: None,
    call: Duration::from_millis(50),
    smallest: 8 << 20,
    largest: 32 << 20,
};

/// What the thread looks with.
pub struct ReliefSenses {
    /// What the nodes have left.
    pub rooms: Rooms,
    /// Who has what there.
    pub tenants: Tenants,
}

/// What the thread has.
pub(super) struct Relief<K = Linux> {
    kernel: K,
    widening: Widening,
    senses: ReliefSenses,
    tree: CpusetTree,
    gate: Gate,
    budget: PageBudget,
    demotion: Demotion,
    pressing: Pressing,
    rests: BTreeMap<CgroupPath, (Instant, Duration)>,
    /// It was said already that the nodes cannot be read.
    blind: bool,
}

/// Pages of a workload that made room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Moved {
    /// Whose.
    pub(in crate::engine) cgroup: CgroupPath,
    whose: Relieved,
    /// For whom, where that is somebody else.
    strict: Option<CgroupPath>,
    from: NodeId,
    to: NodeId,
    bytes: u64,
    processes: u32,
    left: Vec<String>,
}

impl<K: Kernel> Relief<K> {
    pub(super) fn new(
        kernel: K,
        widening: Widening,
        senses: ReliefSenses,
        tree: CpusetTree,
        gate: Gate,
        demotion: Demotion,
    ) -> Self {
        let limits = PageMoveLimits { pace: PACE, time: FLOW, ..PageMoveLimits::default() };
        let budget = PageBudget::new(limits, Stop::default());
        let (pressing, rests) = (Pressing::default(), BTreeMap::new());
        Self { kernel, widening, senses, tree, gate, budget, demotion, pressing, rests, blind: false }
    }

    /// Until the daemon ends.
    pub(super) fn run(mut self) {
        let mut longest = IDLE;
        loop {
            match self.widening.relief_waker.wait(None, longest) {
                // Whoever had nothing to give may have by now.
                Ok((true, _)) => self.rests.clear(),
                Ok((false, _)) => {}
                Err(error) => {
                    tracing::error!("waiting for memory nodes to fill up: {error}");
                    std::thread::sleep(CALM);
                }
            }
            longest = self.look();
        }
    }

    /// Looks at the nodes, and moves what is to go. Returns the time until the next look.
    fn look(&mut self) -> Duration {
        let (guards, added) = {
            let state = self.widening.lock();
            (Arc::clone(&state.guards), state.added.clone())
        };
        self.rests.retain(|cgroup, _| guards.guarded.iter().any(|one| one.cgroup == *cgroup));
        let rooms = match self.senses.rooms.look(Instant::now()) {
            Ok(rooms) => rooms.to_vec(),
            Err(error) => {
                if !self.blind {
                    tracing::error!("memory nodes that are nearly full are not relieved: {error}");
                }
                self.blind = true;
                self.demotion.press(Pressed::default());
                return BLIND;
            }
        };
        self.blind = false;
        let all: NodeSet = rooms.iter().map(|(node, _)| *node).collect();
        let short = short(&all, &rooms, &guards.settings);
        // Nobody is woken for a strict one whose neighbours are wide already.
        let waits = !added.is_empty() || guards.anybody_stays();
        let crowd = Crowd { rooms: &rooms, short: &short, settings: &guards.settings };
        let off = self.round(&guards, &added, &crowd);
        self.demotion.press(self.pressing.look(&guards.guarded, &off, &crowd));
        if !off.is_empty() {
            BUSY
        } else if waits {
            CALM
        } else {
            IDLE
        }
    }

    /// Looks at everybody once. Returns the nodes from which pages went.
    fn round(
        &mut self,
        guards: &Guards,
        added: &BTreeMap<CgroupPath, NodeSet>,
        crowd: &Crowd<'_>,
    ) -> NodeSet {
        let mut off = NodeSet::default();
        if crowd.short.is_empty() {
            return off;
        }
        for one in guards.guarded.iter().filter(|one| !one.strict) {
            let extra = added.get(&one.cgroup);
            let mems = extra.map_or_else(|| one.mems.clone(), |extra| one.mems.union(extra));
            let crowded = mems.intersection(crowd.short);
            // None of its own is short, or all are: then nothing can be done here.
            if crowded.is_empty() || mems.is_subset(crowd.short) {
                continue;
            }
            let needy = |strict: &&Guarded| strict.strict && !strict.mems.is_disjoint(&crowded);
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
                let bound = self.relieve(Relieved::Bound, one, &tenants, (&crowded, &mems), crowd, None);
                from_it.extend(&bound);
            }
            if let Some(strict) = strict {
                let from = strict.mems.intersection(&crowded);
                let whom = Some(&strict.cgroup);
                let moved = self.relieve(Relieved::Neighbour, one, &tenants, (&from, &mems), crowd, whom);
                from_it.extend(&moved);
            }
            let bound = tenants.iter().any(|tenant| tenant.bound_bytes() > 0);
            let longest = if bound { LONGEST_BOUND } else { LONGEST_UNBOUND };
            self.note(&one.cgroup, !from_it.is_empty(), longest);
            off.extend(&from_it);
        }
        off
    }

    /// Moves what is to go; returns the nodes that something went from.
    fn relieve(
        &mut self,
        whose: Relieved,
        one: &Guarded,
        tenants: &[Tenant],
        (from, mems): (&NodeSet, &NodeSet),
        crowd: &Crowd<'_>,
        strict: Option<&CgroupPath>,
    ) -> NodeSet {
        let order: Vec<NodeId> = one.spares.iter().map(Spare::node).collect();
        let flows = relief(whose, tenants, from, mems, &order, crowd);
        let mut off = NodeSet::default();
        for flow in flows {
            let Some(inside) = self.gate.enter() else { return off };
            let report = move_flow(&self.kernel, self.senses.tenants.proc(), &mut self.budget, &flow);
            drop(inside);
            let (bytes, processes, left) = (report.moved_bytes, report.processes, report.left());
            if bytes > 0 {
                off.extend(&NodeSet::from_iter([flow.from]));
                let Flow { from, to, .. } = flow;
                let (cgroup, strict) = (one.cgroup.clone(), strict.cloned());
                self.tell(Moved { cgroup, whose, strict, from, to, bytes, processes, left });
            } else if !left.is_empty() {
                // The cpuset may be on its way; it is tried again.
                tracing::debug!("{}: nothing moved from node {}: {}", one.cgroup, flow.from, left.join(", "));
            }
        }
        off
    }

    fn tell(&self, moved: Moved) {
        tracing::info!("{}: {}", moved.cgroup, moved.sentence());
        let mut state = self.widening.lock();
        state.report.relieved(moved.whose, moved.bytes);
        if state.moved.len() < MOST_TOLD {
            state.moved.push(moved);
        }
    }

    fn rests(&self, cgroup: &CgroupPath) -> bool {
        self.rests.get(cgroup).is_some_and(|(until, _)| Instant::now() < *until)
    }

    /// Whoever had nothing to give rests, for twice as long each time.
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

impl Moved {
    /// In one sentence.
    fn sentence(&self) -> String {
        let Self { whose, strict, from, to, bytes, processes, left, .. } = self;
        let (bytes, of) = (units::bytes(*bytes), if *processes == 1 { "process" } else { "processes" });
        let mut text = match (whose, strict) {
            (Relieved::Neighbour, Some(strict)) => format!(
                "{bytes} of {processes} {of} went from node {from} to node {to}, so that {strict}, which is declared to stay, has room"
            ),
            _ => format!(
                "{bytes} of {processes} {of} bound to node {from} went to node {to}: their memory policy allows them no other node, and it was nearly full"
            ),
        };
        for part in left {
            // Writing into a text cannot fail.
            let _ = write!(text, "; {part}");
        }
        text
    }

    /// As a decision.
    pub(in crate::engine) fn record(&self, workload: &Workload) -> (Subject, DecisionRecord) {
        let reason = self.sentence();
        (subject(workload), DecisionRecord { reason, ..entry(super::told::BY, DecisionState::Corrected) })
    }
}

#[cfg(test)]
mod tests;
