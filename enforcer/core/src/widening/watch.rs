//! All guarded workloads, look by look.
//!
//! The caller passes what each node has and gets the steps that are due, in the order of need.
//! [`WideningWatch`] keeps the rates of the nodes and the stages of the workloads; it reads no clock and no
//! file.
//!
//! A strict workload that is short gets no node. Neighbours that may be elsewhere get one, so that their
//! pages can go ([`super::relief`]).
//!
//! Invariants: two steps of one workload are 2 s apart, in an emergency 100 ms; a workload with a write in
//! progress gets no step; a refusal is reported once for each shortage.
//!
//! Cost: a look is one pass over the nodes for each distinct set of them, and one over the workloads. It
//! allocates nothing while no step is due: memory for steps is reserved when workloads are added.

use std::time::Duration;

use super::{
    NodeRoom,
    brake::{BrakeKind, BrakeOrder, Brakes, WaitingWorkload},
    choice,
    guard::{Guard, WideningRefusal},
    neighbours,
    rate::Rate,
    stage::{NodeSetHeadroom, PressureLevel, PressureMarks, PressureSign, stage},
    views::{FillSpeed, Views},
};
use crate::{policy::WideningSettings, turn::ProtectedWorkload, workload::CgroupPath};
use numa_topology::{id::NodeId, set::NodeSet};

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// Least time between two steps of one workload.
const APART: u64 = 2_000 * MS;
/// The same in an emergency, and between two tries of a failed write.
const APART_IN_EMERGENCY: u64 = 100 * MS;

/// Most looks left out in a row.
const MOST_PASSED: u8 = 3;
/// The same for looks that are far apart.
const MOST_PASSED_STILL: u8 = 1;
/// Looks in a row without a loss of free memory, left-out ones included, after which that is likely to last:
/// some ten seconds.
const STILL: u8 = 16;

/// A step for a guarded workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WideningStep {
    /// Index in [`WideningWatch::guards`].
    pub guard: usize,
    /// Its stage.
    pub stage: PressureLevel,
    /// Its nodes together.
    pub sight: NodeSetHeadroom,
    /// What to do.
    pub what: WideningAction,
}

/// What to do about a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WideningAction {
    /// Write these memory nodes to its cpuset.
    Widen(NodeSet),
    /// Add no node, for this reason.
    Refuse(WideningRefusal),
}

/// The guarded workloads and the nodes.
#[derive(Debug, Clone, Default)]
pub struct WideningWatch {
    settings: WideningSettings,
    nodes: Vec<KnownNode>,
    guards: Vec<Guard>,
    views: Views,
    steps: Vec<WideningStep>,
    brakes: Brakes,
    /// Looks left out since the latest one.
    passed: u8,
    /// Looks since free memory last shrank.
    still: u8,
}

/// Latest room and rate of one node.
#[derive(Debug, Clone, Copy)]
struct KnownNode {
    id: NodeId,
    room: NodeRoom,
    rate: Rate,
}

impl WideningWatch {
    /// Guards exactly these workloads from now on. State is kept of workloads that were guarded before, in
    /// the same life of their cgroup.
    pub fn set_guarded(&mut self, settings: &WideningSettings, guarded: Vec<ProtectedWorkload>) {
        self.settings.clone_from(settings);
        let mut before = std::mem::take(&mut self.guards);
        for now in guarded {
            let same = |one: &Guard| one.of.cgroup == now.cgroup && one.of.cgroup_id == now.cgroup_id;
            let guard = if let Some(index) = before.iter().position(same) {
                let mut guard = before.swap_remove(index);
                guard.update(now);
                guard
            } else {
                // A new life of the same cgroup would be killed as the last one was.
                let raised = before.iter().find(|one| one.of.cgroup == now.cgroup).map(|one| one.raised);
                // A new workload is about to allocate.
                self.still = 0;
                Guard { raised: raised.unwrap_or(0), ..Guard::new(now) }
            };
            self.guards.push(guard);
        }
        self.steps.clear();
        self.steps.reserve(self.guards.len());
        self.views.reserve(self.guards.len());
        self.brakes.reserve(self.guards.len());
    }

    /// The guarded workloads.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Is any workload above the stage calm, or slowed down?
    pub fn is_armed(&self) -> bool {
        self.guards.iter().any(|guard| guard.stage > PressureLevel::Calm) || self.brakes.is_any()
    }

    /// Time that the next look may wait while all is calm, by the latest look. `told` is whether the kernel
    /// reports that memory gets short.
    pub fn rest(&self, told: bool) -> Duration {
        let pace = match (told, self.still >= STILL) {
            (false, _) => FillSpeed::Unreported,
            (true, false) => FillSpeed::Reported,
            (true, true) => FillSpeed::Still,
        };
        if self.passed > 0 { self.views.shorter_rest(pace) } else { self.views.rest(pace) }
    }

