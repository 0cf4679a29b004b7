//! Turns figures and declarations into a plan.
//!
//! Problem: bring every declared workload to the CPUs and memory that placement chooses for it, with as
//! little disturbance as possible. Idea: first every validly placed workload keeps its place, then the others
//! are placed in the order of the configuration, then the steps from the present to the chosen state are
//! listed ([`order`] sorts them).
//!
//! Terminology. A workload is *declared* when an entry of the policy matches it ([`crate::declarations`]). It
//! is *in place* when its effective cpuset equals its assignment and its pages are there. A *refusal* is a
//! declared workload that gets no steps although it is not in place, with the reason. A workload with a
//! cpuset of another owner ([`crate::owners`]) is refused in place or not, and CPUs that other owners gave
//! away are taken.
//!
//! The decision does not depend on the policy's mode: `observe` shows it, `enforce` carries it out. A machine
//! with fewer than two CPU nodes offers declared workloads no choice; containers that a runtime announced
//! keep their grants there as everywhere. Cost: one placement per declared workload.

mod above;
mod advice;
mod advised;
mod controller;
mod declared;
mod displaced;
mod grants;
mod guarded;
mod hugepages;
pub mod order;
mod partition;
mod parts;
pub(crate) mod pins;
mod self_placed;
pub(crate) mod taken;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use self::controller::without_controller;
use self::{
    above::AncestorLimits,
    declared::{DeclaredWorkload, WorkloadToPlace, declared, pinned_to_isolated},
    order::{Gathering, Goal, PlacementChange},
    transaction::WorkloadSteps,
};
pub use self::{
    advice::{Advice, Obstacle, ObstacleKind, advise, near_memory, tmpfs_in_words},
    advised::EarlierAdvice,
    self_placed::cpuset_writes,
};
use crate::{
    considered::{DecisionTrace, MeasuredState},
    hosted::CgroupBounds,
    model::WorkloadModel,
    owner::{Owner, Ownership},
    plan::{Action, PLAN_SCHEMA_VERSION, Plan, Step},
    sample::{ChangeKind, Sample},
    turn::{CpusetTarget, Decision, DriftStatus, Inputs, Partitioned, REPAIRS, Refusal, RefusalCause},
    words,
    workload::CgroupPath,
};
use numa_placement::{
    Allocations, ContainerRequest, Grant, Holder, Trace, settle_overflow, trial::ContainerReport,
};
use numa_topology::{
    Topology,
    set::{CpuSet, NodeSet},
};

/// Decides what to do. `allocations` are those of the last decision, and become those of this one: workloads
/// that are gone or no longer declared lose theirs.
pub fn decide(inputs: &Inputs<'_>, allocations: &mut Allocations) -> Decision {
    let mut decision = Decision {
        plan: Plan { schema_version: PLAN_SCHEMA_VERSION, ..Plan::default() },
        ..Decision::default()
    };
    let placeable = retain_placeable(inputs, allocations, &mut decision);
    let mut limits: BTreeMap<CgroupPath, AncestorLimits> =
        placeable.iter().map(|one| (one.cgroup.clone(), AncestorLimits::of(inputs, one.cgroup))).collect();
    let mut parts = place_declared(inputs, allocations, &placeable, &limits, &mut decision);
    parts.extend(announced(inputs, allocations, &mut decision, &mut limits));
    decision.guarded = guarded::of(inputs, allocations, &decision, &limits);
    decision.plan = transaction::plan(parts);
    partition::add_partition_steps(inputs, &mut decision);
    decision
}

