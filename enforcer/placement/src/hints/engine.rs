//! The engine `hints`: places the containers of a pod one by one, or all at once.
//!
//! Scope `container`: every container is asked for, judged and given its resources before the next one, in
//! the order of their start, so each finds what the previous ones left. Scope `pod`: the peak of the pod is
//! asked for once, and the answer holds for every container.
//!
//! After the last container, other pods are adjusted: containers without enough shared CPUs get the whole
//! shared pool ([`overflow`](crate::overflow)), and those with a soft memory promise that no longer fits get
//! all nodes ([`soften`](super::soften)). If that is impossible, the pod is rejected.

use std::collections::BTreeMap;

use super::{
    NodeIndex, asker::Asker, cpu::CpuOptions, demand::Demand, placing::HintsPlacing, question::Alignment,
};
use crate::{
    Allocations, ContainerRequest, Grant, Inventory, PodRequest, Rejection, RejectionProblem,
    RejectionReason, Shortage, Trace,
    overflow::settle_overflow_for,
    room::FittingAmount,
    settings::{HintsSettings, NumaAllocationStrategy, Scope, TopologyPolicy},
    words,
};
use numa_topology::set::{CpuSet, NodeSet};

/// Places pods by hints.
#[derive(Debug, Clone)]
pub struct HintsEngine {
    settings: HintsSettings,
    /// Settings of containers that have their own.
    containers: BTreeMap<String, HintsSettings>,
}

impl HintsEngine {
    /// An engine with these settings.
    pub const fn new(settings: HintsSettings) -> Self {
        Self { settings, containers: BTreeMap::new() }
    }

    /// Adds other settings for some containers.
    #[must_use]
    pub fn with_containers(self, containers: BTreeMap<String, HintsSettings>) -> Self {
        Self { containers, ..self }
    }

    fn settings_of(&self, container: &ContainerRequest) -> &HintsSettings {
        self.containers.get(&container.name).unwrap_or(&self.settings)
    }

    /// Makes a grant for every container of the pod. On an error, the caller undoes those made before.
    pub(crate) fn place(
        &self,
        inventory: &Inventory,
        allocations: &mut Allocations,
        pod: &PodRequest,
        trace: &mut Trace,
    ) -> Result<(), Rejection> {
        let engine = self.for_machine(inventory, trace);
        if let Some(windows) = inventory.windows.of(inventory) {
            if let Some(placed) = engine.place_in_window(windows, allocations, pod, trace) {
                return placed;
            }
            engine.warn_of_large_machine(inventory, trace);
        }
        engine.place_in(inventory, allocations, pod, trace)
    }

    /// Removes options that the machine does not allow.
    fn for_machine(&self, inventory: &Inventory, trace: &mut Trace) -> Self {
        let mut own = self.clone();
        let beyond = inventory.machine.nodes.iter().map(|node| node.id);
        let beyond: NodeSet = beyond.filter(|id| id.0 as usize >= inventory.machine.nodes.len()).collect();
        if self.settings.is_kubelet() && self.settings.prefer_closest() && !beyond.is_empty() {
            let nodes = words::nodes(&beyond);
            trace.warn(format!(
                "prefer-closest-numa-nodes: a kubelet reads distances by id and panics when it compares {nodes}"
            ));
        }
        for settings in std::iter::once(&mut own.settings).chain(own.containers.values_mut()) {
            let valid = CpuOptions::from(&*settings).validate_for(settings.policy, &inventory.layout);
            if let Err(error) = valid {
                trace.warn(format!("options of CPUs: {error}, aligned by node"));
                settings.align_by_socket = false;
            }
        }
        own
    }

    /// Index of the nodes for masks. Their sets are listed if a setting depends on more than amounts.
    fn index(&self, inventory: &Inventory, nodes: &NodeSet) -> NodeIndex {
        let mut index = NodeIndex::of(&inventory.machine, nodes);
        if self.settings.is_kubelet() {
            index = index.with_distances_by_id(&inventory.machine);
        }
        let wants_lists = |settings: &HintsSettings| {
            settings.align_by_socket
                || settings.is_kubelet()
                || settings.strict_memory_groups
                || settings.numa_allocation_strategy != NumaAllocationStrategy::None
        };
        let mut all = std::iter::once(&self.settings).chain(self.containers.values());
        if all.any(wants_lists) { index.with_lists() } else { index }
    }

