//! Result of a trial, as `plan -o json` prints it.
//!
//! Keys are a contract (docs/schema/plan.schema.json). Ids are in the kernel's list format, sizes are bytes.
//! A value that does not apply is `null`; an empty set of CPUs is the empty string.

use std::collections::BTreeMap;

use crate::{
    Candidate, ContainerKind, ContainerRequest, CpuClass, CpusAndNodes, Grant, HolderMove, MemorySource,
    Update, hints::Hint,
};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Version of [`PlanReport`]: raised when a key is removed or changes its meaning.
pub const PLAN_SCHEMA_VERSION: u32 = 2;

/// The steps of a trial, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PlanReport {
    /// Version of this format.
    pub schema_version: u32,
    /// One entry per step.
    pub steps: Vec<StepReport>,
}

/// Result of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StepReport {
    /// Number of the step, from 1.
    pub step: u32,
    /// The action.
    pub action: StepKind,
    /// The pod: `namespace/name`.
    pub pod: String,
    /// Whether the step succeeded. A pod that was not admitted leaves no trace; a pod that was not resized
    /// keeps what it had.
    pub admitted: bool,
    /// Why it failed, beginning with the name of the error.
    pub reason: Option<String>,
    /// What the pod's containers got, in the order of the manifest. For an init container: what it had while
    /// it ran.
    pub containers: Vec<ContainerReport>,
    /// Claims of the pod for devices, with what they have; absent if it names none.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub claims: Vec<PlannedClaim>,
    /// Changes for containers of other pods; at the end of a cold start, changes for the pod itself.
    pub updates: Vec<UpdateReport>,
    /// Settings that were ignored.
    pub warnings: Vec<String>,
    /// For a pod that was not admitted: the smallest set of moves of other containers that would let it fit
    /// aligned; `null` if none was found or searched.
    pub what_if: Option<Vec<MoveReport>>,
    /// Candidates considered, if requested.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub candidates: Option<Vec<Candidate>>,
}

/// Kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(rename = "Act"))]
pub enum StepKind {
    /// Create a pod.
    Create,
    /// Change the amounts of a pod.
    Resize,
    /// Delete a pod.
    Delete,
    /// End the cold start of a pod.
    Warm,
}

/// What one container got.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct ContainerReport {
    /// Its name.
    pub name: String,
    /// When it runs: init, sidecar or app.
    pub kind: ContainerKind,
    /// Engine that placed it.
    pub engine: String,
    /// Policy by which it was placed.
    pub policy: String,
    /// How its CPUs are used.
    pub class: CpuClass,
    /// CPUs that it runs on: `exclusive_cpus` and `shared_cpus` together.
    pub cpus: CpuSet,
    /// Whether it is kept on its CPUs. If not, they are only accounted to it, and it may run on others.
    pub pinned_cpus: bool,
    /// CPUs that no other container has.
    pub exclusive_cpus: CpuSet,
    /// CPUs that it shares with others, without the exclusive CPUs of any container.
    pub shared_cpus: CpuSet,
    /// Its memory nodes.
    pub mems: NodeSet,
    /// Whether its memory is kept on its nodes. If not, they are only accounted to it.
    pub pinned_mems: bool,
    /// Forecast of ordinary memory in bytes, by node.
    pub memory_by_node: BTreeMap<NodeId, u64>,
    /// Forecast of huge pages in bytes, by resource (`hugepages-2Mi`) and node. They are promised on the
    /// nodes of `mems` together.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub hugepages_by_node: BTreeMap<String, BTreeMap<NodeId, u64>>,
    /// Ids of devices by resource.
    pub devices: BTreeMap<String, Vec<String>>,
    /// The winning hint; only for the engine `hints`.
    pub hint: Option<Hint>,
    /// Name of its pool; only for the engine `pools`.
    pub pool: Option<String>,
    /// Why it was placed there, in one sentence.
    pub reason: String,
    /// Where its memory request comes from; `null` if it has none.
    pub memory_source: Option<MemorySource>,
}

