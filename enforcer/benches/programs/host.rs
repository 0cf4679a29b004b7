//! Where the load runs: two CPUs, each declared a node of its own, and the cgroup of this process.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _, path::Path};

use anyhow::{Context as _, Result};
use enforcer_kernel::bpf::{AttachOptions, CgroupAxis, Programs, WatchedCgroup};
use numa_topology::{
    degraded::Degraded,
    id::{CpuId, NodeId},
    set::CpuSet,
};

pub(super) struct Host {
    cpus: CpuSet,
    pub(super) ends: [CpuId; 2],
    axis: CgroupAxis,
    cgroup: u64,
}

impl Host {
    /// `None` with fewer than two CPUs.
    pub(super) fn read() -> Result<Option<Self>> {
        let cpus: CpuSet = fs::read_to_string("/sys/devices/system/cpu/online")?.trim().parse()?;
        let (axis, cgroup) = own_cgroup()?;
        let first_two: Vec<CpuId> = cpus.iter().take(2).collect();
        Ok(<[CpuId; 2]>::try_from(first_two).ok().map(|ends| Self { cpus, ends, axis, cgroup }))
    }

    /// From a task to what stands for its cgroup.
    pub(super) fn pointers(&self) -> &'static str {
        match self.axis {
            CgroupAxis::Unified => "cgroups->dfl_cgrp->kn",
            // The cpuset controller is the first one.
            CgroupAxis::Cpuset => "cgroups->subsys[0]->cgroup->kn",
        }
    }

    pub(super) fn options(&self) -> AttachOptions {
        AttachOptions::new(self.cpus.iter().map(|cpu| (cpu, NodeId(cpu.0))).collect(), self.axis)
    }

    /// Attaches, and watches this process, which may be anywhere or nowhere.
    pub(super) fn attach(
        &self,
        options: &AttachOptions,
        anywhere: bool,
    ) -> Result<(Programs, Vec<Degraded>)> {
        let (mut programs, degraded) = Programs::attach(options);
        let allowed = (!anywhere).then(|| [NodeId(u32::MAX)].into_iter().collect());
        let watch = WatchedCgroup { allowed, ..WatchedCgroup::alone(self.cgroup) };
        programs.watch(&BTreeMap::from([(self.cgroup, watch)]))?;
        Ok((programs, degraded))
    }
}

/// The hierarchy that has cgroups of the cpuset controller, and this process's id in it.
fn own_cgroup() -> Result<(CgroupAxis, u64)> {
    let v1 = Path::new("/sys/fs/cgroup/cpuset");
    let (axis, mount, start) = if v1.join("cpuset.cpus").exists() {
        (CgroupAxis::Cpuset, v1, ":cpuset:")
    } else {
        (CgroupAxis::Unified, Path::new("/sys/fs/cgroup"), "0::")
    };
    let text = fs::read_to_string("/proc/self/cgroup").context("read /proc/self/cgroup")?;
    let own = text.lines().find_map(|line| line.split_once(start)).context("no such hierarchy")?.1;
    let path = mount.join(own.trim_start_matches('/'));
    let metadata = fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?;
    Ok((axis, metadata.ino()))
}
