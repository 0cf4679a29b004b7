//! Where a workload ran between two samples.
//!
//! The cpu-clock program counts run time per cgroup and node, threads that ended included. Without
//! it, or when it caught nothing because the workload ran too little, each living thread's CPU time
//! is attributed to the node it was last seen on: exact in amount, a guess in place.

use std::collections::BTreeMap;

use super::rates::{advance, ratio};
use crate::{
    id::{CpuId, NodeId},
    sample::{CgroupSample, Sample, TaskSample},
    topology::Topology,
};

/// A clock tick in nanoseconds: `USER_HZ` is 100 on every architecture that Linux still builds for
/// servers, and the program samples at about the same rate.
const TICK_NS: u64 = 10_000_000;

/// What run time is measured against: made once for all workloads.
pub(super) struct Baseline {
    nodes: BTreeMap<CpuId, NodeId>,
    /// CPU time of each thread, by process and thread id, at the earlier sample.
    cpu_time: BTreeMap<(u32, u32), u64>,
    interval_ns: u64,
}

impl Baseline {
    pub(super) fn new(machine: &Topology, before: &Sample, interval_ns: u64) -> Self {
        let times = before.tasks.iter().filter_map(|task| Some(((task.pid, task.tid), task.cpu_time_ns?)));
        Self { nodes: machine.node_of_cpu(), cpu_time: times.collect(), interval_ns }
    }
}

/// Time on CPUs, by node.
pub(super) struct RunTime {
    /// Nanoseconds on each node.
    pub(super) by_node: BTreeMap<NodeId, u64>,
    /// Clock ticks behind it.
    pub(super) samples: u64,
}

impl RunTime {
    /// None where neither source covers the interval.
    pub(super) fn measure(
        baseline: &Baseline,
        counters: Option<(&CgroupSample, &CgroupSample)>,
        tasks: &[&TaskSample],
    ) -> Option<Self> {
        let clock = counters.and_then(|(now, then)| from_clock(now, then));
        match clock {
            Some(run_time) if run_time.total_ns() > 0 => Some(run_time),
            clock => from_tasks(baseline, tasks).or(clock),
        }
    }

    pub(super) fn total_ns(&self) -> u64 {
        self.by_node.values().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Share of each node it ran on; none when it did not run.
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

fn from_clock(now: &CgroupSample, before: &CgroupSample) -> Option<RunTime> {
    let by_node = advance(now.run_ns.as_ref()?, before.run_ns.as_ref()?)?;
    // More than u64 holds are centuries: the counters are nonsense.
    let total = by_node.values().try_fold(0u64, |sum, ns| sum.checked_add(*ns))?;
    let ticks = now.run_ticks.zip(before.run_ticks).and_then(|(now, before)| now.checked_sub(before));
    Some(RunTime { by_node, samples: ticks.unwrap_or(total / TICK_NS) })
}

fn from_tasks(baseline: &Baseline, tasks: &[&TaskSample]) -> Option<RunTime> {
    if baseline.cpu_time.is_empty() {
        return None;
    }
    let mut by_node = BTreeMap::new();
    for task in tasks {
        let (Some(cpu), Some(time)) = (task.cpu, task.cpu_time_ns) else { continue };
        let Some(node) = baseline.nodes.get(&cpu) else { continue };
        // A thread that is new, or reuses the id of one that ended, counts from 0. No thread can
        // run for longer than the interval.
        let then = baseline.cpu_time.get(&(task.pid, task.tid)).copied().filter(|then| *then <= time);
        let ran: &mut u64 = by_node.entry(*node).or_default();
        *ran = ran.saturating_add((time - then.unwrap_or(0)).min(baseline.interval_ns));
    }
    let run_time = RunTime { by_node, samples: 0 };
    (!run_time.by_node.is_empty()).then(|| RunTime { samples: run_time.total_ns() / TICK_NS, ..run_time })
}
