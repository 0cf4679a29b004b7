//! Raw kernel values of one moment; nothing is derived.
//!
//! Every field may be missing, and a missing value is `None`, never 0. Counters are cumulative, as the kernel
//! keeps them; [`crate::model`] computes rates. A sample can be written to a file and read back without a
//! difference for later stages.

mod balancer;
mod change;
mod count;
mod event;
mod pages;
mod pressure;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    balancer::{BalancerSteps, ScanSkips},
    change::{
        Change, ChangeKind, Changes, CpusetFile, CpusetWriteCounts, Policies, PolicyCounts, PolicyScope,
    },
    count::Count,
    event::{EventCounts, Events, TaskEvent, TaskEventKind},
    pages::{OtherPageMoves, PageMoveReason, PageMoves, PageMovesByReason},
    pressure::{OomConstraint, PressureDelay, PressureEvent, PressureEvents, PressureKind, PressureTotal},
};
use crate::{
    memory_policy::MemoryPolicy, node_room::NodeRoom, page_size::PageSize, partition::PartitionState,
    workload::CgroupPath,
};
use numa_topology::{
    degraded::Degraded,
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

/// Version of the serde form of [`Sample`].
pub const SAMPLE_SCHEMA_VERSION: u32 = 2;

/// One moment of one machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// [`SAMPLE_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Monotonic time of the sample in nanoseconds; only differences mean anything.
    pub monotonic_ns: u64,
    /// What the kernel counts memory in.
    #[serde(default, skip_serializing_if = "PageSize::is_smallest")]
    pub page: PageSize,
    /// Host-wide settings that change the meaning of other values.
    pub settings: HostSettings,
    /// True if the cpuset controller is in a hierarchy of cgroup v1, with other file names.
    #[serde(default)]
    pub cpuset_v1: bool,
    /// Mount points of the cgroup hierarchies, to name files in messages.
    #[serde(default)]
    pub cgroup_mounts: CgroupMounts,
    /// By NUMA node.
    pub nodes: BTreeMap<NodeId, NodeSample>,
    /// By cgroup.
    pub cgroups: BTreeMap<CgroupPath, CgroupSample>,
    /// Threads, in ascending order of tid.
    pub tasks: Vec<TaskSample>,
    /// Memory by node of processes that are workloads of their own, from `numa_maps`; empty unless requested.
    #[serde(default)]
    pub memory_by_process: BTreeMap<u32, BTreeMap<NodeId, NodeBytes>>,
    /// Memory policies of processes with memory far from their CPUs, and the amount under each policy; memory
    /// under no policy is left out. Processes that were not read are absent.
    #[serde(default)]
    pub policies_by_process: BTreeMap<u32, Vec<PolicyExtent>>,
    /// Single events of the kernel side; `None` if it sends none.
    #[serde(default)]
    pub events: Option<Events>,
    /// State of the kernel side itself; `None` if nothing is attached.
    #[serde(default)]
    pub kernel_side: Option<KernelSide>,
    /// Memory shortages that the kernel side reported; `None` if it reports none.
    #[serde(default)]
    pub pressure_events: Option<PressureEvents>,
    /// Pages that no workload moved; `None` if they are not counted.
    #[serde(default)]
    pub other_page_moves: Option<OtherPageMoves>,
    /// Cpusets that other programs wrote and memory policies that were set; `None` if they are not reported.
    #[serde(default)]
    pub changes: Option<Changes>,
    /// Bytes of huge pages that are reserved and not yet in use, by page size in bytes (`resv_hugepages`):
    /// their nodes are not decided.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages_reserved: BTreeMap<u64, u64>,
    /// Page sizes in bytes of which `resv_hugepages` could not be read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hugepages_reserved_unknown: BTreeSet<u64>,
    /// Source of each kind of value, for display: `tasks: bpf iterator`.
    pub sources: BTreeMap<String, String>,
    /// Values that could not be read.
    pub degraded: Vec<Degraded>,
}

impl Sample {
    /// Does a write of `cpuset.mems` move pages? On v1 it does if the cgroup is asked to; if unknown, it is
    /// assumed.
    pub fn moves_pages_by_cpuset(&self) -> bool {
        self.cpuset_v1 || self.settings.cpuset_moves_pages != Some(false)
    }

    /// Kernel id of a cgroup; absent if it was not seen.
    pub fn cgroup_id(&self, cgroup: &CgroupPath) -> Option<u64> {
        self.cgroups.get(cgroup)?.id
    }
}

