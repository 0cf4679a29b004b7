//! Turns figures and declarations into a plan.
//!
//! Problem: bring every declared workload to the CPUs and memory that placement chooses for it, with as
//! little disturbance as possible. Idea: first every validly placed workload keeps its place, then the others
//! are placed in the order of the configuration, then the steps from the present to the chosen state are
//! listed ([`order`] sorts them).
//!
//! Terminology. A workload is *declared* when an entry of the policy matches it ([`Declarations`]). It is *in
//! place* when its effective cpuset equals its assignment and its pages are there. A *refusal* is a declared
//! workload that gets no steps although it is not in place, with the reason. A workload with a cpuset of
//! another owner ([`Owners`]) is refused in place or not, and CPUs that other owners gave away are taken.
//!
//! The decision does not depend on the policy's mode: `observe` shows it, `enforce` carries it out. A machine
//! with fewer than two CPU nodes offers declared workloads no choice; containers that a runtime announced
//! keep their grants there as everywhere. Cost: one placement per declared workload.

mod above;
mod advice;
mod advised;
mod controller;
mod displaced;
mod drift;
mod guarded;
mod history;
mod hugepages;
pub mod order;
mod partition;
mod parts;
pub(crate) mod pins;
mod self_placed;
pub(crate) mod taken;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

pub(crate) use self::controller::without_controller;
use self::{
    above::AncestorLimits,
    order::{Gathering, Goal, PlacementChange},
    transaction::WorkloadSteps,
};
pub use self::{
    above::WrittenCgroups,
    advice::{Advice, Obstacle, ObstacleKind, advise, near_memory, tmpfs_in_words},
    advised::EarlierAdvice,
    drift::{CpusetTarget, Drift, DriftCounts, DriftFate, DriftRecordError, DriftStatus, LastingDrift},
    guarded::Widened,
    history::History,
    partition::{AddedAbove, PartitionAttempts, Partitioned, WantedPartition},
    self_placed::{SelfPlaced, SelfPlacedWorkloads, cpuset_writes},
};
use crate::{
    considered::{DecisionTrace, MeasuredState, WorkloadRequest},
    declarations::Declarations,
    hosted::{CgroupBounds, CgroupRequest, Containers, Wished, wishes_of},
    model::{Model, WorkloadModel, accessed_bytes},
    owner::{Owner, Ownership},
    owners::Owners,
    plan::{Action, PLAN_SCHEMA_VERSION, Plan},
    policy::{DeclaredClass, Policy, WorkloadRule},
    sample::{ChangeKind, NodeBytes, NodeSample, Sample},
    widening::ProtectedWorkload,
    words,
    workload::{CgroupPath, Origin, Workload},
};
use numa_placement::{
    Allocations, ContainerRequest, Grant, Holder, Inventory, Rejection, Trace, Wishes, trial::ContainerReport,
};
use numa_topology::{
    Topology,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Input of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The machine.
    pub inventory: &'a Inventory,
    /// The workloads that run on it.
    pub workloads: &'a [Workload],
    /// The latest sample: free memory, and the cpusets of cgroups above the workloads.
    pub sample: &'a Sample,
    /// Figures of the workloads.
    pub model: &'a Model,
    /// Configured policy.
    pub policy: &'a Policy,
    /// Workloads that the policy's entries match.
    pub declarations: &'a Declarations,
    /// Containers that a runtime announced, with their places.
    pub containers: &'a Containers,
    /// Owners of the cpusets.
    pub owners: &'a Owners,
    /// Earlier corrections.
    pub history: &'a History,
    /// Memory nodes that were added to workloads that ran short, and must stay for now.
    pub widened: &'a Widened,
    /// Cgroups that the daemon has ever written.
    pub written: WrittenCgroups<'a>,
    /// Partitions that the daemon has ever set.
    pub partitioned: &'a Partitioned,
    /// Workloads that stay where they are because of settings of their own processes.
    pub self_placed: &'a SelfPlacedWorkloads,
    /// Monotonic time in nanoseconds, of the clock of the history.
    pub now_ns: u64,
}

