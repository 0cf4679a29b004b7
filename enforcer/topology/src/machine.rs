//! The machine: CPUs, caches, NUMA nodes, memory, distances, devices.
//!
//! A [`Topology`] is a value, read once and replaced when the machine changes; it is never modified in place.
//! Its serde form is the `topology` object of the audit's JSON: node ids and CPU lists are the kernel's own,
//! sizes are bytes, and unknown values are `null`.
//!
//! Invariant: no assumptions: an unreadable memory size is `None`, a device without a node has none.

use crate::{
    cpu_kind::CpuKind,
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

/// One machine.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Topology {
    /// NUMA nodes in ascending order of id. Never empty: a kernel without NUMA gets one node 0.
    pub nodes: Vec<Node>,
    /// SLIT distances: row and column i belong to `nodes[i]`; `null` where the kernel has none. Asymmetric
    /// values are kept.
    pub distances: Vec<Vec<Option<u32>>>,
    /// Physical packages (sockets).
    pub packages: Vec<Package>,
    /// Online CPUs in ascending order of id.
    pub cpus: Vec<Cpu>,
    /// Groups of CPUs behind one last-level cache.
    pub llcs: Vec<Llc>,
    /// CPUs with the same speed properties, in ascending order of their first CPU; CPUs without known
    /// properties are in none.
    #[cfg_attr(feature = "serde", serde(default))]
    pub cpu_kinds: Vec<CpuKind>,
    /// Memory tiers from fastest to slowest; empty if the kernel has none.
    pub memory_tiers: Vec<MemoryTier>,
    /// CPUs that are present but offline.
    pub offline_cpus: CpuSet,
    /// CPUs kept away from the scheduler's balancing (`isolcpus=`).
    pub isolated_cpus: CpuSet,
    /// CPUs without a periodic tick (`nohz_full=`).
    pub nohz_full_cpus: CpuSet,
    /// PCI devices that matter for locality.
    pub devices: Vec<Device>,
}

/// A physical package.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Package {
    /// `physical_package_id`; -1 if the platform does not report one.
    pub id: i32,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// Nodes that have a CPU in it.
    pub nodes: NodeSet,
}

/// One online logical CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Cpu {
    /// The kernel's number.
    pub id: CpuId,
    /// Node that lists it, if any.
    pub node: Option<NodeId>,
    /// `topology/physical_package_id`.
    pub package: Option<i32>,
    /// `topology/die_id`.
    pub die: Option<i32>,
    /// `topology/cluster_id`, if it differs from the core and the package.
    pub cluster: Option<i32>,
    /// `topology/core_id`: unique within a package (and die), not within the machine.
    pub core: Option<i32>,
    /// SMT siblings, itself included.
    pub siblings: CpuSet,
}

/// CPUs that share a last-level cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Llc {
    /// Cache level, 2 or 3 on most machines.
    pub level: u32,
    /// Size in bytes.
    pub size_bytes: Option<u64>,
    /// CPUs behind it.
    pub cpus: CpuSet,
}

/// One NUMA node.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Node {
    /// The kernel's number.
    pub id: NodeId,
    /// Online CPUs; empty for a memory-only node.
    pub cpus: CpuSet,
    /// `MemTotal` of the node's meminfo.
    pub mem_total_bytes: Option<u64>,
    /// `MemFree` of the node's meminfo.
    pub mem_free_bytes: Option<u64>,
    /// Huge pages per size.
    pub hugepages: Vec<Hugepages>,
    /// Kind of its memory.
    pub kind: MemoryKind,
    /// Evidence for `kind`, strongest first: `path: value`.
    pub kind_evidence: Vec<String>,
    /// Has memory that the kernel itself can use; false for a movable-only node.
    pub normal_memory: Option<bool>,
    /// Performance from its best initiator, if firmware has an HMAT.
    pub hmat: Option<Hmat>,
    /// For a memory-only node: the CPU node that its memory is local to. The best HMAT initiator if there is
    /// one, else by SLIT distance; for GPU memory the node of its PCI device. `null` if several are equally
    /// near, or if it is as far as the memory of another socket.
    pub closest_cpu_node: Option<NodeId>,
}

/// Huge pages of one size on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Hugepages {
    /// Size of one page.
    pub size_bytes: u64,
    /// `nr_hugepages`.
    pub total: u64,
    /// `free_hugepages`.
    pub free: u64,
}

/// Kind of a node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum MemoryKind {
    /// Ordinary memory on a memory controller.
    Dram,
    /// Persistent memory used as RAM.
    Pmem,
    /// Memory behind a CXL link.
    Cxl,
    /// High-bandwidth memory.
    Hbm,
    /// Memory on a GPU.
    Gpu,
    /// The node has no memory.
    None,
    /// Unknown.
    Unknown,
}

/// Access figures of a node from its best initiator, from
/// `nodeN/access1/initiators` (CPUs only), else `access0` (Documentation/admin-guide/mm/numaperf.rst).
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Hmat {
    /// Access class of the figures: 1 or 0.
    pub access_class: u8,
    /// Best initiator nodes.
    pub initiators: NodeSet,
    /// Nanoseconds.
    pub read_latency_ns: Option<u64>,
    /// Nanoseconds.
    pub write_latency_ns: Option<u64>,
    /// MB/s.
    pub read_bandwidth_mbps: Option<u64>,
    /// MB/s.
    pub write_bandwidth_mbps: Option<u64>,
}

/// A memory tier of `/sys/devices/virtual/memory_tiering`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct MemoryTier {
    /// The N of `memory_tierN`; lower is faster.
    pub id: u32,
    /// Its nodes.
    pub nodes: NodeSet,
}

/// A device with a NUMA location that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Device {
    /// Bus address, `0000:3b:00.0`.
    pub address: String,
    /// Purpose of the device.
    pub class: DeviceClass,
    /// Names in user space: `eth0`, `nvme0`, `card1`.
    pub names: Vec<String>,
    /// `numa_node`; `None` if the kernel reports -1 or nothing.
    pub node: Option<NodeId>,
}

/// Purpose of a device, by its PCI class code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum DeviceClass {
    /// 0x0108.
    Nvme,
    /// Other 0x01.
    Storage,
    /// 0x02.
    Network,
    /// 0x03, and 0x1200 of processing accelerators.
    Gpu,
    /// 0x0b40, 0x12: accelerators that are not GPUs.
    Accelerator,
    /// Any other device that names a node.
    Other,
}