/// Losses and capacity of the kernel side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelSide {
    /// Events in no counter, by reason (`map-full`); cumulative since the programs were attached.
    pub lost: BTreeMap<String, u64>,
    /// Watched cgroups, including those that inherited it.
    pub cgroups_watched: u64,
    /// Limit of watched cgroups.
    pub cgroups_room: u64,
    /// Workloads with a row in the counters.
    #[serde(default)]
    pub workloads_watched: u64,
    /// Limit of workloads.
    #[serde(default)]
    pub workloads_room: u64,
    /// Cost of each program, by name.
    #[serde(default)]
    pub programs: BTreeMap<String, ProgramCost>,
    /// Reason why the run time of the programs is unknown.
    #[serde(default)]
    pub run_time_silent: Option<String>,
}

/// Cost of a program of the kernel side, since it was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgramCost {
    /// Number of runs; `None` if the kernel does not count them.
    pub runs: Option<u64>,
    /// Total run time in nanoseconds; `None` if the kernel does not measure it.
    pub run_ns: Option<u64>,
    /// Instructions that the verifier processed; `None` before Linux 5.16.
    pub verified_instructions: Option<u64>,
    /// Runs that the kernel skipped because the program was running on that CPU already; `None` before Linux
    /// 5.12.
    pub recursion_misses: Option<u64>,
}

/// Mount points of the cgroup hierarchies, as the machine names them: those of a captured machine are its
/// own, not those of the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupMounts {
    /// Hierarchy with the cpuset controller.
    pub cpuset: String,
    /// Hierarchy with the memory controller.
    pub memory: String,
}

impl Default for CgroupMounts {
    /// The unified hierarchy at its usual place.
    fn default() -> Self {
        Self { cpuset: "/sys/fs/cgroup".into(), memory: "/sys/fs/cgroup".into() }
    }
}

/// Host-wide settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostSettings {
    /// `/proc/sys/kernel/numa_balancing`: 0 off, bit 0 balancing, bit 1 tiering.
    pub numa_balancing: Option<u32>,
    /// Selected word of `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub transparent_hugepage: Option<String>,
    /// `/proc/sys/vm/zone_reclaim_mode`.
    pub zone_reclaim_mode: Option<u32>,
    /// `/sys/kernel/mm/numa/demotion_enabled`.
    pub demotion_enabled: Option<bool>,
    /// Does a write of `cpuset.mems` move pages on cgroup v2 (since 5.15)? `None` if the kernel's release is
    /// unknown.
    #[serde(default)]
    pub cpuset_moves_pages: Option<bool>,
}

/// Bit of `kernel.numa_balancing`: hinting faults between ordinary nodes.
const BALANCING_NORMAL: u32 = 1;
/// Bit of `kernel.numa_balancing`: promotion from slower memory (tiering).
const BALANCING_TIERING: u32 = 2;

impl HostSettings {
    /// May the kernel take NUMA hinting faults? `None` if the setting is unknown.
    pub fn takes_hinting_faults(&self) -> Option<bool> {
        self.numa_balancing.map(|mode| mode & BALANCING_NORMAL != 0)
    }

    /// Does the kernel promote hot pages from slower memory? `None` if the setting is unknown.
    pub fn promotes(&self) -> Option<bool> {
        self.numa_balancing.map(|mode| mode & BALANCING_TIERING != 0)
    }

    /// The degraded entry if hinting faults are off: silence is not "all accesses are local".
    pub fn silent_faults(&self) -> Option<Degraded> {
        const FILE: &str = "/proc/sys/kernel/numa_balancing";
        let reason = match (self.takes_hinting_faults(), self.numa_balancing) {
            (Some(true), _) => return None,
            (_, Some(mode)) => format!("{FILE} is {mode}, without the bit {BALANCING_NORMAL}"),
            (_, None) => format!("{FILE} could not be read: the kernel may be built without NUMA balancing"),
        };
        let effect = "hinting faults are silent: traffic is estimated from placement";
        Some(Degraded::new("numa-balancing", reason, effect))
    }
}

/// Counters of one NUMA node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSample {
    /// `MemTotal` in bytes.
    pub mem_total_bytes: Option<u64>,
    /// `MemFree` in bytes.
    pub mem_free_bytes: Option<u64>,
    /// `FilePages` in bytes, tmpfs included.
    pub file_bytes: Option<u64>,
    /// `AnonPages` in bytes.
    pub anon_bytes: Option<u64>,
    /// `Active(file)` and `Inactive(file)` in bytes: page cache that reclaim scans, without tmpfs.
    #[serde(default)]
    pub lru_file_bytes: Option<u64>,
    /// `SReclaimable` in bytes.
    #[serde(default)]
    pub slab_reclaimable_bytes: Option<u64>,
    /// Low watermarks of the node's zones in bytes, from `/proc/zoneinfo`.
    #[serde(default)]
    pub low_watermark_bytes: Option<u64>,
    /// Bytes of used hugetlbfs pages, by page size in bytes: `nr_hugepages` less `free_hugepages`. Sizes
    /// without a used page on the whole host are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages_used: BTreeMap<u64, u64>,
    /// Page sizes in bytes of which the used pages could not be read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub hugepages_unknown: BTreeSet<u64>,
    /// `numastat` and `vmstat` of the node, with the kernel's names.
    pub counters: BTreeMap<String, u64>,
}

