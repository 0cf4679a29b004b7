//! The engine of a node where this daemon places containers, as readers of the cluster repeat it.
//!
//! Problem: where a kubelet decides, a state of counts and ids is enough. The daemon's own engine also reads
//! dies, kinds of cores, caches and memory tiers of the machine, every setting of placement, and the grants
//! of shared containers. Idea: the state carries exactly these inputs ([`EngineInputs`]), packed, and a
//! reader runs the same code on them ([`arrival`]).
//!
//! Invariants: volatile figures (free bytes) and texts for people are left out, so equal grants give equal
//! inputs. What is unpacked is bounded ([`MOST_BYTES`]) and checked before it is used: the input comes from
//! another node.

pub mod arrival;
#[cfg(test)]
mod tests;

use std::io::{Read as _, Write as _};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use numa_placement::{Allocations, Grant, Inventory, PodName, settings::PlacementSettings};
use numa_topology::{Inconsistency, Topology};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::state::{OwnEngine, limits};

/// Name of the engine among the sources that make a state inexact.
pub(in crate::cluster) const SOURCE: &str = "ownEngine";
/// Annotation of pods that Koordinator pins (`apis/extension/resource.go`).
pub const KOORDINATOR: &str = "scheduling.koordinator.sh/resource-status";
/// Annotation of pods that Katalyst pins (`katalyst-api/pkg/consts/pod.go`).
pub const KATALYST: &str = "katalyst.kubewharf.io/qos_level";
/// Version of the form of [`EngineInputs`].
pub const FORMAT: u32 = 1;
/// Most bytes of unpacked inputs.
pub const MOST_BYTES: u64 = 4 << 20;
/// Most holders: as many as the pods of a state with two containers each.
const MOST_HOLDERS: usize = 2 * limits::PODS;
/// Most CPUs of a machine, as in the kernel's largest configuration.
const MOST_CPUS: usize = 8_192;

/// What the engine decides from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineInputs {
    /// The machine.
    pub machine: Topology,
    /// Settings of placement.
    pub settings: PlacementSettings,
    /// What holders have.
    pub allocations: Allocations,
}

/// The engine's inputs and the pods of a node, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSnapshot {
    /// What the engine decides from.
    pub inputs: EngineInputs,
    /// The same in its published form, or why it has none.
    packed: Result<OwnEngine, UnusableInputs>,
    /// Containers that a runtime has announced and not ended, also those that hold nothing.
    pub announced: Vec<AnnouncedContainer>,
    /// What of the configuration readers of the state cannot repeat, if anything.
    pub unrepeatable: Option<String>,
}

impl EngineSnapshot {
    /// A snapshot; the inputs are packed once, because a state is made of it again and again.
    pub fn new(
        inputs: EngineInputs,
        announced: Vec<AnnouncedContainer>,
        unrepeatable: Option<String>,
    ) -> Self {
        Self { packed: inputs.packed(), inputs, announced, unrepeatable }
    }

    /// The inputs in their published form.
    ///
    /// # Errors
    /// If they are longer than a state may carry.
    pub(super) const fn packed(&self) -> Result<&OwnEngine, &UnusableInputs> {
        self.packed.as_ref()
    }
}

/// This daemon's part in a node.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum OwnPart<'a> {
    /// It places no containers.
    #[default]
    None,
    /// It places them, and its grants are not known, for this reason.
    Unknown(&'a str),
    /// It places them.
    Known(&'a EngineSnapshot),
}

/// A container of a pod that a runtime has announced.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnouncedContainer {
    /// Its pod, with the uid.
    pub pod: PodName,
    /// Its name.
    pub container: String,
}

/// Why packed inputs cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UnusableInputs {
    /// They are of a form that this version does not know.
    #[error("their form is {0}, and only {FORMAT} is known")]
    Format(u32),
    /// They are longer than the schema allows, packed or unpacked.
    #[error("they have more than {0} bytes")]
    TooLong(u64),
    /// They are not what they say.
    #[error("{0}")]
    Damaged(String),
    /// The machine contradicts itself.
    #[error("machine: {0}")]
    Machine(#[from] Inconsistency),
}

impl EngineInputs {
    /// The inputs of an engine, without what changes no decision.
    pub fn new(inventory: &Inventory, settings: &PlacementSettings, allocations: &Allocations) -> Self {
        let mut machine = inventory.machine.clone();
        for node in &mut machine.nodes {
            node.mem_free_bytes = None;
            node.kind_evidence = Vec::new();
            for pages in &mut node.hugepages {
                pages.free = pages.total;
            }
        }
        machine.devices = Vec::new();
        let mut bare = Allocations::default();
        for (holder, arrival_seq, grant) in allocations.with_arrival_seqs() {
            let mut grant = Grant { reason: String::new(), ..grant.clone() };
            if let Some(start) = &mut grant.cold_start {
                start.began_ns = None;
            }
            bare.give_at(holder.clone(), grant, arrival_seq);
        }
        Self { machine, settings: settings.clone(), allocations: bare }
    }

    /// The inputs in their published form.
    ///
    /// # Errors
    /// If they are longer than a state may carry.
    pub(super) fn packed(&self) -> Result<OwnEngine, UnusableInputs> {
        let damaged = |error: &dyn std::error::Error| UnusableInputs::Damaged(error.to_string());
        let json = serde_json::to_vec(self).map_err(|error| damaged(&error))?;
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&json).map_err(|error| damaged(&error))?;
        let packed = packer.finish().map_err(|error| damaged(&error))?;
        let inputs = BASE64_STANDARD.encode(packed);
        if inputs.len() > limits::ENGINE_INPUTS {
            return Err(UnusableInputs::TooLong(limits::ENGINE_INPUTS as u64));
        }
        Ok(OwnEngine { format: FORMAT, inputs })
    }

    /// The inputs of a published form.
    ///
    /// # Errors
    /// If they are damaged, too long, or contradict themselves.
    pub(super) fn unpacked(published: &OwnEngine) -> Result<Self, UnusableInputs> {
        if published.format != FORMAT {
            return Err(UnusableInputs::Format(published.format));
        }
        if published.inputs.len() > limits::ENGINE_INPUTS {
            return Err(UnusableInputs::TooLong(limits::ENGINE_INPUTS as u64));
        }
        let damaged = |error: &dyn std::error::Error| UnusableInputs::Damaged(error.to_string());
        let packed = BASE64_STANDARD.decode(&published.inputs).map_err(|error| damaged(&error))?;
        let mut json = Vec::new();
        let mut unpacker = GzDecoder::new(packed.as_slice()).take(MOST_BYTES + 1);
        unpacker.read_to_end(&mut json).map_err(|error| damaged(&error))?;
        if json.len() as u64 > MOST_BYTES {
            return Err(UnusableInputs::TooLong(MOST_BYTES));
        }
        let inputs: Self = serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
        let machine = &inputs.machine;
        if machine.nodes.len() > limits::NODES || machine.cpus.len() > MOST_CPUS {
            return Err(UnusableInputs::Damaged("the machine is larger than any".to_owned()));
        }
        if inputs.allocations.iter().count() > MOST_HOLDERS {
            return Err(UnusableInputs::Damaged(format!("more than {MOST_HOLDERS} holders")));
        }
        machine.check()?;
        inputs.settings.validate().map_err(|error| damaged(&error))?;
        Ok(inputs)
    }
}