/// Declared workloads that are to be placed. The others are refused, and lose their grants.
fn retain_placeable<'a>(
    inputs: &Inputs<'a>,
    allocations: &mut Allocations,
    decision: &mut Decision,
) -> Vec<DeclaredWorkload<'a>> {
    let (others, declared): (Vec<_>, Vec<_>) =
        declared(inputs).into_iter().partition(|one| one.foreign.is_some());
    // Without files to write there is nothing to grant.
    let (unwritable, declared): (Vec<_>, Vec<_>) = declared
        .into_iter()
        .map(|one| (without_controller(inputs.sample, one.cgroup), one))
        .partition(|(reason, _)| reason.is_some());
    let declared: Vec<_> = declared.into_iter().map(|(_, one)| one).collect();
    for (reason, one) in unwritable {
        decision.refused.extend(reason.map(|reason| Refusal {
            workload: one.cgroup.clone(),
            cause: RefusalCause::NoController,
            reason,
        }));
    }
    let (left, declared): (Vec<_>, Vec<_>) =
        declared.into_iter().partition(|one| self_placed::refusal(inputs.self_placed, one.cgroup).is_some());
    decision
        .refused
        .extend(left.iter().filter_map(|one| self_placed::refusal(inputs.self_placed, one.cgroup)));
    // A workload of unknown owner holds no CPUs that its owner gave away.
    let unknown = others.iter().filter(|one| one.foreign.is_some_and(|it| it.owner == Owner::Unknown));
    let holders: BTreeSet<Holder> =
        declared.iter().chain(unknown).map(|one| Holder::cgroup(one.cgroup)).collect();
    allocations.retain(|holder| !holder.is_cgroup() || holders.contains(holder));
    taken::withhold_of_others(inputs, allocations);
    decision.refused.extend(others.iter().filter_map(|one| Some(of_other(one.cgroup, one.foreign?))));
    let isolated = |one: &DeclaredWorkload<'_>| {
        pinned_to_isolated(inputs.inventory, inputs.sample, &inputs.history.drift, one)
    };
    // The CPUs of containers are of one node as well.
    let (pinned, declared): (Vec<_>, Vec<_>) = declared.into_iter().partition(|one| isolated(one).is_some());
    for one in pinned {
        allocations.release(&Holder::cgroup(one.cgroup));
        decision.refused.extend(isolated(&one));
    }
    if inputs.inventory.machine.cpu_nodes().len() >= 2 {
        return declared;
    }
    decision.refused.extend(declared.iter().map(|one| Refusal {
        workload: one.cgroup.clone(),
        cause: RefusalCause::OneNode,
        reason: one_node(&inputs.inventory.machine),
    }));
    Vec::new()
}

/// Grants each of these workloads its place, in order, and plans its steps.
fn place_declared<'a>(
    inputs: &Inputs<'a>,
    allocations: &mut Allocations,
    placeable: &'a [DeclaredWorkload<'a>],
    limits: &'a BTreeMap<CgroupPath, AncestorLimits>,
    decision: &mut Decision,
) -> Vec<WorkloadSteps> {
    let candidates: Vec<WorkloadToPlace<'_>> = placeable
        .iter()
        .filter_map(|one| Some(WorkloadToPlace::new(inputs, one, limits.get(one.cgroup)?)))
        .collect();
    let kept = grants::keep_valid(inputs, allocations, &candidates);
    // Pins matter only for workloads that do not keep their place.
    let pins = if kept.len() < candidates.len() { pins::all(inputs) } else { pins::Pins::new() };
    let granted: Vec<_> = candidates
        .iter()
        .map(|one| {
            let mut trace = Trace::wanted();
            (one, grants::grant(inputs, allocations, one, (&kept, &pins), &mut trace), trace)
        })
        .collect();
    // Sharing workloads also leave the CPUs that a later entry's workload gets exclusively.
    settle_overflow(inputs.inventory, allocations);
    let taken = allocations.exclusive_cpus();
    let mut parts = Vec::new();
    for (one, granted, trace) in granted {
        let DeclaredWorkload { cgroup, figures, .. } = *one.workload;
        let settled = |grant| allocations.get(&Holder::cgroup(cgroup)).cloned().unwrap_or(grant);
        match granted.map(settled).and_then(|grant| change_to(inputs, cgroup, figures, &grant, &taken)) {
            Ok(change) => parts.extend(decision.plan_workload(inputs, &change, one.limits)),
            Err(refusal) => decision.refused.push(refusal),
        }
        decision.considered.insert(cgroup.clone(), one.decision_trace(inputs.inventory, allocations, trace));
    }
    parts
}

