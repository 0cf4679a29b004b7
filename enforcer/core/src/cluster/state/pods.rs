//! Pods in the published state of a node.

use std::collections::BTreeMap;

use numa_placement::ContainerKind;
use numa_topology::set::{CpuSet, NodeSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits;

/// A pod that holds CPUs, memory or devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldPod {
    /// Its uid in the API; for a static pod that of its mirror pod if known.
    #[schemars(length(min = 1, max = limits::WORD))]
    pub uid: String,
    /// Namespace; empty if only the uid is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limits::LABEL))]
    pub namespace: String,
    /// Name; empty if only the uid is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = limits::NAME))]
    pub name: String,
    /// Uid in the kubelet of a static pod, where `uid` is that of its mirror pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::WORD))]
    pub mirror_of: Option<String>,
    /// Its containers with something of their own.
    #[schemars(length(max = limits::CONTAINERS))]
    pub containers: Vec<HeldContainer>,
}

/// A container that holds CPUs, memory or devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldContainer {
    /// Its name.
    #[schemars(length(max = limits::LABEL))]
    pub name: String,
    /// When it runs; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ContainerKind>,
    /// Its exclusive CPUs.
    #[serde(default, skip_serializing_if = "CpuSet::is_empty")]
    #[schemars(length(max = 1024))]
    pub cpus: CpuSet,
    /// Its memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = limits::CONTAINER_RESOURCES))]
    pub memory: Vec<HeldMemory>,
    /// Number of its devices by resource, then by the nodes that they are near.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = limits::CONTAINER_RESOURCES, "additionalProperties" = {
        "type": "object",
        "maxProperties": limits::DEVICE_GROUPS,
        "additionalProperties": {"type": "integer", "minimum": 0},
    }))]
    pub devices: BTreeMap<String, BTreeMap<String, u32>>,
}

/// Memory of one kind that a container holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldMemory {
    /// NUMA nodes that hold it together.
    #[schemars(length(max = 256))]
    pub nodes: NodeSet,
    /// `memory`, `hugepages-2Mi`.
    #[schemars(length(max = limits::WORD))]
    pub resource: String,
    /// Size in bytes.
    #[schemars(range(min = 0))]
    pub bytes: i64,
}

/// A pod that the node refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedPod {
    /// Its uid.
    #[schemars(length(max = limits::WORD))]
    pub uid: String,
    /// Reason in the pod's status, as in `TopologyAffinityError`.
    #[schemars(length(max = 128))]
    pub reason: String,
    /// Time of the refusal, in seconds since 1970.
    #[schemars(range(min = 0))]
    pub at: i64,
}

impl RejectedPod {
    /// Did one of the kubelet's managers refuse it? What else refuses pods (sums, taints) has no part in a
    /// prediction.
    pub(crate) fn is_by_managers(&self) -> bool {
        matches!(
            self.reason.as_str(),
            "TopologyAffinityError" | "SMTAlignmentError" | "UnexpectedAdmissionError"
        )
    }
}
