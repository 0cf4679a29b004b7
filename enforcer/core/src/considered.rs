//! Inputs of one decision about one workload: its request, its measured state, every place that was
//! considered with the comparison that decided, and the result.
//!
//! The places are the [`Candidate`]s of placement and the result is the row of a plan: decisions of the
//! daemon read the same as `plan --explain`. Nothing here decides.
//!
//! Bounded: the first [`PLACES`] places are kept, including the chosen one; the rest are counted.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hosted::DecisionInputs,
    model::{WorkloadModel, accessed_bytes},
    workload::QosClass,
};
use numa_placement::{Candidate, ContainerRequest, Grant, trial::ContainerReport};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Maximum number of places kept of one decision.
pub const PLACES: usize = 32;

/// Inputs and result of a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Considered")]
pub struct DecisionTrace {
    /// The request.
    pub asked: WorkloadRequest,
    /// The measured state.
    pub seen: MeasuredState,
    /// Its placement; `null` if it got none.
    pub placement: Option<ContainerReport>,
    /// Places considered, the chosen one first; empty if it kept its place.
    pub candidates: Vec<Candidate>,
    /// Number of further places that are not listed.
    pub more_candidates: usize,
}

/// Request of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Asked")]
pub struct WorkloadRequest {
    /// Name of the entry that declares it; only for a declared workload.
    pub rule: Option<String>,
    /// `QoS` class of its pod; only for a container of a pod.
    pub qos: Option<QosClass>,
    /// CPU time in thousandths of a CPU.
    pub milli_cpus: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Nodes that its rule allows.
    pub numa_nodes: Option<NodeSet>,
}

/// Measured state of a workload; `null` for unknown values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Seen")]
pub struct MeasuredState {
    /// CPUs that it could use.
    pub cpus: Option<CpuSet>,
    /// Nodes that it could allocate on.
    pub mems: Option<NodeSet>,
    /// Bytes that it had, by node.
    pub memory_by_node: Option<BTreeMap<NodeId, u64>>,
    /// Bytes that were available to it, by node.
    pub available_by_node: Option<BTreeMap<NodeId, u64>>,
}

impl DecisionTrace {
    /// For a container that the runtime reports. `given` is its grant, `taken` are the exclusive CPUs of all
    /// containers.
    pub fn of_container(weighed: DecisionInputs, given: Option<&Grant>, taken: &CpuSet) -> Self {
        let DecisionInputs { asked, qos, candidates } = weighed;
        let placement = given.map(|grant| ContainerReport::new(&asked, grant, taken));
        let asked = WorkloadRequest { qos: Some(qos), ..WorkloadRequest::of(&asked) };
        Self { asked, placement, ..Self::default() }.with(candidates)
    }

    /// Adds the places that were considered.
    #[must_use]
    pub fn with(mut self, mut candidates: Vec<Candidate>) -> Self {
        self.more_candidates = candidates.len().saturating_sub(PLACES);
        // The engines list the chosen place first, but nothing enforces it.
        if let Some(at) = candidates.iter().position(|one| one.chosen).filter(|at| *at >= PLACES) {
            candidates.swap(0, at);
        }
        candidates.truncate(PLACES);
        self.candidates = candidates;
        self
    }
}

impl WorkloadRequest {
    /// The amounts in a request.
    pub fn of(request: &ContainerRequest) -> Self {
        let (milli_cpus, memory_bytes) = (request.requests.milli_cpus, request.requests.memory_bytes);
        Self { rule: request.wishes.rule.clone(), milli_cpus, memory_bytes, ..Self::default() }
    }
}

impl MeasuredState {
    /// The figures of a workload.
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
        let considered = DecisionTrace::default().with((0..100).map(of).collect());
        assert_eq!((considered.candidates.len(), considered.more_candidates), (PLACES, 100 - PLACES));
        assert_eq!(considered.candidates.iter().filter(|one| one.chosen).count(), 1);
        let few = DecisionTrace::default().with((0..3).map(of).collect());
        assert_eq!((few.candidates.len(), few.more_candidates), (3, 0));
    }
}
