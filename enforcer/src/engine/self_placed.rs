//! Checks, before memory nodes are guarded or taken back, whether the writes would change placements that
//! processes have set themselves; and what the decision of a turn asks of the host.
//!
//! Observe mode checks too, so that the report names the workloads a live plan would leave alone. The rounds
//! of a decision are in the core ([`decide_turn`](enforcer_core::turn::decide_turn)).
//!
//! Invariants: no lock is held while processes are read, and the discarded decisions leave no trace.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    declarations::Declarations,
    hosted::Containers,
    sample::Sample,
    self_placement::CpusetWrites,
    turn::{ANSWER_LASTS_NS, SelfPlacedAnswers, SelfPlacedWorkloads, TurnHost, TurnOutput},
    widening::ProtectedWorkload,
    workload::CgroupPath,
};
use numa_placement::Allocations;
use numa_topology::{degraded::Degraded, id::NodeId, set::NodeSet};

use super::{
    Engine, HostSource, TOPOLOGY_EVERY,
    placed::{HeldResources, SharedLedger},
    recording::TurnLog,
};
use enforcer_act::self_placed::Depth;

/// Turns between two looks at a workload that may be widened: few for a new one, because its processes set
/// policies when they allocate, then ever more.
const GUARDED_EVERY: u64 = 10 * TOPOLOGY_EVERY;
/// The same for a workload on a nearly full node.
const NEARLY_FULL_EVERY: u64 = 8;

/// A look at a workload that may be widened.
struct GuardedLook {
    tick: u64,
    /// Turns until the next look.
    wait: u64,
    /// Why it is not widened.
    reason: Option<String>,
    unseen: Option<Degraded>,
}

impl GuardedLook {
    /// Whether the next look is due.
    fn is_due(&self, tick: u64, nearly_full: bool) -> bool {
        let most = if nearly_full { NEARLY_FULL_EVERY } else { GUARDED_EVERY };
        tick.saturating_sub(self.tick) >= self.wait.min(most)
    }

    /// Turns until the look after the next one.
    fn wait_after(before: Option<&Self>) -> u64 {
        before.map_or(1, |look| look.wait.saturating_mul(2).min(GUARDED_EVERY))
    }
}

/// What is known of processes that have placed themselves.
#[derive(Default)]
pub(super) struct SelfPlacedLooks {
    /// About the writes of plans.
    pub(super) answers: SelfPlacedAnswers,
    guarded: BTreeMap<(CgroupPath, Option<u64>), GuardedLook>,
    /// Why added memory nodes are not taken back, and when that was found.
    narrowed: BTreeMap<(CgroupPath, Option<u64>), (u64, String)>,
}

impl SelfPlacedLooks {
    /// Drops all answers: the settings may have changed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Why a workload that is to have only its `home` nodes again keeps the added nodes.
    pub(super) fn narrows(
        &mut self,
        source: &mut dyn HostSource,
        sample: &Sample,
        cgroup: &CgroupPath,
        (home, added): (&NodeSet, &NodeSet),
        respects: &dyn Fn(&CgroupPath) -> bool,
    ) -> Option<String> {
        let key = (cgroup.clone(), sample.cgroup_id(cgroup));
        let counts = |at: u64| sample.monotonic_ns.saturating_sub(at) < ANSWER_LASTS_NS;
        self.narrowed.retain(|_, (at, _)| counts(*at));
        if let Some((_, reason)) = self.narrowed.get(&key) {
            return Some(reason.clone());
        }
        let moves = home.first().map(|to| (added.clone(), to)).into_iter().collect();
        let writes = CpusetWrites { mems: vec![home.clone()], moves, ..CpusetWrites::default() };
        let writes = [(cgroup.clone(), writes)].into();
        let (found, _) = source.self_placed(&writes, respects, Depth::AllPolicies);
        let reason = found.into_values().next()?.reason;
        tracing::info!("{cgroup} keeps the memory nodes that were added: {reason}");
        self.narrowed.insert(key, (sample.monotonic_ns, reason.clone()));
        Some(reason)
    }

    /// Processes that could not be read.
    pub(super) fn unseen(&self) -> Option<Degraded> {
        let of_guarded = self.guarded.values().filter_map(|look| look.unseen.clone());
        together(self.answers.unseen().cloned().chain(of_guarded))
    }
}

/// What the decision of a turn reads of the host, and what it leaves in the ledger and the recording.
pub(super) struct DecidingHost<'a> {
    pub(super) source: &'a mut dyn HostSource,
    pub(super) placed: &'a SharedLedger,
    pub(super) recording: &'a mut TurnLog,
    pub(super) paused: bool,
}

