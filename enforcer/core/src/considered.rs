//! What one decision about one workload was made from: what it asked for, what was seen of it, every place
//! that was considered with the comparison that decided, and what it was given.
//!
//! The places are the [`Candidate`]s of placement and what was given is the row of a plan: a decision of the
//! daemon is explained in the words of `plan --explain`, and in no others. Nothing here decides.
//!
//! Bounded: of the places the first [`PLACES`] are kept, the one that was taken among them, and the rest are
//! counted.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::NodeId,
    model::{WorkloadModel, accessed_bytes},
    place::{Candidate, ContainerRequest, Grant, Weighed},
    set::{CpuSet, NodeSet},
    trial::ContainerReport,
    workload::QosClass,
};

/// Places that are kept of one decision.
pub const PLACES: usize = 32;

/// What a decision was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Considered {
    /// What was asked for.
    pub asked: Asked,
    /// What was seen of it.
    pub seen: Seen,
    /// What it has; `null` when it was given nothing.
    pub placement: Option<ContainerReport>,
    /// Places that were considered, the one that was taken first; none when it kept its place.
    pub candidates: Vec<Candidate>,
    /// Further places, which are not kept.
    pub more_candidates: usize,
}

/// What a workload asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Name of the entry that declares it; of a declared workload.
    pub rule: Option<String>,
    /// `QoS` class of its pod; of a container.
    pub qos: Option<QosClass>,
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Nodes that its rule leaves it.
    pub numa_nodes: Option<NodeSet>,
}

/// What was seen of a workload; `null` is what could not be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// CPUs that it could use.
    pub cpus: Option<CpuSet>,
    /// Nodes that it could allocate on.
    pub mems: Option<NodeSet>,
    /// Bytes that it had on each node.
    pub memory_by_node: Option<BTreeMap<NodeId, u64>>,
    /// Bytes that it could have had on each node.
    pub available_by_node: Option<BTreeMap<NodeId, u64>>,
}

impl Considered {
    /// Of a container that a runtime tells of, whose grant is `given` while `taken` are the exclusive CPUs of
    /// all.
    pub fn of_container(weighed: Weighed, given: Option<&Grant>, taken: &CpuSet) -> Self {
        let Weighed { asked, qos, candidates } = weighed;
        let placement = given.map(|grant| ContainerReport::new(&asked, grant, taken));
        let asked = Asked { qos: Some(qos), ..Asked::of(&asked) };
        Self { asked, placement, ..Self::default() }.with(candidates)
    }

    /// With the places that were considered.
    #[must_use]
    pub fn with(mut self, mut candidates: Vec<Candidate>) -> Self {
        self.more_candidates = candidates.len().saturating_sub(PLACES);
        // The one that was taken is told first, but that is the engines' business.
        if let Some(at) = candidates.iter().position(|one| one.chosen).filter(|at| *at >= PLACES) {
            candidates.swap(0, at);
        }
        candidates.truncate(PLACES);
        self.candidates = candidates;
        self
    }
}

impl Asked {
    /// The amounts of a request.
    pub fn of(request: &ContainerRequest) -> Self {
        let (milli_cpus, memory_bytes) = (request.requests.milli_cpus, request.requests.memory_bytes);
        Self { rule: request.wishes.rule.clone(), milli_cpus, memory_bytes, ..Self::default() }
    }
}

impl Seen {
    /// Of a workload's figures.
    pub fn of(figures: Option<&WorkloadModel>) -> Self {
        let Some(figures) = figures else { return Self::default() };
        let bytes = figures.bytes_by_node.as_ref();
        Self {
            cpus: figures.cpus.clone(),
            mems: figures.mems.clone(),
            memory_by_node: bytes
                .map(|by_node| by_node.iter().map(|(node, bytes)| (*node, accessed_bytes(bytes))).collect()),
            available_by_node: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_places_the_one_that_was_taken_is_kept_and_the_rest_are_counted() {
        let of = |number: usize| Candidate {
            container: String::new(),
            place: format!("place {number}"),
            chosen: number == 90,
            because: String::new(),
        };
        let considered = Considered::default().with((0..100).map(of).collect());
        assert_eq!((considered.candidates.len(), considered.more_candidates), (PLACES, 100 - PLACES));
        assert_eq!(considered.candidates.iter().filter(|one| one.chosen).count(), 1);
        let few = Considered::default().with((0..3).map(of).collect());
        assert_eq!((few.candidates.len(), few.more_candidates), (3, 0));
    }
}