/// What a claim of a pod has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct PlannedClaim {
    /// Its name in the pod.
    pub name: String,
    /// Name of the claim; of one that a template makes, without what the cluster appends.
    pub claim: String,
    /// Its devices, in the order of its requests.
    pub devices: Vec<PlannedDevice>,
}

/// A device of a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct PlannedDevice {
    /// Request, with its alternative: `place` or `place/two-nodes`.
    pub request: String,
    /// Driver of the device.
    pub driver: String,
    /// Pool of the device.
    pub pool: String,
    /// Name of the device.
    pub device: String,
    /// NUMA nodes that it names; empty if it names none.
    pub numa_nodes: NodeSet,
    /// What is taken of a device that claims share, by capacity; without amounts of 0.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub consumed: BTreeMap<String, String>,
    /// CPUs that the driver of NUMA nodes would give the claim exclusively, as the node is now.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "CpuSet::is_empty"))]
    pub cpus: CpuSet,
    /// Options of that driver that the class or the claim sets.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "BTreeMap::is_empty"))]
    pub options: BTreeMap<String, String>,
}

/// Change for a container of another pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct UpdateReport {
    /// The container: `namespace/name/container`.
    #[cfg_attr(feature = "serde", serde(rename = "who"))]
    pub container: String,
    /// Its CPUs now; `null` if unchanged.
    pub cpus: Option<CpuSet>,
    /// Its memory nodes now; `null` if unchanged.
    pub mems: Option<NodeSet>,
}

/// A move of a container of another pod.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MoveReport {
    /// The container: `namespace/name/container`.
    #[cfg_attr(feature = "serde", serde(rename = "who"))]
    pub container: String,
    /// Current placement.
    pub from: SeatReport,
    /// Placement after the move.
    pub to: SeatReport,
    /// Promised bytes that would have to move.
    pub bytes: u64,
}

/// CPUs and memory nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "camelCase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct SeatReport {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its memory nodes.
    pub mems: NodeSet,
}

impl PlanReport {
    /// A report of these steps.
    pub const fn new(schema_version: u32, steps: Vec<StepReport>) -> Self {
        Self { schema_version, steps }
    }

    /// Did every step succeed?
    pub fn all_admitted(&self) -> bool {
        self.steps.iter().all(|step| step.admitted)
    }
}

impl ContainerReport {
    /// Report of `grant`, where `taken` are the exclusive CPUs of all containers.
    pub fn new(container: &ContainerRequest, grant: &Grant, taken: &CpuSet) -> Self {
        let shared = grant.shared.as_ref().map(|shared| shared.reach().difference(taken)).unwrap_or_default();
        let cpus = grant.cpus(taken);
        let asked = container.requests.memory_bytes.filter(|bytes| *bytes > 0);
        Self {
            name: container.name.clone(),
            kind: container.kind,
            engine: grant.engine.to_owned(),
            policy: grant.policy.to_owned(),
            class: grant.class,
            shared_cpus: shared.intersection(&cpus),
            cpus,
            pinned_cpus: grant.pin_cpus,
            exclusive_cpus: grant.exclusive.clone(),
            mems: grant.mems(taken),
            pinned_mems: grant.pin_mems,
            memory_by_node: grant.memory_by_node(),
            hugepages_by_node: grant.hugepages_by_node(),
            devices: grant.devices.clone(),
            hint: grant.hint.clone(),
            pool: grant.pool.clone(),
            reason: grant.why().into_owned(),
            memory_source: grant.memory_source.or_else(|| asked.map(|_| MemorySource::Request)),
        }
    }
}

impl From<&HolderMove> for MoveReport {
    fn from(one: &HolderMove) -> Self {
        let seat = |seat: &CpusAndNodes| SeatReport { cpus: seat.cpus.clone(), mems: seat.mems.clone() };
        Self { container: one.holder.to_string(), from: seat(&one.from), to: seat(&one.to), bytes: one.bytes }
    }
}

impl From<&Update> for UpdateReport {
    fn from(update: &Update) -> Self {
        Self { container: update.holder.to_string(), cpus: update.cpus.clone(), mems: update.mems.clone() }
    }
}