impl NodeSample {
    /// The node's room; `None` if free memory or page cache is unknown. Unknown watermarks and slabs are left
    /// out.
    pub fn room(&self) -> Option<NodeRoom> {
        Some(NodeRoom {
            free: self.mem_free_bytes?,
            low: self.low_watermark_bytes.unwrap_or(0),
            managed: self.mem_total_bytes.unwrap_or(0),
            file: self.lru_file_bytes?,
            slab: self.slab_reclaimable_bytes.unwrap_or(0),
        })
    }

    /// Available bytes; see [`NodeRoom::available`].
    pub fn available_bytes(&self) -> Option<u64> {
        Some(self.room()?.available())
    }
}

/// State and counters of one cgroup.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupSample {
    /// Kernel id; a recreated cgroup at the same path has another one.
    #[serde(default)]
    pub id: Option<u64>,
    /// `cpuset.cpus` as configured; empty means inherited.
    pub cpus: Option<CpuSet>,
    /// Cgroup above that the effective CPUs and memory nodes were read from, if the cgroup has no such files
    /// of its own; `None` if they are its own.
    #[serde(default)]
    pub effective_from: Option<CgroupPath>,
    /// True if an effective file exists and is unusable: its value is not that of the cgroup above.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub effective_garbled: bool,
    /// `cpuset.cpus.effective` (v2) or `cpuset.effective_cpus` (v1), of [`Self::effective_from`] if set.
    pub cpus_effective: Option<CpuSet>,
    /// `cpuset.cpus.exclusive`: CPUs that partitions below may have. Read only for wanted or begun
    /// partitions.
    #[serde(default)]
    pub cpus_exclusive: Option<CpuSet>,
    /// `cpuset.cpus.partition`, read under the same condition.
    #[serde(default)]
    pub partition: Option<PartitionState>,
    /// `cpuset.mems` as configured; empty means inherited.
    pub mems: Option<NodeSet>,
    /// `cpuset.mems.effective` (v2) or `cpuset.effective_mems` (v1).
    pub mems_effective: Option<NodeSet>,
    /// `memory.current` (v2) or `memory.usage_in_bytes` (v1).
    pub memory_current_bytes: Option<u64>,
    /// `memory.numa_stat`: its memory by node.
    pub memory_by_node: Option<BTreeMap<NodeId, NodeBytes>>,
    /// Bytes of huge pages per node by file (`hugetlb.2MB.numa_stat`); part of `memory_by_node`.
    #[serde(default)]
    pub hugetlb_by_file: BTreeMap<String, BTreeMap<NodeId, u64>>,
    /// Bytes of huge pages that it has reserved and not yet used, by the same file name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugetlb_reserved: BTreeMap<String, u64>,
    /// `memory.events`, with the kernel's names.
    pub memory_events: Option<BTreeMap<String, u64>>,
    /// `memory.pressure`.
    pub memory_pressure: Option<Pressure>,
    /// Threads counted in it by the task source.
    pub tasks: Option<u64>,
    /// Run time on CPUs of each node, from the cpu-clock or the context-switch program; cumulative since the
    /// cgroup is watched.
    pub run_time: Option<BTreeMap<NodeId, RunTime>>,
    /// Tasks put on a CPU: moved to another node, or started on any; cumulative like `run_time`.
    pub placements: Option<Vec<Placements>>,
    /// NUMA hinting faults on CPUs of each node; cumulative like `run_time`.
    pub hint_faults: Option<BTreeMap<NodeId, HintFaults>>,
    /// Accesses to DRAM from CPUs of each node, from hardware counters; cumulative like `run_time`.
    #[serde(default)]
    pub hardware: Option<BTreeMap<NodeId, HardwareAccesses>>,
    /// Pages that its threads moved, by reason; cumulative like `run_time`.
    #[serde(default)]
    pub page_moves: Option<PageMovesByReason>,
    /// Actions of the kernel's balancer on its tasks; cumulative like `run_time`.
    #[serde(default)]
    pub balancer: Option<BalancerSteps>,
    /// Scans that the kernel's balancer skipped; cumulative like `run_time`.
    #[serde(default)]
    pub scan_skips: Option<ScanSkips>,
    /// Writes of other programs to its cpuset; cumulative like `run_time`.
    #[serde(default)]
    pub cpuset_writes: Option<CpusetWriteCounts>,
    /// Memory policies that its threads set; cumulative like `run_time`.
    #[serde(default)]
    pub policies: Option<Policies>,
}

