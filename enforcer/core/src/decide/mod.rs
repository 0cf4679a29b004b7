//! From figures and wishes to a plan.
//!
//! Problem: bring every declared workload to the CPUs and memory that placement names for it,
//! disturbing as little as possible. Idea: first let everything that is validly placed keep its
//! place, then place the rest in the order of the configuration, then write down the steps that
//! lead from what is to what shall be ([`order`] says in which order).
//!
//! Terminology. A workload is *declared* when a rule of the policy matches its cgroup. It is *in
//! place* when its effective cpuset equals its assignment and its pages are there. A *refusal* is a
//! declared workload that gets no steps although it is not in place, with the reason.
//!
//! The decision does not depend on the policy's mode: in `observe` it is shown, in `enforce` carried
//! out. A machine with fewer than two CPU nodes has nothing to decide. Cost: one placement per
//! declared workload.

mod history;
pub mod order;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::history::History;
use self::order::Change;
use crate::{
    id::NodeId,
    model::{Model, WorkloadModel, nearest_effective},
    place::{Allocations, Bounds, CgroupRequest, Grant, Holder, Inventory},
    plan::{PLAN_SCHEMA_VERSION, Plan},
    policy::{Policy, WorkloadRule},
    sample::Sample,
    set::NodeSet,
    workload::{CgroupPath, Origin, Workload},
};

/// What a decision is made from.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The machine.
    pub inventory: &'a Inventory,
    /// What runs on it.
    pub workloads: &'a [Workload],
    /// The latest sample: free memory, and the cpusets of cgroups above the workloads.
    pub sample: &'a Sample,
    /// Figures of the workloads.
    pub model: &'a Model,
    /// What people declared.
    pub policy: &'a Policy,
    /// Earlier corrections.
    pub history: &'a History,
    /// Monotonic time in nanoseconds, of the same clock as the history's.
    pub now_ns: u64,
}

/// What shall be done, and what cannot be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Steps, workload by workload.
    pub plan: Plan,
    /// Declared workloads that are where they should be.
    pub in_place: Vec<CgroupPath>,
    /// Declared workloads that are not in place and get no steps.
    pub refused: Vec<Refusal>,
    /// Nodes on whose CPUs each declared workload that has a place should run, in place or not.
    #[serde(default)]
    pub aims: BTreeMap<CgroupPath, NodeSet>,
}

/// Why a declared workload is left where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Its cgroup.
    pub workload: CgroupPath,
    /// Kind of reason.
    pub cause: RefusalCause,
    /// In one sentence with figures.
    pub reason: String,
}

/// Kinds of reasons for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCause {
    /// No node has room.
    NoPlace,
    /// Its cpuset could not be read.
    NotSeen,
    /// It was corrected too short a time ago.
    CoolDown,
}

/// Decides what to do. `allocations` are those of the decision before, and become those of this
/// one: workloads that are gone or no longer declared lose theirs.
pub fn decide(inputs: &Inputs<'_>, allocations: &mut Allocations) -> Decision {
    let mut decision = Decision {
        plan: Plan { schema_version: PLAN_SCHEMA_VERSION, ..Plan::default() },
        ..Decision::default()
    };
    let declared = declared(inputs);
    let holders: BTreeSet<Holder> = declared.iter().map(|one| Holder::cgroup(one.cgroup)).collect();
    allocations.retain(|holder| holders.contains(holder));
    let machine = &inputs.inventory.machine;
    if machine.cpu_nodes().len() < 2 {
        return decision;
    }
    let kept = keep_valid(inputs, allocations, &declared);
    for one in &declared {
        match goal(inputs, allocations, one, &kept) {
            Ok(change) => {
                let aim = machine.nodes_of(&change.goal.cpus(&allocations.exclusive_cpus()));
                decision.aims.insert(one.cgroup.clone(), aim);
                let steps = order::steps(&change);
                if steps.is_empty() {
                    decision.in_place.push(one.cgroup.clone());
                } else if let Some(reason) = inputs.history.cooling(one.cgroup, inputs.policy, inputs.now_ns)
                {
                    decision.refused.push(one.refusal(RefusalCause::CoolDown, reason));
                } else {
                    decision.plan.steps.extend(steps);
                }
            }
            Err(refusal) => decision.refused.push(refusal),
        }
    }
    decision
}

/// A workload that a rule asks to be corrected.
struct Declared<'a> {
    cgroup: &'a CgroupPath,
    rule: &'a WorkloadRule,
    figures: Option<&'a WorkloadModel>,
}

impl Declared<'_> {
    fn refusal(&self, cause: RefusalCause, reason: String) -> Refusal {
        Refusal { workload: self.cgroup.clone(), cause, reason }
    }
}

