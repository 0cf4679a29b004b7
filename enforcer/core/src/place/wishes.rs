//! Wishes of a configuration entry for a container, besides amounts.
//!
//! Wishes are defaults: an annotation for the same setting takes precedence, if it would be valid without the
//! entry. Settings that annotations cannot override (amounts, allowed nodes) go into the request itself.

use crate::{
    policy::{
        DeclaredClass, WorkloadRule,
        placement::{Engine, MemoryTypes, TopologyPolicy},
    },
    set::{CpuSet, NodeSet},
    topology::Topology,
};

use super::{ContainerRequest, PodRequest, TopologyHint};

/// Wishes for a container; the default has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wishes {
    /// Name of the entry; `None` without an entry.
    pub rule: Option<String>,
    /// Position of the entry in the configuration.
    pub position: usize,
    /// Engine.
    pub engine: Option<Engine>,
    /// Policy of the engine `hints`.
    pub policy: Option<TopologyPolicy>,
    /// Kinds of memory.
    pub memory_types: Option<MemoryTypes>,
    /// Use of its CPUs.
    pub class: Option<DeclaredClass>,
    /// Locations of the devices that it should be near.
    pub beside: Vec<TopologyHint>,
}

impl Wishes {
    /// Wishes of an entry on this machine, and those that cannot be met: missing devices, devices without a
    /// known node, nodes that the machine does not have.
    pub fn of(rule: &WorkloadRule, position: usize, machine: &Topology) -> (Self, Vec<String>) {
        let mut unknown = Vec::new();
        let mut beside = Vec::new();
        for name in &rule.devices {
            let device = machine
                .devices
                .iter()
                .find(|one| one.address == *name || one.names.iter().any(|n| n == name));
            match device.map(|device| device.node) {
                Some(Some(node)) => beside.push(TopologyHint {
                    provider: format!("device:{name}"),
                    cpus: CpuSet::new(),
                    nodes: NodeSet::from_iter([node]),
                    packages: Vec::new(),
                }),
                Some(None) => unknown.push(format!("of device {name:?} the node is not known")),
                None => unknown.push(format!("there is no device {name:?}")),
            }
        }
        if let Some(nodes) = &rule.numa_nodes {
            let there: NodeSet = machine.nodes.iter().map(|node| node.id).collect();
            let beyond = nodes.difference(&there);
            if !beyond.is_empty() {
                unknown.push(format!("numa_nodes is {nodes}, and the machine has NUMA nodes {there} only"));
            }
        }
        if rule.class == Some(DeclaredClass::Isolated) && machine.isolated_cpus.is_empty() {
            unknown.push("class is isolated, and the machine has no isolated CPUs".to_owned());
        }
        let wishes = Self {
            rule: Some(rule.name.clone()),
            position,
            engine: rule.engine,
            policy: rule.policy,
            memory_types: rule.memory_types,
            class: rule.class,
            beside,
        };
        (wishes, unknown)
    }

    /// Should its CPUs be exclusive?
    pub fn alone(&self) -> Option<bool> {
        self.class.map(|class| matches!(class, DeclaredClass::Exclusive | DeclaredClass::Isolated))
    }
}

impl ContainerRequest {
    /// Applies an entry; amounts in the entry replace those of the container. Returns wishes that this
    /// machine cannot meet.
    pub fn declare(&mut self, rule: &WorkloadRule, position: usize, machine: &Topology) -> Vec<String> {
        let (wishes, unknown) = Wishes::of(rule, position, machine);
        self.wishes = wishes;
        if let Some(cpus) = rule.cpus {
            let milli = u64::from(cpus.get()) * 1000;
            self.requests.milli_cpus = Some(milli);
            self.limits.milli_cpus = self.limits.milli_cpus.map(|limit| limit.max(milli));
        }
        if let Some(memory) = rule.memory {
            self.requests.memory_bytes = Some(memory.0);
            self.limits.memory_bytes = self.limits.memory_bytes.map(|limit| limit.max(memory.0));
        }
        if let Some(nodes) = &rule.numa_nodes {
            self.allowed_cpus = Some(machine.cpus_of(nodes)).filter(|cpus| !cpus.is_empty());
            self.allowed_nodes = Some(nodes.clone());
        }
        unknown
    }
}

impl PodRequest {
    /// The first wish of its containers, by the order of the configuration, for settings that a pod has only
    /// once.
    pub(super) fn wished<T>(&self, of: impl Fn(&Wishes) -> Option<T>) -> Option<T> {
        let wishes = self.containers.iter().map(|container| &container.wishes);
        let wished = wishes.filter_map(|wishes| Some((wishes.position, of(wishes)?)));
        wished.min_by_key(|(position, _)| *position).map(|(_, wish)| wish)
    }
}

#[cfg(test)]
mod tests;
