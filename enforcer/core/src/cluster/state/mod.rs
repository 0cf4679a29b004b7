//! State of one node, as its daemon publishes it in the cluster.
//!
//! Problem: a scheduler must know before it binds a pod whether the node will admit it. Idea: the node
//! publishes every input of that decision, and the reader repeats it with the same engine. An object that
//! lists counts alone (`NodeResourceTopology`, `Numatopology`) is not enough for that: the ids of free CPUs,
//! their cores and caches, and the groups of memory nodes decide too.
//!
//! Invariants: sets are kernel lists, amounts of memory are bytes, and what is not known is absent, never 0.
//! `exact` is true only if a reader can repeat the decision; otherwise `inexact` names the sources. The
//! state is written whole, in one request: no field is newer than another. `pods` has every pod that holds
//! exclusive CPUs, memory or devices, including what ended init containers still hold.

mod kubelet;
pub mod limits;
mod machine;
mod measured;
mod own_engine;
mod pods;

pub use self::{
    kubelet::{ConfigurationSource, KubeletProfile},
    machine::{DeviceCount, DeviceSupply, MachineNode, MachineState, MemorySupply},
    measured::MeasuredLocality,
    own_engine::OwnEngine,
    pods::{HeldContainer, HeldMemory, HeldPod, RejectedPod},
};

use std::cmp::Ordering;

use numa_topology::set::CpuSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// API group of the object.
pub const GROUP: &str = "numa-enforcer.io";
/// Version of the object.
pub const VERSION: &str = "v1alpha1";
/// Kind of the object.
pub const KIND: &str = "NumaNodeState";
/// Plural name of the resource in the API.
pub const PLURAL: &str = "numanodestates";
/// Field manager under which the daemon writes the object.
pub const FIELD_MANAGER: &str = "numa-enforcer";
/// Maximum size of the object in bytes, as JSON.
pub const MAX_BYTES: usize = 32 << 10;

/// Which manager of the node decides about CPUs and memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DecidedBy {
    /// The managers of the kubelet.
    #[default]
    Kubelet,
    /// This daemon, through NRI.
    NumaEnforcer,
}

/// State of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeState {
    /// Order of the states of one node.
    pub revision: Revision,
    /// Hash of all other fields; equal content has an equal hash.
    #[schemars(length(max = limits::WORD))]
    pub hash: String,
    /// Whether a reader can repeat the node's decisions.
    pub exact: bool,
    /// Why it cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::INEXACT))]
    pub inexact: Vec<InexactSource>,
    /// Which manager decides.
    #[serde(default)]
    pub decided_by: DecidedBy,
    /// What this daemon decides from, if it is this daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_engine: Option<OwnEngine>,
    /// Settings of the kubelet.
    pub kubelet: KubeletProfile,
    /// CPUs, caches and distances.
    pub machine: MachineState,
    /// CPUs that no container gets exclusively.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub reserved_cpus: CpuSet,
    /// CPUs that no container has exclusively, reserved ones included.
    #[serde(default)]
    #[schemars(length(max = 4096))]
    pub shared_cpus: CpuSet,
    /// Memory by node and kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::MEMORY_SUPPLIES))]
    pub memory: Vec<MemorySupply>,
    /// Devices by resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::DEVICE_RESOURCES))]
    pub devices: Vec<DeviceSupply>,
    /// Pods that hold something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::PODS))]
    pub pods: Vec<HeldPod>,
    /// The last pods that the node refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::REJECTED))]
    pub rejected: Vec<RejectedPod>,
    /// Locality of the workloads that run there, which decides nothing; absent if it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredLocality>,
    /// The pods of `pods`, in short.
    #[serde(default)]
    pub covered: CoveredPods,
}

/// Order of states: the later start of the daemon wins, then the higher counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Revision {
    /// Start of the daemon, in nanoseconds since 1970, or of the kubelet if that is later.
    #[schemars(range(min = 0))]
    pub epoch: i64,
    /// Number of changes since then.
    #[schemars(range(min = 0))]
    pub counter: i64,
}

impl Revision {
    /// Is this the revision of a newer state?
    pub fn is_after(self, other: Self) -> bool {
        self.cmp(&other) == Ordering::Greater
    }
}

/// A source that prevents an exact prediction.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InexactSource {
    /// File, socket or setting.
    #[schemars(length(max = 128))]
    pub source: String,
    /// What is wrong with it, and what a prediction misses for it.
    #[schemars(length(max = 512))]
    pub reason: String,
}

impl InexactSource {
    /// A source and the reason.
    pub fn new(source: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { source: source.into(), reason: reason.into() }
    }
}

/// The pods of a state, in short.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoveredPods {
    /// Number of pods.
    #[schemars(range(min = 0))]
    pub count: u32,
    /// Number of CPUs that they have exclusively; readers of tables want it.
    #[serde(default)]
    pub exclusive_cpus: u32,
    /// Fingerprint of their names, as in `NodeResourceTopology`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limits::WORD))]
    pub fingerprint: String,
}
