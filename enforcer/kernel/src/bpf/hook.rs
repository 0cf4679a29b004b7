//! The hooks by name: what each counts, what it needs, and whether it works here.

use numa_topology::degraded::{Degraded, source};
use thiserror::Error;

use super::btf::Missing;

/// A group of programs that gives one kind of counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Tasks put on a CPU of another node.
    Placement,
    /// Time on the CPUs of each node.
    RunTime,
    /// NUMA hinting faults, local and remote.
    HintFaults,
    /// Accesses to local and remote DRAM, counted by the CPU.
    Hardware,
    /// Cgroups that are made and removed.
    CgroupTree,
    /// NUMA nodes that get short of memory.
    Pressure,
    /// Also wake-ups of kswapd that a hopeless node skips.
    KswapdWanted,
    /// Processes that the OOM killer chooses.
    OomVictim,
    /// Constraint of the allocation that caused an OOM kill.
    OomConstraint,
    /// Pages that are moved, and why.
    PageMoves,
    /// What the kernel's balancer does with tasks.
    Balancer,
    /// Mappings that the balancer does not scan.
    MappingSkips,
    /// Tasks that the balancer does not scan.
    TaskSkips,
    /// Cpusets that others write.
    CpusetWrites,
    /// Memory policies that are set.
    Policies,
}

impl Hook {
    /// Every hook, in the order in which they are attached.
    pub const ALL: [Self; 15] = [
        Self::Placement,
        Self::RunTime,
        Self::HintFaults,
        Self::Hardware,
        Self::CgroupTree,
        Self::Pressure,
        Self::KswapdWanted,
        Self::OomVictim,
        Self::OomConstraint,
        Self::PageMoves,
        Self::Balancer,
        Self::MappingSkips,
        Self::TaskSkips,
        Self::CpusetWrites,
        Self::Policies,
    ];

    /// Name in reports.
    pub fn source(self) -> &'static str {
        match self {
            Self::Placement => "bpf:placement",
            Self::RunTime => "bpf:run-time",
            Self::HintFaults => source::HINT_FAULTS,
            Self::Hardware => source::HARDWARE,
            Self::CgroupTree => "bpf:cgroup-tree",
            Self::Pressure => "bpf:pressure",
            Self::KswapdWanted => "bpf:kswapd-wanted",
            Self::OomVictim => "bpf:oom-victim",
            Self::OomConstraint => "bpf:oom-constraint",
            Self::PageMoves => "bpf:page-moves",
            Self::Balancer => "bpf:balancer",
            Self::MappingSkips => "bpf:mapping-skips",
            Self::TaskSkips => "bpf:task-skips",
            Self::CpusetWrites => "bpf:cpuset-writes",
            Self::Policies => "bpf:policies",
        }
    }

    /// What the kernel has to offer for it, and since when it does.
    pub fn needs(self) -> &'static str {
        match self {
            Self::Placement => {
                "BTF, tracepoints sched_migrate_task and sched_wakeup_new, CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::RunTime => {
                "perf events, CAP_BPF and CAP_PERFMON; BTF only where the cpuset controller is on cgroup v1; Linux 5.10"
            }
            Self::HintFaults => {
                "BTF, BPF trampolines or kprobes, CONFIG_NUMA_BALANCING, CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::Hardware => {
                "counters of the CPU for local and remote DRAM (docs/kernel-support.md), CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::CgroupTree => {
                "BTF, tracepoints cgroup_mkdir and cgroup_rmdir, CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::Pressure => {
                "BTF, tracepoints mm_vmscan_wakeup_kswapd, mm_vmscan_direct_reclaim_begin and reclaim_retry_zone, \
                 CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::KswapdWanted => {
                "BTF, BPF trampolines or kprobes, wakeup_kswapd, CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::OomVictim => "BTF, tracepoint mark_victim, CAP_BPF and CAP_PERFMON; Linux 5.10",
            Self::CpusetWrites => {
                "BTF, BPF trampolines or kprobes, cpuset_write_resmask, CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::Policies => {
                "BTF, BPF trampolines or kprobes, do_set_mempolicy and do_mbind, CAP_BPF and CAP_PERFMON; Linux 5.10"
            }
            Self::OomConstraint => "BTF, BPF trampolines or kprobes, CAP_BPF and CAP_PERFMON; Linux 5.10",
            Self::PageMoves => "BTF, tracepoint mm_migrate_pages, CAP_BPF and CAP_PERFMON; Linux 5.10",
            Self::Balancer => {
                "BTF, tracepoints sched_move_numa, sched_stick_numa and sched_swap_numa, CAP_BPF and CAP_PERFMON; \
                 Linux 5.10"
            }
            Self::MappingSkips => "BTF, tracepoint sched_skip_vma_numa, CAP_BPF and CAP_PERFMON; Linux 6.7",
            Self::TaskSkips => "BTF, tracepoint sched_skip_cpuset_numa, CAP_BPF and CAP_PERFMON; Linux 6.17",
        }
    }

    /// What is lost without it.
    pub fn effect(self) -> &'static str {
        match self {
            Self::Placement => "moves of tasks to CPUs of another node are not counted",
            Self::RunTime => {
                "run time per node is not measured, so remote traffic cannot be estimated from it"
            }
            Self::HintFaults => {
                "remote accesses are not seen directly; remote traffic is run time per node times residency"
            }
            Self::Hardware => {
                "accesses to memory are not counted by the CPU; remote traffic comes from hinting faults or the estimate"
            }
            Self::CgroupTree => "what runs in a cgroup before the next look at the tree is not counted",
            Self::Pressure => "a NUMA node that runs out of memory is not reported",
            Self::KswapdWanted => {
                "a NUMA node that runs out of memory again, after there was nothing to reclaim, is reported late"
            }
            Self::OomVictim => "processes that the OOM killer chooses are not reported",
            Self::OomConstraint => {
                "whether a cpuset, a memory policy or a memory limit caused an OOM kill is not reported"
            }
            Self::CpusetWrites => {
                "processes that write a cpuset are not reported; the next sample shows what they wrote"
            }
            Self::Policies => "memory policies that threads set are not reported",
            Self::PageMoves => "pages that are moved are not counted by reason",
            Self::Balancer => {
                "moves of tasks by the kernel's NUMA balancing are not distinguished from others"
            }
            Self::MappingSkips => {
                "where hinting faults are few, the report does not say whether a memory policy is the reason"
            }
            Self::TaskSkips => {
                "where hinting faults are absent, the report does not say whether a cpuset of one node is the reason"
            }
        }
    }
}