/// Memory of a cgroup on one node, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeBytes {
    /// Anonymous memory, huge pages included.
    pub anon: u64,
    /// Page cache, tmpfs included.
    pub file: u64,
    /// tmpfs and shared memory, if reported apart (part of `file`).
    pub shmem: Option<u64>,
    /// Mapped page cache, mapped shared memory included (part of `file`); `None` if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mapped: Option<u64>,
    /// Everything else: slab, page tables, stacks.
    pub kernel: Option<u64>,
}

/// Part of a process's address space under one memory policy. Not all of it need be in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExtent {
    /// The policy.
    pub policy: MemoryPolicy,
    /// Number of mappings under it.
    pub mappings: u64,
    /// Their total size in bytes.
    pub bytes: u64,
    /// Bytes of mappings that other processes may share.
    pub shared_bytes: u64,
    /// Bytes of mappings of huge pages (hugetlbfs).
    pub huge_bytes: u64,
}

/// One PSI file (Documentation/accounting/psi.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pressure {
    /// Some tasks stalled.
    pub some: PressureLine,
    /// All tasks stalled; not every file has it.
    pub full: Option<PressureLine>,
}

/// One line of a PSI file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PressureLine {
    /// Percent of the last 10 s.
    pub avg10: f64,
    /// Percent of the last 60 s.
    pub avg60: f64,
    /// Percent of the last 300 s.
    pub avg300: f64,
    /// Microseconds in total.
    pub total_us: u64,
}

/// Time on the CPUs of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunTime {
    /// Nanoseconds.
    pub ns: u64,
    /// Part of it on nodes that the workload should not use.
    #[serde(default)]
    pub misplaced_ns: u64,
    /// Observations behind it: clock ticks or context switches.
    pub samples: u64,
}

/// Tasks that moved between CPUs of two nodes, or started on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placements {
    /// Source node; the parent's node for a new task.
    pub src_numa: NodeId,
    /// Target node.
    pub dst_numa: NodeId,
    /// Tasks that moved.
    pub migrated: u64,
    /// Tasks that started.
    pub started: u64,
    /// Of both, tasks that came to nodes which the workload should not use.
    pub misplaced: u64,
}

impl Placements {
    /// Tasks that moved or started.
    pub fn count(self) -> u64 {
        self.migrated.saturating_add(self.started)
    }
}

/// NUMA hinting faults in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HintFaults {
    /// Pages already on the faulting CPU's node (`TNF_FAULT_LOCAL`, 0x08).
    pub local: u64,
    /// Pages on another node.
    pub remote: u64,
    /// Pages moved by the fault (`TNF_MIGRATED`, 0x01).
    pub migrated: u64,
    /// Pages that could not be moved (`TNF_MIGRATE_FAIL`, 0x10).
    pub migrate_failed: u64,
}

/// Accesses to DRAM by the CPU's counters: each overflow stands for a whole period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareAccesses {
    /// Accesses to memory of the CPU's own node.
    pub local: u64,
    /// Accesses to memory of other nodes.
    pub remote: u64,
    /// Overflows behind both.
    pub samples: u64,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSample {
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub pid: u32,
    /// `comm`.
    pub command: String,
    /// Its cgroup, if known.
    pub cgroup: Option<CgroupPath>,
    /// CPU it last ran on.
    pub cpu: Option<CpuId>,
    /// CPUs it may run on.
    pub cpus_allowed: Option<CpuSet>,
    /// User and system time in nanoseconds.
    pub cpu_time_ns: Option<u64>,
    /// Node the kernel's balancer prefers for it.
    pub preferred_node: Option<NodeId>,
    /// Pages that its NUMA hinting faults found on each node, as the kernel's balancer keeps them: halved
    /// with each scan, so recent ones count most. Nodes without any are left out.
    #[serde(default)]
    pub faults_by_node: Option<BTreeMap<NodeId, u64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_silent_unless_the_kernel_is_known_to_take_them() {
        for (mode, said, promotes) in [
            (Some(0), Some("is 0"), Some(false)),
            (Some(1), None, Some(false)),
            (Some(2), Some("is 2"), Some(true)),
            (Some(3), None, Some(true)),
            (None, Some("could not be read"), None),
        ] {
            let settings = HostSettings { numa_balancing: mode, ..HostSettings::default() };
            assert_eq!(settings.promotes(), promotes, "{mode:?}");
            let entry = settings.silent_faults();
            assert_eq!(entry.is_some(), said.is_some(), "{mode:?}");
            if let (Some(entry), Some(said)) = (entry, said) {
                assert_eq!(entry.source, "numa-balancing");
                assert!(entry.reason.contains(said), "{entry:?}");
            }
        }
    }
}