impl Decision {
    /// Cgroups for which a changed wish about partitions matters, if the daemon set one before.
    pub fn about_partitions(&self, set: &Partitioned) -> BTreeSet<CgroupPath> {
        let wanted = self.partitions.keys().flat_map(|path| partition::ancestors(path).chain([path.clone()]));
        wanted.chain(set.all()).collect()
    }

    /// Records the state of one workload within the limits of the cgroups above it; returns its steps.
    fn plan_workload(
        &mut self,
        inputs: &Inputs<'_>,
        change: &PlacementChange<'_>,
        limits: &AncestorLimits,
    ) -> Option<WorkloadSteps> {
        let cgroup = change.cgroup;
        let mut steps = order::steps(change);
        let standing = self.record_target(inputs, change, &steps);
        if steps.is_empty() && !matches!(standing, DriftStatus::LeftAlone | DriftStatus::Drifted) {
            self.in_place.push(cgroup.clone());
            return None;
        }
        if let Some((cause, reason)) = held_back(inputs, change, &steps, standing) {
            self.refused.push(Refusal { workload: cgroup.clone(), cause, reason });
            return None;
        }
        let above = match limits.make_room(&change.goal.cpuset) {
            Ok(above) => above,
            Err(reason) => {
                let cause = RefusalCause::AboveTooNarrow;
                self.refused.push(Refusal { workload: cgroup.clone(), cause, reason });
                return None;
            }
        };
        if standing == DriftStatus::Drifted {
            let by = writer(inputs.sample, cgroup);
            for step in &mut steps {
                step.reason = format!("{}; it was so before {by} wrote its cpuset", step.reason);
            }
        }
        if steps.iter().any(|step| matches!(step.action, Action::SetCpus { .. }))
            && let Some(end) = partition::end_before(inputs.sample, inputs.partitioned, cgroup)
        {
            steps.insert(0, end);
        }
        let cgroup_id = inputs.sample.cgroup_id(cgroup);
        let had = inputs.history.drift.set_to(cgroup, cgroup_id).and_then(|had| had.cpus.as_ref());
        let gives = had.zip(change.goal.cpuset.cpus.as_ref()).map(|(had, cpus)| had.difference(cpus));
        Some(WorkloadSteps {
            cgroup: cgroup.clone(),
            above,
            steps,
            gives: gives.unwrap_or_default(),
            takes: change.goal.exclusive.clone(),
        })
    }

    /// Records where one workload should be, and the partition that it should have. Returns how its cpuset
    /// stands to that.
    fn record_target(
        &mut self,
        inputs: &Inputs<'_>,
        change: &PlacementChange<'_>,
        steps: &[Step],
    ) -> DriftStatus {
        let (cgroup, goal) = (change.cgroup, &change.goal);
        let cpus = goal.cpuset.cpus.as_ref();
        if let Some(cpus) = cpus {
            self.aims.insert(cgroup.clone(), inputs.inventory.machine.nodes_of(cpus));
        }
        let cgroup_id = inputs.sample.cgroup_id(cgroup);
        let rule = inputs.declarations.rule(inputs.policy, cgroup).map(|(_, rule)| rule);
        let wanted = partition::wanted_partition(rule, cgroup_id, cpus, &goal.exclusive);
        self.partitions.extend(wanted.map(|wanted| (cgroup.clone(), wanted)));
        let is_set = steps.iter().all(|step| !step.action.sets_cpuset());
        let drift = &inputs.history.drift;
        let standing = drift.standing(cgroup, cgroup_id, &goal.cpuset, is_set, inputs.now_ns);
        let target = CpusetTarget { cgroup_id, cpuset: goal.cpuset.clone(), standing };
        self.targets.insert(cgroup.clone(), target);
        standing
    }
}

