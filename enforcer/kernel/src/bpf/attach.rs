//! Attaches the programs of the loaded object, hook by hook.
//!
//! The order is: the kernel's types, the offsets that a hook reads, its argument count, then the
//! load, which is where the kernel says yes or no. There is no probe for a capability: probing
//! cannot tell "the kernel lacks it" from "not permitted", the load's own error can.

use std::{collections::BTreeMap, path::Path};

use aya::{
    Btf, Ebpf,
    programs::{BtfTracePoint, FEntry, FExit, PerfEvent, Program, ProgramError, ProgramFd},
};
use enforcer_common::limit;
use enforcer_core::policy::RunTimeSource;
use numa_topology::id::CpuId;

use super::{
    axis::CgroupAxis,
    btf::{KernelTypes, Missing},
    hardware::{self, OnOverflow, OpenCounters},
    hook::{Hook, HookError},
    object::{program, refused},
    offsets::{self, CgroupFile, CgroupTree, CgroupWalk, ZoneWalk},
    options::AttachOptions,
    perf,
    probes::{self, FunctionTracing, MultiProbe, ProbeTwin},
};
use enforcer_host::{HostRoot, lockdown};

/// Name of a program and of what it attaches to, and the numbers of arguments that the program understands.
type AttachPoint = (&'static str, &'static [usize]);

