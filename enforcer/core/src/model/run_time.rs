//! Run time of a workload by node, between two samples.
//!
//! The kernel side counts run time per workload and node, ended threads included. Without it, or if the
//! workload ran too little to be counted, the CPU time of each living thread is attributed to its last node:
//! an estimate of the place, and without the time of ended threads. A thread that changed cgroups counts
//! once, for its present one.

use std::collections::BTreeMap;

use super::rates::{advance, ratio};
use crate::sample::{self, CgroupSample, Sample, TaskSample};
use numa_topology::{
    Topology,
    id::{CpuId, NodeId},
};

/// A clock tick in nanoseconds: `USER_HZ` is 100 on every architecture that Linux still builds for
/// servers, and the program samples at about the same rate.
const TICK_NS: u64 = 10_000_000;

/// Baseline of run time: built once for all workloads.
pub(super) struct RunTimeBaseline {
    nodes: BTreeMap<CpuId, NodeId>,
    /// CPU time of each thread, by process and thread id, at the earlier sample.
    cpu_time: BTreeMap<(u32, u32), u64>,
    pub(super) interval_ns: u64,
}

impl RunTimeBaseline {
    pub(super) fn new(machine: &Topology, before: &Sample, interval_ns: u64) -> Self {
        let times = before.tasks.iter().filter_map(|task| Some(((task.pid, task.tid), task.cpu_time_ns?)));
        Self { nodes: machine.node_of_cpu(), cpu_time: times.collect(), interval_ns }
    }

    /// Run time of a thread since the earlier sample, at most the interval.
    ///
    /// A new thread, or one with the id of an ended thread, counts from 0. `None` for a thread that is older
    /// than the interval but was not in the earlier sample: it came from a cgroup outside of the sample, with
    /// time that is not new.
    pub(super) fn ran(&self, task: &TaskSample, time: u64) -> Option<u64> {
        match self.cpu_time.get(&(task.pid, task.tid)).filter(|then| **then <= time) {
            Some(then) => Some((time - then).min(self.interval_ns)),
            None => Some(time).filter(|time| *time <= self.interval_ns),
        }
    }
}

/// Time on CPUs, by node.
pub(super) struct MeasuredRunTime {
    /// Nanoseconds on each node.
    pub(super) by_node: BTreeMap<NodeId, u64>,
    /// Part of it on nodes that the workload should not use; `None` if no program counts it.
    pub(super) misplaced_ns: Option<u64>,
    /// Clock ticks or context switches behind it.
    pub(super) samples: u64,
}

impl MeasuredRunTime {
    /// `None` if no source covers the interval.
    pub(super) fn measure(
        baseline: &RunTimeBaseline,
        counters: Option<(&CgroupSample, &CgroupSample)>,
        tasks: &[&TaskSample],
    ) -> Option<Self> {
        let counted = counters.and_then(|(now, then)| from_programs(now, then));
        match counted {
            Some(run_time) if run_time.total_ns() > 0 => Some(run_time),
            counted => from_tasks(baseline, tasks).or(counted),
        }
    }

    pub(super) fn total_ns(&self) -> u64 {
        self.by_node.values().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Share of each node it ran on; `None` if it did not run.
    pub(super) fn shares(&self) -> Option<BTreeMap<NodeId, f64>> {
        let total = self.total_ns();
        self.by_node
            .iter()
            .filter(|(_, ns)| **ns > 0)
            .map(|(node, ns)| Some((*node, ratio(*ns, total)?)))
            .collect::<Option<BTreeMap<_, _>>>()
            .filter(|shares| !shares.is_empty())
    }
}

fn from_programs(now: &CgroupSample, before: &CgroupSample) -> Option<MeasuredRunTime> {
    let each = |cgroup: &CgroupSample, field: fn(&sample::RunTime) -> u64| -> Option<BTreeMap<NodeId, u64>> {
        Some(cgroup.run_time.as_ref()?.iter().map(|(node, time)| (*node, field(time))).collect())
    };
    let advanced = |field: fn(&sample::RunTime) -> u64| advance(&each(now, field)?, &each(before, field)?);
    // More than a u64 holds are centuries: such counters are invalid.
    let sum =
        |by_node: &BTreeMap<NodeId, u64>| by_node.values().try_fold(0u64, |sum, one| sum.checked_add(*one));
    let by_node = advanced(|time| time.ns)?;
    sum(&by_node)?;
    let misplaced_ns = sum(&advanced(|time| time.misplaced_ns)?)?;
    let samples = sum(&advanced(|time| time.samples)?)?;
    Some(MeasuredRunTime { by_node, misplaced_ns: Some(misplaced_ns), samples })
}

fn from_tasks(baseline: &RunTimeBaseline, tasks: &[&TaskSample]) -> Option<MeasuredRunTime> {
    if baseline.cpu_time.is_empty() {
        return None;
    }
    let mut by_node = BTreeMap::new();
    for task in tasks {
        let (Some(cpu), Some(time)) = (task.cpu, task.cpu_time_ns) else { continue };
        let Some(node) = baseline.nodes.get(&cpu) else { continue };
        let Some(new) = baseline.ran(task, time) else { continue };
        let ran: &mut u64 = by_node.entry(*node).or_default();
        *ran = ran.saturating_add(new);
    }
    let run_time = MeasuredRunTime { by_node, misplaced_ns: None, samples: 0 };
    (!run_time.by_node.is_empty())
        .then(|| MeasuredRunTime { samples: run_time.total_ns() / TICK_NS, ..run_time })
}
