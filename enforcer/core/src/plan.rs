//! Plans and outcomes: the actions, their reasons, their inverses, and their results.
//!
//! A plan is ordered; an action must be carried out after those before it. Each action has a reason. The
//! changes of a plan can be journalled before it is carried out.
//!
//! Inverses. A write is undone by writing the file's old text, byte for byte, which the journal keeps; an
//! empty text means that the cgroup inherited its set. Undoing restores the allowed sets, not the places:
//! threads move back when they next run, pages do not move back.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use crate::{partition::Partition, workload::CgroupPath};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Version of the serde form of [`Plan`].
pub const PLAN_SCHEMA_VERSION: u32 = 1;

/// Ordered actions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// [`PLAN_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// In the order in which they must be carried out.
    pub steps: Vec<Step>,
    /// Groups of workloads with steps that must be done together: if a step of one fails, the done steps of
    /// the group are taken back. A workload in no group stands for itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<BTreeSet<CgroupPath>>,
}

/// One action and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The reason in one sentence with the figures that decided.
    pub reason: String,
}

/// A change of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Action {
    /// Write `cpuset.cpus`. Undone by writing the original text back.
    SetCpus {
        /// Cgroup to write.
        cgroup: CgroupPath,
        /// New value, never empty.
        cpus: CpuSet,
    },
    /// Write `cpuset.mems`. Undone by writing the original text back; pages that the kernel moved because of
    /// it stay.
    SetMems {
        /// Cgroup to write.
        cgroup: CgroupPath,
        /// New value, never empty.
        mems: NodeSet,
    },
    /// Write `cpuset.cpus.exclusive`, the CPUs that partitions below may have. Undone by writing the original
    /// text back.
    SetExclusive {
        /// Cgroup to write.
        cgroup: CgroupPath,
        /// New value; empty without a partition below.
        cpus: CpuSet,
    },
    /// Write `cpuset.cpus.partition`. Undone by writing the original back.
    SetPartition {
        /// Cgroup to write.
        cgroup: CgroupPath,
        /// New kind.
        kind: Partition,
    },
    /// Move pages of the cgroup's processes in small batches. Has no inverse.
    MovePages {
        /// Cgroup of the processes.
        cgroup: CgroupPath,
        /// Source nodes.
        from: NodeSet,
        /// Target node.
        to: NodeId,
        /// Most bytes to move; all if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        most_bytes: Option<u64>,
    },
}

impl Action {
    /// Cgroup of the action.
    pub fn cgroup(&self) -> &CgroupPath {
        match self {
            Self::SetCpus { cgroup, .. }
            | Self::SetMems { cgroup, .. }
            | Self::SetExclusive { cgroup, .. }
            | Self::SetPartition { cgroup, .. }
            | Self::MovePages { cgroup, .. } => cgroup,
        }
    }

    /// Does it set CPUs or memory nodes that the cgroup may use?
    pub fn sets_cpuset(&self) -> bool {
        matches!(self, Self::SetCpus { .. } | Self::SetMems { .. })
    }
}

/// Outcome of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The step.
    pub step: Step,
    /// The result.
    pub result: OutcomeResult,
}

/// Result of an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "result", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum OutcomeResult {
    /// Done, and read back as wanted.
    Applied {
        /// Value that the kernel reports now.
        read_back: String,
    },
    /// Done, but the kernel reports another value than was written.
    Differs {
        /// Written value.
        wanted: String,
        /// Value that the kernel reports now.
        read_back: String,
    },
    /// In progress: the budget of this turn is used up, and the next turn continues.
    Unfinished {
        /// What is done so far.
        read_back: String,
    },
    /// The cgroup has ended since, which is no error.
    Gone,
    /// The action failed.
    Failed {
        /// Operation, path, value and cause.
        error: String,
    },
    /// Would have been done.
    DryRun,
    /// Done, and taken back because a later step of the same workload, or of its group, failed.
    RolledBack {
        /// The step that failed.
        because: String,
        /// Error of taking it back, if that failed.
        error: Option<String>,
    },
    /// Not tried, because an earlier step of the same workload failed or is not finished; or left as it is
    /// because a newer decision applies.
    Skipped {
        /// The step, and its state.
        because: String,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_action() -> impl Strategy<Value = Action> {
        let ids = prop::collection::btree_set(0u32..300, 1..6);
        let cgroup = "/[^/\0]{1,12}".prop_map(|path| CgroupPath::new(&path));
        (cgroup, ids, 0u32..300, 0..5).prop_map(|(cgroup, ids, to, kind)| {
            let nodes: NodeSet = ids.iter().copied().map(NodeId).collect();
            match kind {
                0 => Action::SetCpus {
                    cgroup,
                    cpus: ids.iter().copied().map(numa_topology::id::CpuId).collect(),
                },
                1 => Action::SetMems { cgroup, mems: nodes },
                2 => Action::SetExclusive { cgroup, cpus: CpuSet::new() },
                3 => Action::SetPartition { cgroup, kind: Partition::Isolated },
                _ => {
                    let most_bytes = Some(u64::from(to) << 20).filter(|bytes| *bytes > 0);
                    Action::MovePages { cgroup, from: nodes, to: NodeId(to), most_bytes }
                }
            }
        })
    }

    fn any_result() -> impl Strategy<Value = OutcomeResult> {
        (".{0,20}", ".{0,20}", 0..7).prop_map(|(wanted, text, kind)| match kind {
            0 => OutcomeResult::Applied { read_back: text },
            1 => OutcomeResult::Differs { wanted, read_back: text },
            2 => OutcomeResult::Failed { error: text },
            3 => OutcomeResult::DryRun,
            4 => OutcomeResult::Gone,
            5 => OutcomeResult::Unfinished { read_back: text },
            _ => OutcomeResult::Skipped { because: text },
        })
    }

    proptest! {
        #[test]
        fn plans_and_outcomes_survive_serde(
            steps in prop::collection::vec((any_action(), ".{0,20}", any_result()), 0..4),
        ) {
            let outcomes: Vec<Outcome> = steps
                .into_iter()
                .map(|(action, reason, result)| Outcome { step: Step { action, reason }, result })
                .collect();
            let steps: Vec<Step> = outcomes.iter().map(|outcome| outcome.step.clone()).collect();
            let groups = vec![steps.iter().map(|step| step.action.cgroup().clone()).collect()];
            let plan = Plan { schema_version: PLAN_SCHEMA_VERSION, steps, groups };
            let text = serde_json::to_string(&(&plan, &outcomes)).unwrap();
            prop_assert_eq!(serde_json::from_str::<(Plan, Vec<Outcome>)>(&text).unwrap(), (plan, outcomes));
        }
    }
}
