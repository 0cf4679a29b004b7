//! The kernel side, as the daemon sees it: programs that count and an iterator that lists tasks.
//!
//! Two loaders share nothing but the kernel: aya loads the Rust programs ([`Programs`]), libbpf the C
//! iterator ([`TaskIterator`]), because only clang emits CO-RE relocations. Everything here is
//! optional. A hook that this kernel or our capabilities do not allow becomes a `Degraded` entry
//! with the system call's own error; nothing fails because of it, and nothing panics.
//!
//! What is needed is asked for, never derived from a kernel version:
//!
//! | source | needs | since |
//! |---|---|---|
//! | `bpf` | `CAP_BPF`, maps and a ring buffer | 5.10 is the oldest that is supported |
//! | `bpf:placement` | BTF, `tp_btf` on two scheduler tracepoints | 5.10 |
//! | `bpf:run-time` | perf events, `CAP_PERFMON`; BTF on the cpuset axis only | 5.10 |
//! | `bpf:cgroup-tree` | BTF, `tp_btf` on two cgroup tracepoints | 5.10 |
//! | `bpf:hardware` | perf events, counters of the CPU, `CAP_PERFMON`; BTF on the cpuset axis only | 5.10 |
//! | `bpf:hint-faults` | BTF, trampolines, `task_numa_fault` | 5.10 x86, 6.4 arm64 |
//! | `bpf:pressure` | BTF, `tp_btf` on three tracepoints of reclaim | 5.10 |
//! | `bpf:kswapd-wanted` | BTF, trampolines, `wakeup_kswapd` | 5.10 x86, 6.4 arm64 |
//! | `bpf:oom-victim` | BTF, `tp_btf` on `mark_victim` | 5.10 |
//! | `bpf:oom-constraint` | BTF, trampolines, `out_of_memory` | 5.10 x86, 6.4 arm64 |
//! | `bpf:page-moves` | BTF, `tp_btf` on `mm_migrate_pages` | 5.10 |
//! | `bpf:balancer` | BTF, `tp_btf` on three scheduler tracepoints | 5.10 |
//! | `bpf:mapping-skips` | BTF, `tp_btf` on `sched_skip_vma_numa` | 6.7 |
//! | `bpf:task-skips` | BTF, `tp_btf` on `sched_skip_cpuset_numa` | 6.17 |
//! | `bpf:cpuset-writes` | BTF, trampolines, `cpuset_write_resmask` | 5.10 x86, 6.4 arm64 |
//! | `bpf:policies` | BTF, trampolines, `do_set_mempolicy`, `do_mbind` | 5.10 x86, 6.4 arm64 |
//! | `task-iterator` | BTF, `iter/task`, the pid namespace of the host | 5.10 |
//! | `mapping-iterator` | BTF, `iter/task_vma` that keeps to a process, the pid namespace of the host | 6.1 |
//!
//! A trampoline that is refused gives way to a kprobe of the same function ([`FunctionTracing`]), through a
//! perf event or, since 5.18 and with `CONFIG_FPROBE`, without one.
//!
//! The programs are attached while [`Programs`] lives: the links are file descriptors, so a daemon
//! that is killed leaves nothing behind.

mod attach;
mod axis;
mod btf;
mod bytes;
mod changes;
mod columns;
mod cost;
mod counters;
mod events;
mod hardware;
mod hook;
#[cfg(test)]
mod instructions;
mod iter;
mod kept;
mod load;
mod log;
mod maps;
mod object;
mod offsets;
mod options;
mod perf;
mod perf_rights;
mod pressure;
mod probes;
mod programs;
mod record;
mod sizes;
mod slots;
mod stream;
mod tallies;
mod vmas;

pub use enforcer_common::settings::{TICK_HZ, TICK_NS};

pub use self::{
    axis::CgroupAxis,
    btf::{KernelTypes, Missing},
    changes::KernelChange,
    columns::NodeColumns,
    cost::LoadedProgram,
    counters::{Drops, KernelCounters},
    events::KernelEvent,
    hardware::{HARDWARE_PERIOD, HardwareEvents},
    hook::{Hook, HookState},
    iter::{IteratorError, TaskIterator},
    kept::{DrainedEvents, EventBuffer},
    maps::CountersError,
    object::with_causes,
    options::{AttachOptions, EVENT_INTERVAL_NS, PRESSURE_INTERVAL_NS},
    pressure::PressureRing,
    probes::FunctionTracing,
    programs::{Programs, WatchedCgroup},
    record::IteratedTask,
    sizes::Sizes,
    tallies::Tallies,
    vmas::{VmaError, VmaIterator},
};

/// Where the kernel shows its type information.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
