//! Problems of rejections: what could not be done, without the amounts.
//!
//! Texts that the kubelet has for the same problem are the kubelet's.

use numa_topology::text::printable;
use thiserror::Error;

use super::cpu_error::CpuError;
use crate::{Holder, PodName, QosClass};

/// What could not be done.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RejectionProblem {
    /// A pod of this name was admitted before.
    #[error("pod {0} is already there")]
    PodExists(PodName),
    /// No pod of this name was admitted.
    #[error("pod {0} is not there")]
    UnknownPod(PodName),
    /// The pod may not be resized in this way.
    #[error(transparent)]
    Resize(ResizeProblem),
    /// The request exceeds the capacity of the machine.
    #[error("it asks for more than the whole machine has")]
    AboveCapacity,
    /// The sets of allowed nodes and allowed CPUs have no CPU in common.
    #[error("none of the nodes that it may use has a CPU that it may use")]
    NoAllowedCpu,
    /// The sets of allowed nodes have no node with CPUs and memory; the settings that exclude them, in words.
    #[error("no node that it may use has both CPUs and memory: {excluded_by}")]
    NoAllowedNode {
        /// Settings that exclude the nodes.
        excluded_by: String,
    },
    /// No allowed node has enough available memory.
    #[error("none of the nodes that it may use has the memory that it needs")]
    NoNodeWithMemory,
    /// Exclusive CPUs for it would leave another holder without a shared CPU.
    #[error("{0} would have no CPU left")]
    EmptiesHolder(Holder),
    /// All shared CPUs are exclusive to others.
    #[error("no shared CPU is left")]
    NoSharedCpu,
    /// Exclusive CPUs could not be chosen.
    #[error(transparent)]
    Cpus(CpuError),
    /// Every resource fits, but not on one set of nodes that the policy accepts.
    #[error("Resources cannot be allocated with Topology locality")]
    NotAligned,
    /// Memory on the merged nodes could not be chosen.
    #[error("[memorymanager] {0}")]
    Memory(MemoryProblem),
    /// Promises to others need the memory.
    #[error("others hold what it would need")]
    HeldByOthers,
    /// Too few devices.
    #[error(
        "requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}",
        resource = printable(resource)
    )]
    Devices {
        /// Name of the resource.
        resource: String,
        /// Number of requested devices.
        requested: u64,
        /// Number of available devices.
        available: usize,
    },
    /// No pool has enough CPUs.
    #[error("no pool has enough CPUs")]
    NoPoolWithCpus,
    /// No pool has enough isolated CPUs, and they are required.
    #[error("too few isolated CPUs are free in one pool")]
    NoPoolWithIsolatedCpus,
    /// No pool has enough memory.
    #[error("too little memory, also if others were moved")]
    NoPoolWithMemory,
    /// A strict hint excludes every pool.
    #[error("fail strict hint: {outside}")]
    StrictHint {
        /// Resources that would be outside the nodes of the hint.
        outside: String,
    },
    /// The machine has no memory of the requested types.
    #[error("the machine has no memory of type {0}")]
    NoMemoryOfType(String),
}

/// Why the memory of a container has no nodes, as the kubelet's memory manager says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryProblem {
    /// No set of nodes has enough.
    #[error("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")]
    NoDefaultAffinity,
    /// No preferred set of nodes has enough, and the merged set is preferred.
    #[error("failed to find the default preferred hint")]
    NoDefaultPreferred,
    /// No larger set of nodes has enough.
    #[error("failed to find NUMA nodes to extend the current topology hint")]
    NoExtension,
    /// No larger preferred set of nodes has enough, and the merged set is preferred.
    #[error("failed to find the extended preferred hint")]
    NoExtendedPreferred,
    /// Containers on one and on several nodes would share a node.
    #[error("preferred hint violates NUMA node allocation")]
    ViolatesGroup,
}

/// Why a cluster refuses to resize a pod.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResizeProblem {
    /// The amounts change its QoS class.
    #[error("a resize may not change the QoS class of a pod: it is {from:?} and would be {to:?}")]
    QosClass {
        /// Class of the running pod.
        from: QosClass,
        /// Class by the new amounts.
        to: QosClass,
    },
    /// The running pod lacks this container.
    #[error("a resize may not add containers: the pod has no {}", printable(_0))]
    AddsContainer(String),
    /// The new pod lacks this container.
    #[error("a resize may not take containers away: {} is missing", printable(_0))]
    TakesContainer(String),
}
