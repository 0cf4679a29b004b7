//! Figures from two samples: rates, residency per node, remote ratios.
//!
//! **Residency** is the place of the pages; **traffic** is the accesses. They are kept apart.
//!
//! Terminology. A node is *local* to a CPU node when it is that node, or a memory-only node with that node as
//! its closest CPU node: there is no nearer CPU to run on. *Accessed memory* is anonymous memory and page
//! cache (tmpfs included), weighted by its place; kernel memory of a cgroup is left out.
//!
//! The model is a pure function of its inputs. It keeps `None` for a missing value, a division by zero, and a
//! counter that went backwards, as after programs are attached anew: a rate is never negative and never NaN.
//! A recreated cgroup at the same path is another one, with its own counters. Cost: linear in workloads,
//! nodes and tasks (a logarithmic look-up each).

mod activity;
mod cpuset;
mod isolated;
mod rates;
mod residency;
mod run_time;
mod traffic;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantNames};

pub(crate) use self::isolated::cpus as isolated_cpus;
use self::run_time::{MeasuredRunTime, RunTimeBaseline};
pub use self::{
    activity::{Activity, Rates},
    cpuset::nearest_effective,
    isolated::ThreadsOnCpu,
    residency::{
        accessed_bytes, kept_bytes, movable_bytes, own_bytes, page_cache_bytes, room_bytes, staying_bytes,
        staying_shmem_bytes,
    },
};
use crate::{
    sample::{CgroupSample, NodeBytes, Sample, TaskSample},
    workload::{CgroupPath, Origin, Workload},
};
use numa_topology::{
    Locality, Topology,
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

/// Figures of every workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Time between the two samples; `None` with only one.
    pub interval_ns: Option<u64>,
    /// By cgroup.
    pub workloads: BTreeMap<CgroupPath, WorkloadModel>,
    /// By process id, for workloads that are one process of a shared cgroup.
    pub processes: BTreeMap<u32, WorkloadModel>,
}

/// Figures of one workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadModel {
    /// CPUs that its cpuset allows; without a cpuset, those that its threads may use.
    pub cpus: Option<CpuSet>,
    /// Nodes it may allocate on.
    pub mems: Option<NodeSet>,
    /// Nodes of the CPUs it may use, after its cpuset and its threads' own affinity.
    pub cpu_nodes: NodeSet,
    /// Threads.
    pub tasks: Option<u64>,
    /// Its memory by node.
    pub bytes_by_node: Option<BTreeMap<NodeId, NodeBytes>>,
    /// Share of its run time on each node, 0 to 1, summing to 1.
    pub run_share: Option<BTreeMap<NodeId, f64>>,
    /// Share of its memory on nodes other than those of its CPUs, 0 to 1.
    pub remote_residency: Option<f64>,
    /// Estimate of its memory accesses.
    pub traffic: Option<Traffic>,
    /// Moves of its tasks to another node, per second.
    pub migrations_per_second: Option<f64>,
    /// CPU time per second of wall time, in CPUs.
    pub cpus_used: Option<f64>,
    /// Share of its run time on nodes that it should not use, 0 to 1. The last decision says which nodes it
    /// should use; a workload without a place may use all.
    pub misplaced_time: Option<f64>,
    /// Its threads by the isolated CPU that they were last seen on; empty without such threads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub on_isolated_cpus: BTreeMap<CpuId, ThreadsOnCpu>,
    /// Of these, CPU time of the busy threads in nanoseconds, by thread id: in the interval, or since they
    /// began with one sample.
    #[serde(skip)]
    pub busy_on_isolated_cpus: BTreeMap<u32, u64>,
}

/// Estimate of remote memory accesses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Remote accesses over all accesses, 0 to 1.
    pub remote_ratio: f64,
    /// Source of the estimate.
    pub source: TrafficSource,
    /// Number of observations behind it: clock ticks of 10 ms, faulted pages or hardware samples.
    pub samples: u64,
    /// Sources that are trusted more and have no figure, the most trusted first, with the reason.
    #[serde(default)]
    pub silent: Vec<Silent>,
}