    /// Leaves out a look if `gone`, the loss of free bytes on all nodes together since the latest look, is
    /// next to nothing; returns whether it did. Only valid with the kernel's reports: pages that go from one
    /// node to another do not change the sum, and are seen by one look of four, or of two that are far apart.
    pub fn pass(&mut self, gone: u64) -> bool {
        let calm = |guard: &Guard| {
            guard.stage == PressureLevel::Calm && guard.sign.is_none() && guard.pending.is_none()
        };
        let still = self.views.can_spare(self.guards.len(), gone)
            && !self.brakes.is_any()
            && self.guards.iter().all(calm);
        self.still = if still { self.still.saturating_add(1) } else { 0 };
        let most = if self.still < STILL { MOST_PASSED } else { MOST_PASSED_STILL };
        let passes = still && self.passed < most;
        self.passed = if passes { self.passed + 1 } else { 0 };
        passes
    }

    /// Can [`Self::brake`] return an order?
    pub fn may_brake(&self) -> bool {
        self.brakes.is_any() || self.guards.iter().any(|guard| guard.waits_on().is_some())
    }

    /// Orders to slow workloads down until their writes return, and to release them, after a look at the same
    /// time. `kind` is the method that is allowed now.
    pub fn brake(&mut self, now_ns: u64, write_ns: u64, kind: Option<BrakeKind>) -> &[BrakeOrder] {
        let Self { settings, nodes, guards, brakes, .. } = self;
        let (settings, nodes) = (&*settings, &*nodes);
        let waiting = guards.iter().filter_map(|guard| {
            let sight = sight(nodes, guard.waits_on()?);
            let marks = PressureMarks::of(settings, sight.capacity).raised(guard.raised, sight.capacity);
            let near = stage(guard.stage, &sight, marks, write_ns, guard.told);
            let is_emergency = near == PressureLevel::Emergency;
            let (time_left_ns, rate) = (sight.time_left_ns(), sight.rate);
            Some(WaitingWorkload { cgroup: &guard.of.cgroup, is_emergency, time_left_ns, rate })
        });
        brakes.turn(now_ns, write_ns, kind, waiting)
    }

    /// Records an event of the kernel about a node, or about a thread of a cgroup that ran there. A direct
    /// reclaim has no node: it counts for its cgroup, or if that is not guarded, for workloads that run on
    /// the node's CPUs.
    pub fn note_sign(&mut self, sign: PressureSign, node: NodeId, cgroup_id: u64) {
        self.still = 0;
        if sign == PressureSign::DirectReclaim {
            let mut its_own = false;
            for guard in self.guards.iter_mut().filter(|guard| guard.of.cgroup_id == Some(cgroup_id)) {
                guard.sign(sign);
                its_own = true;
            }
            for guard in &mut self.guards {
                if !its_own && guard.of.cpu_nodes.contains(node) {
                    guard.sign(sign);
                }
            }
            return;
        }
        for guard in self.guards.iter_mut().filter(|guard| guard.of.mems.contains(node)) {
            guard.sign(sign);
        }
    }

    /// Looks at the nodes at `now_ns`. `limit` returns how many bytes a workload may still grow by its own
    /// limits (`memory.max` of it and of its ancestors), `None` without one; it is called only for workloads
    /// that are about to be widened. `write_ns` is the longest duration of a write. The steps come in the
    /// order of need.
    pub fn steps(
        &mut self,
        now_ns: u64,
        rooms: &[(NodeId, NodeRoom)],
        write_ns: u64,
        limit: &mut dyn FnMut(&ProtectedWorkload) -> Option<u64>,
    ) -> &[WideningStep] {
        self.note(now_ns, rooms);
        self.passed = 0;
        self.steps.clear();
        let Self { settings, nodes, guards, views, steps, .. } = self;
        views.take(settings, guards, |mems| sight(nodes, mems));
        for (index, guard) in guards.iter_mut().enumerate() {
            let Some((sight, marks)) = views.get(index) else { continue };
            let sign = guard.sign.take();
            guard.told = sign;
            guard.stage = if sight.capacity == 0 {
                // The room of its nodes is unknown.
                PressureLevel::Calm
            } else {
                stage(guard.stage, &sight, marks, write_ns, sign)
            };
            if guard.stage < PressureLevel::Widen {
                guard.refused = guard.refused.filter(|_| guard.stage > PressureLevel::Calm);
                continue;
            }
            if let Some(what) = due(guard, nodes, &sight, now_ns, limit) {
                steps.push(WideningStep { guard: index, stage: guard.stage, sight, what });
            }
        }
        relieve_strict(settings, nodes, guards, steps, now_ns);
        steps.sort_unstable_by_key(|step| {
            (std::cmp::Reverse(step.stage), step.sight.time_left_ns().unwrap_or(u64::MAX), step.guard)
        });
        &self.steps
    }

    /// Records that one of its processes was killed because its nodes were full: from now on it is widened
    /// earlier.
    pub fn killed(&mut self, cgroup: &CgroupPath) {
        for guard in self.guards.iter_mut().filter(|guard| guard.of.cgroup == *cgroup) {
            guard.raised = guard.raised.saturating_add(1);
        }
    }

