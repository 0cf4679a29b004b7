//! What was seen at one moment: raw kernel values, nothing derived.
//!
//! Every field may be missing, and a missing value is `None`, never 0. Counters are as the kernel
//! keeps them, cumulative; rates are the business of [`crate::model`]. A sample can be written to a
//! file and read back: the stage behind it cannot tell the difference.

mod balancer;
mod change;
mod event;
mod pages;
mod pressure;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    balancer::{BalancerSteps, ScanSkips},
    change::{Change, ChangeKind, Changes, CpusetFile, CpusetWrites, Policies, PolicyCounts, PolicyScope},
    event::{EventCounts, Events, TaskEvent, TaskEventKind},
    pages::{OtherPageMoves, PageMoveReason, PageMoves, PageMovesByReason},
    pressure::{OomConstraint, PressureDelay, PressureEvent, PressureEvents, PressureKind, PressureTotal},
};
use crate::{
    degraded::Degraded,
    id::{CpuId, NodeId},
    memory_policy::MemoryPolicy,
    node_room::NodeRoom,
    partition::PartitionState,
    set::{CpuSet, NodeSet},
    workload::CgroupPath,
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
    /// Host-wide settings that change how the rest is read.
    pub settings: HostSettings,
    /// Is the cpuset controller in a hierarchy of cgroup v1, where its files have other names?
    #[serde(default)]
    pub cpuset_v1: bool,
    /// Where its cgroup files are, so that what is said about them can be looked up.
    #[serde(default)]
    pub cgroup_mounts: CgroupMounts,
    /// Per NUMA node.
    pub nodes: BTreeMap<NodeId, NodeSample>,
    /// Per cgroup.
    pub cgroups: BTreeMap<CgroupPath, CgroupSample>,
    /// Per thread, in ascending order of tid.
    pub tasks: Vec<TaskSample>,
    /// Where the memory of processes that are workloads of their own is, from `numa_maps`; empty unless it
    /// was asked for.
    #[serde(default)]
    pub memory_by_process: BTreeMap<u32, BTreeMap<NodeId, NodeBytes>>,
    /// Memory policies of processes whose memory is far from their CPUs, as much of them as is under each;
    /// what is under none is left out. Processes that were not asked are not in it.
    #[serde(default)]
    pub policies_by_process: BTreeMap<u32, Vec<PolicyExtent>>,
    /// What the kernel side told one by one; `None` where it tells nothing.
    #[serde(default)]
    pub events: Option<Events>,
    /// How the kernel side itself fares; none where nothing is attached.
    #[serde(default)]
    pub kernel_side: Option<KernelSide>,
    /// Memory that got short, as the kernel side told it; `None` where it tells nothing.
    #[serde(default)]
    pub pressure_events: Option<PressureEvents>,
    /// Pages that no workload moved; `None` where nothing counts them.
    #[serde(default)]
    pub other_page_moves: Option<OtherPageMoves>,
    /// Cpusets that others wrote and memory policies that were set; `None` where nothing tells.
    #[serde(default)]
    pub changes: Option<Changes>,
    /// Bytes of huge pages that are reserved and not in use yet, by the size of a page in bytes
    /// (`resv_hugepages`): from which nodes they come is not decided.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages_reserved: BTreeMap<u64, u64>,
    /// Which source each kind of value came from, for people: `tasks: bpf iterator`.
    pub sources: BTreeMap<String, String>,
    /// What could not be read.
    pub degraded: Vec<Degraded>,
}

impl Sample {
    /// Does a write of `cpuset.mems` take pages along? On v1 it does where the cgroup is asked to; where that
    /// is not known, it is taken to.
    pub fn moves_pages_by_cpuset(&self) -> bool {
        self.cpuset_v1 || self.settings.cpuset_moves_pages != Some(false)
    }

    /// Kernel id of a cgroup; absent where it was not seen.
    pub fn cgroup_id(&self, cgroup: &CgroupPath) -> Option<u64> {
        self.cgroups.get(cgroup)?.id
    }
}