/// State of a hook on this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookState {
    /// The hook.
    pub hook: Hook,
    /// `None`: it is attached; else why not, with the system call and its error.
    pub absent: Option<String>,
    /// Why other, more expensive programs with the same counts are attached.
    pub instead: Option<String>,
}

/// What the programs that count run time instead of the clock cost.
const INSTEAD: &str =
    "run time per node is counted at every context switch and not by a clock, which costs more";
/// What kprobes in the place of trampolines cost.
const PROBED: &str = "its programs run as kprobes and not by trampolines, which costs more; nothing is lost";

impl HookState {
    /// Whether the hook is missing only because this kernel is too old for it.
    pub fn is_newer_than_the_kernel(&self) -> bool {
        matches!(self.hook, Hook::MappingSkips | Hook::TaskSkips)
            && self.absent.as_deref().is_some_and(|reason| reason.starts_with(Missing::TRACEPOINT))
    }

    /// The degraded entry of an absent hook. None for a hook that an older kernel lacks: it would be in each
    /// report there.
    pub fn degraded(&self) -> Option<Degraded> {
        if self.is_newer_than_the_kernel() {
            return None;
        }
        if let Some(reason) = &self.instead {
            return Some(Degraded::new(self.hook.source(), reason.clone(), self.cost_of_instead()));
        }
        let reason = self.absent.clone()?;
        Some(Degraded::new(self.hook.source(), reason, self.hook.effect()))
    }

    /// Effect of programs that replace the usual ones.
    pub fn effect_of_instead(&self) -> Option<&'static str> {
        self.instead.as_ref().map(|_reason| self.cost_of_instead())
    }

    fn cost_of_instead(&self) -> &'static str {
        if self.hook == Hook::RunTime { INSTEAD } else { PROBED }
    }
}

/// Why a hook is not attached.
#[derive(Debug, Error)]
pub(super) enum HookError {
    #[error("{path}: {cause}", path = super::VMLINUX)]
    NoTypes { cause: String },
    #[error(transparent)]
    Missing(#[from] Missing),
    #[error("{name} takes {found} arguments here, {expected:?} are understood")]
    Arity { name: &'static str, found: usize, expected: &'static [usize] },
    #[error("{cause}")]
    NoHierarchy { cause: String },
    #[error("{cause}")]
    Confidential { cause: String },
    #[error("the object has no program {0}")]
    NoProgram(&'static str),
    #[error("{name}: {cause}")]
    Program { name: &'static str, cause: String },
    #[error("{0}")]
    NoCounter(String),
    #[error("{first}; instead of it, {second}")]
    Both { first: Box<HookError>, second: Box<HookError> },
    #[error("none of the {0} CPUs is online")]
    NoCpu(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_kernel_does_not_tell_is_no_degradation() {
        let absent = |hook, reason: String| HookState { hook, absent: Some(reason), instead: None };
        let missing = Missing("tracepoint sched_skip_cpuset_numa".into()).to_string();
        assert_eq!(absent(Hook::TaskSkips, missing.clone()).degraded(), None);
        assert!(absent(Hook::TaskSkips, "EPERM".into()).degraded().is_some());
        assert!(absent(Hook::Placement, missing).degraded().is_some());
    }

    #[test]
    fn what_is_counted_by_other_programs_is_named_with_its_cause() {
        let state = HookState { hook: Hook::RunTime, absent: None, instead: Some("paranoid".into()) };
        let degraded = state.degraded().unwrap();
        assert_eq!((degraded.source.as_str(), degraded.reason.as_str()), ("bpf:run-time", "paranoid"));
        assert_eq!(degraded.effect, INSTEAD);
        let state = HookState { hook: Hook::Policies, ..state };
        assert_eq!(state.degraded().unwrap().effect, PROBED);
    }
}
