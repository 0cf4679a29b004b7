//! What a kubelet without pods tells of a machine, for nodes that are described and not asked.

use std::collections::BTreeMap;

use numa_placement::MemoryResource;
use numa_topology::{Node, Topology, id::NodeId, set::CpuSet};

use super::{
    CpuAssignments, MemoryAmounts, MemoryAssignments, NodeObservation, NumaMemoryAccount, OfferedResources,
    SourceRead,
    contradictions::{is_static_memory, is_strict, online},
};
use crate::{
    cluster::{described::RESERVED_BYTES, state::KubeletProfile},
    owner::MemoryBlock,
};

/// The observation of a node without pods and devices, whose kubelet has these settings.
pub fn empty_node(machine: &Topology, kubelet: &KubeletProfile, reserved_cpus: &CpuSet) -> NodeObservation {
    let online = online(machine);
    let is_static = kubelet.cpu_policy == "static";
    let shared = if is_strict(kubelet) { online.difference(reserved_cpus) } else { online.clone() };
    let cpus = CpuAssignments {
        policy: kubelet.cpu_policy.clone(),
        default_cpus: if is_static { shared } else { CpuSet::new() },
        ..CpuAssignments::default()
    };
    let nodes = if is_static_memory(&kubelet.memory_policy) { accounts(machine) } else { BTreeMap::new() };
    let offered = OfferedResources {
        cpus: if is_static { online.difference(reserved_cpus) } else { CpuSet::new() },
        memory: nodes.iter().flat_map(|(id, account)| blocks(*id, account)).collect(),
        devices: BTreeMap::new(),
    };
    let memory =
        MemoryAssignments { policy: kubelet.memory_policy.clone(), nodes, ..MemoryAssignments::default() };
    NodeObservation {
        cpus: SourceRead::Read(cpus),
        memory: SourceRead::Read(memory),
        devices: SourceRead::Absent,
        offered: SourceRead::Read(offered),
        listed: SourceRead::Read(Vec::new()),
        torn: None,
    }
}

/// The socket's answers as far as the files determine them, for a captured node: its socket does not answer.
/// `None` if the node has devices, because the files do not tell their nodes.
pub fn answers_of_files(
    machine: &Topology,
    observation: &NodeObservation,
    reserved_cpus: &CpuSet,
) -> Option<OfferedResources> {
    let (cpus, memory) = (observation.cpus.content()?, observation.memory.content()?);
    let has_devices =
        observation.devices.content().is_some_and(|of| !(of.registered.is_empty() && of.grants.is_empty()));
    let is_static = cpus.policy == "static";
    let memory = if is_static_memory(&memory.policy) { Some(&memory.nodes) } else { None };
    let blocks = memory.into_iter().flatten().flat_map(|(id, account)| blocks(*id, account));
    (!has_devices).then(|| OfferedResources {
        cpus: if is_static { online(machine).difference(reserved_cpus) } else { CpuSet::new() },
        memory: blocks.collect(),
        devices: BTreeMap::new(),
    })
}

fn blocks(id: NodeId, account: &NumaMemoryAccount) -> impl Iterator<Item = MemoryBlock> + '_ {
    account.amounts.iter().map(move |(kind, amounts)| MemoryBlock {
        kind: kind.clone(),
        nodes: [id].into_iter().collect(),
        bytes: amounts.allocatable,
    })
}

fn accounts(machine: &Topology) -> BTreeMap<NodeId, NumaMemoryAccount> {
    let mut reserved = RESERVED_BYTES;
    let with_memory = machine.nodes.iter().filter(|node| node.mem_total_bytes.is_some_and(|total| total > 0));
    with_memory.map(|node| (node.id, account(node, &mut reserved))).collect()
}

/// An account of a node; takes what it can off the bytes that are still to be reserved.
fn account(node: &Node, reserved: &mut u64) -> NumaMemoryAccount {
    let mut amounts = BTreeMap::new();
    let mut left = node.mem_total_bytes.unwrap_or(0);
    for pages in &node.hugepages {
        let bytes = pages.size_bytes.saturating_mul(pages.total);
        left = left.saturating_sub(bytes);
        amounts.insert(MemoryResource::Hugepages(pages.size_bytes).to_string(), of_bytes(bytes, 0));
    }
    let system = left.min(*reserved);
    *reserved -= system;
    amounts.insert(MemoryResource::Memory.to_string(), of_bytes(left, system));
    NumaMemoryAccount { assignments: 0, amounts, cells: [node.id].into_iter().collect() }
}

const fn of_bytes(total: u64, system_reserved: u64) -> MemoryAmounts {
    let allocatable = total - system_reserved;
    MemoryAmounts { total, system_reserved, allocatable, reserved: 0, free: allocatable }
}
