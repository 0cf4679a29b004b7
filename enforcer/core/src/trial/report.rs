//! What a trial found, as `plan -o json` prints it.
//!
//! Keys are a contract (docs/schema/plan.schema.json). Ids are in the kernel's list format, sizes are
//! bytes; what does not apply is `null`, an empty set of CPUs is the empty text.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::NodeId,
    place::{
        Candidate, ContainerKind, ContainerRequest, CpuClass, Grant, MemorySource, Move, Seat, Update,
        hints::Hint,
    },
    set::{CpuSet, NodeSet},
};

/// Version of [`PlanReport`]: raised when a key goes away or changes its meaning.
pub const PLAN_SCHEMA_VERSION: u32 = 2;

/// The steps of a trial, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// Version of this format.
    pub schema_version: u32,
    /// One per step.
    pub steps: Vec<StepReport>,
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// Number of the step, from 1.
    pub step: u32,
    /// What happened.
    pub action: Act,
    /// To which pod: `namespace/name`.
    pub pod: String,
    /// Was it done? A pod that was not admitted leaves no trace; one that was not resized keeps what it
    /// had.
    pub admitted: bool,
    /// Why not, beginning with the name of the error.
    pub reason: Option<String>,
    /// What the pod's containers got, in the order of the manifest; of an init container, what it had
    /// while it ran.
    pub containers: Vec<ContainerReport>,
    /// What is different for others than before the step; of a cold start that ends, for the pod itself.
    pub updates: Vec<UpdateReport>,
    /// What was asked for and ignored.
    pub warnings: Vec<String>,
    /// Of a pod that was not admitted: the smallest set of moves of others that would let it fit aligned;
    /// `null` when none was found, or not looked for.
    pub what_if: Option<Vec<MoveReport>>,
    /// What was considered, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<Candidate>>,
}

/// Kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Act {
    /// A pod comes.
    Create,
    /// A pod wants other amounts.
    Resize,
    /// A pod goes.
    Delete,
    /// The cold start of a pod ends.
    Warm,
}

/// What one container got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerReport {
    /// Its name.
    pub name: String,
    /// When it runs.
    pub kind: ContainerKind,
    /// Engine that placed it.
    pub engine: String,
    /// Policy by which it was placed.
    pub policy: String,
    /// How its CPUs are used.
    pub class: CpuClass,
    /// CPUs that it runs on: the two below together.
    pub cpus: CpuSet,
    /// Is it kept on its CPUs? If not, they are what is accounted for it, and it may run on others.
    pub pinned_cpus: bool,
    /// CPUs that nobody else has.
    pub exclusive_cpus: CpuSet,
    /// CPUs that it has together with others, without those that somebody has exclusively.
    pub shared_cpus: CpuSet,
    /// Its memory nodes.
    pub mems: NodeSet,
    /// Is its memory kept on its nodes? If not, they are what is accounted for it.
    pub pinned_mems: bool,
    /// Bytes of ordinary memory by node, as forecast.
    pub memory_by_node: BTreeMap<NodeId, u64>,
    /// Bytes of huge pages by resource (`hugepages-2Mi`) and node, as forecast; on the nodes of `mems`
    /// together they are promised.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages_by_node: BTreeMap<String, BTreeMap<NodeId, u64>>,
    /// Ids of devices by resource.
    pub devices: BTreeMap<String, Vec<String>>,
    /// The hint that won; of the engine `hints`.
    pub hint: Option<Hint>,
    /// Name of its pool; of the engine `pools`.
    pub pool: Option<String>,
    /// Why there, in one sentence.
    pub reason: String,
    /// What says how much memory it asks for; `null` when nothing does.
    pub memory_source: Option<MemorySource>,
}

/// What is different for somebody outside the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateReport {
    /// Who: `namespace/name/container`.
    pub who: String,
    /// Its CPUs now; `null` when they are as before.
    pub cpus: Option<CpuSet>,
    /// Its memory nodes now; `null` when they are as before.
    pub mems: Option<NodeSet>,
}

/// Another place for somebody outside the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveReport {
    /// Who: `namespace/name/container`.
    pub who: String,
    /// Where it is.
    pub from: SeatReport,
    /// Where it would be.
    pub to: SeatReport,
    /// Bytes that it was promised, which would have to move.
    pub bytes: u64,
}

/// CPUs and memory nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeatReport {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its memory nodes.
    pub mems: NodeSet,
}

impl PlanReport {
    /// Was every step done?
    pub fn all_admitted(&self) -> bool {
        self.steps.iter().all(|step| step.admitted)
    }
}

impl ContainerReport {
    /// What `grant` means while `taken` are the exclusive CPUs of all.
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

impl From<&Move> for MoveReport {
    fn from(one: &Move) -> Self {
        let seat = |seat: &Seat| SeatReport { cpus: seat.cpus.clone(), mems: seat.mems.clone() };
        Self { who: one.holder.to_string(), from: seat(&one.from), to: seat(&one.to), bytes: one.bytes }
    }
}

impl From<&Update> for UpdateReport {
    fn from(update: &Update) -> Self {
        Self { who: update.holder.to_string(), cpus: update.cpus.clone(), mems: update.mems.clone() }
    }
}
