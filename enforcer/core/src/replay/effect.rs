//! Effect of a plan in figures: steps, bytes, and misplaced memory.
//!
//! *Misplaced* memory belongs to a workload with a place, and is on other nodes than the place's memory
//! nodes. The plan reduces it by the bytes that it moves. Pages that cannot move are not known here, so this
//! is the best case.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    model::{Model, accessed_bytes},
    plan::Action,
    turn::Decision,
    workload::{CgroupPath, Workload},
};
use numa_topology::set::NodeSet;

/// Figures of one plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Effect {
    /// Workloads with a place, present or planned.
    pub placed: u64,
    /// Workloads that stay where they are although they are not in place.
    pub refused: u64,
    /// Steps of the plan.
    pub steps: u64,
    /// Bytes that it moves.
    pub bytes: u64,
    /// Bytes outside of the memory nodes of their workload's place.
    pub misplaced_bytes: u64,
    /// The same after the plan.
    pub misplaced_bytes_then: u64,
}

impl Effect {
    /// Effect of this decision on workloads with these figures.
    pub fn of(decision: &Decision, workloads: &[Workload], model: &Model) -> Self {
        let mut from: BTreeMap<&CgroupPath, NodeSet> = BTreeMap::new();
        for step in &decision.plan.steps {
            if let Action::MovePages { cgroup, from: nodes, .. } = &step.action {
                from.entry(cgroup).or_default().extend(nodes);
            }
        }
        let mut effect = Self {
            placed: decision.targets.len() as u64,
            refused: decision.refused.len() as u64,
            steps: decision.plan.steps.len() as u64,
            ..Self::default()
        };
        for workload in workloads {
            let figures = model.of(workload).and_then(|figures| figures.bytes_by_node.as_ref());
            let mems = decision.targets.get(&workload.cgroup).and_then(|it| it.cpuset.mems.as_ref());
            let moved = from.get(&workload.cgroup);
            for (node, bytes) in figures.into_iter().flatten() {
                let bytes = accessed_bytes(bytes);
                let moves = moved.is_some_and(|nodes| nodes.contains(*node));
                let add = |to: &mut u64| *to = to.saturating_add(bytes);
                if moves {
                    add(&mut effect.bytes);
                }
                if mems.is_some_and(|mems| !mems.contains(*node)) {
                    add(&mut effect.misplaced_bytes);
                    if !moves {
                        add(&mut effect.misplaced_bytes_then);
                    }
                }
            }
        }
        effect
    }
}