    /// Nodes with CPUs that all of these containers may use; if they have none in common, those that any may
    /// use.
    fn nodes_of<'a>(
        &self,
        inventory: &Inventory,
        containers: impl Iterator<Item = &'a ContainerRequest>,
    ) -> Result<NodeSet, Rejection> {
        if self.settings.is_kubelet() {
            // Memory-only nodes take part, and a pod cannot restrict its nodes.
            return Ok(inventory.nodes.iter().map(|node| node.id).collect());
        }
        let mut nodes = inventory.cpu_nodes();
        for container in containers {
            let mut own = nodes.clone();
            if let Some(allowed) = &container.allowed_nodes {
                own = own.intersection(&inventory.machine.cpu_nodes_of(allowed));
            }
            if let Some(allowed) = &container.allowed_cpus {
                let has = |id| inventory.node(id).is_some_and(|node| !node.cpus.is_disjoint(allowed));
                own = own.iter().filter(|id| has(*id)).collect();
            }
            if own.is_empty() {
                let wanted = container.requests.milli_cpus.unwrap_or(0).div_ceil(1000).max(1);
                // The request, not the possible demand of others.
                let asked = container.allowed_nodes.as_ref().filter(|asked| !asked.is_empty());
                let nodes = asked.cloned().unwrap_or(nodes);
                let room = FittingAmount::together("cpu", nodes.clone(), 0);
                let nothing = Shortage { resource: "cpu".to_owned(), nodes, wanted, available: 0 };
                let reason = RejectionReason::UnexpectedAdmissionError;
                let rejection = Rejection::new(reason, RejectionProblem::NoAllowedCpu).of(&container.name);
                return Err(rejection.short_of(vec![nothing], &[room]));
            }
            nodes = own;
        }
        Ok(nodes)
    }

    /// Places a pod in the first window that aligns it, else in the first that admits it; none if no window
    /// does. The pod's current nodes come first.
    fn place_in_window(
        &self,
        windows: &[Inventory],
        allocations: &mut Allocations,
        pod: &PodRequest,
        trace: &mut Trace,
    ) -> Option<Result<(), Rejection>> {
        let before: CpuSet = pod.previous.values().fold(CpuSet::new(), |all, grant| {
            let shared = grant.shared.as_ref().map(|shared| &shared.scope);
            all.union(shared.unwrap_or(&grant.exclusive))
        });
        let mut windows: Vec<&Inventory> = windows.iter().collect();
        windows.sort_by_key(|window| std::cmp::Reverse(window.allowed_cpus.common(&before)));
        let is_aligned = |grant: &Grant| grant.hint.as_ref().is_none_or(|hint| hint.preferred);
        let mut admitted = None;
        for window in windows {
            let mut told = trace.clone();
            let attempt = allocations.transaction(|allocations| {
                if self.place_in(window, allocations, pod, &mut told).is_err() {
                    return Err(None);
                }
                let mut own = allocations.of_pod(&pod.name);
                if own.all(|(_, grant)| is_aligned(grant)) { Ok(()) } else { Err(Some(window)) }
            });
            match attempt {
                Ok(_) => {
                    *trace = told;
                    return Some(Ok(()));
                }
                Err(admits) => admitted = admitted.or(admits),
            }
        }
        admitted.map(|window| self.place_in(window, allocations, pod, trace))
    }

    fn place_in(
        &self,
        inventory: &Inventory,
        allocations: &mut Allocations,
        pod: &PodRequest,
        trace: &mut Trace,
    ) -> Result<(), Rejection> {
        let mut placing = HintsPlacing::new(inventory, allocations, pod);
        if self.settings.is_kubelet() {
            placing.accounts.keep_init_memory();
        }
        let nodes = self.nodes_of(inventory, pod.containers.iter())?;
        let nodes = self.index(inventory, &nodes);
        PodPlacement { engine: self, placing, nodes, trace }.place()
    }

    /// Warns of nodes beyond the maximum of a mask, if anything is aligned.
    fn warn_of_large_machine(&self, inventory: &Inventory, trace: &mut Trace) {
        let mut settings = std::iter::once(&self.settings).chain(self.containers.values());
        let beyond: NodeSet = inventory.cpu_nodes().iter().skip(NodeIndex::LARGEST).collect();
        if !beyond.is_empty() && settings.any(|settings| settings.policy != TopologyPolicy::None) {
            let (most, beyond) = (NodeIndex::LARGEST, words::nodes(&beyond));
            trace.warn(format!("at most {most} nodes are aligned: CPUs of {beyond} are used as they come"));
        }
    }
}

/// State of placing one pod.
struct PodPlacement<'a, 'b> {
    engine: &'a HintsEngine,
    placing: HintsPlacing<'a>,
    /// Nodes that every container may use.
    nodes: NodeIndex,
    trace: &'b mut Trace,
}

