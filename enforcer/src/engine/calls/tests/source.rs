//! A host of containers with cpusets that are files.

use std::{cell::RefCell, fs, rc::Rc};

use enforcer_core::{
    audit::AuditedHost,
    sample::{CgroupSample, NodeSample, Sample},
};
use numa_topology::{Topology, degraded::Degraded, set::NodeSet};

use super::*;
use crate::engine::{HostSource, SourceError};

/// Shows the cpuset files of existing containers; some die right after the look.
pub(super) struct Containers {
    pub(super) host: Rc<Fixture>,
    pub(super) machine: Topology,
    pub(super) there: Rc<RefCell<BTreeMap<&'static str, &'static str>>>,
    pub(super) dying: Rc<RefCell<Vec<&'static str>>>,
}

pub(super) fn cgroup_of(name: &str, class: &str) -> String {
    format!("/kubepods{class}/pod{name}/id-{name}")
}

impl HostSource for Containers {
    fn host(&self) -> AuditedHost {
        AuditedHost::default()
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        Ok((self.machine.clone(), Vec::new()))
    }

    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError> {
        let there = self.there.borrow();
        let workload = |(name, class): (&&str, &&str)| {
            let cgroup = CgroupPath::new(&cgroup_of(name, class));
            Workload { cgroup, ..workload_of(name) }
        };
        Ok((there.iter().map(workload).collect(), Vec::new()))
    }

    fn aim(&mut self, _aims: &BTreeMap<CgroupPath, NodeSet>) {}

    fn sample(&mut self, workloads: &[Workload], now_ns: u64) -> Sample {
        let shown = |one: &Workload| {
            let list = |file| self.host.read(one.cgroup.as_str(), file).trim().to_owned();
            let sample = CgroupSample {
                cpus_effective: list("cpuset.cpus").parse().ok(),
                mems_effective: list("cpuset.mems").parse().ok(),
                memory_by_node: Some(BTreeMap::new()),
                ..CgroupSample::default()
            };
            (one.cgroup.clone(), sample)
        };
        let cgroups = workloads.iter().map(shown).collect();
        for name in self.dying.borrow_mut().drain(..) {
            let class = self.there.borrow_mut().remove(name).unwrap();
            fs::remove_dir_all(self.host.path(&cgroup_of(name, class))).unwrap();
        }
        let half = NodeSample {
            mem_total_bytes: Some(16 << 30),
            mem_free_bytes: Some(8 << 30),
            ..NodeSample::default()
        };
        let nodes = self.machine.nodes.iter().map(|node| (node.id, half.clone())).collect();
        Sample { monotonic_ns: now_ns, cgroups, nodes, ..Sample::default() }
    }
}
