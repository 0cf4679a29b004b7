//! What the kernel side told one by one: the detail behind the counters, never the count itself.
//!
//! Events are few on purpose: the kernel side sends one of a workload, CPU and interval, its ring has an
//! end, and a sample keeps the latest ones only. How many are missing for which of these reasons is exact.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{id::NodeId, workload::CgroupPath};

/// Events since the sample before, and how many there were in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    /// In the order in which they were told; the latest ones where there were too many.
    pub latest: Vec<TaskEvent>,
    /// Since the programs were first attached.
    pub counts: EventCounts,
}

/// What became of the events that there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventCounts {
    /// Received.
    pub told: u64,
    /// Those of the received ones that were too many for a sample.
    pub forgotten: u64,
    /// Not sent, because nobody had made room in the ring.
    pub ring_full: u64,
    /// Not sent, because one like it was sent a moment before: of the same workload from the same
    /// CPU, or of the same kind from the same node.
    pub limited: u64,
}

impl EventCounts {
    /// Adds what was counted elsewhere.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            told: self.told.saturating_add(more.told),
            forgotten: self.forgotten.saturating_add(more.forgotten),
            ring_full: self.ring_full.saturating_add(more.ring_full),
            limited: self.limited.saturating_add(more.limited),
        }
    }
}

/// A task that came to a node on which its workload should not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskEvent {
    /// Time of the kernel's monotonic clock in nanoseconds.
    pub time_ns: u64,
    /// How it came there.
    pub kind: TaskEventKind,
    /// The workload; `None` when it was gone before anybody looked.
    pub workload: Option<CgroupPath>,
    /// Id of the task's own cgroup: that of the workload or of one below it.
    pub cgroup_id: u64,
    /// Thread id.
    pub tid: u32,
    /// Node it came from; of its parent for a new one.
    pub src_numa: NodeId,
    /// Node it was put on.
    pub dst_numa: NodeId,
}

/// How a task came to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskEventKind {
    /// It was moved there.
    Migrated,
    /// It began there.
    Started,
}