/// Why these steps are not taken now.
fn held_back(
    inputs: &Inputs<'_>,
    change: &PlacementChange<'_>,
    steps: &[Step],
    standing: DriftStatus,
) -> Option<(RefusalCause, String)> {
    let Inputs { history, sample, now_ns, .. } = *inputs;
    let cgroup = change.cgroup;
    let moves_only = !steps.is_empty() && steps.iter().all(|step| !step.action.sets_cpuset());
    if let Some(own) = inputs.self_placed.get(cgroup).filter(|one| one.keeps_place && moves_only) {
        return Some((RefusalCause::SelfPlacement, own.reason.clone()));
    }
    match standing {
        DriftStatus::LeftAlone => {
            let left_ns = history.drift.left_alone_for(cgroup, now_ns);
            Some((RefusalCause::Drift, left_alone(sample, cgroup, left_ns)))
        }
        // A change by another program is put back at once.
        DriftStatus::Drifted => None,
        _ => {
            let (cgroup_id, cpuset) = (sample.cgroup_id(cgroup), &change.goal.cpuset);
            let cooling = history.cooling_towards(cgroup, cgroup_id, cpuset, inputs.policy, now_ns);
            cooling.map(|reason| (RefusalCause::CoolDown, reason))
        }
    }
}

/// Reason why a workload that another program has written again is not put back.
fn left_alone(sample: &Sample, cgroup: &CgroupPath, left_ns: u64) -> String {
    let minutes = left_ns.div_ceil(60 * 1_000_000_000);
    format!(
        "{} wrote its cpuset again after it was put back {} times within an hour: it is left alone for {minutes} min, \
         or until the configuration is read again",
        writer(sample, cgroup),
        REPAIRS
    )
}

/// The writer of the cpuset since the last sample, as far as the kernel side reports it. A process chooses
/// its command name itself, so the name is quoted.
fn writer(sample: &Sample, cgroup: &CgroupPath) -> String {
    let changes = sample.changes.iter().flat_map(|changes| &changes.latest);
    let mut written = changes.filter(|change| {
        change.workload.as_ref() == Some(cgroup) && matches!(change.what, ChangeKind::CpusetWritten { .. })
    });
    let last = written.next_back().map(|change| format!("{:?} (process {})", change.command, change.pid));
    last.unwrap_or_else(|| "another program".into())
}

/// Checks that containers stay in their places: those that a runtime announced at creation, and those of the
/// last daemon that it will announce. Adds the limits of their cgroups.
fn announced(
    inputs: &Inputs<'_>,
    allocations: &Allocations,
    decision: &mut Decision,
    limits: &mut BTreeMap<CgroupPath, AncestorLimits>,
) -> Vec<WorkloadSteps> {
    let mut parts = Vec::new();
    let taken = allocations.exclusive_cpus();
    let mut room = displaced::RoomAway::new(inputs, allocations, &taken);
    let by_cgroup: BTreeMap<&CgroupPath, &Holder> = inputs.containers.cgroups().collect();
    let expected: BTreeMap<&CgroupPath, Grant> = inputs.containers.expected().collect();
    for workload in inputs.workloads {
        let ours = by_cgroup.get(&workload.cgroup).filter(|holder| !holder.is_given());
        let ours = ours.and_then(|holder| allocations.get(holder));
        let Some(grant) = ours.or_else(|| expected.get(&workload.cgroup)) else { continue };
        if let Some(ownership) = inputs.owners.foreign(workload) {
            decision.refused.push(of_other(&workload.cgroup, ownership));
            continue;
        }
        if let Some(reason) = without_controller(inputs.sample, &workload.cgroup) {
            let (workload, cause) = (workload.cgroup.clone(), RefusalCause::NoController);
            decision.refused.push(Refusal { workload, cause, reason });
            continue;
        }
        if let Some(refusal) = self_placed::refusal(inputs.self_placed, &workload.cgroup) {
            decision.refused.push(refusal);
            continue;
        }
        match change_to(inputs, &workload.cgroup, inputs.model.of(workload), grant, &taken) {
            Ok(mut change) => {
                if let Some(holder) = by_cgroup.get(&workload.cgroup)
                    && let Some(takes) = room.leave(holder, grant, &order::leaving(&change))
                {
                    change.room = takes;
                }
                if change.goal.gathers.is_empty() {
                    change.goal.gathers = room.follows(grant, inputs.model.of(workload));
                }
                let cgroup = &workload.cgroup;
                let limits =
                    limits.entry(cgroup.clone()).or_insert_with(|| AncestorLimits::of(inputs, cgroup));
                parts.extend(decision.plan_workload(inputs, &change, limits));
            }
            Err(refusal) => decision.refused.push(refusal),
        }
        let seen = MeasuredState::of(inputs.model.of(workload));
        let placement = Some(ContainerReport::new(&ContainerRequest::default(), grant, &taken));
        let considered = DecisionTrace { seen, placement, ..DecisionTrace::default() };
        decision.considered.insert(workload.cgroup.clone(), considered);
    }
    parts
}

