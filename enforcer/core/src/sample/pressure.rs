//! Memory that gets short on a NUMA node, as the kernel side tells it at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EventCounts;
use crate::{id::NodeId, workload::CgroupPath};

/// Events since the sample before, and how many there were in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureEvents {
    /// In the order in which they were told; the latest ones where there were too many.
    pub latest: Vec<PressureEvent>,
    /// Since the programs were first attached.
    pub counts: EventCounts,
    /// Those that were received, by node and kind, in this order; since the programs were first attached.
    #[serde(default)]
    pub totals: Vec<PressureTotal>,
    /// How long they were on their way.
    #[serde(default)]
    pub delay: PressureDelay,
}

/// Events of one kind from one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureTotal {
    /// The node that was short.
    pub numa_node: NodeId,
    /// What happened.
    pub kind: PressureKind,
    /// How often.
    pub events: u64,
}

/// From the moment that the kernel side gives an event to the moment that the daemon takes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureDelay {
    /// Sum over all events since the programs were first attached, in nanoseconds.
    pub sum_ns: u64,
    /// The longest since the sample before; none where there was no event.
    pub longest_ns: Option<u64>,
}

/// A node got short of memory, or somebody is killed for some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureEvent {
    /// Time of the kernel's monotonic clock in nanoseconds.
    pub time_ns: u64,
    /// What happened.
    pub kind: PressureKind,
    /// The node that is short; of direct reclaim and of a kill, which have none, that of the CPU.
    pub numa_node: NodeId,
    /// Pages that were wanted, as a power of two.
    pub order: u16,
    /// Id of the cgroup that wanted them.
    pub cgroup_id: u64,
    /// The workload that it is of; `None` where it is of none.
    pub workload: Option<CgroupPath>,
    /// Thread that wanted them; of a kill the one that is killed.
    pub tid: u32,
    /// Of a kill, what bounded the allocation, where it is known.
    pub constraint: Option<OomConstraint>,
}

/// Kinds of events, in the order in which they usually come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PressureKind {
    /// The node's kswapd was woken.
    KswapdWoken,
    /// Somebody has to free memory before getting some.
    DirectReclaim,
    /// That freed too little; it is tried once more.
    ReclaimRetry,
    /// The OOM killer has chosen.
    OomVictim,
}

/// What bounds an allocation (`enum oom_constraint` in `include/linux/oom.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OomConstraint {
    /// Nothing but the machine.
    None,
    /// A cpuset.
    Cpuset,
    /// A memory policy.
    MemoryPolicy,
    /// The limit of a memory cgroup.
    Memcg,
}