/// Planned steps, and declared workloads without steps.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Steps, workload by workload.
    pub plan: Plan,
    /// Declared workloads that are in place.
    pub in_place: Vec<CgroupPath>,
    /// Declared workloads that are not in place and get no steps.
    pub refused: Vec<Refusal>,
    /// CPU nodes on which each placed declared workload should run, in place or not.
    #[serde(default)]
    pub aims: BTreeMap<CgroupPath, NodeSet>,
    /// Target cpuset of each placed workload, and how far the workload is.
    #[serde(default)]
    pub targets: BTreeMap<CgroupPath, CpusetTarget>,
    /// Workloads that should have a partition.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<CgroupPath, WantedPartition>,
    /// Of these, workloads without one, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub without_partition: BTreeMap<CgroupPath, String>,
    /// The partition that each addition to a cgroup above is for; tells which workload a refusal is about.
    #[serde(skip)]
    pub added_above: AddedAbove,
    /// Input of the decision about each declared workload and each container; shown by `explain`.
    #[serde(skip)]
    pub considered: BTreeMap<CgroupPath, DecisionTrace>,
    /// Workloads with guarded memory nodes; internal.
    #[serde(skip)]
    pub guarded: Vec<ProtectedWorkload>,
}

/// Reason why a declared workload is left where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Its cgroup.
    pub workload: CgroupPath,
    /// Kind of reason.
    pub cause: RefusalCause,
    /// The reason in one sentence with figures.
    pub reason: String,
}

/// Kind of the reason for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum RefusalCause {
    /// All CPUs are on one NUMA node, so there is no choice.
    OneNode,
    /// No node has room.
    NoPlace,
    /// Its cpuset could not be read.
    NotSeen,
    /// It was brought to the same goal within the cool-down.
    CoolDown,
    /// Another program writes its cpuset again and again.
    Drift,
    /// Its cpuset has another owner.
    OtherOwner,
    /// A cgroup above it, which the daemon may not widen, lacks some of its grant.
    AboveTooNarrow,
    /// Its cgroup has no cpuset files, because the controller is not enabled above it.
    NoController,
    /// It runs only on isolated CPUs, which the daemon did not grant and its entry does not ask for.
    PinnedToIsolated,
    /// A process in it has set a memory policy or a CPU affinity itself, which a write would change.
    SelfPlacement,
}

impl RefusalCause {
    /// Every cause, in order.
    pub const ALL: [Self; 10] = [
        Self::OneNode,
        Self::NoPlace,
        Self::NotSeen,
        Self::CoolDown,
        Self::Drift,
        Self::OtherOwner,
        Self::AboveTooNarrow,
        Self::NoController,
        Self::PinnedToIsolated,
        Self::SelfPlacement,
    ];
}

