//! What the kubelet's files and its socket say about one node, as values.
//!
//! Each type is one source, complete: nothing is joined, corrected or left out, so that contradictions
//! between sources can still be found. Text from outside is of any content; its length and number are
//! bounded by the readers.

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

use crate::owner::MemoryBlock;

/// Result of reading one source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SourceRead<T> {
    /// The file or the socket does not exist.
    #[default]
    Absent,
    /// It cannot be read or decoded, and why.
    Unusable(String),
    /// Its content.
    Read(T),
}

impl<T> SourceRead<T> {
    /// The content, if it was read.
    pub const fn content(&self) -> Option<&T> {
        match self {
            Self::Read(content) => Some(content),
            Self::Absent | Self::Unusable(_) => None,
        }
    }

    /// Does the source exist and cannot be used?
    pub const fn is_unusable(&self) -> bool {
        matches!(self, Self::Unusable(_))
    }
}

/// Content of `cpu_manager_state`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuAssignments {
    /// Policy of the manager: `none` or `static`.
    pub policy: String,
    /// Its default set: CPUs of containers without exclusive ones.
    pub default_cpus: CpuSet,
    /// Exclusive CPUs by uid of the pod and name of the container. Containers of one pod may share some:
    /// those of a finished init container are reused.
    pub containers: BTreeMap<String, BTreeMap<String, CpuSet>>,
    /// CPUs of whole pods, by uid.
    pub pods: BTreeMap<String, CpuSet>,
    /// Fields that no known version of the file has.
    pub unknown_fields: Vec<String>,
}

/// Content of `memory_manager_state`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryAssignments {
    /// Policy of the manager: `None` or `Static`.
    pub policy: String,
    /// Accounts of the NUMA nodes.
    pub nodes: BTreeMap<NodeId, NumaMemoryAccount>,
    /// Memory by uid of the pod and name of the container; a block may have 0 bytes.
    pub containers: BTreeMap<String, BTreeMap<String, Vec<MemoryBlock>>>,
    /// Memory of whole pods, by uid.
    pub pods: BTreeMap<String, Vec<MemoryBlock>>,
    /// Fields that no known version of the file has.
    pub unknown_fields: Vec<String>,
}

/// The memory manager's account of one NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NumaMemoryAccount {
    /// Number of blocks that are on the node.
    pub assignments: u64,
    /// Amounts by resource: `memory`, `hugepages-2Mi`.
    pub amounts: BTreeMap<String, MemoryAmounts>,
    /// Nodes that the node is allocated together with, itself included.
    pub cells: NodeSet,
}

/// Memory of one kind on one NUMA node, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryAmounts {
    /// All of it.
    pub total: u64,
    /// Reserved for the system.
    pub system_reserved: u64,
    /// For pods.
    pub allocatable: u64,
    /// Held by pods.
    pub reserved: u64,
    /// Left for pods.
    pub free: u64,
}

/// Content of `kubelet_internal_checkpoint`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceAssignments {
    /// What containers hold.
    pub grants: Vec<DeviceGrant>,
    /// Ids of healthy devices by resource, as plugins registered them.
    pub registered: BTreeMap<String, BTreeSet<String>>,
    /// Fields that no known version of the file has.
    pub unknown_fields: Vec<String>,
}

/// Devices of one resource that a container holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceGrant {
    /// Uid of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The resource.
    pub resource: String,
    /// Nodes of each device by its id; no nodes if its plugin reported none.
    pub devices: BTreeMap<String, NodeSet>,
}

/// Nodes of devices by resource and id.
pub type DeviceNodes = BTreeMap<String, BTreeMap<String, NodeSet>>;

/// Answer of `GetAllocatableResources`: what pods may get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfferedResources {
    /// CPUs without the reserved ones; none under the policy `none`.
    pub cpus: CpuSet,
    /// Memory by kind and node; none without a static memory manager.
    pub memory: Vec<MemoryBlock>,
    /// Healthy devices, held ones included.
    pub devices: DeviceNodes,
}

/// A pod in the answer of `List`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedPodResources {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its containers, without plain init containers.
    pub containers: Vec<ListedContainerResources>,
}

/// A container in the answer of `List`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedContainerResources {
    /// Its name.
    pub name: String,
    /// Its exclusive CPUs.
    pub cpus: CpuSet,
    /// Its memory.
    pub memory: Vec<MemoryBlock>,
    /// Its devices.
    pub devices: DeviceNodes,
}