/// What the kernel side could not count, and how full it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KernelSide {
    /// What is in no counter, by reason (`map-full`); cumulative since the programs are attached.
    pub lost: BTreeMap<String, u64>,
    /// Cgroups that it watches, with those that inherited it.
    pub cgroups_watched: u64,
    /// Cgroups that it has room for.
    pub cgroups_room: u64,
    /// Workloads that have a row in its counters.
    #[serde(default)]
    pub workloads_watched: u64,
    /// Workloads that there are rows for.
    #[serde(default)]
    pub workloads_room: u64,
    /// What each program costs, by its name.
    #[serde(default)]
    pub programs: BTreeMap<String, ProgramCost>,
    /// Why nobody knows how long the programs run, where that is so.
    #[serde(default)]
    pub run_time_silent: Option<String>,
}

/// What a program of the kernel side costs, since it was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgramCost {
    /// Times that it ran; none where the kernel does not count them.
    pub runs: Option<u64>,
    /// Nanoseconds that these took; none where the kernel does not measure them.
    pub run_ns: Option<u64>,
    /// Instructions that the verifier went through; none before Linux 5.16.
    pub verified_instructions: Option<u64>,
}

/// Mount points of the cgroup hierarchies, as the machine itself names them: a captured machine has
/// its own, not those of the copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupMounts {
    /// Hierarchy with the cpuset controller.
    pub cpuset: String,
    /// Hierarchy with the memory controller.
    pub memory: String,
}

impl Default for CgroupMounts {
    /// The unified hierarchy where it usually is.
    fn default() -> Self {
        Self { cpuset: "/sys/fs/cgroup".into(), memory: "/sys/fs/cgroup".into() }
    }
}

/// Settings of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostSettings {
    /// `/proc/sys/kernel/numa_balancing`: 0 off, bit 0 balancing, bit 1 tiering.
    pub numa_balancing: Option<u32>,
    /// Chosen word of `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub transparent_hugepage: Option<String>,
    /// `/proc/sys/vm/zone_reclaim_mode`.
    pub zone_reclaim_mode: Option<u32>,
    /// `/sys/kernel/mm/numa/demotion_enabled`.
    pub demotion_enabled: Option<bool>,
    /// Does a write of `cpuset.mems` move pages on cgroup v2 (since 5.15)? `None` where the release of the
    /// kernel is not known.
    #[serde(default)]
    pub cpuset_moves_pages: Option<bool>,
}

/// Bit of `kernel.numa_balancing` that has the kernel take hinting faults between ordinary nodes.
const BALANCING_NORMAL: u32 = 1;
/// Bit that has it promote from slower memory by itself (tiering).
const BALANCING_TIERING: u32 = 2;

impl HostSettings {
    /// May the kernel take NUMA hinting faults? `None` where the setting is not known.
    pub fn takes_hinting_faults(&self) -> Option<bool> {
        self.numa_balancing.map(|mode| mode & BALANCING_NORMAL != 0)
    }

    /// Does the kernel promote hot pages from slower memory? `None` where the setting is not known.
    pub fn promotes(&self) -> Option<bool> {
        self.numa_balancing.map(|mode| mode & BALANCING_TIERING != 0)
    }

    /// Says that hinting faults are silent, where they are: silence is not "all accesses are local".
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
    /// `Active(file)` and `Inactive(file)` in bytes: page cache that reclaim goes through, without tmpfs.
    #[serde(default)]
    pub lru_file_bytes: Option<u64>,
    /// `SReclaimable` in bytes.
    #[serde(default)]
    pub slab_reclaimable_bytes: Option<u64>,
    /// Low watermarks of the node's zones in bytes, from `/proc/zoneinfo`.
    #[serde(default)]
    pub low_watermark_bytes: Option<u64>,
    /// Bytes of huge pages of hugetlbfs that are in use, by the size of a page in bytes: `nr_hugepages` less
    /// `free_hugepages`. Sizes of which none is in use on the whole host are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages_used: BTreeMap<u64, u64>,
    /// `numastat` and `vmstat` of the node, by the kernel's own names.
    pub counters: BTreeMap<String, u64>,
}

impl NodeSample {
    /// What the node can give; `None` where free memory or page cache is not known. Watermarks and slabs that
    /// are not known are left out.
    pub fn room(&self) -> Option<NodeRoom> {
        Some(NodeRoom {
            free: self.mem_free_bytes?,
            low: self.low_watermark_bytes.unwrap_or(0),
            managed: self.mem_total_bytes.unwrap_or(0),
            file: self.lru_file_bytes?,
            slab: self.slab_reclaimable_bytes.unwrap_or(0),
        })
    }

