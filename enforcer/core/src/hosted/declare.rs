//! An entry of the configuration as a request for placement.
//!
//! The engines know neither configuration nor rules: they read the wishes of a container. Wishes that this
//! machine cannot fulfil are returned as text, and everything else of the entry counts.

use numa_placement::{ContainerRequest, TopologyHint, Wishes};

use crate::policy::{DeclaredClass, WorkloadRule};
use numa_topology::{
    Topology,
    set::{CpuSet, NodeSet},
};

/// What an entry wishes on this machine; and what of it cannot be had: devices that are not there or of
/// which the node is not known, nodes that the machine does not have.
pub fn wishes_of(rule: &WorkloadRule, position: usize, machine: &Topology) -> (Wishes, Vec<String>) {
    let mut unknown = Vec::new();
    let mut beside = Vec::new();
    for name in &rule.devices {
        let device =
            machine.devices.iter().find(|one| one.address == *name || one.names.iter().any(|n| n == name));
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
    let wishes = Wishes {
        rule: Some(rule.name.clone()),
        position,
        engine: rule.engine,
        policy: rule.policy,
        options: rule.options.clone(),
        memory_types: rule.memory_types,
        class: rule.class,
        beside,
    };
    (wishes, unknown)
}

/// As an entry declares it; amounts that the entry names count instead of its own. Returns what of it
/// cannot be had on this machine.
pub fn declare(
    container: &mut ContainerRequest,
    rule: &WorkloadRule,
    position: usize,
    machine: &Topology,
) -> Vec<String> {
    let (wishes, unknown) = wishes_of(rule, position, machine);
    container.wishes = wishes;
    if let Some(cpus) = rule.cpus {
        let milli = u64::from(cpus.get()) * 1000;
        container.requests.milli_cpus = Some(milli);
        container.limits.milli_cpus = container.limits.milli_cpus.map(|limit| limit.max(milli));
    }
    if let Some(memory) = rule.memory {
        container.requests.memory_bytes = Some(memory.0);
        container.limits.memory_bytes = container.limits.memory_bytes.map(|limit| limit.max(memory.0));
    }
    if let Some(nodes) = &rule.numa_nodes {
        container.allowed_cpus = Some(machine.cpus_of(nodes)).filter(|cpus| !cpus.is_empty());
        container.allowed_nodes = Some(nodes.clone());
    }
    unknown
}

#[cfg(test)]
mod tests;
