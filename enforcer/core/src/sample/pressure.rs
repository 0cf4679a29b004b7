//! Memory shortages of NUMA nodes, which the kernel side reports at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

use super::EventCounts;
use crate::workload::CgroupPath;
use numa_topology::id::NodeId;

/// Events since the last sample, and totals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureEvents {
    /// Events in the order of the reports; the latest ones if there were too many.
    pub latest: Vec<PressureEvent>,
    /// Totals since the programs were first attached.
    pub counts: EventCounts,
    /// Received events by node and kind, in this order; since the programs were first attached.
    #[serde(default)]
    pub totals: Vec<PressureTotal>,
    /// Delivery delay of the events.
    #[serde(default)]
    pub delay: PressureDelay,
}

/// Events of one kind from one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureTotal {
    /// The node that was short.
    pub numa_node: NodeId,
    /// Kind of the event.
    pub kind: PressureKind,
    /// Number of events.
    pub events: u64,
}

/// Time from the kernel side's send to the daemon's receipt of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureDelay {
    /// Sum over all events since the programs were first attached, in nanoseconds.
    pub sum_ns: u64,
    /// The longest since the last sample; `None` without an event.
    pub longest_ns: Option<u64>,
}

/// A node got short of memory, or the OOM killer chose a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureEvent {
    /// Time of the kernel's monotonic clock in nanoseconds.
    pub time_ns: u64,
    /// Kind of the event.
    pub kind: PressureKind,
    /// The short node; for direct reclaim and a kill, which have none, the node of the CPU.
    pub numa_node: NodeId,
    /// Requested pages, as a power of two.
    pub order: u16,
    /// Kernel id of the cgroup that requested them.
    pub cgroup_id: u64,
    /// Workload of that cgroup; `None` if it is of none.
    pub workload: Option<CgroupPath>,
    /// Thread that requested them; for a kill, the killed one.
    pub tid: u32,
    /// For a kill, the bound of the allocation, if known.
    pub constraint: Option<OomConstraint>,
}

/// Kinds of events, in the order in which they usually come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum PressureKind {
    /// The node's kswapd was woken.
    KswapdWoken,
    /// A task reclaims memory before it gets some.
    DirectReclaim,
    /// That reclaim freed too little and is repeated.
    ReclaimRetry,
    /// The OOM killer has chosen a task.
    OomVictim,
}

/// Bound of an allocation (`enum oom_constraint` in `include/linux/oom.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OomConstraint {
    /// The memory of the machine.
    None,
    /// A cpuset.
    Cpuset,
    /// A memory policy.
    MemoryPolicy,
    /// The limit of a memory cgroup.
    Memcg,
}
