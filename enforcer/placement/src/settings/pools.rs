//! Settings of the engine `pools`.
//!
//! The topology-aware policy's spelling of each key (`pinCPU`, `PinCPU`) is an alias.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::aliases;

/// Settings of the engine `pools`, with the defaults in the documentation of the topology-aware policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = aliases::of_pools)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, with the name people know")]
pub struct PoolsSettings {
    /// CPUs are pinned.
    #[serde(alias = "pinCPU", alias = "PinCPU")]
    pub pin_cpu: bool,
    /// Memory nodes are pinned.
    #[serde(alias = "pinMemory", alias = "PinMemory")]
    pub pin_memory: bool,
    /// The exclusive CPU of a container with a request from one to below two CPUs, and exclusive CPUs beside
    /// a shared fraction, are isolated CPUs if there are any.
    #[serde(alias = "preferIsolatedCPUs", alias = "PreferIsolatedCPUs")]
    pub prefer_isolated_cpus: bool,
    /// Containers that would get exclusive CPUs get shared ones.
    #[serde(alias = "preferSharedCPUs", alias = "PreferSharedCPUs")]
    pub prefer_shared_cpus: bool,
    /// Globs of namespaces with all containers on the reserved CPUs; `kube-system` is always one of them.
    #[serde(alias = "reservedPoolNamespaces", alias = "ReservedPoolNamespaces")]
    pub reserved_pool_namespaces: Vec<String>,
    /// Containers of a pod are kept together.
    #[serde(alias = "colocatePods", alias = "ColocatePods")]
    pub colocate_pods: bool,
    /// Containers of a namespace are kept together.
    #[serde(alias = "colocateNamespaces", alias = "ColocateNamespaces")]
    pub colocate_namespaces: bool,
    /// Level of the pools that Burstable containers without a CPU limit are spread over.
    #[serde(alias = "unlimitedBurstable", alias = "UnlimitedBurstable")]
    pub unlimited_burstable: PoolLevel,
    /// CPU priority of containers that do not request one.
    #[serde(alias = "defaultCPUPriority", alias = "DefaultCPUPriority")]
    pub default_cpu_priority: CpuPriority,
}

/// A level of the tree of pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = aliases::of_levels)]
pub enum PoolLevel {
    /// The whole machine.
    System,
    /// A socket.
    #[default]
    #[serde(alias = "socket")]
    Package,
    /// A die.
    Die,
    /// A NUMA node.
    Numa,
    /// The CPUs behind one last-level cache.
    #[serde(alias = "l3")]
    L3Cache,
}

/// Preference between fast and slow CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CpuPriority {
    /// The fastest CPUs.
    High,
    /// CPUs in between.
    Normal,
    /// The slowest CPUs.
    Low,
    /// No preference.
    #[default]
    None,
}

impl Default for PoolsSettings {
    fn default() -> Self {
        Self {
            pin_cpu: true,
            pin_memory: true,
            prefer_isolated_cpus: true,
            prefer_shared_cpus: false,
            reserved_pool_namespaces: Vec::new(),
            colocate_pods: false,
            colocate_namespaces: false,
            unlimited_burstable: PoolLevel::Package,
            default_cpu_priority: CpuPriority::None,
        }
    }
}