/// Declared workloads by position of their rule in the file, then by cgroup.
fn declared<'a>(inputs: &Inputs<'a>) -> Vec<Declared<'a>> {
    let rules = &inputs.policy.workloads;
    let mut by_order = BTreeMap::new();
    for workload in inputs.workloads {
        // The root cgroup has no cpuset to write, and a lone process no cgroup of its own.
        let of_its_own =
            workload.cgroup != CgroupPath::root() && !matches!(workload.origin, Origin::Process { .. });
        let rule = rules.iter().enumerate().find(|(_, rule)| rule.cgroup.matches(&workload.cgroup));
        if let Some((position, rule)) = rule.filter(|(_, rule)| of_its_own && rule.enforce) {
            let figures = inputs.model.of(workload);
            let declared = Declared { cgroup: &workload.cgroup, rule, figures };
            by_order.insert((position, &workload.cgroup), declared);
        }
    }
    by_order.into_values().collect()
}

/// First everything that is validly placed keeps its place, so that none of it makes room for a
/// workload that comes earlier in the file.
fn keep_valid(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    declared: &[Declared<'_>],
) -> BTreeMap<CgroupPath, Grant> {
    let mut kept = BTreeMap::new();
    for one in declared {
        if let Some(grant) = request(inputs, one).keep(inputs.inventory, allocations) {
            allocations.give(Holder::cgroup(one.cgroup), grant.clone());
            kept.insert(one.cgroup.clone(), grant);
        }
    }
    kept
}

fn goal<'a>(
    inputs: &Inputs<'a>,
    allocations: &mut Allocations,
    one: &Declared<'a>,
    kept: &BTreeMap<CgroupPath, Grant>,
) -> Result<Change<'a>, Refusal> {
    let seen =
        one.figures.and_then(|figures| Some((figures, figures.cpus.as_ref()?, figures.mems.as_ref()?)));
    let Some((figures, cpus, mems)) = seen else {
        let reason = "its effective CPUs and memory nodes are not known".to_owned();
        return Err(one.refusal(RefusalCause::NotSeen, reason));
    };
    let goal = match kept.get(one.cgroup) {
        Some(kept) => kept.clone(),
        None => request(inputs, one)
            .place(inputs.inventory, allocations)
            .map_err(|rejection| one.refusal(RefusalCause::NoPlace, rejection.to_string()))?,
    };
    Ok(Change {
        cgroup: one.cgroup,
        cpus,
        mems,
        bytes_by_node: figures.bytes_by_node.as_ref(),
        negligible_bytes: inputs.policy.thresholds.min_memory.0,
        goal,
    })
}

fn request<'a>(inputs: &Inputs<'a>, one: &Declared<'a>) -> CgroupRequest<'a> {
    CgroupRequest {
        cgroup: one.cgroup,
        cpus: one.rule.cpus.get(),
        memory_bytes: one.rule.memory.map(|memory| memory.0),
        now: one.figures,
        nodes: one.rule.numa_nodes.as_ref(),
        bounds: bounds(inputs.sample, one.cgroup),
        available_bytes: available_bytes(inputs.sample, one.figures),
    }
}

/// What the cgroups above it pass on.
fn bounds(sample: &Sample, cgroup: &CgroupPath) -> Option<Bounds> {
    let parent = cgroup.parent()?;
    let cpus = nearest_effective(sample, &parent, |above| above.cpus_effective.as_ref());
    let mems = nearest_effective(sample, &parent, |above| above.mems_effective.as_ref());
    let named = mems.as_ref().map(|(path, _)| path).or(cpus.as_ref().map(|(path, _)| path))?.clone();
    Some(Bounds {
        cgroup: named,
        cpus: cpus.map(|(_, cpus)| cpus.clone()),
        mems: mems.map(|(_, mems)| mems.clone()),
    })
}

/// Free memory and page cache of each node, which the kernel drops when asked, and what the workload
/// itself holds there. Page cache includes tmpfs, which it does not drop: the figure may be too high
/// on a node full of tmpfs.
fn available_bytes(sample: &Sample, figures: Option<&WorkloadModel>) -> BTreeMap<NodeId, u64> {
    let held = figures.and_then(|figures| figures.bytes_by_node.as_ref());
    let of_node = |(node, now): (&NodeId, &crate::sample::NodeSample)| {
        let free = now.mem_free_bytes?.saturating_add(now.file_bytes?);
        Some((*node, free.saturating_add(held.and_then(|held| held.get(node)).map_or(0, |bytes| bytes.anon))))
    };
    sample.nodes.iter().filter_map(of_node).collect()
}

#[cfg(test)]
mod tests;