impl TurnHost for DecidingHost<'_> {
    fn with_grants<T>(
        &mut self,
        decide: impl FnOnce(&Containers, &Allocations) -> (T, Option<Allocations>),
    ) -> T {
        let mut state = self.placed.lock();
        state.decides(self.paused);
        let HeldResources { allocations, containers, .. } = &mut state.held;
        let (decision, decided) = decide(containers, allocations);
        if let Some(decided) = decided {
            self.recording.given(containers, allocations);
            *allocations = decided;
        }
        decision
    }

    fn read_self_placed(
        &mut self,
        writes: &BTreeMap<CgroupPath, CpusetWrites>,
        respects: &dyn Fn(&CgroupPath) -> bool,
    ) -> (SelfPlacedWorkloads, Option<Degraded>) {
        self.source.self_placed(writes, respects, Depth::AllPolicies)
    }

    fn note(&mut self, fixed: &SelfPlacedWorkloads, output: &TurnOutput) {
        self.recording.self_placed(fixed);
        self.recording.decided(&output.decision, output.rebalanced.as_ref().map(|(turn, _)| turn));
    }
}

impl Engine {
    /// Drops workloads from `guarded` if an added node would change a memory policy of theirs. The kernel
    /// rewrites policies by position: binding to the second of two nodes becomes binding to the second of
    /// three.
    pub(super) fn leave_self_placed(
        &mut self,
        guarded: &mut Vec<ProtectedWorkload>,
        declarations: &Declarations,
    ) {
        let key = |one: &ProtectedWorkload| (one.cgroup.clone(), one.cgroup_id);
        let now: BTreeSet<_> = guarded.iter().map(key).collect();
        self.self_placed.guarded.retain(|one, _| now.contains(one));
        let (policy, tick) = (&self.policy, self.totals.ticks);
        let percent = u64::from(policy.memory.widening.arm_percent);
        let nearly_full = |node: &NodeId| {
            let seen = self.before.as_ref().and_then(|sample| sample.nodes.get(node));
            let free = seen.and_then(|now| now.available_bytes().zip(now.mem_total_bytes));
            free.is_some_and(|(free, total)| free < total / 100 * (2 * percent))
        };
        for one in guarded.iter().filter(|one| !one.strict && !one.spares.is_empty()) {
            let before = self.self_placed.guarded.get(&key(one));
            if before.is_some_and(|look| !look.is_due(tick, one.home.iter().any(|node| nearly_full(&node)))) {
                continue;
            }
            let wait = GuardedLook::wait_after(before);
            let wide = one.spares.iter().fold(one.mems.clone(), |mems, spare| mems.union(&spare.nodes()));
            let writes = CpusetWrites { mems: vec![wide], ..CpusetWrites::default() };
            let respects = |cgroup: &CgroupPath| declarations.respects_self_placement(policy, cgroup);
            let writes = [(one.cgroup.clone(), writes)].into();
            let (found, unseen) = self.source.self_placed(&writes, &respects, Depth::AllPolicies);
            let reason = found.into_values().next().map(|found| found.reason);
            if let Some(reason) = reason.as_ref().filter(|_| before.is_none_or(|look| look.reason.is_none()))
            {
                tracing::info!("{} is not widened when its memory nodes are full: {reason}", one.cgroup);
            }
            self.self_placed.guarded.insert(key(one), GuardedLook { tick, wait, reason, unseen });
        }
        for one in guarded {
            let look = self.self_placed.guarded.get(&(one.cgroup.clone(), one.cgroup_id));
            if let Some(reason) = look.and_then(|look| look.reason.as_ref()) {
                one.spares.clear();
                one.bound = Some(reason.clone());
            }
        }
    }
}

/// Joins all reasons into one.
fn together(mut all: impl Iterator<Item = Degraded>) -> Option<Degraded> {
    let first = all.next()?;
    Some(all.fold(first, |mut all, one| {
        if !all.reason.contains(&one.reason) {
            all.reason = format!("{}; {}", all.reason, one.reason);
        }
        all
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns, of the first 1,000, at which a workload that may be widened is looked at.
    fn looks(nearly_full: bool) -> Vec<u64> {
        let (mut looks, mut latest) = (Vec::new(), None::<GuardedLook>);
        for tick in 0..1_000 {
            if latest.as_ref().is_none_or(|look| look.is_due(tick, nearly_full)) {
                let wait = GuardedLook::wait_after(latest.as_ref());
                latest = Some(GuardedLook { tick, wait, reason: None, unseen: None });
                looks.push(tick);
            }
        }
        looks
    }

    #[test]
    fn widenable_workload_is_read_soon_after_its_start_and_when_its_node_is_nearly_full() {
        assert_eq!(looks(false), [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811]);
        let looks = looks(true);
        assert!(looks.windows(2).all(|pair| pair[1] - pair[0] <= NEARLY_FULL_EVERY), "{looks:?}");
    }

    #[test]
    fn what_could_not_be_looked_at_is_told_once_with_all_reasons() {
        let one = |reason: &str| Degraded::new("self-placement", reason.to_owned(), "effect");
        let told = together(["a", "b", "a"].into_iter().map(one)).unwrap();
        assert_eq!(told.reason, "a; b");
        assert_eq!(together(std::iter::empty()), None);
    }
}
