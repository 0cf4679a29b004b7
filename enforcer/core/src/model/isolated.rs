//! Threads on isolated CPUs: how many run on each.
//!
//! Problem: the kernel balances no load between isolated CPUs, so threads pile up on one while others idle.
//! The number of a workload's threads says little: most threads sleep. Idea: a thread *is busy* when it used
//! at least a hundredth of the time between two samples. A single sample has only the CPU times since the
//! threads began: a thread with at least a second counts as busy, which is a hint.
//!
//! Isolated CPUs are those of `isolcpus=` and of a partition of the kind `isolated`.
//!
//! Invariant: a thread on an unknown CPU is not counted. Cost: a look at each thread, if any CPU is isolated.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_time::RunTimeBaseline;
use crate::{
    partition::Partition,
    sample::{Sample, TaskSample},
};
use numa_topology::{Topology, id::CpuId, set::CpuSet};

/// CPU time since its begin from which a thread counts as busy in a single sample, in nanoseconds.
const WORKED_NS: u64 = 1_000_000_000;

/// Threads of one workload on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThreadsOnCpu {
    /// Threads last seen on this CPU.
    pub threads: u64,
    /// Of these, threads that used at least 1 % of the time between two samples; of a single sample, threads
    /// with at least a second of CPU time.
    pub busy: u64,
}

/// CPUs among which the kernel does not balance load.
pub(crate) fn cpus(machine: &Topology, now: &Sample) -> CpuSet {
    let partitions = now.cgroups.values().filter(|cgroup| {
        cgroup.partition.as_ref().is_some_and(|partition| partition.is(Partition::Isolated))
    });
    let mut cpus = machine.isolated_cpus.clone();
    partitions.filter_map(|cgroup| cgroup.cpus_effective.as_ref()).for_each(|own| cpus.extend(own));
    cpus
}

/// Threads on isolated CPUs, counted by CPU, and the CPU time of each busy thread.
pub(super) type OnIsolated = (BTreeMap<CpuId, ThreadsOnCpu>, BTreeMap<u32, u64>);

/// These threads by isolated CPU.
pub(super) fn threads(
    isolated: &CpuSet,
    tasks: &[&TaskSample],
    before: Option<&RunTimeBaseline>,
) -> OnIsolated {
    let (mut found, mut busy) = (BTreeMap::<CpuId, ThreadsOnCpu>::new(), BTreeMap::new());
    if isolated.is_empty() {
        return (found, busy);
    }
    let worked = |task: &TaskSample| {
        let time = task.cpu_time_ns?;
        match before {
            Some(before) => before.ran(task, time).filter(|ran| *ran >= before.interval_ns / 100),
            None => Some(time).filter(|time| *time >= WORKED_NS),
        }
    };
    for task in tasks {
        let Some(cpu) = task.cpu.filter(|cpu| isolated.contains(*cpu)) else { continue };
        let on_cpu = found.entry(cpu).or_default();
        on_cpu.threads = on_cpu.threads.saturating_add(1);
        if let Some(time) = worked(task) {
            on_cpu.busy = on_cpu.busy.saturating_add(1);
            busy.insert(task.tid, time);
        }
    }
    (found, busy)
}