    /// Records that a write has returned: done, or failed and the cpuset is as before.
    pub fn written(&mut self, cgroup: &CgroupPath, done: bool) {
        for guard in self.guards.iter_mut().filter(|guard| guard.of.cgroup == *cgroup) {
            if let Some(before) = guard.pending.take()
                && !done
            {
                guard.of.mems = before;
            }
        }
    }

    fn note(&mut self, now_ns: u64, rooms: &[(NodeId, NodeRoom)]) {
        self.nodes.retain(|known| rooms.iter().any(|(id, _)| *id == known.id));
        for (id, room) in rooms {
            let index = self.nodes.iter().position(|known| known.id == *id);
            let index = index.unwrap_or_else(|| {
                self.nodes.push(KnownNode { id: *id, room: *room, rate: Rate::default() });
                self.nodes.len() - 1
            });
            if let Some(known) = self.nodes.get_mut(index) {
                known.room = *room;
                known.rate.note(now_ns, room.available());
            }
        }
    }
}

/// The nodes of a workload together.
fn sight(nodes: &[KnownNode], mems: &NodeSet) -> NodeSetHeadroom {
    let (mut sight, mut quick, mut slow) = (NodeSetHeadroom::default(), 0i64, 0i64);
    for known in nodes.iter().filter(|known| mems.contains(known.id)) {
        sight.headroom = sight.headroom.saturating_add(known.room.headroom());
        sight.room = sight.room.saturating_add(known.room.available());
        sight.capacity = sight.capacity.saturating_add(known.room.managed);
        let (of_quick, of_slow) = known.rate.averages();
        quick = quick.saturating_add(of_quick);
        slow = slow.saturating_add(of_slow);
    }
    sight.rate = u64::try_from(quick.max(slow)).unwrap_or(0);
    sight
}

/// Widens neighbours of strict workloads that are short, so that their pages can go.
fn relieve_strict(
    settings: &WideningSettings,
    nodes: &[KnownNode],
    guards: &mut [Guard],
    steps: &mut Vec<WideningStep>,
    now_ns: u64,
) {
    let room = |id: NodeId| nodes.iter().find(|known| known.id == id).map(|known| known.room);
    let apart = |guard: &Guard| guard.stepped_ns.is_none_or(|at| now_ns.saturating_sub(at) >= APART);
    // Pages take longer to move than a cpuset takes to write, so this begins in the stage armed.
    let short = |guard: &Guard| guard.of.strict && guard.stage >= PressureLevel::Armed;
    let strict: Vec<usize> =
        guards.iter().enumerate().filter(|(_, one)| short(one)).map(|(at, _)| at).collect();
    for at in strict {
        let Some(sight) = guards.get(at).map(|guard| sight(nodes, &guard.of.mems)) else { continue };
        let raised = guards.get(at).map_or(0, |guard| guard.raised);
        let marks = PressureMarks::of(settings, sight.capacity).raised(raised, sight.capacity);
        let missing = marks.missing(sight.room);
        for (index, wider) in neighbours::widened(guards, at, missing, &apart, &room) {
            let Some(guard) = guards.get_mut(index) else { continue };
            guard.ask(&wider, false, now_ns);
            steps.push(WideningStep {
                guard: index,
                stage: PressureLevel::Widen,
                sight,
                what: WideningAction::Widen(wider),
            });
        }
    }
}

/// The step that is due for a workload that is short; `None` if it was taken or reported already.
fn due(
    guard: &mut Guard,
    nodes: &[KnownNode],
    sight: &NodeSetHeadroom,
    now_ns: u64,
    limit: &mut dyn FnMut(&ProtectedWorkload) -> Option<u64>,
) -> Option<WideningAction> {
    let emergency = guard.stage == PressureLevel::Emergency;
    let apart = if emergency { APART_IN_EMERGENCY } else { APART };
    let too_soon = guard.stepped_ns.is_some_and(|at| now_ns.saturating_sub(at) < apart);
    if guard.pending.is_some() || too_soon {
        return None;
    }
    let room = |id: NodeId| nodes.iter().find(|known| known.id == id).map(|known| known.room);
    // An emergency does not count on reclaim.
    let enough = if emergency { sight.headroom } else { sight.room };
    let refusal = if guard.of.strict {
        WideningRefusal::Strict
    } else if limit(&guard.of).is_some_and(|left| left <= enough) {
        WideningRefusal::MemoryLimit
    } else if let Some(wider) = choice::added(&guard.of.mems, &guard.of.spares, sight.rate, emergency, &room)
    {
        guard.ask(&wider, true, now_ns);
        guard.refused = None;
        return Some(WideningAction::Widen(wider));
    } else {
        WideningRefusal::NoNode
    };
    (guard.refused.replace(refusal) != Some(refusal)).then_some(WideningAction::Refuse(refusal))
}

#[cfg(test)]
mod tests;
