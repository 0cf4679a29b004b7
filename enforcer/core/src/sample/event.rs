//! Single events of the kernel side: the details behind the counters, not the counts.
//!
//! Events are few on purpose: the kernel side sends one for each workload, CPU and interval, its ring is
//! bounded, and a sample keeps the latest ones. The number of missing events is exact for each of these
//! reasons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workload::CgroupPath;
use numa_topology::id::NodeId;

/// Events since the last sample, and totals.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    /// Events in the order of the reports; the latest ones if there were too many.
    pub latest: Vec<TaskEvent>,
    /// Totals since the programs were first attached.
    pub counts: EventCounts,
}

/// Numbers of events by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventCounts {
    /// Received.
    pub told: u64,
    /// Received, and left out of a sample that had too many.
    pub forgotten: u64,
    /// Not sent, because the ring was full.
    pub ring_full: u64,
    /// Not sent, because a similar event was sent shortly before: of the same workload from the same CPU, or
    /// of the same kind from the same node.
    pub limited: u64,
}

/// A task that came to a node which its workload should not use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskEvent {
    /// Time of the kernel's monotonic clock in nanoseconds.
    pub time_ns: u64,
    /// Kind of the event.
    pub kind: TaskEventKind,
    /// The workload; `None` if it was gone before its event was read.
    pub workload: Option<CgroupPath>,
    /// Kernel id of the task's own cgroup: that of the workload or of one below it.
    pub cgroup_id: u64,
    /// Thread id.
    pub tid: u32,
    /// Source node; the parent's node for a new task.
    pub src_numa: NodeId,
    /// Target node.
    pub dst_numa: NodeId,
}

/// How a task came to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskEventKind {
    /// The scheduler moved it there.
    Migrated,
    /// It started there.
    Started,
}