/// Decides what to do. `allocations` are those of the last decision, and become those of this one: workloads
/// that are gone or no longer declared lose theirs.
pub fn decide(inputs: &Inputs<'_>, allocations: &mut Allocations) -> Decision {
    let mut decision = Decision {
        plan: Plan { schema_version: PLAN_SCHEMA_VERSION, ..Plan::default() },
        ..Decision::default()
    };
    let (others, declared): (Vec<_>, Vec<_>) =
        declared(inputs).into_iter().partition(|one| one.foreign.is_some());
    // Without files to write there is nothing to grant.
    let (unwritable, declared): (Vec<_>, Vec<_>) = declared
        .into_iter()
        .map(|one| (without_controller(inputs.sample, one.cgroup), one))
        .partition(|(reason, _)| reason.is_some());
    let declared: Vec<_> = declared.into_iter().map(|(_, one)| one).collect();
    decision.refused.extend(unwritable.iter().filter_map(|(reason, one)| {
        let cause = RefusalCause::NoController;
        Some(Refusal { workload: one.cgroup.clone(), cause, reason: reason.clone()? })
    }));
    let (left, declared): (Vec<_>, Vec<_>) =
        declared.into_iter().partition(|one| self_placed::refusal(inputs, one.cgroup).is_some());
    decision.refused.extend(left.iter().filter_map(|one| self_placed::refusal(inputs, one.cgroup)));
    // A workload of unknown owner holds no CPUs that its owner gave away.
    let unknown = others.iter().filter(|one| one.foreign.is_some_and(|it| it.owner == Owner::Unknown));
    let holders: BTreeSet<Holder> =
        declared.iter().chain(unknown).map(|one| Holder::cgroup(one.cgroup)).collect();
    allocations.retain(|holder| !holder.is_cgroup() || holders.contains(holder));
    taken::withhold_of_others(inputs, allocations);
    decision.refused.extend(others.iter().filter_map(|one| Some(of_other(one.cgroup, one.foreign?))));
    let mut parts = Vec::new();
    // The CPUs of containers are of one node as well.
    let (pinned, declared): (Vec<_>, Vec<_>) =
        declared.into_iter().partition(|one| pinned_to_isolated(inputs, one).is_some());
    for one in pinned {
        allocations.release(&Holder::cgroup(one.cgroup));
        decision.refused.extend(pinned_to_isolated(inputs, &one));
    }
    let nothing_to_choose = inputs.inventory.machine.cpu_nodes().len() < 2;
    let (left, placed) = if nothing_to_choose { (declared, Vec::new()) } else { (Vec::new(), declared) };
    decision.refused.extend(left.iter().map(|one| Refusal {
        workload: one.cgroup.clone(),
        cause: RefusalCause::OneNode,
        reason: one_node(&inputs.inventory.machine),
    }));
    let kept = keep_valid(inputs, allocations, &placed);
    // Pins matter only for workloads that do not keep their place.
    let pins = if kept.len() < placed.len() { pins::all(inputs) } else { pins::Pins::new() };
    let granted: Vec<_> = placed
        .iter()
        .map(|one| {
            let mut trace = Trace::wanted();
            (one, grant(inputs, allocations, one, (&kept, &pins), &mut trace), trace)
        })
        .collect();
    // Sharing workloads also leave the CPUs that a later entry's workload gets exclusively.
    let taken = allocations.exclusive_cpus();
    for (one, granted, trace) in granted {
        match granted.and_then(|grant| change_to(inputs, one.cgroup, one.figures, &grant, &taken)) {
            Ok(change) => parts.extend(decision.plan_workload(inputs, &change)),
            Err(refusal) => decision.refused.push(refusal),
        }
        decision.considered.insert(one.cgroup.clone(), considered(inputs, allocations, one, trace));
    }
    parts.extend(announced(inputs, allocations, &mut decision));
    decision.guarded = guarded::of(inputs, &decision);
    decision.plan = transaction::plan(parts);
    partition::add_partition_steps(inputs, &mut decision);
    decision
}

impl Decision {
    /// Cgroups for which a changed wish about partitions matters, if the daemon set one before.
    pub fn about_partitions(&self, set: &Partitioned) -> BTreeSet<CgroupPath> {
        let wanted = self.partitions.keys().flat_map(|path| partition::ancestors(path).chain([path.clone()]));
        wanted.chain(set.all()).collect()
    }

