//! Checks, before a plan is written and before memory nodes are guarded, whether the writes would change
//! placements that processes have set themselves.
//!
//! Observe mode checks plans too, so that the report names the workloads a live plan would leave alone. A
//! plan that would change such a placement is decided again with those workloads fixed
//! ([`SelfPlacedDecision`]). So no other workload is promised their CPUs.
//!
//! Problem: reading the policies of a process walks its page tables with its mmap lock held, and a plan that
//! is not carried out is the same next turn. Idea: answers are cached ([`SelfPlacedAnswers`]) by cgroup,
//! cgroup id, cpuset and intended write, for [`KEPT_NS`]; only imminent writes are read anew.
//!
//! Invariants: no lock is held while processes are read, and the discarded decisions leave no trace.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    decide::cpuset_writes,
    declarations::Declarations,
    replay::{self, TurnLimits, TurnOutput},
    sample::Sample,
    self_placement::CpusetWrites,
    turn::{Decision, Inputs, SelfPlacedWorkloads},
    widening::ProtectedWorkload,
    workload::CgroupPath,
};
use numa_topology::{
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use super::{
    Engine, HostSource, TOPOLOGY_EVERY,
    placed::{HeldResources, SharedLedger},
    recording::TurnLog,
};
use enforcer_act::self_placed::Depth;

/// Lifetime of a cached answer.
const KEPT_NS: u64 = 300_000_000_000;
/// Most decisions in one turn; workloads found after the last are taken out of the plan.
const MOST_ROUNDS: usize = 5;

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

/// Cached answers about cgroups that a plan would write.
#[derive(Default)]
pub(super) struct SelfPlacedAnswers {
    answers: BTreeMap<CgroupPath, CachedAnswer>,
    guarded: BTreeMap<(CgroupPath, Option<u64>), GuardedLook>,
    /// Why added memory nodes are not taken back, and when that was found.
    narrowed: BTreeMap<(CgroupPath, Option<u64>), (u64, String)>,
}

struct CachedAnswer {
    cgroup_id: Option<u64>,
    /// Effective CPUs and memory nodes at the look: a write of another program, or of an answer to the
    /// runtime, may have taken what the processes had set.
    cpuset: (Option<CpuSet>, Option<NodeSet>),
    writes: CpusetWrites,
    at_ns: u64,
    /// Placements that the writes would change.
    found: SelfPlacedWorkloads,
    /// The workload's part that stays because of that.
    left: SelfPlacedWorkloads,
    unseen: Option<Degraded>,
}

impl SelfPlacedAnswers {
    /// Drops all answers: the settings may have changed.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Forgets ended cgroups, expired answers, and answers about another cpuset than the present one.
    fn prune(&mut self, sample: &Sample, now_ns: u64) {
        self.answers.retain(|cgroup, answer| {
            let Some(now) = sample.cgroups.get(cgroup) else { return false };
            let (cpus, mems) = &answer.cpuset;
            let is_same = sample.cgroup_id(cgroup) == answer.cgroup_id
                && (&now.cpus_effective, &now.mems_effective) == (cpus, mems);
            is_same && (!answer.found.is_empty() || answer.counts(now_ns))
        });
    }

    /// Workloads that stay, by the valid answers.
    fn left(&self, now_ns: u64) -> SelfPlacedWorkloads {
        let count = self.answers.values().filter(|answer| answer.counts(now_ns));
        count.flat_map(|answer| answer.left.clone()).collect()
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
        let counts = |at: u64| sample.monotonic_ns.saturating_sub(at) < KEPT_NS;
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

    /// Writes to read processes for. A finding is valid for a time. An empty answer is valid only for writes
    /// that no step is `about_to` make.
    fn to_ask(
        &self,
        decision: &Decision,
        writes: &BTreeMap<CgroupPath, CpusetWrites>,
        now_ns: u64,
        about_to: bool,
    ) -> BTreeMap<CgroupPath, CpusetWrites> {
        let known = |cgroup: &CgroupPath, writes: &CpusetWrites| {
            self.answers.get(cgroup).is_some_and(|answer| {
                let lasts = !about_to || !answer.found.is_empty();
                answer.writes == *writes && (answer.at_ns == now_ns || (lasts && answer.counts(now_ns)))
            })
        };
        let new = writes.iter().filter(|(cgroup, writes)| !known(cgroup, writes));
        // A workload that stayed until now may find no other place: repeat the former question about it.
        let due = self.answers.iter().filter(|(cgroup, answer)| {
            !answer.counts(now_ns) && !writes.contains_key(*cgroup) && !decision.in_place.contains(cgroup)
        });
        let due = due.map(|(cgroup, answer)| (cgroup.clone(), answer.writes.clone()));
        new.map(|(cgroup, writes)| (cgroup.clone(), writes.clone())).chain(due).collect()
    }

    fn ask(
        &mut self,
        source: &mut dyn HostSource,
        inputs: &Inputs<'_>,
        decision: &Decision,
        writes: BTreeMap<CgroupPath, CpusetWrites>,
    ) {
        let Inputs { policy, declarations, now_ns: at_ns, sample, .. } = *inputs;
        let respects = |cgroup: &CgroupPath| declarations.respects_self_placement(policy, cgroup);
        for (cgroup, writes) in writes {
            let one = BTreeMap::from([(cgroup.clone(), writes.clone())]);
            let (found, unseen) = source.self_placed(&one, &respects, Depth::AllPolicies);
            let mut left = decision.left_because(&found, &one);
            if let Some(before) = self.answers.get(&cgroup).filter(|_| left.is_empty() && !found.is_empty()) {
                left.clone_from(&before.left);
            }
            let cgroup_id = sample.cgroup_id(&cgroup);
            let now = sample.cgroups.get(&cgroup);
            let cpuset =
                now.map(|now| (now.cpus_effective.clone(), now.mems_effective.clone())).unwrap_or_default();
            self.answers
                .insert(cgroup, CachedAnswer { cgroup_id, cpuset, writes, at_ns, found, left, unseen });
        }
    }

    /// Findings about these writes.
    fn found(&self, writes: &BTreeMap<CgroupPath, CpusetWrites>) -> SelfPlacedWorkloads {
        let answers = writes.iter().filter_map(|(cgroup, writes)| {
            self.answers
                .get(cgroup)
                .filter(|answer| answer.writes == *writes)
                .map(|answer| answer.found.clone())
        });
        answers.flatten().collect()
    }

    /// Processes that could not be read.
    pub(super) fn unseen(&self) -> Option<Degraded> {
        let of_guarded = self.guarded.values().filter_map(|look| look.unseen.clone());
        together(self.answers.values().filter_map(|answer| answer.unseen.clone()).chain(of_guarded))
    }
}

impl CachedAnswer {
    fn counts(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.at_ns) < KEPT_NS
    }
}

/// A turn's decision with what it needs to read processes.
pub(super) struct SelfPlacedDecision<'a> {
    pub(super) source: &'a mut dyn HostSource,
    pub(super) placed: &'a SharedLedger,
    pub(super) recording: &'a mut TurnLog,
    pub(super) looks: &'a mut SelfPlacedAnswers,
    pub(super) paused: bool,
}

