//! Request of one container, from its resources, annotations and devices.
//!
//! Problems are reported as warnings; only memory kinds that the machine lacks cause a rejection here.

use std::collections::BTreeMap;

use super::PoolsPlacing;
use crate::{
    Allocations, ContainerRequest, CpuClass, Grant, MemoryResource, Rejection, TopologyHint, Trace,
    pools::{
        affinity::{self, AffinityRule},
        annotations::{IsolatedCpus, Preferences},
        classify::{CpuDemand, CpuLimit},
        cpus,
        memory::MemoryWish,
        refusal::no_such_memory,
        request::RequestedAmounts,
        topology_hints::HintKind,
    },
    settings::{CpuPriority, PoolLevel},
};
use numa_topology::{
    set::{CpuSet, NodeSet},
    text::printable,
};

/// One container with its request.
pub(super) struct ContainerWish<'a> {
    pub(super) index: usize,
    pub(super) container: &'a ContainerRequest,
    pub(super) preferences: Preferences,
    pub(super) amounts: RequestedAmounts,
    pub(super) demand: CpuDemand,
    pub(super) memory: MemoryWish<'a>,
    pub(super) rules: Vec<AffinityRule>,
    pub(super) hints: Vec<TopologyHint>,
}

impl<'a> PoolsPlacing<'a> {
    pub(super) fn wanted(
        &self,
        index: usize,
        allocations: &Allocations,
        trace: &mut Trace,
    ) -> Result<ContainerWish<'a>, Rejection> {
        let (pod, container) = (self.pod, &self.pod.containers[index]);
        let name = printable(&container.name);
        let mut warn = |warning: String| trace.warn_about(&name, warning);
        let (mut preferences, warnings) = Preferences::read(pod, &container.name);
        warnings.into_iter().for_each(&mut warn);
        let has_started = |had: &Grant| had.cold_start.is_none() && !had.is_chosen();
        if pod.previous.get(&container.name).is_some_and(has_started) {
            // It is running and has all of its memory: its pages do not go back to the initial nodes.
            preferences.cold_start = None;
        }
        // All memory including reserved memory, because the kubelet divides by it.
        let totals = self.inventory.nodes.iter().filter_map(|node| node.total.get(&MemoryResource::Memory));
        let machine_bytes = totals.fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let (amounts, warnings) = RequestedAmounts::of(container, pod, machine_bytes);
        warnings.into_iter().for_each(&mut warn);
        let (rules, warnings) = affinity::rules_of(pod, &container.name, self.settings);
        warnings.into_iter().for_each(&mut warn);
        let demand = self.classifier.classify(&amounts, pod.qos, &pod.name.namespace, &preferences);
        if preferences.reserved == Some(true) && self.tree.root().reserved.is_empty() {
            warn("prefer-reserved-cpus: no CPUs are set aside (placement.reserved.cpus), ignored".into());
        }
        let demand = self.with_reserved(demand, &mut warn);
        self.warn_of_cpus(&preferences, &demand, &mut warn);
        let memory =
            MemoryWish::new(self.inventory, self.tree, container, pod.qos, amounts.memory, &preferences);
        let (memory, warnings) = memory
            .map_err(|types| no_such_memory(self.tree, &self.account, amounts.memory.bytes.max(1), types))?;
        warnings.into_iter().for_each(&mut warn);
        let mut hints = container.topology_hints.clone();
        hints.extend(container.wishes.beside.iter().cloned());
        hints.extend(self.device_hints(index, allocations));
        hints.retain(|hint| preferences.hints.admit(hint));
        if preferences.pick_by_hints && picked_hints(&hints).next().is_none() {
            warn("pick-resources-by-hints: of nothing that it uses the place is known, ignored".into());
        }
        // GPU memory is in no pool: its place is that of the CPUs near the GPU.
        for hint in &mut hints {
            hint.nodes = self.tree.nodes_in_pools(&hint.nodes);
        }
        Ok(ContainerWish { index, container, preferences, amounts, demand, memory, rules, hints })
    }

    /// Warns of the cost of a CPU wish, or that the machine cannot meet it.
    fn warn_of_cpus(&self, preferences: &Preferences, demand: &CpuDemand, warn: &mut impl FnMut(String)) {
        let priority = preferences.priority.filter(|priority| *priority != CpuPriority::None);
        if priority.is_some() && !cpus::are_of_several_kinds(&self.inventory.machine) {
            warn(
                "prefer-cpu-priority: no CPU of this machine is faster or slower than the others, ignored"
                    .into(),
            );
        } else if priority.is_some() && demand.full == 0 {
            warn("prefer-cpu-priority: it has no exclusive CPUs, ignored".into());
        }
        if preferences.isolated == Some(IsolatedCpus::Prefer) {
            if self.inventory.isolated_cpus.is_empty() {
                warn("prefer-isolated-cpus: no CPU that may be given is isolated, ignored".into());
            } else if demand.full == 0 {
                warn("prefer-isolated-cpus: it has no exclusive CPUs, ignored".into());
            }
        }
        let threads = self.inventory.layout.threads_per_core();
        if preferences.hide_hyperthreads && threads > 1 && demand.full > 1 {
            warn(format!(
                "hide-hyperthreads: of {} exclusive CPUs it runs on one thread of each core; ask for {threads} times \
                 as many to run on that many",
                demand.full
            ));
        }
    }

    /// Containers that want reserved CPUs share ordinary ones if there are none; if there are too few, they
    /// share the CPUs of the whole machine.
    fn with_reserved(&self, demand: CpuDemand, warn: &mut impl FnMut(String)) -> CpuDemand {
        let root = self.tree.root();
        if demand.class != CpuClass::Reserved {
            return demand;
        }
        if root.reserved.is_empty() {
            return CpuDemand { class: CpuClass::Shared, ..demand };
        }
        let left = self.supply.reserved(root.id);
        if left >= i64::try_from(demand.fraction_milli).unwrap_or(i64::MAX) {
            return demand;
        }
        warn(format!(
            "{left}m of reserved CPUs {} are left and {}m are wanted: it shares all other CPUs; possible misconfiguration",
            root.reserved, demand.fraction_milli
        ));
        CpuDemand {
            class: CpuClass::Shared,
            limit: CpuLimit::Unlimited(PoolLevel::System),
            because: "too few reserved CPUs are left",
            ..demand
        }
    }

    /// Nodes of the devices that it requests, as hints.
    fn device_hints(&self, index: usize, allocations: &Allocations) -> Vec<TopologyHint> {
        let container = &self.pod.containers[index];
        let known = |resource: &str| {
            let said = container.topology_hints.iter().filter_map(|hint| hint.provider.split_once(':'));
            said.filter(|(kind, _)| HintKind::named(kind) == Some(HintKind::PodResources))
                .any(|(_, of)| of == resource)
        };
        let wanted = container.devices.iter().filter(|(resource, count)| **count > 0 && !known(resource));
        let hints = wanted.filter_map(|(resource, count)| {
            let taken = |id: &str| {
                allocations.iter().any(|(holder, grant)| {
                    !self.pod.has_ended(holder, index)
                        && grant.devices.get(resource).is_some_and(|ids| ids.iter().any(|held| held == id))
                })
            };
            let free = self.inventory.devices.get(resource)?.iter().filter(|unit| !taken(&unit.id));
            let mut near = BTreeMap::<NodeSet, u64>::new();
            free.filter(|unit| !unit.nodes.is_empty())
                .for_each(|unit| *near.entry(unit.nodes.clone()).or_insert(0) += 1);
            let enough = near.iter().filter(|(_, free)| **free >= *count).map(|(nodes, _)| nodes);
            let mut nodes = enough.fold(NodeSet::new(), |all, nodes| all.union(nodes));
            if nodes.is_empty() {
                nodes = near.keys().fold(NodeSet::new(), |all, nodes| all.union(nodes));
            }
            let everywhere = self.inventory.cpu_nodes().is_subset(&nodes);
            (!nodes.is_empty() && !everywhere).then(|| TopologyHint {
                provider: format!("pod-resources:{resource}"),
                cpus: CpuSet::new(),
                nodes,
                packages: Vec::new(),
            })
        });
        hints.collect()
    }
}

/// Hints for picking resources: those of device plugins.
pub(super) fn picked_hints(hints: &[TopologyHint]) -> impl Iterator<Item = &TopologyHint> {
    hints.iter().filter(|hint| {
        let kind = hint.provider.split_once(':').and_then(|(kind, _)| HintKind::named(kind));
        kind == Some(HintKind::PodResources) && !(hint.cpus.is_empty() && hint.nodes.is_empty())
    })
}
