//! One turn as a function, and the same function again on what was recorded of it.
//!
//! Problem: "why did it do that last night", "does the new version still decide so" and "what would another
//! policy have done" are one question: what comes of the same input. Idea: everything that a turn decides
//! from is one value, a [`Situation`], that can be written down, and the daemon's turns and replays call the
//! same [`take`]. State that lasts between turns (what was given to whom, cool-downs, moves under way) is
//! part of each situation, so a turn can be replayed alone, and a turn that is missing in a recording spoils
//! no other.
//!
//! Who is declared and whose each cpuset is, is found anew from the recorded facts: that is part of what is
//! tried. Where it comes out is the decision ([`differences`]), and what that would do is its [`Effect`].
//!
//! What this is not: a simulation. Another policy is asked in each turn what it would do then, on the host
//! that the recorded one had made; it is not followed into what its own plan would have led to.
//!
//! Cost: that of one turn, and once the machine's inventory.

mod differences;
mod effect;
mod report;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use self::{
    differences::{GoalChange, Made, TurnDifference, differences},
    effect::Effect,
    report::{REPLAY_SCHEMA_VERSION, Recording, Replay, ReplayReport, ReplayedTurn, Totals},
};
use crate::{
    decide::{Decision, History, Inputs, Partitioned, SelfPlacedWorkloads, Widened, Written, decide},
    declarations::Declarations,
    model::Model,
    owner::{Facts, Owners},
    place::{Allocations, Containers, Inventory},
    policy::{Policy, PolicyError},
    rebalance::{self, NextTurn, Past},
    sample::Sample,
    topology::{Inconsistency, Topology},
    workload::{CgroupPath, Workload},
};

/// On which terms a turn decides.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Terms {
    /// May moves of workloads begin?
    pub may_begin: bool,
    /// Bytes that a turn moves at most.
    pub bytes_per_turn: u64,
}

/// What a turn comes to.
#[derive(Debug)]
pub struct Taken {
    /// What shall be done.
    pub decision: Decision,
    /// Which workloads get a better place, and what is remembered of that from then on; none where nobody
    /// asked for it.
    pub rebalanced: Option<(rebalance::Turn, Past)>,
    /// When the next turn should come; no part of what is recorded, because it changes no decision.
    pub next: NextTurn,
}

/// Takes one turn. `allocations` are those of the turn before, and become those of this one.
pub fn take(inputs: &Inputs<'_>, allocations: &mut Allocations, terms: Terms) -> Taken {
    let decision = decide(inputs, allocations);
    let mut next = NextTurn::default();
    let rebalanced = inputs.policy.rebalance.enabled.then(|| {
        let mut past = inputs.history.rebalance.clone();
        let Terms { may_begin, bytes_per_turn } = terms;
        let turn;
        (turn, next) = rebalance::turn(inputs, allocations, &mut past, &decision, bytes_per_turn, may_begin);
        (turn, past)
    });
    Taken { decision, rebalanced, next }
}

/// Everything that a turn decides from.
#[derive(Debug, Clone, Default)]
pub struct Situation {
    /// The machine.
    pub machine: Topology,
    /// What people declared.
    pub policy: Policy,
    /// Who else writes cpusets.
    pub facts: Facts,
    /// What runs.
    pub workloads: Vec<Workload>,
    /// The sample of the turn before.
    pub before: Option<Sample>,
    /// The sample of this one.
    pub sample: Sample,
    /// Containers that a runtime announced, as far as turns look at them.
    pub containers: Containers,
    /// What is given away.
    pub allocations: Allocations,
    /// Earlier corrections.
    pub history: History,
    /// Memory nodes that were added to workloads that ran short.
    pub widened: Widened,
    /// Cgroups that were ever set.
    pub written: BTreeSet<CgroupPath>,
    /// What was ever set of partitions.
    pub partitioned: Partitioned,
    /// Workloads whose processes have placed themselves.
    pub self_placed: SelfPlacedWorkloads,
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// The terms.
    pub terms: Terms,
}

/// A situation that no daemon was ever in.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Impossible {
    /// Of the machine.
    #[error("machine: {0}")]
    Machine(#[from] Inconsistency),
    /// Of the configuration.
    #[error("policy: {0}")]
    Policy(#[from] PolicyError),
}

impl Situation {
    /// Checks what the types cannot, once for each machine and each policy: a recording may come from
    /// anywhere.
    pub fn check(&self) -> Result<(), Impossible> {
        self.machine.check()?;
        self.policy.validate()?;
        Ok(())
    }

    /// Takes this turn again, by this policy; the allocations stay as they are.
    pub fn replay(&self, policy: &Policy) -> (Taken, Effect) {
        let Self { workloads, sample, .. } = self;
        let (inventory, _unfit) = Inventory::or_whole(self.machine.clone(), &policy.placement);
        let model = Model::new(&inventory.machine, workloads, sample, self.before.as_ref());
        let declarations = Declarations::find(policy, workloads, &sample.tasks, &self.facts);
        let placed = self.containers.cgroups().filter(|(_, holder)| !holder.is_given());
        let placed: BTreeSet<&CgroupPath> = placed.map(|(cgroup, _)| cgroup).collect();
        let owners =
            Owners::find(&self.facts, workloads, &model, &declarations, |cgroup| placed.contains(cgroup));
        let inputs = Inputs {
            inventory: &inventory,
            workloads,
            sample,
            model: &model,
            policy,
            declarations: &declarations,
            containers: &self.containers,
            owners: &owners,
            history: &self.history,
            widened: &self.widened,
            written: Written(&|cgroup| self.written.contains(cgroup)),
            partitioned: &self.partitioned,
            self_placed: &self.self_placed,
            now_ns: self.now_ns,
        };
        let taken = take(&inputs, &mut self.allocations.clone(), self.terms);
        let effect = Effect::of(&taken.decision, workloads, &model);
        (taken, effect)
    }

    /// What a decision that was made in it would do.
    fn effect(&self, decision: &Decision) -> Effect {
        let model = Model::new(&self.machine, &self.workloads, &self.sample, self.before.as_ref());
        Effect::of(decision, &self.workloads, &model)
    }
}

#[cfg(test)]
mod tests;