impl SelfPlacedDecision<'_> {
    /// Decides until no write changes what processes have set themselves.
    pub(super) fn take(self, inputs: &Inputs<'_>, terms: TurnLimits) -> TurnOutput {
        let Self { source, placed, recording, looks, paused } = self;
        let now_ns = inputs.now_ns;
        looks.prune(inputs.sample, now_ns);
        let mut left = looks.left(now_ns);
        let mut round = 1;
        loop {
            let mut state = placed.lock();
            state.decides(paused);
            let HeldResources { allocations, containers, .. } = &mut state.held;
            let beside = Inputs { containers, self_placed: &left, ..*inputs };
            let mut tried = allocations.clone();
            let mut taken = replay::take(&beside, &mut tried, terms);
            let mut writes = moves(&taken);
            writes.extend(cpuset_writes(&taken.decision.plan));
            let asks = looks.to_ask(&taken.decision, &writes, now_ns, terms.may_begin);
            let stay =
                |looks: &SelfPlacedAnswers| taken.decision.left_because(&looks.found(&writes), &writes);
            if round < MOST_ROUNDS && (!asks.is_empty() || !stay(looks).is_empty()) {
                drop(state);
                looks.ask(source, inputs, &taken.decision, asks);
                let more = stay(looks);
                left.extend(looks.left(now_ns));
                left.extend(more);
                round += 1;
                continue;
            }
            recording.given(containers, allocations);
            *allocations = tried;
            drop(state);
            recording.self_placed(&left);
            recording.decided(&taken.decision, taken.rebalanced.as_ref().map(|(turn, _)| turn));
            looks.ask(source, inputs, &taken.decision, asks);
            let mut found = looks.found(&writes);
            found.retain(|cgroup, _| !taken.decision.in_place.contains(cgroup));
            taken.decision.leave_self_placed(&found);
            return taken;
        }
    }
}

/// Writes of planned moves to a better place.
fn moves(taken: &TurnOutput) -> BTreeMap<CgroupPath, CpusetWrites> {
    let planned = taken.rebalanced.iter().flat_map(|(turn, _)| &turn.report.moves);
    let writes = planned.map(|one| {
        let cpus = one.cpus_to.iter().map(|cpus| cpus.exclusive.clone());
        let from: NodeSet = one.bytes_from.keys().copied().collect();
        let writes = CpusetWrites {
            cpus: cpus.filter(|cpus| !cpus.is_empty()).collect(),
            mems: Vec::new(),
            moves: vec![(from, one.to)],
        };
        (one.workload.clone(), writes)
    });
    writes.collect()
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
