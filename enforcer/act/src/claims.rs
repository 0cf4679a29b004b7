//! What workloads have now, as far as it is newer than a plan that is carried out.

use std::collections::BTreeSet;

use enforcer_core::workload::CgroupPath;
use numa_topology::set::CpuSet;

/// Present claims of workloads, from answers to a container runtime too; they change while the plan is
/// carried out.
pub trait CurrentClaims {
    /// Is something newer settled of this cgroup than the plan knew?
    fn is_overtaken(&self, cgroup: &CgroupPath) -> bool;

    /// The workload that has some of these CPUs for itself (of any CPUs where `None`), in words. What is
    /// given to the cgroups `among` does not count.
    fn exclusive_to(&self, cpus: Option<&CpuSet>, among: &BTreeSet<&CgroupPath>) -> Option<String>;
}

/// Nothing is exclusive to any workload.
impl<IsOvertaken: Fn(&CgroupPath) -> bool> CurrentClaims for IsOvertaken {
    fn is_overtaken(&self, cgroup: &CgroupPath) -> bool {
        self(cgroup)
    }

    fn exclusive_to(&self, _cpus: Option<&CpuSet>, _among: &BTreeSet<&CgroupPath>) -> Option<String> {
        None
    }
}