impl Traffic {
    /// The figure of the most trusted source that has one.
    pub const fn new(remote_ratio: f64, source: TrafficSource, samples: u64) -> Self {
        Self { remote_ratio, source, samples, silent: Vec::new() }
    }
}

/// A source without a figure for a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Silent {
    /// The source.
    pub source: TrafficSource,
    /// Reason why it has no figure.
    pub reason: String,
}

/// Where a traffic figure comes from, least trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum TrafficSource {
    /// Run-time share times residency.
    Placement,
    /// NUMA hinting faults.
    HintFaults,
    /// Hardware counters.
    Hardware,
}

impl Model {
    /// Figures of the workloads at `now`; rates and traffic need an earlier sample as well.
    ///
    /// An interval that is not positive (the clock went back, or the same sample twice) counts as no
    /// earlier sample.
    pub fn new(machine: &Topology, workloads: &[Workload], now: &Sample, before: Option<&Sample>) -> Self {
        let interval_ns =
            before.and_then(|before| now.monotonic_ns.checked_sub(before.monotonic_ns)).filter(|ns| *ns > 0);
        let earlier = before.zip(interval_ns).map(|(sample, interval_ns)| EarlierSample {
            sample,
            interval_ns,
            baseline: RunTimeBaseline::new(machine, sample, interval_ns),
        });
        let isolated = isolated::cpus(machine, now);
        let view = ModelInput { locality: Locality::new(machine), machine, now, earlier, isolated };
        let tasks_of = TasksByOwner::new(now);

        let mut model = Self { interval_ns, ..Self::default() };
        for workload in workloads {
            if let Origin::Process { pid, .. } = workload.origin {
                let bytes = now.memory_by_process.get(&pid).cloned();
                let figures = view.workload(&workload.cgroup, None, bytes, tasks_of.process(pid));
                model.processes.insert(pid, figures);
            } else {
                let cgroup = now.cgroups.get(&workload.cgroup);
                let tasks = tasks_of.cgroup(&workload.cgroup);
                let bytes = cgroup.and_then(|cgroup| cgroup.memory_by_node.clone());
                let figures = view.workload(&workload.cgroup, cgroup, bytes, tasks);
                model.workloads.insert(workload.cgroup.clone(), figures);
            }
        }
        model
    }

    /// The figures of this workload.
    pub fn of(&self, workload: &Workload) -> Option<&WorkloadModel> {
        match workload.origin {
            Origin::Process { pid, .. } => self.processes.get(&pid),
            _ => self.workloads.get(&workload.cgroup),
        }
    }
}

impl WorkloadModel {
    /// Bytes of its accessed memory over all nodes; `None` if unknown.
    pub fn accessed_bytes(&self) -> Option<u64> {
        self.bytes_by_node.as_ref().map(residency::total)
    }

    /// The same without memory of GPUs, which needs no room anywhere else.
    pub fn ordinary_bytes(&self, machine: &Topology) -> Option<u64> {
        self.bytes_by_node.as_ref()?;
        Some(self.ordinary_bytes_outside(machine, &NodeSet::new(), accessed_bytes).1)
    }

    /// Its memory outside of these nodes, without memory of GPUs: the nodes, and their bytes as `count` sees
    /// them.
    pub fn ordinary_bytes_outside(
        &self,
        machine: &Topology,
        nodes: &NodeSet,
        count: impl Fn(&NodeBytes) -> u64,
    ) -> (NodeSet, u64) {
        let stays = nodes.union(&machine.gpu_memory_nodes());
        let bytes = self.bytes_by_node.iter().flatten().map(|(node, bytes)| (*node, count(bytes)));
        let outside = bytes.filter(|(node, bytes)| !stays.contains(*node) && *bytes > 0);
        outside.fold((NodeSet::new(), 0u64), |(mut nodes, sum), (node, bytes)| {
            nodes.insert(node);
            (nodes, sum.saturating_add(bytes))
        })
    }
}

/// Input for the figures of all workloads.
struct ModelInput<'a> {
    machine: &'a Topology,
    locality: Locality,
    now: &'a Sample,
    earlier: Option<EarlierSample<'a>>,
    isolated: CpuSet,
}