impl PodPlacement<'_, '_> {
    fn place(mut self) -> Result<(), Rejection> {
        let pod = self.placing.pod;
        let mut waiting: Vec<(usize, &ContainerRequest)> = pod.containers.iter().enumerate().collect();
        if !pod.previous.is_empty() {
            waiting = self.keep(waiting);
        }
        let common = if waiting.is_empty() { None } else { self.for_all(&waiting)? };
        for (index, container) in waiting {
            self.container(index, container, common).map_err(|rejection| rejection.of(&container.name))?;
        }
        self.look_after_others()
    }

    /// Restores grants that can stay unchanged first, so that no other container gets their resources; the
    /// others are still to be placed.
    fn keep<'c>(
        &mut self,
        containers: Vec<(usize, &'c ContainerRequest)>,
    ) -> Vec<(usize, &'c ContainerRequest)> {
        let none = CpuSet::new();
        let mut waiting = Vec::new();
        for (index, container) in containers {
            let settings = self.engine.settings_of(container);
            let demand = Demand::of(container, self.placing.pod.qos, settings.align_all_qos);
            let asker = Asker {
                index,
                container: Some(container),
                settings,
                nodes: &self.nodes,
                kept: &none,
                reuse: true,
            };
            match self.placing.unchanged(asker, container, &demand) {
                Some(grant) => self.placing.give(index, container, &grant),
                None => waiting.push((index, container)),
            }
        }
        for (_, container) in &waiting {
            let kept = self.placing.still_free(container);
            self.placing.accounts.held.extend(&kept);
        }
        waiting
    }

    /// The answer for the whole pod under the scope `pod`.
    fn for_all(&mut self, waiting: &[(usize, &ContainerRequest)]) -> Result<Option<Alignment>, Rejection> {
        let settings = &self.engine.settings;
        let pod = self.placing.pod;
        if settings.scope != Scope::Pod || settings.policy == TopologyPolicy::None {
            return Ok(None);
        }
        let only = PodRequest {
            containers: waiting.iter().map(|(_, container)| (*container).clone()).collect(),
            ..pod.clone()
        };
        let demand = Demand::of_pod(&only, settings.align_all_qos);
        let kept = self.placing.accounts.held.clone();
        let none = CpuSet::new();
        let asker =
            Asker { index: 0, container: None, settings, nodes: &self.nodes, kept: &kept, reuse: true };
        let mut settled = self.placing.align(asker, &demand, self.trace);
        if settled.is_err() && !kept.is_empty() {
            self.placing.accounts.held = CpuSet::new();
            settled = self.placing.align(Asker { kept: &none, ..asker }, &demand, self.trace);
        }
        settled.map(Some)
    }

    fn container(
        &mut self,
        index: usize,
        container: &ContainerRequest,
        common: Option<Alignment>,
    ) -> Result<(), Rejection> {
        let settings = self.engine.settings_of(container);
        let own_nodes;
        let nodes = if common.is_some() || self.placing.pod.containers.len() == 1 {
            &self.nodes
        } else {
            let inventory = self.placing.inventory;
            let own = self.engine.nodes_of(inventory, std::iter::once(container))?;
            own_nodes = self.engine.index(inventory, &own);
            &own_nodes
        };
        let demand = Demand::of(container, self.placing.pod.qos, settings.align_all_qos);
        let kept = self.placing.still_free(container).intersection(&self.placing.accounts.held);
        self.placing.accounts.held = self.placing.accounts.held.difference(&kept);
        let none = CpuSet::new();
        let mut attempt = |kept: &CpuSet, reuse: bool| {
            let asker = Asker { index, container: Some(container), settings, nodes, kept, reuse };
            let settled = match (common, settings.policy) {
                (_, TopologyPolicy::None) => None,
                (Some(common), _) => Some(common),
                (None, _) => Some(self.placing.align(asker, &demand, self.trace)?),
            };
            self.placing.grant(asker, &demand, settled)
        };
        let mut outcome = attempt(&kept, true);
        if outcome.is_err() && !kept.is_empty() {
            outcome = attempt(&none, true);
        }
        let aligned = |grant: &Grant| grant.hint.as_ref().is_none_or(|hint| hint.preferred);
        if demand.exclusive > 0
            && !settings.is_kubelet()
            && common.is_none()
            && !outcome.as_ref().is_ok_and(aligned)
            && kept.is_empty()
        {
            let elsewhere = attempt(&none, false);
            if elsewhere.as_ref().is_ok_and(aligned) {
                outcome = elsewhere;
            }
        }
        let grant = outcome?;
        self.placing.give(index, container, &grant);
        Ok(())
    }

    fn look_after_others(self) -> Result<(), Rejection> {
        let HintsPlacing { inventory, allocations, pod, over_soft, .. } = self.placing;
        settle_overflow_for(inventory, allocations, pod)?;
        if over_soft {
            super::soften::widen_soft(inventory, allocations, &pod.name)?;
        }
        Ok(())
    }
}
