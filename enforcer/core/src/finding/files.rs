//! Names of the cgroup files that findings speak of.
//!
//! The two cgroup versions name the same thing differently, and v1 has a mount point per controller
//! (Documentation/admin-guide/cgroup-v1/cpusets.rst, cgroup-v2.rst). The mount points are the usual
//! ones.

use crate::{sample::Sample, workload::CgroupPath};

/// The cpuset controller's files.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpusetFiles {
    v1: bool,
}

impl CpusetFiles {
    pub(super) fn of(sample: &Sample) -> Self {
        Self { v1: sample.cpuset_v1 }
    }

    /// File with the CPUs in force, from the root of the hierarchy.
    pub(super) fn effective_cpus(self, cgroup: &CgroupPath) -> String {
        below("", cgroup, if self.v1 { "cpuset.effective_cpus" } else { "cpuset.cpus.effective" })
    }

    /// File with the memory nodes in force, from the root of the hierarchy.
    pub(super) fn effective_mems(self, cgroup: &CgroupPath) -> String {
        below("", cgroup, if self.v1 { "cpuset.effective_mems" } else { "cpuset.mems.effective" })
    }

    /// A file of the cgroup where it is usually mounted.
    pub(super) fn mounted(self, cgroup: &CgroupPath, file: &str) -> String {
        below(if self.v1 { "/sys/fs/cgroup/cpuset" } else { "/sys/fs/cgroup" }, cgroup, file)
    }

    /// Does a write of `cpuset.mems` leave pages where they are, unless the cgroup asks otherwise?
    pub(super) fn pages_stay(self) -> bool {
        self.v1
    }
}

/// `memory.numa_stat` of the cgroup, from the root of the hierarchy.
pub(super) fn numa_stat(cgroup: &CgroupPath) -> String {
    below("", cgroup, "memory.numa_stat")
}

fn below(root: &str, cgroup: &CgroupPath, file: &str) -> String {
    match cgroup.relative() {
        "" => format!("{root}/{file}"),
        path => format!("{root}/{path}/{file}"),
    }
}
