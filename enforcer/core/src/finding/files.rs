//! Full paths of the cgroup files in findings, as a person on the machine would type them.
//!
//! The two cgroup versions name the same thing differently, and v1 has a mount point per controller
//! (Documentation/admin-guide/cgroup-v1/cpusets.rst, cgroup-v2.rst).

use super::Evidence;
use crate::{
    model::nearest_effective,
    sample::{CgroupMounts, CgroupSample, Sample},
    workload::CgroupPath,
};

/// The files of the cpuset and the memory controller.
#[derive(Debug, Clone, Copy)]
pub(super) struct CgroupFiles<'a> {
    v1: bool,
    mounts: &'a CgroupMounts,
}

impl<'a> CgroupFiles<'a> {
    pub(super) fn of(sample: &'a Sample) -> Self {
        Self { v1: sample.cpuset_v1, mounts: &sample.cgroup_mounts }
    }

    /// File with the effective CPUs.
    pub(super) fn effective_cpus(self, cgroup: &CgroupPath) -> String {
        self.cpuset(cgroup, if self.v1 { "cpuset.effective_cpus" } else { "cpuset.cpus.effective" })
    }

    /// File with the effective memory nodes.
    pub(super) fn effective_mems(self, cgroup: &CgroupPath) -> String {
        self.cpuset(cgroup, if self.v1 { "cpuset.effective_mems" } else { "cpuset.mems.effective" })
    }

    /// A file of the cgroup in the hierarchy with the cpuset controller.
    pub(super) fn cpuset(self, cgroup: &CgroupPath, file: &str) -> String {
        below(&self.mounts.cpuset, cgroup, file)
    }

    /// Directory of the cgroup in the hierarchy with the cpuset controller.
    pub(super) fn folder(self, cgroup: &CgroupPath) -> String {
        let folder = below(&self.mounts.cpuset, cgroup, "");
        folder.trim_end_matches('/').to_owned()
    }

    /// A file of the cgroup in the hierarchy with the memory controller.
    pub(super) fn memory(self, cgroup: &CgroupPath, file: &str) -> String {
        below(&self.mounts.memory, cgroup, file)
    }

    /// Does a write of `cpuset.mems` leave pages where they are, unless the cgroup asks otherwise?
    pub(super) fn pages_stay(self) -> bool {
        self.v1
    }
}

/// The effective files that were read: those of the cgroup itself, or of the nearest cgroup above that has
/// some.
pub(super) fn cpuset_evidence(sample: &Sample, cgroup: &CgroupPath) -> Vec<Evidence> {
    let files = CgroupFiles::of(sample);
    let effective = |pick: &dyn Fn(&CgroupSample) -> Option<String>| {
        let (path, value) = nearest_effective(sample, cgroup, pick)?;
        let from = sample.cgroups.get(&path).and_then(|seen| seen.effective_from.clone());
        Some((from.unwrap_or(path), value))
    };
    let cpus = effective(&|cgroup| cgroup.cpus_effective.as_ref().map(ToString::to_string));
    let mems = effective(&|cgroup| cgroup.mems_effective.as_ref().map(ToString::to_string));
    let cpus = cpus.map(|(cgroup, value)| Evidence { source: files.effective_cpus(&cgroup), value });
    let mems = mems.map(|(cgroup, value)| Evidence { source: files.effective_mems(&cgroup), value });
    cpus.into_iter().chain(mems).collect()
}

fn below(mount: &str, cgroup: &CgroupPath, file: &str) -> String {
    let mount = mount.trim_end_matches('/');
    match cgroup.relative() {
        "" => format!("{mount}/{file}"),
        path => format!("{mount}/{path}/{file}"),
    }
}
