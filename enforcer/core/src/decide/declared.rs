//! Workloads that an entry of the configuration asks to correct, with what each asks for and is bounded by.
//!
//! Invariant: limits and request of a workload are computed once in a turn. Neither depends on the
//! allocations, so they are the same for its first look, its placement and its explanation.

use std::collections::{BTreeMap, BTreeSet};

use super::{above::AncestorLimits, guarded};
use crate::{
    considered::{DecisionTrace, MeasuredState, WorkloadRequest},
    hosted::{CgroupBounds, CgroupRequest, Wished, wishes_of},
    model::WorkloadModel,
    owner::Ownership,
    policy::{DeclaredClass, WorkloadRule},
    sample::{NodeBytes, NodeSample, Sample},
    turn::{Drift, Inputs, Refusal, RefusalCause},
    workload::{CgroupPath, Origin},
};
use numa_placement::{Allocations, Holder, Inventory, Trace, Wishes, trial::ContainerReport};
use numa_topology::{id::NodeId, set::CpuSet};

/// A workload that an entry asks to correct.
pub(super) struct DeclaredWorkload<'a> {
    pub(super) cgroup: &'a CgroupPath,
    pub(super) rule: &'a WorkloadRule,
    /// Wishes of its entry besides amounts, and those that this machine cannot fulfil.
    pub(super) wishes: (Wishes, Vec<String>),
    pub(super) figures: Option<&'a WorkloadModel>,
    /// Its figures without memory nodes that were added because it ran short.
    pub(super) at_home: Option<WorkloadModel>,
    /// Owner of its cpuset, if that is not the daemon.
    pub(super) foreign: Option<&'a Ownership>,
}

/// Declared workloads by position of their entry in the file, then by cgroup.
pub(super) fn declared<'a>(inputs: &Inputs<'a>) -> Vec<DeclaredWorkload<'a>> {
    // A workload that its runtime placed is not placed again.
    let placed = inputs.containers.cgroups().filter(|(_, holder)| !holder.is_given());
    let announced: BTreeSet<&CgroupPath> = placed.map(|(cgroup, _)| cgroup).collect();
    let machine = &inputs.inventory.machine;
    let mut by_order = BTreeMap::new();
    for workload in inputs.workloads {
        // The root cgroup has no cpuset to write, and a lone process no cgroup of its own.
        let of_its_own = workload.cgroup != CgroupPath::root()
            && !matches!(workload.origin, Origin::Process { .. })
            && !announced.contains(&workload.cgroup)
            && !inputs.containers.expects(&workload.cgroup);
        let rule = inputs.declarations.rule(inputs.policy, &workload.cgroup);
        if let Some((position, rule)) = rule.filter(|(_, rule)| of_its_own && rule.enforce) {
            let wishes = wishes_of(rule, position, machine);
            let figures = inputs.model.of(workload);
            let foreign = inputs.owners.foreign(workload);
            let at_home = figures
                .and_then(|figures| guarded::without(machine, inputs.widened.get(&workload.cgroup), figures));
            let declared =
                DeclaredWorkload { cgroup: &workload.cgroup, rule, wishes, figures, at_home, foreign };
            by_order.insert((position, &workload.cgroup), declared);
        }
    }
    by_order.into_values().collect()
}

/// Refusal of a workload that runs on isolated CPUs and does not ask for them: another program has put it
/// there on purpose.
pub(super) fn pinned_to_isolated(
    inventory: &Inventory,
    sample: &Sample,
    drift: &Drift,
    one: &DeclaredWorkload<'_>,
) -> Option<Refusal> {
    let figures = one.figures?;
    let used = || figures.on_isolated_cpus.keys().copied();
    let cpus = figures.cpus.as_ref().filter(|cpus| inventory.is_pinned_to_isolated(cpus, used()))?;
    let cgroup_id = sample.cgroup_id(one.cgroup);
    let ours = drift.set_to(one.cgroup, cgroup_id).is_some();
    let asks = one.wishes.0.class == Some(DeclaredClass::Isolated);
    (!ours && !asks).then(|| Refusal {
        workload: one.cgroup.clone(),
        cause: RefusalCause::PinnedToIsolated,
        reason: format!(
            "it is pinned to CPUs {cpus}, of which isolcpus= isolates {}: it is left there; class = \"isolated\" in its \
             entry places it on isolated CPUs",
            cpus.intersection(&inventory.machine.isolated_cpus)
        ),
    })
}

