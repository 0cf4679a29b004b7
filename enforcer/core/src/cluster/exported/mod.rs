//! State of a node in the objects of other schedulers: `NodeResourceTopology` (scheduler-plugins) and
//! `Numatopology` (Volcano).
//!
//! Problem: clusters with these schedulers read their own objects, and each object has room for a part of
//! the state alone. Idea: both are derived from the published [`NodeState`], so that all objects of a node
//! tell the same; [`ExportInputs`] adds what these objects have and the state has not.
//!
//! Invariants: neither object can say that it is inexact, so none is made from sources that contradict each
//! other ([`ExportFault`]), and what is not known is absent: no amount is estimated. Equal inputs give equal
//! bytes; there is no time in either object.

mod nrt;
mod numatopology;
pub(crate) mod quantity;
#[cfg(test)]
mod tests;

pub use self::{
    nrt::{NodeResourceTopology, NrtAttribute, NrtCost, NrtResource, NrtZone, node_resource_topology},
    numatopology::{
        ContainerAllocation, CpuDetail, NumaResource, Numatopology, NumatopologySpec, PodAllocation,
        numatopology,
    },
    quantity::ReservedAmounts,
};

use numa_topology::{Topology, set::CpuSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    observed::{ADMISSION, NodeInApi, NodeObservation, contradictions, unusable},
    state::{HeldContainer, HeldPod, InexactSource, NodeState},
};

/// An object of another scheduler.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::EnumIter,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ExportedKind {
    /// `NodeResourceTopology` v1alpha2, for `NodeResourceTopologyMatch` of scheduler-plugins.
    Nrt,
    /// `Numatopology` v1alpha1, for Volcano.
    Numatopology,
}

impl ExportedKind {
    /// API group.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Nrt => "topology.node.k8s.io",
            Self::Numatopology => "nodeinfo.volcano.sh",
        }
    }

    /// Version of the group.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Nrt => "v1alpha2",
            Self::Numatopology => "v1alpha1",
        }
    }

    /// Name in paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Nrt => "noderesourcetopologies",
            Self::Numatopology => "numatopologies",
        }
    }

    /// Name in objects.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Nrt => "NodeResourceTopology",
            Self::Numatopology => "Numatopology",
        }
    }

    /// Content of the object beside `apiVersion`, `kind` and `metadata`.
    ///
    /// # Errors
    /// If the object would say what is not so.
    pub fn content(self, inputs: ExportInputs<'_>) -> Result<Map<String, Value>, ExportFault> {
        let value = match self {
            Self::Nrt => serde_json::to_value(node_resource_topology(inputs)?),
            Self::Numatopology => serde_json::to_value(numatopology(inputs)?),
        };
        // Both types are structs whose maps have text as keys.
        let Ok(Value::Object(content)) = value else { return Ok(Map::new()) };
        Ok(content)
    }
}

/// What both objects are made from.
#[derive(Debug, Clone, Copy)]
pub struct ExportInputs<'a> {
    /// The published state.
    pub state: &'a NodeState,
    /// The machine: ids of cores and sockets.
    pub machine: &'a Topology,
    /// The reads that the state was made from: memory totals, and all pods of the node.
    pub observation: &'a NodeObservation,
    /// What the API says of the pods.
    pub api: &'a NodeInApi,
    /// What the kubelet's settings reserve; `None` if they are not known.
    pub reserved: Option<&'a ReservedAmounts>,
}

/// Why an object is not made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ExportFault {
    /// Readers of zones mix ids and positions, so a gap moves amounts to other nodes.
    #[error(
        "the ids of the NUMA nodes have a gap before {next}: readers of the object take positions for ids"
    )]
    SparseNodes {
        /// The id after the gap.
        next: u32,
    },
    /// The sources are not of one moment, or contradict each other.
    #[error("{source_name}: {reason}; the object cannot say that it is inexact")]
    Inconsistent {
        /// File or socket.
        source_name: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl ExportInputs<'_> {
    /// # Errors
    /// If the sources of the state contradict each other.
    fn check(&self) -> Result<(), ExportFault> {
        if let Some(reason) = &self.observation.torn {
            let source_name = "kubelet".to_owned();
            return Err(ExportFault::Inconsistent { source_name, reason: reason.clone() });
        }
        // A read that fails for a moment must not take resources out of the zones, an admission that is under
        // way has a part of them, and a state that lost content to its limits tells that there are none.
        let unfinished = self.state.inexact.iter().find(|one| one.source == ADMISSION).cloned();
        let unusable = unusable(self.observation).or(unfinished);
        let is_cut = |one: &&InexactSource| one.source == "state" && !one.reason.starts_with("refused pods");
        let cut = self.state.inexact.iter().find(is_cut).cloned();
        let unusable = unusable.or(cut);
        let found = contradictions(self.machine, &self.state.kubelet, self.observation);
        match unusable.into_iter().chain(found).next() {
            Some(first) => Err(ExportFault::Inconsistent { source_name: first.source, reason: first.reason }),
            None => Ok(()),
        }
    }

    /// Policy of the CPU manager; `None` if its file was not read.
    fn cpu_policy(&self) -> Option<&str> {
        self.observation.cpus.content().map(|cpus| cpus.policy.as_str())
    }

    /// CPUs that a container may get exclusively now; `None` if they are not known, or if the CPU manager
    /// gives none exclusively.
    fn free_exclusive_cpus(&self) -> Option<CpuSet> {
        let is_known = self.observation.offered.content().is_some() && !self.state.shared_cpus.is_empty();
        let ended = self.ended_containers().fold(CpuSet::new(), |cpus, ended| cpus.union(&ended.cpus));
        (is_known && self.cpu_policy() == Some("static"))
            .then(|| self.state.shared_cpus.difference(&self.state.reserved_cpus).union(&ended))
    }

    /// Has the pod ended in the API? The kubelet keeps what it had until the next admission, which clears it
    /// first, so a scheduler may count it as free.
    fn has_ended(&self, pod: &HeldPod) -> bool {
        self.api.pods.iter().flatten().any(|known| known.is_finished && known.uid == pod.uid)
    }

    fn ended_containers(&self) -> impl Iterator<Item = &HeldContainer> {
        self.state.pods.iter().filter(|pod| self.has_ended(pod)).flat_map(|pod| &pod.containers)
    }
}
