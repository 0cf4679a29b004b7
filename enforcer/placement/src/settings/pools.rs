//! Settings of the engine `pools`.
//!
//! The topology-aware policy's spelling of each key (`pinCPU`, `PinCPU`) is an alias.

/// Settings of the engine `pools`, with the defaults in the documentation of the topology-aware policy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = super::aliases::of_pools))]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own, with the name people know")]
#[non_exhaustive]
pub struct PoolsSettings {
    /// CPUs are pinned.
    #[cfg_attr(feature = "serde", serde(alias = "pinCPU", alias = "PinCPU"))]
    pub pin_cpu: bool,
    /// Memory nodes are pinned.
    #[cfg_attr(feature = "serde", serde(alias = "pinMemory", alias = "PinMemory"))]
    pub pin_memory: bool,
    /// The exclusive CPU of a container with a request from one to below two CPUs, and exclusive CPUs beside
    /// a shared fraction, are isolated CPUs if there are any.
    #[cfg_attr(feature = "serde", serde(alias = "preferIsolatedCPUs", alias = "PreferIsolatedCPUs"))]
    pub prefer_isolated_cpus: bool,
    /// Containers that would get exclusive CPUs get shared ones.
    #[cfg_attr(feature = "serde", serde(alias = "preferSharedCPUs", alias = "PreferSharedCPUs"))]
    pub prefer_shared_cpus: bool,
    /// Globs of namespaces with all containers on the reserved CPUs; `kube-system` is always one of them.
    #[cfg_attr(feature = "serde", serde(alias = "reservedPoolNamespaces", alias = "ReservedPoolNamespaces"))]
    pub reserved_pool_namespaces: Vec<String>,
    /// Containers of a pod are kept together.
    #[cfg_attr(feature = "serde", serde(alias = "colocatePods", alias = "ColocatePods"))]
    pub colocate_pods: bool,
    /// Containers of a namespace are kept together.
    #[cfg_attr(feature = "serde", serde(alias = "colocateNamespaces", alias = "ColocateNamespaces"))]
    pub colocate_namespaces: bool,
    /// Level of the pools that Burstable containers without a CPU limit are spread over.
    #[cfg_attr(feature = "serde", serde(alias = "unlimitedBurstable", alias = "UnlimitedBurstable"))]
    pub unlimited_burstable: PoolLevel,
    /// CPU priority of containers that do not request one.
    #[cfg_attr(feature = "serde", serde(alias = "defaultCPUPriority", alias = "DefaultCPUPriority"))]
    pub default_cpu_priority: CpuPriority,
}

/// A level of the tree of pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = super::aliases::of_levels))]
pub enum PoolLevel {
    /// The whole machine.
    System,
    /// A socket.
    #[default]
    #[cfg_attr(feature = "serde", serde(alias = "socket"))]
    Package,
    /// A die.
    Die,
    /// A NUMA node.
    Numa,
    /// The CPUs behind one last-level cache.
    #[cfg_attr(feature = "serde", serde(alias = "l3"))]
    L3Cache,
}

/// Preference between fast and slow CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
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
