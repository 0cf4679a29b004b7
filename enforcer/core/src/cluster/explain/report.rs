//! Explanation of a pod, as `explain pod -o json` prints it.
//!
//! Keys are a contract (docs/schema/pod-explanation.schema.json). Equal input gives equal bytes.

use std::{cmp::Reverse, collections::BTreeMap};

use numa_topology::set::NodeSet;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::shortage::ResourceShortage;

/// Version of [`PodExplanation`]: raised when a key is removed or changes its meaning.
pub const EXPLANATION_OF_POD_SCHEMA_VERSION: u32 = 1;

/// What the nodes of a cluster say to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// Version of this format.
    pub schema_version: u32,
    /// Namespace and name.
    pub pod: String,
    /// Its priority.
    pub priority: i32,
    /// Its node; `null` if it has none. With one, no node was asked.
    pub on_node: Option<String>,
    /// Number of nodes.
    pub nodes: u64,
    /// Nodes that would take it now, by name.
    pub fits: Vec<FittingNode>,
    /// Nodes that do not, by reason as a scheduler groups them; the most frequent reason first.
    pub refused: Vec<ReasonGroup>,
}

/// A node that would take the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FittingNode {
    /// Its name.
    pub node: String,
    /// NUMA nodes of the exclusive CPUs and of the memory; `null` if the node's managers have no say about
    /// the pod.
    pub numa_nodes: Option<NodeSet>,
}

/// Nodes that do not take the pod for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasonGroup {
    /// The reason.
    pub reason: String,
    /// Number of nodes.
    pub count: u64,
    /// All of them: those first where the fewest pods would make room, then by name.
    pub nodes: Vec<ExplainedNode>,
}

/// A node that does not take the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedNode {
    /// Its name.
    pub node: String,
    /// Amounts that are too small. Empty where amounts are not the reason, and where each resource is free
    /// in the wanted amount, but not at one place.
    pub shortages: Vec<ResourceShortage>,
    /// The node's answer in words; `null` if the sums of the node are the only reason.
    pub detail: Option<String>,
    /// What would make room.
    pub room: NodeRoom,
}

/// What would make room for the pod on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRoom {
    /// What the search has found.
    pub outcome: RoomOutcome,
    /// Pods that would make room if they left, lowest priority first; empty with another outcome.
    pub pods: Vec<RoomPod>,
    /// Whether it is certain that no smaller set would do.
    pub is_smallest: bool,
    /// Whether the pods have to include some of a higher priority than the pod's.
    pub needs_higher_priority: bool,
}

/// What a search for room has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoomOutcome {
    /// Pods that would make room.
    Pods,
    /// No set of pods: the machine has no such place, or what has it cannot leave.
    NoPlace,
    /// The answer of the node is not known.
    Unknown,
    /// The node takes no such pod, whatever is free on it.
    Unusable,
}

/// A pod that would make room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoomPod {
    /// Namespace and name.
    pub pod: String,
    /// Its priority.
    pub priority: i32,
}

impl FittingNode {
    pub(super) fn new(node: &str, numa_nodes: Option<NodeSet>) -> Self {
        Self { node: node.to_owned(), numa_nodes }
    }
}

impl NodeRoom {
    pub(super) const fn of(outcome: RoomOutcome) -> Self {
        Self { outcome, pods: Vec::new(), is_smallest: false, needs_higher_priority: false }
    }
}

/// The groups in their order.
pub(super) fn grouped(groups: BTreeMap<String, Vec<ExplainedNode>>) -> Vec<ReasonGroup> {
    let groups = groups.into_iter().map(|(reason, mut nodes)| {
        nodes.sort_by(|one, other| {
            let key = |node: &ExplainedNode| {
                (node.room.outcome, node.room.needs_higher_priority, node.room.pods.len())
            };
            (key(one), &one.node).cmp(&(key(other), &other.node))
        });
        ReasonGroup { reason, count: u64::try_from(nodes.len()).unwrap_or(u64::MAX), nodes }
    });
    let mut groups: Vec<ReasonGroup> = groups.collect();
    // The sort is stable, so that reasons of equal counts stay in their order.
    groups.sort_by_key(|group| Reverse(group.count));
    groups
}
