//! Which cgroup of a task its counters belong to.

use enforcer_common::settings::{AXIS_CPUSET, AXIS_UNIFIED};

/// The cgroup hierarchy whose directories' inode numbers are the keys of all counters.
///
/// A task is in one cgroup per hierarchy. Workloads are found where the cpuset controller is, so the
/// counters have to be about that hierarchy too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupAxis {
    /// cgroup v2.
    Unified,
    /// The v1 hierarchy of the cpuset controller.
    Cpuset,
}

impl CgroupAxis {
    pub(super) fn setting(self) -> u32 {
        match self {
            Self::Unified => AXIS_UNIFIED,
            Self::Cpuset => AXIS_CPUSET,
        }
    }
}