fn of_other(cgroup: &CgroupPath, ownership: &Ownership) -> Refusal {
    Refusal { workload: cgroup.clone(), cause: RefusalCause::OtherOwner, reason: ownership.refusal() }
}

/// The change of a workload from its present state to a grant; `taken` are the exclusive CPUs of all.
fn change_to<'a>(
    inputs: &Inputs<'a>,
    cgroup: &'a CgroupPath,
    figures: Option<&'a WorkloadModel>,
    grant: &Grant,
    taken: &CpuSet,
) -> Result<PlacementChange<'a>, Refusal> {
    let (figures, cpus, mems) = measured_place(cgroup, figures)?;
    let negligible_bytes = inputs.policy.thresholds.min_memory.0;
    let goal = guarded::widen(Goal::of(grant, taken), inputs.widened.get(cgroup));
    let goal = goal.keep_gpu_memory(mems, &inputs.inventory.machine.gpu_memory_nodes());
    let gathers = inputs.history.rebalance.gathers(cgroup);
    let gathers = gathers.map(|(from, to)| Gathering { from, to, most_bytes: None });
    let goal = Goal { gathers: gathers.into_iter().collect(), ..goal };
    let room = inputs.sample.nodes.iter().filter_map(|(node, now)| Some((*node, now.available_bytes()?)));
    let (room, bytes_by_node) = (room.collect(), figures.bytes_by_node.as_ref());
    Ok(PlacementChange { cgroup, cpus, mems, bytes_by_node, room, negligible_bytes, goal })
}

/// Figures of a workload with its effective CPUs and memory nodes.
fn measured_place<'a>(
    cgroup: &CgroupPath,
    figures: Option<&'a WorkloadModel>,
) -> Result<(&'a WorkloadModel, &'a CpuSet, &'a NodeSet), Refusal> {
    let seen = figures.and_then(|figures| Some((figures, figures.cpus.as_ref()?, figures.mems.as_ref()?)));
    seen.ok_or_else(|| {
        let reason = "its effective CPUs and memory nodes are not known".to_owned();
        Refusal { workload: cgroup.clone(), cause: RefusalCause::NotSeen, reason }
    })
}

/// The most that the cgroups above leave a cgroup; `None` if they are unknown.
pub(crate) fn bounds(inputs: &Inputs<'_>, cgroup: &CgroupPath) -> Option<CgroupBounds> {
    AncestorLimits::of(inputs, cgroup).bounds()
}

/// Reason why a workload is left alone on a machine without another place.
fn one_node(machine: &Topology) -> String {
    if machine.nodes.len() < 2 {
        return "one NUMA node: nothing to align".to_owned();
    }
    let all: NodeSet = machine.nodes.iter().map(|node| node.id).collect();
    format!(
        "of {} only {} has CPUs: nothing to align",
        words::nodes(&all),
        words::nodes(&machine.cpu_nodes())
    )
}

#[cfg(test)]
mod pins_tests;
#[cfg(test)]
mod self_placed_tests;
#[cfg(test)]
mod tests;
