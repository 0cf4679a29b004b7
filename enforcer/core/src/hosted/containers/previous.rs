//! CPUs and memory nodes that a container should keep when it is placed: what it has, or what a scheduler has
//! chosen for it.
//!
//! Problem: between the choice of a scheduler and the creation of a container others come and go, and the
//! engine would choose another place than the one that the scheduler counts with. Idea: chosen CPUs are
//! treated like those that the container had before, and kept as far as they are free and the policy allows.
//!
//! Invariant: the annotation with the choice is a wish: each account that creates pods can write it. It
//! gives nothing that the engine would refuse. Readers of the cluster play the same calls, so they follow the
//! wish as the node does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use numa_placement::{Grant, foreign::DECISION, settings::Profile};
use numa_topology::set::{CpuSet, NodeSet};

use super::{Announced, PlacementNode};

/// Longest annotation with a choice, in bytes.
pub const LONGEST_DECISION: usize = 4_096;

/// Where a scheduler has placed a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecidedContainer {
    /// Its exclusive CPUs.
    pub cpus: CpuSet,
    /// Its memory nodes; empty if the node's managers give none.
    pub nodes: NodeSet,
}

/// What is read of the annotation.
#[derive(Deserialize)]
struct DecidedPod {
    containers: BTreeMap<String, DecidedContainer>,
}

impl Announced {
    /// Its current CPUs, if they look exclusive: as many as it requests, and a whole number.
    pub(super) fn kept_cpus(&self) -> Option<&CpuSet> {
        self.set_to().cpus.as_ref().filter(|cpus| self.asks_for_all(cpus))
    }

    /// What it has, as far as its cpuset tells.
    pub(super) fn seen(&self) -> Option<Grant> {
        let mems = self.set_to().mems.clone().unwrap_or_default();
        Some(Grant { exclusive: self.kept_cpus()?.clone(), mems, ..Grant::default() })
    }

    /// What a scheduler has chosen for it. A kubelet reads no such choice, so its profile does not either.
    pub(super) fn decided(&self, node: &PlacementNode<'_>) -> Option<Grant> {
        let text = self.pod.annotations.get(DECISION).filter(|text| text.len() <= LONGEST_DECISION)?;
        if node.settings.hints.profile == Profile::Kubelet {
            return None;
        }
        let mut decided: DecidedPod = serde_json::from_slice(text.as_bytes()).ok()?;
        let DecidedContainer { cpus, nodes } =
            decided.containers.remove(&self.pod.containers.first()?.name)?;
        self.asks_for_all(&cpus).then(|| Grant::chosen(cpus, nodes))
    }

    /// Does it request as many whole CPUs?
    fn asks_for_all(&self, cpus: &CpuSet) -> bool {
        let whole = self.pod.containers.first().and_then(numa_placement::ContainerRequest::whole_cpus);
        whole.is_some_and(|whole| whole > 0 && cpus.len() as u64 == whole)
    }
}
