//! CPUs, memory and devices of a node in its published state.

use numa_topology::{
    MemoryKind,
    id::NodeId,
    set::{CpuSet, NodeSet},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits;

/// CPUs, caches and distances.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineState {
    /// Hash of the other fields.
    #[schemars(length(max = limits::WORD))]
    pub hash: String,
    /// NUMA nodes in ascending order of id.
    #[schemars(length(min = 1, max = limits::NODES))]
    pub nodes: Vec<MachineNode>,
    /// SLIT distances, row by row in the order of `nodes`; absent if the kernel has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::NODES), inner(length(max = limits::NODES)))]
    pub distances: Vec<Vec<u32>>,
    /// CPUs of each socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::SOCKETS), inner(length(max = 1024)))]
    pub sockets: Vec<CpuSet>,
    /// CPUs of each core.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::CORES), inner(length(max = 64)))]
    pub cores: Vec<CpuSet>,
    /// CPUs behind each last-level cache.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::CACHES), inner(length(max = 1024)))]
    pub caches: Vec<CpuSet>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineNode {
    /// The kernel's number.
    pub id: NodeId,
    /// Its online CPUs; empty for a memory-only node.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub cpus: CpuSet,
    /// Kind of its memory.
    pub kind: MemoryKind,
}

/// Memory of one kind on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemorySupply {
    /// The node.
    pub node: NodeId,
    /// `memory`, `hugepages-2Mi`.
    #[schemars(length(max = limits::WORD))]
    pub resource: String,
    /// Bytes that pods may get.
    #[schemars(range(min = 0))]
    pub allocatable: i64,
    /// Bytes that no pod has.
    #[schemars(range(min = 0))]
    pub free: i64,
    /// The kubelet's number of assignments on the node.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub assignments: u32,
    /// Nodes that this node is allocated together with, itself included.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub cells: NodeSet,
}

/// Devices of one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceSupply {
    /// `vendor.com/gpu`.
    #[schemars(length(max = limits::NAME))]
    pub resource: String,
    /// Numbers of devices by the nodes that they are near.
    #[schemars(length(max = limits::DEVICE_GROUPS))]
    pub by_nodes: Vec<DeviceCount>,
}

/// Devices of one resource that are near the same nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCount {
    /// The nodes; empty if the plugin reports none.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub nodes: NodeSet,
    /// All devices.
    pub total: u32,
    /// Healthy devices.
    pub healthy: u32,
    /// Healthy devices that no container has.
    pub free: u32,
}