/// Constants of attach points, and the list of all of them. The number of arguments is read for each entry of
/// the list, so each constant must be in it.
macro_rules! attach_points {
    ($(#[$about:meta])* $list:ident: $($point:ident = $name:literal $arguments:expr;)+) => {
        $(const $point: AttachPoint = ($name, &$arguments);)+
        $(#[$about])*
        const $list: &[AttachPoint] = &[$($point),+];
    };
}

attach_points! {
    /// Tracepoints with a checked number of arguments.
    TRACEPOINTS:
    MIGRATE = "sched_migrate_task" [2];
    WAKEUP_NEW = "sched_wakeup_new" [1];
    SWITCH = "sched_switch" [3, 4];
    MKDIR = "cgroup_mkdir" [2];
    RMDIR = "cgroup_rmdir" [2];
    KSWAPD = "mm_vmscan_wakeup_kswapd" [4];
    RECLAIM = "mm_vmscan_direct_reclaim_begin" [2, 3];
    RETRY = "reclaim_retry_zone" [7];
    VICTIM = "mark_victim" [1, 2];
    MIGRATE_PAGES = "mm_migrate_pages" [7, 8];
    MOVE_NUMA = "sched_move_numa" [3];
    STICK_NUMA = "sched_stick_numa" [4];
    SWAP_NUMA = "sched_swap_numa" [4];
    SKIP_MAPPING = "sched_skip_vma_numa" [3];
    SKIP_TASK = "sched_skip_cpuset_numa" [2];
}

attach_points! {
    /// Functions with a checked number of arguments.
    FUNCTIONS:
    NUMA_FAULT = "task_numa_fault" [4];
    OUT_OF_MEMORY = "out_of_memory" [1];
    WAKEUP_KSWAPD = "wakeup_kswapd" [4];
    CPUSET_WRITE = "cpuset_write_resmask" [4];
    SET_MEMPOLICY = "do_set_mempolicy" [3];
    MBIND = "do_mbind" [6];
}

/// Program at the end of [`OUT_OF_MEMORY`].
const OUT_OF_MEMORY_ENDS: &str = "out_of_memory_ends";

const CLOCK: &str = "cpu_clock";
const NEAR: &str = "hardware_near";
const REMOTE: &str = "hardware_remote";

/// Facts about this kernel.
pub(super) struct KernelFacts {
    /// The facts, or why they are unknown.
    facts: Result<BtfFacts, String>,
    /// Number of the counted cgroup hierarchy.
    hierarchy: Result<u32, String>,
    /// Why programs may not read kernel memory by address, if so.
    confidential: Option<String>,
    /// The kernel's types, as aya needs them for attach points.
    btf: Option<Btf>,
}

macro_rules! btf_facts {
    ($($name:ident: $type:ty,)+) => {
        /// What the kernel's types say: each fact, or why it is missing.
        struct BtfFacts {
            $($name: Result<$type, Missing>,)+
            arities: BTreeMap<&'static str, Result<usize, Missing>>,
        }

        impl KernelFacts {
            $(pub(super) fn $name(&self) -> Result<$type, HookError> {
                Ok(self.facts()?.$name.clone()?)
            })+
        }
    };
}

btf_facts! {
    walk: CgroupWalk,
    tree: CgroupTree,
    task_cpu: u32,
    task_pid: u32,
    zone: ZoneWalk,
    oom_constraint: u32,
    victim_is_task: bool,
    reasons: [u8; limit::MIGRATE_REASONS],
    skip_unsuitable: u32,
    cgroup_file: CgroupFile,
    node_mask_bytes: u32,
}

impl KernelFacts {
    /// Reads everything at once and drops the types: with aya's copy they would be most of the daemon's
    /// memory.
    pub(super) fn read(axis: CgroupAxis) -> Self {
        let facts =
            KernelTypes::read(Path::new(super::VMLINUX)).map_err(|error| format!("{error:#}")).map(|types| {
                BtfFacts {
                    walk: CgroupWalk::resolve(&types, axis),
                    tree: CgroupTree::resolve(&types),
                    task_cpu: offsets::task_cpu(&types),
                    task_pid: offsets::task_pid(&types),
                    zone: ZoneWalk::resolve(&types),
                    oom_constraint: offsets::oom_constraint(&types),
                    victim_is_task: types.tracepoint_takes_pointer(VICTIM.0, 0),
                    reasons: offsets::migrate_reasons(&types),
                    skip_unsuitable: offsets::skip_unsuitable(&types),
                    cgroup_file: CgroupFile::resolve(&types),
                    node_mask_bytes: offsets::node_mask_bytes(&types),
                    arities: TRACEPOINTS
                        .iter()
                        .map(|(name, _)| (*name, types.tracepoint_arity(name)))
                        .chain(FUNCTIONS.iter().map(|(name, _)| (*name, types.function_arity(name))))
                        .collect(),
                }
            });
        let host = HostRoot::live();
        let hierarchy =
            host.proc.join("self/cgroup").read_text().map_err(|error| error.to_string()).and_then(|text| {
                axis.hierarchy(&text).ok_or_else(|| "/proc/self/cgroup: no such hierarchy".to_owned())
            });
        Self { facts, hierarchy, confidential: lockdown::confidential(&host), btf: None }
    }

    /// Reads the types for aya; after the object is loaded, because the loader reads them as well.
    pub(super) fn read_attach_points(&mut self) {
        if self.facts.is_ok() {
            self.btf = Btf::from_sys_fs().ok();
        }
    }

    fn facts(&self) -> Result<&BtfFacts, HookError> {
        self.facts.as_ref().map_err(|cause| HookError::NoTypes { cause: cause.clone() })
    }

    fn attach_points(&self) -> Result<&Btf, HookError> {
        let unreadable = || HookError::NoTypes { cause: "not readable by the loader".to_owned() };
        self.btf.as_ref().ok_or_else(unreadable)
    }

    pub(super) fn may_read_by_address(&self) -> Result<(), HookError> {
        let refused = |cause: &String| HookError::Confidential { cause: cause.clone() };
        self.confidential.as_ref().map(refused).map_or(Ok(()), Err)
    }

    /// Position of the order among the arguments of the tracepoint of direct reclaim: it came second when a
    /// third one was added.
    pub(super) fn reclaim_order(&self) -> u32 {
        let arity = self.facts().ok().and_then(|facts| facts.arities.get(RECLAIM.0)?.as_ref().ok());
        u32::from(arity.is_some_and(|arity| *arity > 2))
    }

    /// Position of the reason among the arguments of `mm_migrate_pages`, where it is the last one.
    pub(super) fn reason_argument(&self) -> u32 {
        let arity = self.facts().ok().and_then(|facts| facts.arities.get(MIGRATE_PAGES.0)?.as_ref().ok());
        if arity.is_some_and(|arity| *arity > 7) { 7 } else { 6 }
    }

    pub(super) fn hierarchy(&self) -> Result<u32, HookError> {
        self.hierarchy.clone().map_err(|cause| HookError::NoHierarchy { cause })
    }

    /// A hook that takes other arguments than the program expects is not attached.
    fn check_arity(&self, name: &'static str, expected: &'static [usize]) -> Result<(), HookError> {
        let found = self.facts()?.arities.get(name).ok_or(HookError::NoProgram(name))?.clone()?;
        if expected.contains(&found) { Ok(()) } else { Err(HookError::Arity { name, found, expected }) }
    }
}

/// What hooks have opened besides their programs.
#[derive(Default)]
pub(super) struct Opened {
    /// Counters of the CPUs.
    pub(super) counters: Option<OpenCounters>,
    /// Probes that take no perf event.
    pub(super) probes: Vec<MultiProbe>,
}

/// Loads and attaches the programs of one hook, or others that count the same where these are refused;
/// `opened` keeps what it opens. Returns why others had to be taken, and which.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    kernel: &KernelFacts,
    hook: Hook,
    options: &AttachOptions,
    opened: &mut Opened,
) -> Result<Option<String>, HookError> {
    let refused = match attach_usual(ebpf, kernel, hook, options, opened) {
        Ok(()) => return Ok(None),
        Err(error) => error,
    };
    if let Some(twins) = probes::of(hook) {
        return probe(ebpf, kernel, refused, (hook, twins), options, opened).map(Some);
    }
    if hook != Hook::RunTime || options.run_time != RunTimeSource::Clock {
        return Err(refused);
    }
    // The clocks of some CPUs may be attached, and would count the same time again.
    if let Ok(program) = program::<PerfEvent>(ebpf, CLOCK)
        && let Err(error) = program.unload()
    {
        tracing::debug!("detaching {CLOCK}: {error}");
    }
    match switches(ebpf, kernel) {
        Ok(()) => Ok(Some(refused.to_string())),
        Err(error) => Err(HookError::Both { first: Box::new(refused), second: Box::new(error) }),
    }
}

/// Attaches kprobes where trampolines were refused. If a trampoline was not even tried, because the function
/// is missing or must not be read, a kprobe is impossible too.
fn probe(
    ebpf: &mut Ebpf,
    kernel: &KernelFacts,
    refused: HookError,
    (hook, twins): (Hook, &'static [ProbeTwin]),
    options: &AttachOptions,
    opened: &mut Opened,
) -> Result<String, HookError> {
    let HookError::Program { cause, .. } = refused else { return Err(refused) };
    // Not by its function, which the kprobe names: hooks that are refused for one reason say the same.
    let refused = HookError::Program { name: "trampolines", cause };
    // It reads a zone by its address, as a trampoline need not.
    let readable = if hook == Hook::KswapdWanted { kernel.may_read_by_address() } else { Ok(()) };
    match readable.and_then(|()| probes::attach(ebpf, twins, options.functions, &mut opened.probes)) {
        Ok(how) => Ok(format!("{refused}; {how}")),
        Err(error) => Err(HookError::Both { first: Box::new(refused), second: Box::new(error) }),
    }
}

/// Checks what the programs of a hook need of the kernel, then loads and attaches them.
fn attach_usual(
    ebpf: &mut Ebpf,
    kernel: &KernelFacts,
    hook: Hook,
    options: &AttachOptions,
    opened: &mut Opened,
) -> Result<(), HookError> {
    check_facts(kernel, hook, options)?;
    match hook {
        Hook::Placement => all::<BtfTracePoint>(ebpf, kernel, &[MIGRATE, WAKEUP_NEW]),
        Hook::RunTime => match options.run_time {
            RunTimeSource::Clock => clock(ebpf, options),
            RunTimeSource::Switches => switches(ebpf, kernel),
        },
        Hook::CgroupTree => all::<BtfTracePoint>(ebpf, kernel, &[MKDIR, RMDIR]),
        Hook::HintFaults => function::<FEntry>(ebpf, kernel, options, NUMA_FAULT),
        Hook::Hardware => {
            let programs = OnOverflow { near: on_overflow(ebpf, NEAR)?, remote: on_overflow(ebpf, REMOTE)? };
            let cpus: Vec<CpuId> = options.cpu_node.keys().copied().collect();
            opened.counters = Some(hardware::open(&options.hardware, &programs, &cpus)?);
            Ok(())
        }
        Hook::Pressure => all::<BtfTracePoint>(ebpf, kernel, &[KSWAPD, RECLAIM, RETRY]),
        Hook::KswapdWanted => function::<FEntry>(ebpf, kernel, options, WAKEUP_KSWAPD),
        Hook::OomVictim => trace::<BtfTracePoint>(ebpf, kernel, VICTIM),
        Hook::OomConstraint => {
            check_trampolines(options, OUT_OF_MEMORY.0)?;
            // Its end first: what is remembered at its beginning is forgotten there.
            trace_as::<FExit>(ebpf, kernel, OUT_OF_MEMORY_ENDS, OUT_OF_MEMORY)?;
            trace::<FEntry>(ebpf, kernel, OUT_OF_MEMORY)
                .inspect_err(|_refused| detach::<FExit>(ebpf, OUT_OF_MEMORY_ENDS))
        }
        Hook::PageMoves => trace::<BtfTracePoint>(ebpf, kernel, MIGRATE_PAGES),
        Hook::Balancer => all::<BtfTracePoint>(ebpf, kernel, &[MOVE_NUMA, STICK_NUMA, SWAP_NUMA]),
        Hook::MappingSkips => trace::<BtfTracePoint>(ebpf, kernel, SKIP_MAPPING),
        Hook::CpusetWrites => function::<FExit>(ebpf, kernel, options, CPUSET_WRITE),
        Hook::Policies => {
            check_trampolines(options, SET_MEMPOLICY.0)?;
            all::<FExit>(ebpf, kernel, &[SET_MEMPOLICY, MBIND])
        }
        Hook::TaskSkips => trace::<BtfTracePoint>(ebpf, kernel, SKIP_TASK),
    }
}

/// Checks that the kernel's types have what the programs of a hook read, and that they may read it.
fn check_facts(kernel: &KernelFacts, hook: Hook, options: &AttachOptions) -> Result<(), HookError> {
    match hook {
        Hook::Placement => {
            kernel.walk()?;
            kernel.task_cpu()?;
            kernel.task_pid()?;
        }
        Hook::RunTime if options.run_time == RunTimeSource::Switches => {}
        Hook::RunTime | Hook::HintFaults | Hook::Hardware | Hook::TaskSkips => cpuset_walk(kernel, options)?,
        Hook::CgroupTree => {
            kernel.walk()?;
            kernel.tree()?;
            kernel.hierarchy()?;
        }
        Hook::Pressure | Hook::KswapdWanted => {
            cpuset_walk(kernel, options)?;
            kernel.zone()?;
        }
        Hook::OomVictim => {
            cpuset_walk(kernel, options)?;
            if kernel.victim_is_task()? {
                kernel.task_pid()?;
            }
        }
        Hook::OomConstraint => {
            kernel.may_read_by_address()?;
            kernel.oom_constraint()?;
            kernel.check_arity(OUT_OF_MEMORY.0, OUT_OF_MEMORY.1)?;
        }
        Hook::PageMoves => {
            cpuset_walk(kernel, options)?;
            kernel.reasons()?;
        }
        Hook::Balancer => {
            kernel.walk()?;
        }
        Hook::MappingSkips => {
            cpuset_walk(kernel, options)?;
            // The tracepoint first: without it there is no such enumeration either.
            kernel.check_arity(SKIP_MAPPING.0, SKIP_MAPPING.1)?;
            kernel.skip_unsuitable()?;
        }
        Hook::CpusetWrites => {
            kernel.may_read_by_address()?;
            kernel.walk()?;
            kernel.cgroup_file()?;
        }
        Hook::Policies => {
            kernel.may_read_by_address()?;
            cpuset_walk(kernel, options)?;
            kernel.node_mask_bytes()?;
            for (name, expected) in [SET_MEMPOLICY, MBIND] {
                kernel.check_arity(name, expected)?;
            }
        }
    }
    Ok(())
}

/// The cgroup of the current task comes from a helper, but not that of a hierarchy of cgroup v1.
fn cpuset_walk(kernel: &KernelFacts, options: &AttachOptions) -> Result<(), HookError> {
    if options.cgroups == CgroupAxis::Cpuset {
        kernel.walk()?;
    }
    Ok(())
}

/// Programs that attach to a function or tracepoint by its name, with the kernel's types.
trait Traced: Sized {
    fn load_at(&mut self, name: &str, btf: &Btf) -> Result<(), ProgramError>;
    fn run(&mut self) -> Result<(), ProgramError>;
    fn end(&mut self) -> Result<(), ProgramError>;
}

macro_rules! traced {
    ($($program:ty),+) => {$(
        impl Traced for $program {
            fn load_at(&mut self, name: &str, btf: &Btf) -> Result<(), ProgramError> {
                self.load(name, btf)
            }

            fn run(&mut self) -> Result<(), ProgramError> {
                self.attach().map(|_| ())
            }

            fn end(&mut self) -> Result<(), ProgramError> {
                self.unload()
            }
        }
    )+};
}

traced!(BtfTracePoint, FEntry, FExit);

/// A program that is named as what it is attached to.
fn trace<P: Traced>(
    ebpf: &mut Ebpf,
    kernel: &KernelFacts,
    (name, expected): AttachPoint,
) -> Result<(), HookError>
where
    for<'a> &'a mut P: TryFrom<&'a mut Program>,
{
    trace_as::<P>(ebpf, kernel, name, (name, expected))
}

fn trace_as<P: Traced>(
    ebpf: &mut Ebpf,
    kernel: &KernelFacts,
    name: &'static str,
    (at, expected): AttachPoint,
) -> Result<(), HookError>
where
    for<'a> &'a mut P: TryFrom<&'a mut Program>,
{
    kernel.check_arity(at, expected)?;
    let btf = kernel.attach_points()?;
    let program: &mut P = program(ebpf, name)?;
    program.load_at(at, btf).and_then(|()| program.run()).map_err(|error| {
        // It may be loaded; its twin takes its place.
        if let Err(error) = program.end() {
            tracing::trace!("unloading {name}: {error}");
        }
        refused(at, &error)
    })
}

/// A program with a trampoline.
fn function<P: Traced>(
    ebpf: &mut Ebpf,
    kernel: &KernelFacts,
    options: &AttachOptions,
    at: AttachPoint,
) -> Result<(), HookError>
where
    for<'a> &'a mut P: TryFrom<&'a mut Program>,
{
    kernel.check_arity(at.0, at.1)?;
    check_trampolines(options, at.0)?;
    trace::<P>(ebpf, kernel, at)
}

/// Are trampolines to be tried?
fn check_trampolines(options: &AttachOptions, name: &'static str) -> Result<(), HookError> {
    if options.functions == FunctionTracing::Trampolines {
        return Ok(());
    }
    Err(HookError::Program { name, cause: "they are not asked for".to_owned() })
}

/// Run time from context switches, which takes no perf event.
fn switches(ebpf: &mut Ebpf, kernel: &KernelFacts) -> Result<(), HookError> {
    kernel.walk()?;
    kernel.task_pid()?;
    trace::<BtfTracePoint>(ebpf, kernel, SWITCH)
}

fn clock(ebpf: &mut Ebpf, options: &AttachOptions) -> Result<(), HookError> {
    let program: &mut PerfEvent = program(ebpf, CLOCK)?;
    program.load().map_err(|error| refused(CLOCK, &error))?;
    perf::attach(program, CLOCK, options.cpu_node.keys().copied())
}

fn on_overflow(ebpf: &mut Ebpf, name: &'static str) -> Result<ProgramFd, HookError> {
    let program: &mut PerfEvent = program(ebpf, name)?;
    program
        .load()
        .and_then(|()| program.fd()?.try_clone().map_err(ProgramError::IOError))
        .map_err(|error| refused(name, &error))
}

/// Some of several would count too little and look complete.
fn all<P: Traced>(ebpf: &mut Ebpf, kernel: &KernelFacts, programs: &[AttachPoint]) -> Result<(), HookError>
where
    for<'a> &'a mut P: TryFrom<&'a mut Program>,
{
    for (at, one) in programs.iter().enumerate() {
        if let Err(error) = trace::<P>(ebpf, kernel, *one) {
            programs[..at].iter().for_each(|(name, _)| detach::<P>(ebpf, name));
            return Err(error);
        }
    }
    Ok(())
}

fn detach<P: Traced>(ebpf: &mut Ebpf, name: &'static str)
where
    for<'a> &'a mut P: TryFrom<&'a mut Program>,
{
    if let Ok(program) = program::<P>(ebpf, name)
        && let Err(error) = program.end()
    {
        tracing::debug!("detaching {name}: {error}");
    }
}
