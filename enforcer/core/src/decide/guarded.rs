//! Workloads with guarded memory nodes, and the nodes that were added to them.
//!
//! Problem: between two turns another thread may add a memory node to a workload that is about to be killed
//! ([`crate::widening`]). A turn must neither take that for drift nor put the workload back to its grant.
//! Idea: added nodes are part of the goal until narrowing is due; then they are not, and the usual steps lead
//! back: pages first, the mask last.
//!
//! Guarded workloads have a place with pinned memory nodes, on a cpuset that the daemon owns and no other
//! program fights for.

use std::collections::{BTreeMap, BTreeSet};

use super::{above::AncestorLimits, order::Goal};
use crate::{
    model::{Model, WorkloadModel, accessed_bytes},
    turn::{CpusetTarget, Decision, DriftStatus, Inputs, ProtectedWorkload},
    widening::spares,
    words,
    workload::{CgroupPath, Workload},
};
use numa_placement::{Allocations, MemoryPriority};
use numa_topology::{Topology, id::NodeId, set::NodeSet};

/// The goal with the nodes that were added to the workload.
pub(super) fn widen(mut goal: Goal, added: Option<&NodeSet>) -> Goal {
    if let (Some(added), Some(mems)) = (added, &mut goal.cpuset.mems)
        && !added.is_subset(mems)
    {
        goal.reason =
            format!("{}; {} added because its memory was nearly full", goal.reason, words::nodes(added));
        mems.extend(added);
        goal.added.clone_from(added);
    }
    goal
}

/// Figures of a workload without added nodes and without memory of GPUs, to judge its place; `None` if it has
/// neither.
pub(super) fn without(
    machine: &Topology,
    added: Option<&NodeSet>,
    now: &WorkloadModel,
) -> Option<WorkloadModel> {
    let (has, gpus) = (now.mems.as_ref()?, machine.gpu_memory_nodes());
    let beside = added.map_or_else(|| gpus.clone(), |added| added.union(&gpus));
    let left = has.difference(&beside);
    (!left.is_empty() && left != *has).then(|| WorkloadModel { mems: Some(left), ..now.clone() })
}

/// All guarded workloads, in ascending order of their cgroups. `limits` are those of each target.
pub(super) fn of(
    inputs: &Inputs<'_>,
    allocations: &Allocations,
    decision: &Decision,
    limits: &BTreeMap<CgroupPath, AncestorLimits>,
) -> Vec<ProtectedWorkload> {
    let machine = &inputs.inventory.machine;
    let gpus = machine.gpu_memory_nodes();
    // Containers of claims with strict memory.
    let claiming = inputs.containers.cgroups().filter(|(_, holder)| holder.is_claiming());
    let is_strict =
        |holder| allocations.get(holder).is_some_and(|grant| grant.memory_priority == MemoryPriority::Strict);
    let claiming: BTreeSet<&CgroupPath> =
        claiming.filter(|(_, holder)| is_strict(holder)).map(|(cgroup, _)| cgroup).collect();
    let guarded = |(cgroup, target): (&CgroupPath, &CpusetTarget)| {
        let goal = target.cpuset.mems.as_ref().filter(|mems| !mems.is_empty())?;
        if target.standing == DriftStatus::LeftAlone {
            return None;
        }
        let added = inputs.widened.get(cgroup);
        let home = added.map_or_else(|| goal.clone(), |added| goal.difference(added)).difference(&gpus);
        if home.is_empty() {
            return None;
        }
        let seen = inputs.sample.cgroups.get(cgroup).and_then(|seen| seen.mems_effective.as_ref());
        // Nodes outside of its goal go in a moment and do not count.
        let now = seen.filter(|now| !goal.is_subset(now)).map_or_else(|| goal.clone(), |now| goal.union(now));
        let rule = inputs.declarations.rule(inputs.policy, cgroup).map(|(_, rule)| rule);
        let lower_tiers = rule.and_then(|rule| rule.lower_tiers);
        let lower_tiers = lower_tiers.unwrap_or(inputs.policy.memory.widening.lower_tiers);
        let above = limits.get(cgroup)?.mems();
        let mut allowed = machine.ordinary_memory_nodes();
        if let Some(most) = &above.most {
            allowed = allowed.intersection(&most.1);
        }
        let wished = rule.and_then(|rule| rule.numa_nodes.as_ref());
        if let Some(nodes) = wished {
            allowed = allowed.intersection(nodes);
        }
        let narrow = above.most.filter(|(_, most)| !machine.memory_nodes().is_subset(most));
        let by_above = narrow.map(|(path, most)| format!("{path} above it allows only {most}"));
        let by_rule = wished.map(|nodes| format!("numa_nodes of its rule is {nodes}"));
        let bound: Vec<String> = by_above.into_iter().chain(by_rule).collect();
        let cpu_nodes = decision.aims.get(cgroup).cloned().unwrap_or_else(|| home.clone());
        Some(ProtectedWorkload {
            cgroup: cgroup.clone(),
            cgroup_id: target.cgroup_id,
            spares: spares(machine, &home, &cpu_nodes, &allowed, lower_tiers),
            kept: now.intersection(&gpus),
            mems: now.difference(&gpus),
            home,
            cpu_nodes,
            strict: rule.is_some_and(|rule| rule.strict_memory) || claiming.contains(cgroup),
            above: above.ours,
            bound: (!bound.is_empty()).then(|| bound.join(", ")),
            bytes: bytes(inputs.workloads, inputs.model, cgroup),
        })
    };
    decision.targets.iter().filter_map(guarded).collect()
}