    /// Records the state of one workload; returns its steps.
    fn plan_workload(&mut self, inputs: &Inputs<'_>, change: &PlacementChange<'_>) -> Option<WorkloadSteps> {
        let cgroup = change.cgroup;
        if let Some(cpus) = &change.goal.cpuset.cpus {
            self.aims.insert(cgroup.clone(), inputs.inventory.machine.nodes_of(cpus));
        }
        let goal = &change.goal;
        let wanted = partition::wanted_partition(inputs, cgroup, goal.cpuset.cpus.as_ref(), &goal.exclusive);
        self.partitions.extend(wanted.map(|wanted| (cgroup.clone(), wanted)));
        let mut steps = order::steps(change);
        let cgroup_id = inputs.sample.cgroup_id(cgroup);
        let standing = inputs.history.drift.standing(
            cgroup,
            cgroup_id,
            &change.goal.cpuset,
            steps.iter().all(|step| !step.action.sets_cpuset()),
            inputs.now_ns,
        );
        let target = CpusetTarget { cgroup_id, cpuset: change.goal.cpuset.clone(), standing };
        self.targets.insert(cgroup.clone(), target);
        let cooling = || {
            let history = inputs.history;
            history.cooling_towards(cgroup, cgroup_id, &goal.cpuset, inputs.policy, inputs.now_ns)
        };
        let moves_only = !steps.is_empty() && steps.iter().all(|step| !step.action.sets_cpuset());
        let own_policy = inputs.self_placed.get(cgroup).filter(|one| one.keeps_place && moves_only);
        let held_back = match standing {
            _ if own_policy.is_some() => {
                own_policy.map(|one| (RefusalCause::SelfPlacement, one.reason.clone()))
            }
            DriftStatus::LeftAlone => Some((RefusalCause::Drift, left_alone(inputs, cgroup))),
            // A change by another program is put back at once.
            DriftStatus::Drifted => None,
            _ if steps.is_empty() => {
                self.in_place.push(cgroup.clone());
                return None;
            }
            _ => cooling().map(|reason| (RefusalCause::CoolDown, reason)),
        };
        if let Some((cause, reason)) = held_back {
            self.refused.push(Refusal { workload: cgroup.clone(), cause, reason });
            return None;
        }
        let above = match AncestorLimits::of(inputs, cgroup).make_room(&change.goal.cpuset) {
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
            && let Some(end) = partition::end_before(inputs, cgroup)
        {
            steps.insert(0, end);
        }
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
}

/// Reason why a workload that another program has written again is not put back.
fn left_alone(inputs: &Inputs<'_>, cgroup: &CgroupPath) -> String {
    let minutes = inputs.history.drift.left_alone_for(cgroup, inputs.now_ns).div_ceil(60 * 1_000_000_000);
    format!(
        "{} wrote its cpuset again after it was put back {} times within an hour: it is left alone for {minutes} min, \
         or until the configuration is read again",
        writer(inputs.sample, cgroup),
        drift::REPAIRS
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
/// last daemon that it will announce.
fn announced(inputs: &Inputs<'_>, allocations: &Allocations, decision: &mut Decision) -> Vec<WorkloadSteps> {
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
        if let Some(refusal) = self_placed::refusal(inputs, &workload.cgroup) {
            decision.refused.push(refusal);
            continue;
        }
        match change_to(inputs, &workload.cgroup, inputs.model.of(workload), grant, &taken) {
            Ok(mut change) => {
                if change.goal.gathers.is_empty() {
                    change.goal.gathers = room.follows(grant, inputs.model.of(workload));
                }
                parts.extend(decision.plan_workload(inputs, &change));
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
    let (figures, cpus, mems) = seen(cgroup, figures)?;
    let negligible_bytes = inputs.policy.thresholds.min_memory.0;
    let goal = guarded::widened(inputs, cgroup, Goal::of(grant, taken));
    let goal = goal.keep_gpu_memory(mems, &inputs.inventory.machine.gpu_memory_nodes());
    let gathers = inputs.history.rebalance.gathers(cgroup);
    let gathers = gathers.map(|(from, to)| Gathering { from, to, most_bytes: None });
    let goal = Goal { gathers: gathers.into_iter().collect(), ..goal };
    let room = inputs.sample.nodes.iter().filter_map(|(node, now)| Some((*node, now.available_bytes()?)));
    let (room, bytes_by_node) = (room.collect(), figures.bytes_by_node.as_ref());
    Ok(PlacementChange { cgroup, cpus, mems, bytes_by_node, room, negligible_bytes, goal })
}

/// Figures of a workload with its effective CPUs and memory nodes.
fn seen<'a>(
    cgroup: &CgroupPath,
    figures: Option<&'a WorkloadModel>,
) -> Result<(&'a WorkloadModel, &'a CpuSet, &'a NodeSet), Refusal> {
    let seen = figures.and_then(|figures| Some((figures, figures.cpus.as_ref()?, figures.mems.as_ref()?)));
    seen.ok_or_else(|| {
        let reason = "its effective CPUs and memory nodes are not known".to_owned();
        Refusal { workload: cgroup.clone(), cause: RefusalCause::NotSeen, reason }
    })
}

/// A workload that an entry asks to correct.
struct DeclaredWorkload<'a> {
    cgroup: &'a CgroupPath,
    rule: &'a WorkloadRule,
    /// Wishes of its entry besides amounts, and those that this machine cannot fulfil.
    wishes: (Wishes, Vec<String>),
    figures: Option<&'a WorkloadModel>,
    /// Its figures without memory nodes that were added because it ran short.
    at_home: Option<WorkloadModel>,
    /// Owner of its cpuset, if that is not the daemon.
    foreign: Option<&'a Ownership>,
}

/// Declared workloads by position of their entry in the file, then by cgroup.
fn declared<'a>(inputs: &Inputs<'a>) -> Vec<DeclaredWorkload<'a>> {
    // A workload that its runtime placed is not placed again.
    let placed = inputs.containers.cgroups().filter(|(_, holder)| !holder.is_given());
    let announced: BTreeSet<&CgroupPath> = placed.map(|(cgroup, _)| cgroup).collect();
    let mut by_order = BTreeMap::new();
    for workload in inputs.workloads {
        // The root cgroup has no cpuset to write, and a lone process no cgroup of its own.
        let of_its_own = workload.cgroup != CgroupPath::root()
            && !matches!(workload.origin, Origin::Process { .. })
            && !announced.contains(&workload.cgroup)
            && !inputs.containers.expects(&workload.cgroup);
        let rule = inputs.declarations.rule(inputs.policy, &workload.cgroup);
        if let Some((position, rule)) = rule.filter(|(_, rule)| of_its_own && rule.enforce) {
            let wishes = wishes_of(rule, position, &inputs.inventory.machine);
            let figures = inputs.model.of(workload);
            let foreign = inputs.owners.foreign(workload);
            let at_home = figures.and_then(|figures| guarded::without(inputs, &workload.cgroup, figures));
            let declared =
                DeclaredWorkload { cgroup: &workload.cgroup, rule, wishes, figures, at_home, foreign };
            by_order.insert((position, &workload.cgroup), declared);
        }
    }
    by_order.into_values().collect()
}

/// Refusal of a workload that runs on isolated CPUs and does not ask for them: another program has put it
/// there on purpose.
fn pinned_to_isolated(inputs: &Inputs<'_>, one: &DeclaredWorkload<'_>) -> Option<Refusal> {
    let figures = one.figures?;
    let used = || figures.on_isolated_cpus.keys().copied();
    let cpus = figures.cpus.as_ref().filter(|cpus| inputs.inventory.is_pinned_to_isolated(cpus, used()))?;
    let cgroup_id = inputs.sample.cgroup_id(one.cgroup);
    let ours = inputs.history.drift.set_to(one.cgroup, cgroup_id).is_some();
    let asks = one.wishes.0.class == Some(DeclaredClass::Isolated);
    (!ours && !asks).then(|| Refusal {
        workload: one.cgroup.clone(),
        cause: RefusalCause::PinnedToIsolated,
        reason: format!(
            "it is pinned to CPUs {cpus}, of which isolcpus= isolates {}: it is left there; class = \"isolated\" in its \
             entry places it on isolated CPUs",
            cpus.intersection(&inputs.inventory.machine.isolated_cpus)
        ),
    })
}

/// Lets every validly placed workload keep its place first, so that none makes room for a workload of an
/// earlier entry.
fn keep_valid(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    declared: &[DeclaredWorkload<'_>],
) -> BTreeMap<CgroupPath, Grant> {
    let mut kept = BTreeMap::new();
    // A workload that is being moved does not keep its old place.
    let aims =
        declared.iter().filter_map(|one| Some((one.cgroup, inputs.history.rebalance.aim(one.cgroup)?)));
    for (cgroup, grant) in aims {
        if !can_be_had(inputs, allocations, cgroup, grant) {
            allocations.release(&Holder::cgroup(cgroup));
            continue;
        }
        allocations.give(Holder::cgroup(cgroup), grant.clone());
        kept.insert(cgroup.clone(), grant.clone());
    }
    for one in declared.iter().filter(|one| !is_away(inputs, one)) {
        if kept.contains_key(one.cgroup) {
            continue;
        }
        let kept_place = request(inputs, one).and_then(|it| it.keep(inputs.inventory, allocations));
        if let Some(grant) = kept_place {
            allocations.give(Holder::cgroup(one.cgroup), grant.clone());
            kept.insert(one.cgroup.clone(), grant);
        }
    }
    kept
}

/// Is the aim of a workload still available? CPUs go offline, are granted to others, and cgroups above
/// narrow.
fn can_be_had(inputs: &Inputs<'_>, allocations: &Allocations, cgroup: &CgroupPath, aim: &Grant) -> bool {
    let bounds = bounds(inputs, cgroup);
    let above =
        |within: fn(&CgroupBounds, &Grant) -> bool| bounds.as_ref().is_none_or(|bounds| within(bounds, aim));
    let holder = Holder::cgroup(cgroup);
    let mut others = allocations.iter().filter(|(other, _)| **other != holder);
    aim.exclusive.is_subset(&inputs.inventory.allowed_cpus)
        && aim.mems.is_subset(&inputs.inventory.machine.memory_nodes())
        && above(|above, aim| above.cpus.as_ref().is_none_or(|cpus| aim.exclusive.is_subset(cpus)))
        && above(|above, aim| above.mems.as_ref().is_none_or(|mems| aim.mems.is_subset(mems)))
        && others.all(|(_, grant)| grant.exclusive.is_disjoint(&aim.exclusive))
}

/// Has another program moved it away from its goal?
fn is_away(inputs: &Inputs<'_>, one: &DeclaredWorkload<'_>) -> bool {
    let cgroup_id = inputs.sample.cgroup_id(one.cgroup);
    let away = |figures: &WorkloadModel| {
        let now = figures.cpus.as_ref().zip(figures.mems.as_ref());
        now.is_some_and(|now| inputs.history.drift.is_away(one.cgroup, cgroup_id, now))
    };
    // The last goal may be older than an added node.
    one.figures.is_some_and(away) && one.at_home.as_ref().is_none_or(away)
}

/// The grant that a declared workload keeps or gets.
fn grant(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    one: &DeclaredWorkload<'_>,
    (kept, pins): (&BTreeMap<CgroupPath, Grant>, &pins::Pins),
    trace: &mut Trace,
) -> Result<Grant, Refusal> {
    // Before placement: the place of a workload without figures is unknown.
    seen(one.cgroup, one.figures)?;
    let no_place = |reason| Refusal { workload: one.cgroup.clone(), cause: RefusalCause::NoPlace, reason };
    match (kept.get(one.cgroup), request(inputs, one)) {
        (Some(kept), _) => Ok(kept.clone()),
        (None, Some(request)) => {
            beside_pins(inputs, allocations, one, &request, pins, trace).map_err(|rejection| {
                no_place(match AncestorLimits::of(inputs, one.cgroup).narrows(inputs) {
                    Some(above) => format!("{rejection}; {above}"),
                    None => rejection.to_string(),
                })
            })
        }
        (None, None) => Err(no_place(NO_CPUS.to_owned())),
    }
}

/// A place without CPUs that others are pinned to, if that moves no more of its memory: on the node of its
/// place without pins, or on any node if it has next to no memory there. Without one it shares pinned CPUs,
/// because its declaration outweighs a pin that was not declared.
fn beside_pins(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    one: &DeclaredWorkload<'_>,
    request: &CgroupRequest<'_>,
    pins: &pins::Pins,
    trace: &mut Trace,
) -> Result<Grant, Rejection> {
    let own = one.figures.and_then(|figures| figures.cpus.clone()).unwrap_or_default();
    // An affinity to all CPUs says nothing about its place.
    let own = if inputs.inventory.machine.online_cpus().is_subset(&own) { CpuSet::new() } else { own };
    let mut pins = pins::beside(pins, one.cgroup, &own);
    // CPUs of partitions are held already.
    pins.retain(|_, pin| !pin.partition);
    if pins.is_empty() {
        return request.place_traced(inputs.inventory, allocations, trace);
    }
    let before = allocations.clone();
    let mut grant = request.place_traced(inputs.inventory, allocations, trace)?;
    let shared = pins.iter().find(|(_, pin)| !pin.cpus.is_disjoint(&grant.exclusive));
    let Some((cgroup, pin)) = shared else { return Ok(grant) };
    let bytes = one.figures.and_then(|figures| figures.bytes_by_node.as_ref()).into_iter().flatten();
    let there = bytes.filter(|(node, _)| grant.mems.contains(**node));
    let there = there.fold(0u64, |sum, (_, bytes)| sum.saturating_add(accessed_bytes(bytes)));
    let apart = CgroupRequest { avoids: pins::cpus(&pins), ..request.clone() };
    let elsewhere = (there < inputs.policy.thresholds.min_memory.0).then(|| apart.clone());
    let same_nodes = CgroupRequest { nodes: Some(&grant.mems), ..apart };
    for request in elsewhere.into_iter().chain([same_nodes]) {
        let (mut trial, mut of_trial) = (before.clone(), Trace::wanted());
        if let Ok(found) = request.place_traced(inputs.inventory, &mut trial, &mut of_trial) {
            (*allocations, *trace) = (trial, of_trial);
            return Ok(found);
        }
    }
    grant.reason = format!("{}; {}, and no place is free beside them", grant.reason, pin.in_words(cgroup));
    allocations.give(Holder::cgroup(one.cgroup), grant.clone());
    Ok(grant)
}

/// Input of the decision about a declared workload.
fn considered(
    inputs: &Inputs<'_>,
    allocations: &Allocations,
    one: &DeclaredWorkload<'_>,
    trace: Trace,
) -> DecisionTrace {
    let request = request(inputs, one);
    let container = request.as_ref().map(|request| request.container(inputs.inventory)).unwrap_or_default();
    let numa_nodes = one.rule.numa_nodes.clone();
    let asked =
        WorkloadRequest { rule: Some(one.rule.name.clone()), numa_nodes, ..WorkloadRequest::of(&container) };
    let placement = allocations
        .get(&Holder::cgroup(one.cgroup))
        .map(|grant| ContainerReport::new(&container, grant, &allocations.exclusive_cpus()));
    let available_by_node = request.map(|request| request.available_bytes);
    let seen = MeasuredState { available_by_node, ..MeasuredState::of(one.figures) };
    DecisionTrace { asked, seen, placement, ..DecisionTrace::default() }.with(trace.into_parts().0)
}

/// The request of a workload; `None` if neither its entry nor its container names an amount of CPUs.
fn request<'a>(inputs: &Inputs<'a>, one: &'a DeclaredWorkload<'a>) -> Option<CgroupRequest<'a>> {
    Some(CgroupRequest {
        cgroup: one.cgroup,
        cpus: one.rule.cpus?.get(),
        memory_bytes: one.rule.memory.map(|memory| memory.0),
        now: one.at_home.as_ref().or(one.figures),
        nodes: one.rule.numa_nodes.as_ref(),
        bounds: AncestorLimits::of(inputs, one.cgroup).bounds(),
        available_bytes: available_bytes(inputs.sample, one.figures),
        avoids: CpuSet::new(),
        wished: Some(Wished {
            wishes: &one.wishes.0,
            unknown: &one.wishes.1,
            pools: &inputs.policy.placement.pools,
        }),
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

/// Reason why a container that was not placed at creation is left where it is.
const NO_CPUS: &str =
    "its declaration names no CPUs, so that it can only be placed when it is created (nri.place)";

/// Available bytes of each node, and the workload's own bytes there.
fn available_bytes(sample: &Sample, figures: Option<&WorkloadModel>) -> BTreeMap<NodeId, u64> {
    let held = figures.and_then(|figures| figures.bytes_by_node.as_ref());
    // Page cache of files counts as available already. If shared memory is not reported apart from it, all of
    // it counts as held: memory that is there needs no room.
    let has = |bytes: &NodeBytes| bytes.anon.saturating_add(bytes.shmem.unwrap_or(bytes.file));
    let of_node = |(node, now): (&NodeId, &NodeSample)| {
        let free = now.available_bytes()?;
        Some((*node, free.saturating_add(held.and_then(|held| held.get(node)).map_or(0, has))))
    };
    sample.nodes.iter().filter_map(of_node).collect()
}

#[cfg(test)]
mod pins_tests;
#[cfg(test)]
mod self_placed_tests;
#[cfg(test)]
mod tests;