struct EarlierSample<'a> {
    sample: &'a Sample,
    /// Nanoseconds since the earlier sample, more than 0.
    interval_ns: u64,
    baseline: RunTimeBaseline,
}

impl ModelInput<'_> {
    fn workload(
        &self,
        path: &CgroupPath,
        cgroup: Option<&CgroupSample>,
        bytes_by_node: Option<BTreeMap<NodeId, NodeBytes>>,
        tasks: &[&TaskSample],
    ) -> WorkloadModel {
        let cpus = cpuset::cpus(self.now, path, tasks);
        let cpu_nodes = cpuset::cpu_nodes(self.machine, cpus.as_ref(), tasks);
        let before = self.earlier.as_ref().map(|earlier| &earlier.baseline);
        let (on_isolated_cpus, busy_on_isolated_cpus) = isolated::threads(&self.isolated, tasks, before);
        let mut figures = WorkloadModel {
            mems: cpuset::mems(self.now, path),
            tasks: cgroup.and_then(|cgroup| cgroup.tasks).or_else(|| count(tasks)),
            remote_residency: bytes_by_node
                .as_ref()
                .and_then(|bytes| residency::remote_share(&self.locality, bytes, &cpu_nodes)),
            on_isolated_cpus,
            busy_on_isolated_cpus,
            cpus,
            cpu_nodes,
            bytes_by_node,
            ..WorkloadModel::default()
        };
        let Some(EarlierSample { sample: before, interval_ns, baseline }) = &self.earlier else {
            return figures;
        };
        let interval_ns = *interval_ns;
        let counters = cgroup.zip(before.cgroups.get(path)).filter(|(now, then)| is_same(now, then));
        let run_time = MeasuredRunTime::measure(baseline, counters, tasks);

        figures.run_share = run_time.as_ref().and_then(MeasuredRunTime::shares);
        figures.cpus_used = run_time.as_ref().and_then(|run| rates::ratio(run.total_ns(), interval_ns));
        figures.misplaced_time =
            run_time.as_ref().and_then(|run| rates::ratio(run.misplaced_ns?, run.total_ns()));
        figures.migrations_per_second =
            counters.and_then(|(now, then)| rates::migrations_per_second(now, then, interval_ns));
        let seen = traffic::TrafficInput {
            now: self.now,
            counters,
            locality: &self.locality,
            run_time: run_time.as_ref(),
            bytes: figures.bytes_by_node.as_ref(),
        };
        figures.traffic = seen.traffic();
        figures
    }
}

/// Do both samples show the same cgroup? Counters belong to a cgroup, not to its path: a recreated or renamed
/// cgroup has counted nothing before. Without both ids it is assumed to be the same.
fn is_same(now: &CgroupSample, then: &CgroupSample) -> bool {
    now.id.zip(then.id).is_none_or(|(now, then)| now == then)
}

/// Number of threads; `None` if none were seen.
fn count(tasks: &[&TaskSample]) -> Option<u64> {
    u64::try_from(tasks.len()).ok().filter(|count| *count > 0)
}

/// Threads of a sample by cgroup and by process.
struct TasksByOwner<'a> {
    cgroups: BTreeMap<&'a CgroupPath, Vec<&'a TaskSample>>,
    processes: BTreeMap<u32, Vec<&'a TaskSample>>,
}

impl<'a> TasksByOwner<'a> {
    fn new(sample: &'a Sample) -> Self {
        let mut owners = Self { cgroups: BTreeMap::new(), processes: BTreeMap::new() };
        for task in &sample.tasks {
            if let Some(cgroup) = &task.cgroup {
                owners.cgroups.entry(cgroup).or_default().push(task);
            }
            owners.processes.entry(task.pid).or_default().push(task);
        }
        owners
    }

    fn cgroup(&self, path: &CgroupPath) -> &[&'a TaskSample] {
        self.cgroups.get(path).map_or(&[], Vec::as_slice)
    }

    fn process(&self, pid: u32) -> &[&'a TaskSample] {
        self.processes.get(&pid).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod identity_tests;
#[cfg(test)]
mod memory_tests;
#[cfg(test)]
mod tests;
