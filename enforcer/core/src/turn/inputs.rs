//! What one turn is given: everything that its decision depends on.
//!
//! A function takes this whole only if it needs more of it than a few parts.

use std::fmt;

use super::{
    history::History, partitions::Partitioned, protected::Widened, self_placed::SelfPlacedWorkloads,
};
use crate::{
    declarations::Declarations,
    hosted::Containers,
    model::Model,
    owners::Owners,
    policy::Policy,
    sample::Sample,
    workload::{CgroupPath, Workload},
};
use numa_placement::Inventory;

/// Input of a decision.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The machine.
    pub inventory: &'a Inventory,
    /// The workloads that run on it.
    pub workloads: &'a [Workload],
    /// The latest sample: free memory, and the cpusets of cgroups above the workloads.
    pub sample: &'a Sample,
    /// Figures of the workloads.
    pub model: &'a Model,
    /// Configured policy.
    pub policy: &'a Policy,
    /// Workloads that the policy's entries match.
    pub declarations: &'a Declarations,
    /// Containers that a runtime announced, with their places.
    pub containers: &'a Containers,
    /// Owners of the cpusets.
    pub owners: &'a Owners,
    /// Earlier corrections.
    pub history: &'a History,
    /// Memory nodes that were added to workloads that ran short, and must stay for now.
    pub widened: &'a Widened,
    /// Cgroups that the daemon has ever written.
    pub written: WrittenCgroups<'a>,
    /// Partitions that the daemon has ever set.
    pub partitioned: &'a Partitioned,
    /// Workloads that stay where they are because of settings of their own processes.
    pub self_placed: &'a SelfPlacedWorkloads,
    /// Monotonic time in nanoseconds, of the clock of the history.
    pub now_ns: u64,
}

/// Returns whether the daemon has set a cgroup, at any time, and has not put it back.
#[derive(Clone, Copy)]
pub struct WrittenCgroups<'a>(pub &'a dyn Fn(&CgroupPath) -> bool);

impl WrittenCgroups<'_> {
    /// No cgroup was ever written.
    pub const NOTHING: Self = WrittenCgroups(&|_| false);
}

impl fmt::Debug for WrittenCgroups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Written")
    }
}