/// Known bytes on each node.
fn bytes(workloads: &[Workload], model: &Model, cgroup: &CgroupPath) -> BTreeMap<NodeId, u64> {
    let workload = workloads.iter().find(|one| one.cgroup == *cgroup);
    let by_node = workload.and_then(|one| model.of(one)?.bytes_by_node.as_ref());
    by_node.into_iter().flatten().map(|(node, bytes)| (*node, accessed_bytes(bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hosted::{Containers, PlacementNode},
        plan::{Action, Outcome, OutcomeResult},
        sample::CgroupSample,
        scene::Scene,
        turn::FallbackNode,
        turn::History,
    };
    use numa_placement::{Grant, SharedCpus, external::CLAIMS};
    use numa_topology::synth::Machine;

    /// CPUs 0-3 on node 0 and 4-7 on node 1; `/a` is on node 0 with these memory nodes.
    fn host(mems: &str) -> Scene {
        Scene::new(Machine::new().sockets(2).threads(1).build())
            .workload("/a", "0-1", mems)
            .memory("/a", &[(0, 300, 0), (1, 100, 0)])
            .declared("/a", 2, None)
    }

    fn added(mut scene: Scene, nodes: &str) -> Scene {
        scene.widened.insert(CgroupPath::new("/a"), nodes.parse().unwrap());
        scene
    }

    fn steps(decision: &Decision) -> Vec<String> {
        let step = |action: &Action| match action {
            Action::SetCpus { cpus, .. } => format!("cpus {cpus}"),
            Action::SetMems { mems, .. } => format!("mems {mems}"),
            Action::SetExclusive { cpus, .. } => format!("exclusive {cpus}"),
            Action::SetPartition { kind, .. } => format!("{kind}"),
            Action::MovePages { from, to, .. } => format!("move {from}>{to}"),
        };
        decision.plan.steps.iter().map(|one| step(&one.action)).collect()
    }

    /// `home, mems, spares` of each guarded workload.
    fn guards(decision: &Decision) -> Vec<String> {
        let spares = |one: &ProtectedWorkload| one.spares.iter().map(FallbackNode::node).collect::<NodeSet>();
        decision.guarded.iter().map(|one| format!("{} {} {}", one.home, one.mems, spares(one))).collect()
    }

    #[test]
    fn what_was_added_stays_until_it_is_given_back() {
        let decision = added(host("0-1"), "1").decide();
        assert_eq!((steps(&decision), guards(&decision)), (vec![], vec!["0 0-1 1".to_owned()]));
        assert_eq!(decision.in_place.len(), 1);
        let back = host("0-1").decide();
        assert_eq!(steps(&back), ["move 1>0", "mems 0"]);
        assert_eq!(guards(&back), ["0 0 1"], "what goes in a moment is not counted on");
    }

    #[test]
    fn a_node_that_is_added_between_two_turns_is_no_drift_and_one_that_is_taken_away_is() {
        let (mut history, mut allocations) = (History::default(), Allocations::default());
        let second = 1_000_000_000;
        let mut turn = |mut scene: Scene, at: u64| {
            scene.now.monotonic_ns = at * second;
            let decision = scene.decide_with(&history, &mut allocations);
            let done = |step: &crate::plan::Step| Outcome {
                step: step.clone(),
                result: OutcomeResult::Applied { read_back: String::new() },
            };
            let outcomes: Vec<Outcome> = decision.plan.steps.iter().map(done).collect();
            history.drift.note(&decision.targets, &outcomes, &std::collections::BTreeSet::new(), at * second);
            steps(&decision)
        };
        assert_eq!(turn(host("0").memory("/a", &[(0, 300, 0)]), 200), [""; 0]);
        assert_eq!(turn(added(host("0-1"), "1"), 210), [""; 0]);
        assert_eq!(turn(added(host("0-1"), "1"), 220), [""; 0]);
        assert_eq!(turn(added(host("0"), "1"), 230), ["mems 0-1"], "another program took it away");
        assert_eq!(turn(host("0-1"), 240), ["move 1>0", "mems 0"]);
    }

    #[test]
    fn spares_are_what_those_above_and_the_declaration_leave() {
        let within = |mems: &str, mut scene: Scene| {
            let above = CgroupSample { mems_effective: mems.parse().ok(), ..CgroupSample::default() };
            scene.now.cgroups.insert(CgroupPath::root(), above);
            scene.decide().guarded.swap_remove(0)
        };
        let bound = within("0", host("0"));
        assert!(bound.spares.is_empty(), "{bound:?}");
        assert_eq!(bound.bound.unwrap(), "/ above it allows only 0");
        let mut ruled = host("0");
        ruled.policy.workloads[0].numa_nodes = "0".parse().ok();
        let bound = within("0-1", ruled);
        assert!(bound.spares.is_empty());
        assert_eq!(bound.bound.unwrap(), "numa_nodes of its rule is 0");
    }

    #[test]
    fn strict_workload_is_marked_and_one_of_another_owner_is_not_guarded() {
        let mut strict = host("0");
        strict.policy.workloads[0].strict_memory = true;
        assert!(strict.decide().guarded[0].strict);
        let mut left = host("0");
        left.policy.workloads[0].enforce = false;
        assert!(left.decide().guarded.is_empty());
    }

    #[test]
    fn memory_of_a_claim_is_strict_only_where_the_claim_says_so() {
        let path = "/kubepods/podweb/id";
        let scene = Scene::new(Machine::new().sockets(2).threads(1).build());
        let scene = scene.workload(path, "0-1", "0").memory(path, &[(0, 300, 0)]);
        let (inventory, settings) = (scene.inventory(), &scene.policy.placement);
        for (memory_priority, is_strict) in
            [(MemoryPriority::Strict, true), (MemoryPriority::Guaranteed, false)]
        {
            let grant = Grant {
                engine: CLAIMS,
                policy: CLAIMS,
                shared: Some(SharedCpus::new("0-1".parse().unwrap(), 0)),
                mems: "0".parse().unwrap(),
                pin_cpus: true,
                pin_mems: true,
                memory_priority,
                ..Grant::default()
            };
            let (mut containers, mut allocations) = (Containers::default(), Allocations::default());
            let mut node = PlacementNode { inventory: &inventory, settings, allocations: &mut allocations };
            containers.hold_claimed(&mut node, "id", "web", Some(&CgroupPath::new(path)), &grant);
            let decision = scene.decide_beside(&containers, &History::default(), &mut allocations);
            let guarded: Vec<_> = decision.guarded.iter().map(|one| one.strict).collect();
            assert_eq!(guarded, [is_strict]);
        }
    }
}
