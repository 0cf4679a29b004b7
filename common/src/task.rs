//! The record that the task iterator writes per thread.
//!
//! Written in C (`enforcer-ebpf/bpf/task.bpf.c`), because only clang emits the CO-RE relocations that let one
//! object read structures with a layout that differs between kernels.

use crate::limit::MASK_WORDS;

/// One thread, as `struct task_struct` has it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskRecord {
    /// Inode number of its cgroup's directory; 0 when it could not be read.
    pub cgroup: u64,
    /// `se.sum_exec_runtime` in ns: the exact sum of user and system time.
    pub run_ns: u64,
    /// `utime` in ns, as sampled by the tick.
    pub utime_ns: u64,
    /// `stime` in ns, as sampled by the tick.
    pub stime_ns: u64,
    /// `nvcsw`: voluntary context switches.
    pub voluntary_switches: u64,
    /// `nivcsw`: involuntary context switches.
    pub involuntary_switches: u64,
    /// `total_numa_faults`; only with [`HAS_NUMA_BALANCING`].
    pub numa_faults: u64,
    /// `pid` of the kernel: the thread id.
    pub tid: u32,
    /// `tgid` of the kernel: the process id.
    pub tgid: u32,
    /// CPU it last ran on.
    pub cpu: u32,
    /// `__state` or `state`; 0 is running.
    pub state: u32,
    /// `numa_preferred_nid`, -1 for none; only with [`HAS_NUMA_BALANCING`].
    pub preferred_node: i32,
    /// `HAS_` flags of this module.
    pub present: u32,
    /// `flags`: `PF_KTHREAD` and others.
    pub flags: u32,
    /// `policy`: the scheduling policy.
    pub policy: u32,
    /// `cpus_mask`, bit n of word n / 64 for CPU n; only with [`HAS_CPUS_ALLOWED`].
    pub cpus_allowed: [u64; MASK_WORDS],
    /// `comm`, NUL-terminated.
    pub comm: [u8; 16],
    /// Number of [`NodeFaults`] that follow this record, of nodes 0, 1, ..: all node ids of the machine, or 0
    /// for a thread without hinting faults.
    pub fault_nodes: u32,
    /// Always 0.
    pub reserved: u32,
}

/// Hinting faults of a thread on one node, as the balancer keeps them: it halves the figures with each scan.
/// Both are `NUMA_MEM` of `numa_faults[]` (`task_faults_idx` in kernel/sched/fair.c).
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFaults {
    /// Pages that other threads fault on too.
    pub shared: u64,
    /// Pages that only this thread faults on.
    pub private: u64,
}

/// The kernel has NUMA balancing, so its fields are valid.
pub const HAS_NUMA_BALANCING: u32 = 1 << 0;
/// `cpus_allowed` was read.
pub const HAS_CPUS_ALLOWED: u32 = 1 << 1;
/// `cpu` was read.
pub const HAS_CPU: u32 = 1 << 2;
/// The daemon set the number of node ids, so a thread without [`NodeFaults`] has no faults.
pub const HAS_NODE_FAULTS: u32 = 1 << 3;
/// `PF_KTHREAD` of `flags`: a kernel thread (`include/linux/sched.h`).
pub const PF_KTHREAD: u32 = 0x0020_0000;
