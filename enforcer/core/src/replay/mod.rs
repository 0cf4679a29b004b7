//! One turn as a function, and the same function on a recorded turn.
//!
//! Problem: "why did it do that last night", "does the new version decide the same" and "what would another
//! policy have done" are one question: the output for the same input. Idea: the complete input of a turn is
//! one value, a [`TurnInput`], that can be written down, and the daemon's turns and replays call the same
//! [`decide_once`]. State that lasts between turns (grants, cool-downs, moves in progress) is part of each
//! input, so a turn can be replayed alone, and a turn that is missing from a recording affects no other.
//!
//! Declarations and owners are found anew from the recorded facts, because a replay tests them too. The
//! result is the differences ([`differences`]) and the [`Effect`] of the decision.
//!
//! A replay is no simulation. Another policy is asked in each turn for its decision on the host of the
//! recorded policy; the consequences of its own plans are not followed.
//!
//! Cost: that of one turn, and once the machine's inventory.

mod differences;
mod effect;
mod report;

use std::collections::BTreeSet;

pub use self::{
    differences::{GoalChange, RecordedOutput, TurnDifference, differences},
    effect::Effect,
    report::{REPLAY_SCHEMA_VERSION, RecordingSummary, Replay, ReplayReport, ReplayTotals, ReplayedTurn},
};
use crate::{
    declarations::Declarations,
    hosted::Containers,
    model::Model,
    owner::OwnershipFacts,
    owners::Owners,
    policy::{Policy, PolicyError},
    sample::Sample,
    turn::{
        Decision, History, Inputs, Partitioned, SelfPlacedWorkloads, TurnLimits, TurnOutput, Widened,
        WrittenCgroups, decide_once,
    },
    workload::{CgroupPath, Workload},
};
use numa_placement::{Allocations, Inventory};
use numa_topology::{Inconsistency, Topology};

/// Complete input of a turn.
#[derive(Debug, Clone, Default)]
pub struct TurnInput {
    /// The machine.
    pub machine: Topology,
    /// Configured policy.
    pub policy: Policy,
    /// Other owners of cpusets.
    pub facts: OwnershipFacts,
    /// Running workloads.
    pub workloads: Vec<Workload>,
    /// Sample of the last turn.
    pub before: Option<Sample>,
    /// Sample of this turn.
    pub sample: Sample,
    /// Containers that a runtime announced, as far as turns use them.
    pub containers: Containers,
    /// Grants.
    pub allocations: Allocations,
    /// Earlier corrections.
    pub history: History,
    /// Memory nodes that were added to workloads that ran short.
    pub widened: Widened,
    /// Cgroups that the daemon has ever set.
    pub written: BTreeSet<CgroupPath>,
    /// Partitions that the daemon has ever set.
    pub partitioned: Partitioned,
    /// Workloads that stay because of settings of their own processes.
    pub self_placed: SelfPlacedWorkloads,
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// Limits.
    pub terms: TurnLimits,
}

/// An input that no daemon had.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidTurnInput {
    /// The error of the machine.
    #[error("machine: {0}")]
    Machine(#[from] Inconsistency),
    /// The error of the configuration.
    #[error("policy: {0}")]
    Policy(#[from] PolicyError),
}

impl TurnInput {
    /// Checks what the types cannot, once for each machine and each policy: a recording may come from any
    /// source.
    pub fn check(&self) -> Result<(), InvalidTurnInput> {
        self.machine.check()?;
        self.policy.validate()?;
        Ok(())
    }

    /// Takes this turn again with this policy; the allocations stay unchanged.
    pub fn replay(&self, policy: &Policy) -> (TurnOutput, Effect) {
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
            written: WrittenCgroups(&|cgroup| self.written.contains(cgroup)),
            partitioned: &self.partitioned,
            self_placed: &self.self_placed,
            now_ns: self.now_ns,
        };
        let taken = decide_once(&inputs, &mut self.allocations.clone(), self.terms);
        let effect = Effect::of(&taken.decision, workloads, &model);
        (taken, effect)
    }

    /// The effect of a decision from this input.
    fn effect(&self, decision: &Decision) -> Effect {
        let model = Model::new(&self.machine, &self.workloads, &self.sample, self.before.as_ref());
        Effect::of(decision, &self.workloads, &model)
    }
}

#[cfg(test)]
mod tests;