    /// Bytes that can be had here; see [`NodeRoom::available`].
    pub fn available_bytes(&self) -> Option<u64> {
        Some(self.room()?.available())
    }
}

/// State and counters of one cgroup.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CgroupSample {
    /// The kernel's id of it, which a cgroup that is made again at the same path does not have.
    #[serde(default)]
    pub id: Option<u64>,
    /// `cpuset.cpus` as configured; empty means inherited.
    pub cpus: Option<CpuSet>,
    /// Cgroup above whose files say which CPUs and memory nodes are in force here, where the cgroup has no
    /// such files of its own; `None` where they are its own.
    #[serde(default)]
    pub effective_from: Option<CgroupPath>,
    /// A file that says what is in force is there and is of no use: what it lacks is not what the cgroup
    /// above has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub effective_garbled: bool,
    /// `cpuset.cpus.effective` (v2) or `cpuset.effective_cpus` (v1), of [`Self::effective_from`] where that
    /// is set.
    pub cpus_effective: Option<CpuSet>,
    /// `cpuset.cpus.exclusive`: what partitions below may have. Looked at only where one is to be or was
    /// begun.
    #[serde(default)]
    pub cpus_exclusive: Option<CpuSet>,
    /// `cpuset.cpus.partition`, looked at like that.
    #[serde(default)]
    pub partition: Option<PartitionState>,
    /// `cpuset.mems` as configured; empty means inherited.
    pub mems: Option<NodeSet>,
    /// `cpuset.mems.effective` (v2) or `cpuset.effective_mems` (v1).
    pub mems_effective: Option<NodeSet>,
    /// `memory.current` (v2) or `memory.usage_in_bytes` (v1).
    pub memory_current_bytes: Option<u64>,
    /// `memory.numa_stat`: where its memory is.
    pub memory_by_node: Option<BTreeMap<NodeId, NodeBytes>>,
    /// Bytes of huge pages per node by file (`hugetlb.2MB.numa_stat`); counted in `memory_by_node` as well.
    #[serde(default)]
    pub hugetlb_by_file: BTreeMap<String, BTreeMap<NodeId, u64>>,
    /// Bytes of huge pages that it has reserved and does not use yet, by the name of the same file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugetlb_reserved: BTreeMap<String, u64>,
    /// `memory.events`, by the kernel's own names.
    pub memory_events: Option<BTreeMap<String, u64>>,
    /// `memory.pressure`.
    pub memory_pressure: Option<Pressure>,
    /// Threads counted in it by the task source.
    pub tasks: Option<u64>,
    /// Time on CPUs of each node, from the cpu-clock or the context-switch program; cumulative since it is
    /// watched.
    pub run_time: Option<BTreeMap<NodeId, RunTime>>,
    /// Tasks put on a CPU: moved to another node, or started on any; cumulative since it is watched.
    pub placements: Option<Vec<Placements>>,
    /// NUMA hinting faults taken on CPUs of each node; cumulative since it is watched.
    pub hint_faults: Option<BTreeMap<NodeId, HintFaults>>,
    /// Accesses to DRAM from CPUs of each node, from hardware counters; cumulative since it is watched.
    #[serde(default)]
    pub hardware: Option<BTreeMap<NodeId, HardwareAccesses>>,
    /// Pages that its threads moved, by reason; cumulative since it is watched.
    #[serde(default)]
    pub page_moves: Option<PageMovesByReason>,
    /// What the kernel's balancer did with its tasks; cumulative since it is watched.
    #[serde(default)]
    pub balancer: Option<BalancerSteps>,
    /// Where the kernel's balancer did not look; cumulative since it is watched.
    #[serde(default)]
    pub scan_skips: Option<ScanSkips>,
    /// Writes of others to its cpuset; cumulative since it is watched.
    #[serde(default)]
    pub cpuset_writes: Option<CpusetWrites>,
    /// Memory policies that its threads set; cumulative since it is watched.
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
    /// tmpfs and shared memory, as far as told apart (part of `file`).
    pub shmem: Option<u64>,
    /// Everything else: slab, page tables, stacks.
    pub kernel: Option<u64>,
}

