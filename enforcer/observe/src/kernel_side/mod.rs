//! The kernel side's part of a sample: threads from the task iterator, counts from the programs.
//!
//! Both name a cgroup by its id in the cpuset controller's hierarchy; the [`Index`](super::index::Index) maps
//! these ids to workloads.

mod counters;
mod tasks;

use std::{collections::BTreeMap, os::fd::BorrowedFd};

use enforcer_core::{
    parse::scalar,
    sample::{Sample, TaskSample},
    vma::Vma,
    workload::CgroupPath,
};
use numa_topology::{
    Topology,
    degraded::{Degraded, DegradedTally},
    id::{CpuId, NodeId},
    set::NodeSet,
};

use self::counters::KernelCounts;
use super::{index::Index, options::SamplerOptions, pressure_tap::PressureTap};
use enforcer_host::{HostRoot, cgroup::CgroupLayout, cgroup_tree::walk, lockdown};
use enforcer_kernel::bpf::{
    AttachOptions, CgroupAxis, IteratorError, TaskIterator, VmaIterator, with_causes,
};

/// Loaded programs.
pub(super) struct KernelSources {
    iterator: Result<TaskIterator, Degraded>,
    /// Lists mappings; loaded only when there is far memory.
    mappings: Option<Result<VmaIterator, String>>,
    counters: Option<KernelCounts>,
    /// Nodes that workloads should run on; other runs are misplaced.
    aims: BTreeMap<CgroupPath, NodeSet>,
}

impl KernelSources {
    /// Loads the programs by the options.
    pub(super) fn start(
        host: &HostRoot,
        layout: &CgroupLayout,
        topology: &Topology,
        options: &SamplerOptions,
    ) -> Self {
        let axis = if layout.cpuset.v2 { CgroupAxis::Unified } else { CgroupAxis::Cpuset };
        let possible = host
            .sys
            .join("devices/system/cpu/possible")
            .read_text()
            .ok()
            .and_then(|text| scalar::list(&text).ok())
            .unwrap_or_else(|| topology.online_cpus());
        let nodes = host
            .sys
            .join("devices/system/node/possible")
            .read_text()
            .ok()
            .and_then(|text| scalar::list(&text).ok())
            .unwrap_or_default();
        let attach = || {
            let cgroups = walk(&layout.cpuset, &CgroupPath::root(), true).cgroups.len();
            let usual = AttachOptions::new(topology.node_of_cpu(), axis).sized_for(cgroups);
            AttachOptions { log: options.bpf_log, run_time: options.run_time, ..usual }
        };
        Self {
            iterator: TaskIterator::open(axis, possible, &nodes).map_err(|error| not_listed(host, &error)),
            mappings: (topology.cpu_nodes().len() > 1)
                .then(|| VmaIterator::open().map_err(|error| with_causes(&error))),
            counters: options.counters.then(|| KernelCounts::attach(attach())),
            aims: BTreeMap::new(),
        }
    }

    /// Sources that are missing until something changes.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Degraded> {
        self.iterator.as_ref().err().into_iter().chain(self.counters.iter().flat_map(KernelCounts::missing))
    }

    /// Takes another assignment of CPUs to nodes.
    pub(super) fn follow(&mut self, cpu_node: &BTreeMap<CpuId, NodeId>) {
        if let Some(counters) = &mut self.counters {
            counters.follow(cpu_node);
        }
    }

    /// Counts runs outside of these nodes as misplaced from now on.
    pub(super) fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>) {
        self.aims.clone_from(aims);
    }

    /// Threads of the workloads in ascending order of tid, and their source; `None` without an iterator.
    pub(super) fn tasks(
        &self,
        host: &HostRoot,
        layout: &CgroupLayout,
        index: &Index,
        degraded: &mut DegradedTally,
    ) -> Option<(Vec<TaskSample>, &'static str)> {
        match self.iterator.as_ref().ok()?.read() {
            Ok(records) => Some(tasks::read(records, host, layout, index, degraded)),
            Err(error) => {
                degraded.push(not_listed(host, &error));
                None
            }
        }
    }

    /// The mappings of a process; an error says why there are none.
    pub(super) fn mappings(&self, pid: u32) -> Result<Vec<Vma>, String> {
        match &self.mappings {
            None => Err("not loaded".into()),
            Some(Err(reason)) => Err(reason.clone()),
            Some(Ok(iterator)) => iterator.read(pid).map_err(|error| with_causes(&error)),
        }
    }

    /// Why mappings cannot be listed; `None` if they can.
    pub(super) fn no_mappings(&self) -> Option<&str> {
        match &self.mappings {
            None => Some("not loaded"),
            Some(Err(reason)) => Some(reason),
            Some(Ok(_)) => None,
        }
    }

    /// Drains the programs' events. Returns whether there were any that wake no thread.
    pub(super) fn drain(&mut self) -> bool {
        self.counters.as_mut().is_some_and(KernelCounts::drain)
    }

    /// Readable when the event buffers fill up.
    pub(super) fn filling_fd(&self) -> Option<BorrowedFd<'_>> {
        self.counters.as_ref().and_then(|counters| counters.programs.filling_fd())
    }

    /// Pressure events for a thread that reacts at once; `None` without a source.
    pub(super) fn tap(&self) -> Option<PressureTap> {
        self.counters.as_ref().map(KernelCounts::tap)
    }

    /// Adds the counts and the events to the sample.
    pub(super) fn count(&mut self, index: &Index, sample: &mut Sample, degraded: &mut DegradedTally) {
        if let Some(counters) = &mut self.counters {
            counters.add_to(index, &self.aims, sample, degraded);
        }
    }
}

fn not_listed(host: &HostRoot, error: &IteratorError) -> Degraded {
    let reason = lockdown::explained(host, with_causes(error));
    Degraded::new(TaskIterator::SOURCE, reason, TaskIterator::EFFECT)
}
