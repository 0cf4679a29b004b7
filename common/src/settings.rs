//! Settings that the daemon writes into the programs' read-only data before they are loaded.
//!
//! The kernel freezes that data, so the verifier sees constants: a setting costs nothing at run time,
//! and a branch that it excludes is not even loaded. Structure offsets differ between kernels and
//! are settings for that reason; the daemon takes them from the kernel's BTF.

/// `u32`: which cgroup of a task counts, [`AXIS_UNIFIED`] or [`AXIS_CPUSET`].
pub const CGROUP_AXIS: &str = "CGROUP_AXIS";
/// `[u16; CPUS]`: index of the NUMA node of each CPU, [`NO_NODE`] where it is not known. Indices are
/// those of the nodes with CPUs in ascending order of their ids.
pub const CPU_NODE: &str = "CPU_NODE";
/// `u32`: how many nodes the table names: columns of the counter arrays.
pub const NODES: &str = "NODES";
/// `u32`: does each workload have a cell for every pair of nodes (1), or are moves in the hash (0)?
pub const MOVE_TABLE: &str = "MOVE_TABLE";
/// `u64`: least number of the kernel's ticks between two events of one workload from one CPU; 0 sends all.
pub const EVENT_INTERVAL: &str = "EVENT_INTERVAL";
/// `u64`: accesses that one overflow of a hardware counter stands for.
pub const HARDWARE_PERIOD: &str = "HARDWARE_PERIOD";
/// `u64`: least number of the kernel's ticks between two pressure events of one kind from one node.
pub const PRESSURE_INTERVAL: &str = "PRESSURE_INTERVAL";
/// `u32`: position of the order among the arguments of `mm_vmscan_direct_reclaim_begin`, 0 or 1.
pub const RECLAIM_ORDER: &str = "RECLAIM_ORDER";
/// `u32`: is the first argument of `mark_victim` a task (1) or its number (0)?
pub const VICTIM_IS_TASK: &str = "VICTIM_IS_TASK";
/// `u32`: offset of `zone` in `struct zoneref`.
pub const ZONEREF_ZONE: &str = "ZONEREF_ZONE";
/// `u32`: offset of `node` in `struct zone`.
pub const ZONE_NODE: &str = "ZONE_NODE";
/// `u32`: offset of `constraint` in `struct oom_control`; 0 where it must not be read.
pub const OOM_CONSTRAINT: &str = "OOM_CONSTRAINT";
/// `u32`: process id of the daemon, in the first pid namespace; 0 where it is not known.
pub const OWN_TGID: &str = "OWN_TGID";
/// `u32`: position of the reason among the arguments of `mm_migrate_pages`, 6 or 7.
pub const REASON_ARGUMENT: &str = "REASON_ARGUMENT";
/// `[u8; MIGRATE_REASONS]`: class ([`crate::tally::reason`]) of each value of `enum migrate_reason`.
pub const REASON_CLASS: &str = "REASON_CLASS";
/// `u32`: bytes of `nodemask_t`.
pub const NODE_MASK_BYTES: &str = "NODE_MASK_BYTES";
/// `u32`: offset of `kn` in `struct kernfs_open_file`.
pub const OPEN_FILE_KN: &str = "OPEN_FILE_KN";
/// `u32`: offset of `parent` in `struct kernfs_node`; `__parent` since 6.15.
pub const KN_PARENT: &str = "KN_PARENT";
/// `u32`: offset of `name` in `struct kernfs_node`.
pub const KN_NAME: &str = "KN_NAME";
/// `u32`: value of `NUMAB_SKIP_UNSUITABLE`.
pub const SKIP_UNSUITABLE: &str = "SKIP_UNSUITABLE";
/// `u32`: offset of the `cpu` of `struct task_struct`, through `thread_info` where it is there.
pub const TASK_CPU: &str = "TASK_CPU";
/// `u32`: offset of `pid` in `struct task_struct`.
pub const TASK_PID: &str = "TASK_PID";
/// `u32`: offset of `cgroups` in `struct task_struct`.
pub const TASK_CGROUPS: &str = "TASK_CGROUPS";
/// `u32`: offset in `struct css_set` of `dfl_cgrp` or of the cpuset controller's slot of `subsys`,
/// by axis.
pub const CSS_SET_SLOT: &str = "CSS_SET_SLOT";
/// `u32`: offset of `cgroup` in `struct cgroup_subsys_state`; only [`AXIS_CPUSET`] uses it.
pub const CSS_CGROUP: &str = "CSS_CGROUP";
/// `u32`: offset of `parent` in `struct cgroup_subsys_state`.
pub const CSS_PARENT: &str = "CSS_PARENT";
/// `u32`: offset of `self` in `struct cgroup`.
pub const CGROUP_SELF: &str = "CGROUP_SELF";
/// `u32`: offset of `root` in `struct cgroup`.
pub const CGROUP_ROOT: &str = "CGROUP_ROOT";
/// `u32`: offset of `hierarchy_id` in `struct cgroup_root`.
pub const ROOT_HIERARCHY: &str = "ROOT_HIERARCHY";
/// `u32`: number of the counted hierarchy, as `/proc/self/cgroup` has it; 0 is cgroup v2.
pub const HIERARCHY: &str = "HIERARCHY";
/// `u32`: offset of `kn` in `struct cgroup`.
pub const CGROUP_KN: &str = "CGROUP_KN";
/// `u32`: offset of `id` in `struct kernfs_node`.
pub const KN_ID: &str = "KN_ID";

/// The cgroup v2 hierarchy.
pub const AXIS_UNIFIED: u32 = 0;
/// The hierarchy that the cpuset controller is on: v1 and hybrid hosts.
pub const AXIS_CPUSET: u32 = 1;

/// A CPU without a known node.
pub const NO_NODE: u16 = u16::MAX;

/// Ticks per second of a busy CPU: odd, so that it does not beat with the kernel's own tick.
pub const TICK_HZ: u64 = 99;
/// Run time that one tick stands for, in nanoseconds.
pub const TICK_NS: u64 = 1_000_000_000 / TICK_HZ;