/// The part of a process's address space that is under one memory policy. Not all of it need be in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExtent {
    /// The policy.
    pub policy: MemoryPolicy,
    /// Mappings under it.
    pub mappings: u64,
    /// Their size.
    pub bytes: u64,
    /// Those of them that others may share.
    pub shared_bytes: u64,
    /// Those of them that are of huge pages (hugetlbfs).
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
    /// Those of them that were spent where the workload should not be.
    #[serde(default)]
    pub misplaced_ns: u64,
    /// Observations behind it: clock ticks or context switches.
    pub samples: u64,
}

impl RunTime {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, more: Self) {
        self.ns = self.ns.saturating_add(more.ns);
        self.misplaced_ns = self.misplaced_ns.saturating_add(more.misplaced_ns);
        self.samples = self.samples.saturating_add(more.samples);
    }

    /// What was counted after an earlier reading.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        Self {
            ns: self.ns.saturating_sub(earlier.ns),
            misplaced_ns: self.misplaced_ns.saturating_sub(earlier.misplaced_ns),
            samples: self.samples.saturating_sub(earlier.samples),
        }
    }
}

/// Tasks that came from a CPU of one node to a CPU of another, or of the same when they started there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placements {
    /// Node it came from; of its parent for a new one.
    pub src_numa: NodeId,
    /// Node it was put on.
    pub dst_numa: NodeId,
    /// Tasks that moved.
    pub migrated: u64,
    /// Tasks that started.
    pub started: u64,
    /// Those of both that came to where the workload should not be.
    pub misplaced: u64,
}

impl Placements {
    /// Tasks that moved or started.
    pub fn count(self) -> u64 {
        self.migrated.saturating_add(self.started)
    }

    /// Adds what was counted elsewhere for the same pair of nodes.
    pub fn add(&mut self, more: Self) {
        self.migrated = self.migrated.saturating_add(more.migrated);
        self.started = self.started.saturating_add(more.started);
        self.misplaced = self.misplaced.saturating_add(more.misplaced);
    }

    /// What was counted for the same pair of nodes after an earlier reading.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        Self {
            migrated: self.migrated.saturating_sub(earlier.migrated),
            started: self.started.saturating_sub(earlier.started),
            misplaced: self.misplaced.saturating_sub(earlier.misplaced),
            ..self
        }
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

impl HintFaults {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, more: Self) {
        self.local = self.local.saturating_add(more.local);
        self.remote = self.remote.saturating_add(more.remote);
        self.migrated = self.migrated.saturating_add(more.migrated);
        self.migrate_failed = self.migrate_failed.saturating_add(more.migrate_failed);
    }

    /// What was counted after an earlier reading.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        Self {
            local: self.local.saturating_sub(earlier.local),
            remote: self.remote.saturating_sub(earlier.remote),
            migrated: self.migrated.saturating_sub(earlier.migrated),
            migrate_failed: self.migrate_failed.saturating_sub(earlier.migrate_failed),
        }
    }
}

/// Accesses to DRAM as the CPU's counters tell them: a counter that overflows stands for a whole period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HardwareAccesses {
    /// To memory of the CPU's own node.
    pub local: u64,
    /// To memory of other nodes.
    pub remote: u64,
    /// Overflows behind both.
    pub samples: u64,
}

impl HardwareAccesses {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, more: Self) {
        self.local = self.local.saturating_add(more.local);
        self.remote = self.remote.saturating_add(more.remote);
        self.samples = self.samples.saturating_add(more.samples);
    }

    /// What was counted after an earlier reading. Local may be all minus remote, counted by two counters,
    /// and so go back by a period.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        Self {
            local: self.local.saturating_sub(earlier.local),
            remote: self.remote.saturating_sub(earlier.remote),
            samples: self.samples.saturating_sub(earlier.samples),
        }
    }
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
    /// Its cgroup, where known.
    pub cgroup: Option<CgroupPath>,
    /// CPU it last ran on.
    pub cpu: Option<CpuId>,
    /// CPUs it may run on.
    pub cpus_allowed: Option<CpuSet>,
    /// User and system time in nanoseconds.
    pub cpu_time_ns: Option<u64>,
    /// Node the kernel's balancer prefers for it.
    pub preferred_node: Option<NodeId>,
    /// Pages that its NUMA hinting faults found on each node, as the kernel's balancer remembers them: halved
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