/// A declared workload that is to be placed.
pub(super) struct WorkloadToPlace<'a> {
    pub(super) workload: &'a DeclaredWorkload<'a>,
    /// Limits of the cgroups above it.
    pub(super) limits: &'a AncestorLimits,
    /// `None` if its entry names no amount of CPUs.
    pub(super) request: Option<CgroupRequest<'a>>,
}

impl<'a> WorkloadToPlace<'a> {
    /// The workload with its request.
    pub(super) fn new(
        inputs: &Inputs<'a>,
        workload: &'a DeclaredWorkload<'a>,
        limits: &'a AncestorLimits,
    ) -> Self {
        Self { workload, limits, request: request(inputs, workload, limits.bounds()) }
    }

    /// Has another program moved it away from its goal? `cgroup_id` is that of its present cgroup.
    pub(super) fn is_away(&self, drift: &Drift, cgroup_id: Option<u64>) -> bool {
        let one = self.workload;
        let away = |figures: &WorkloadModel| {
            let now = figures.cpus.as_ref().zip(figures.mems.as_ref());
            now.is_some_and(|now| drift.is_away(one.cgroup, cgroup_id, now))
        };
        // The last goal may be older than an added node.
        one.figures.is_some_and(away) && one.at_home.as_ref().is_none_or(away)
    }

    /// Input of the decision about it.
    pub(super) fn decision_trace(
        &self,
        inventory: &Inventory,
        allocations: &Allocations,
        trace: Trace,
    ) -> DecisionTrace {
        let (one, request) = (self.workload, self.request.as_ref());
        let container = request.map(|request| request.container(inventory)).unwrap_or_default();
        let numa_nodes = one.rule.numa_nodes.clone();
        let asked = WorkloadRequest {
            rule: Some(one.rule.name.clone()),
            numa_nodes,
            ..WorkloadRequest::of(&container)
        };
        let placement = allocations
            .get(&Holder::cgroup(one.cgroup))
            .map(|grant| ContainerReport::new(&container, grant, &allocations.exclusive_cpus()));
        let available_by_node = request.map(|request| request.available_bytes.clone());
        let seen = MeasuredState { available_by_node, ..MeasuredState::of(one.figures) };
        DecisionTrace { asked, seen, placement, ..DecisionTrace::default() }.with(trace.into_parts().0)
    }
}

/// The request of a workload; `None` if its entry names no amount of CPUs.
fn request<'a>(
    inputs: &Inputs<'a>,
    one: &'a DeclaredWorkload<'a>,
    bounds: Option<CgroupBounds>,
) -> Option<CgroupRequest<'a>> {
    Some(CgroupRequest {
        cgroup: one.cgroup,
        cpus: one.rule.cpus?.get(),
        memory_bytes: one.rule.memory.map(|memory| memory.0),
        now: one.at_home.as_ref().or(one.figures),
        nodes: one.rule.numa_nodes.as_ref(),
        bounds,
        available_bytes: available_bytes(inputs.sample, one.figures),
        avoids: CpuSet::new(),
        wished: Some(Wished {
            wishes: &one.wishes.0,
            unknown: &one.wishes.1,
            pools: &inputs.policy.placement.pools,
        }),
    })
}

/// Available bytes of each node, and the workload's own bytes there.
pub(super) fn available_bytes(sample: &Sample, figures: Option<&WorkloadModel>) -> BTreeMap<NodeId, u64> {
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
