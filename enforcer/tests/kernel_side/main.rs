//! The kernel side on the running kernel: hooks attach or say why not, and what they count is true.
//!
//! Needs root; elsewhere each test says that it is skipped. In CI (`CI=true`) root may not skip.
#![cfg(feature = "bpf")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and says what it skips")]

mod agreement;
mod balancer;
mod changes;
mod counters;
mod events;
mod hardware;
mod hinting_faults;
mod iterator;
mod leftovers;
mod load;
mod mappings;
mod memory;
mod nodes;
mod pages;
mod pressure;
mod rehearsal;
mod verifier;

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
    time::{Duration, Instant},
};

use enforcer_kernel::bpf::{AttachOptions, CgroupAxis, FunctionTracing, Hook, Programs};
use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

/// True when the test can run; else says why not.
fn permitted() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    println!("skipped: needs root");
    false
}

/// Ends the test where the kernel refuses, but not in CI, which is meant to allow it.
fn refused(what: &str) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "must not be skipped in CI: {what}");
    println!("skipped: {what}");
}

fn possible() -> CpuSet {
    fs::read_to_string("/sys/devices/system/cpu/possible").unwrap().trim().parse().unwrap()
}

fn possible_nodes() -> NodeSet {
    fs::read_to_string("/sys/devices/system/node/possible").unwrap().trim().parse().unwrap()
}

/// The hierarchy of the cpuset controller, and where it is mounted.
fn axis() -> (CgroupAxis, &'static Path) {
    let v1 = Path::new("/sys/fs/cgroup/cpuset");
    if v1.join("cpuset.cpus").exists() {
        (CgroupAxis::Cpuset, v1)
    } else {
        (CgroupAxis::Unified, Path::new("/sys/fs/cgroup"))
    }
}

fn options(cpu_node: impl Fn(CpuId) -> NodeId) -> AttachOptions {
    AttachOptions::new(possible().iter().map(|cpu| (cpu, cpu_node(cpu))).collect(), axis().0)
}

/// Each way to trace functions that this kernel is built for. Trampolines are among them in any case: where
/// they are refused, the test says so.
fn ways() -> Vec<FunctionTracing> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let has = |name: &str| symbols.lines().any(|line| line.split_whitespace().nth(2) == Some(name));
    let mut ways = vec![FunctionTracing::Trampolines];
    if has("register_kprobe") {
        ways.push(FunctionTracing::PerfProbes);
    }
    if has("register_fprobe_ips") && has("bpf_kprobe_multi_link_attach") {
        ways.push(FunctionTracing::MultiProbes);
    }
    println!("functions are traced by {ways:?}");
    ways
}

/// Is the hook attached in the way that was asked for, and in no other?
fn attached_by(programs: &Programs, hook: Hook, way: FunctionTracing) -> bool {
    let state = programs.hooks().iter().find(|state| state.hook == hook).unwrap();
    let by = state.instead.as_deref();
    state.absent.is_none()
        && match way {
            FunctionTracing::Trampolines => by.is_none(),
            FunctionTracing::PerfProbes => by.is_some_and(|by| by.contains("attached as kprobe of ")),
            FunctionTracing::MultiProbes => by.is_some_and(|by| by.contains("attached as kprobe.multi of ")),
        }
}

fn thread_id() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
}

/// This thread's cgroup on the axis, relative to the mount.
fn own_cgroup() -> String {
    let text = fs::read_to_string("/proc/thread-self/cgroup").unwrap();
    let (axis, _) = axis();
    let mine = |line: &&str| match axis {
        CgroupAxis::Unified => line.starts_with("0::"),
        CgroupAxis::Cpuset => line.split(':').nth(1) == Some("cpuset"),
    };
    let line = text.lines().find(mine).unwrap();
    line.splitn(3, ':').nth(2).unwrap().trim_start_matches('/').to_owned()
}

/// A cgroup of our own with this thread in it, until it is dropped.
struct OwnCgroup {
    path: std::path::PathBuf,
    back: std::path::PathBuf,
}

impl OwnCgroup {
    fn enter(name: &str) -> Self {
        Self::enter_below(axis().1, &format!("{name}-{}", std::process::id()))
    }

    fn enter_below(parent: &Path, name: &str) -> Self {
        let (axis, mount) = axis();
        let back = mount.join(own_cgroup());
        let path = parent.join(name);
        fs::create_dir(&path).unwrap();
        if axis == CgroupAxis::Cpuset {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(path.join(file), fs::read_to_string(parent.join(file)).unwrap()).unwrap();
            }
        }
        let own = Self { path, back };
        Self::move_to(&own.path);
        own
    }

    /// Before Linux 6.2 a cgroup with a cpuset resets the affinity of each task that enters it.
    fn move_to(cgroup: &Path) {
        let affinity = rustix::thread::sched_getaffinity(None).unwrap();
        // A thread on v1, a process on v2, where threads of one process stay together.
        let (file, id) = match axis().0 {
            CgroupAxis::Cpuset => ("tasks", thread_id()),
            CgroupAxis::Unified => ("cgroup.procs", std::process::id()),
        };
        fs::write(cgroup.join(file), id.to_string()).unwrap();
        rustix::thread::sched_setaffinity(None, &affinity).unwrap();
    }

    fn id(&self) -> u64 {
        fs::metadata(&self.path).unwrap().ino()
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        Self::move_to(&self.back);
        remove_cgroup(&self.path);
    }
}

/// Removes an empty cgroup.
///
/// Its last task may still be leaving: a thread is joined, and a process reaped, a moment before its cgroup
/// lets it go (`cgroup_task_exit` and `cgroup_task_free` in kernel/cgroup/cgroup.c).
fn remove_cgroup(path: &Path) {
    let end = Instant::now() + Duration::from_secs(30);
    while let Err(error) = fs::remove_dir(path) {
        let leaving = error.kind() == std::io::ErrorKind::ResourceBusy && Instant::now() < end;
        assert!(leaving, "remove {}: {error}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first two CPUs; each is declared a node of its own where this is used.
fn two_cpus() -> Option<[CpuId; 2]> {
    let cpus = possible();
    let mut cpus = cpus.iter();
    let pair = cpus.next().zip(cpus.next()).map(|(first, second)| [first, second]);
    if pair.is_none() {
        println!("skipped: needs two CPUs");
    }
    pair
}

/// Puts this thread on one CPU.
fn run_on(cpu: CpuId) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu.0 as usize);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Lets this thread run on every CPU.
fn run_anywhere() {
    let mut set = rustix::thread::CpuSet::new();
    possible().iter().for_each(|cpu| set.set(cpu.0 as usize));
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Burns `ns` of this thread's CPU time.
fn burn(ns: u64) {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
    };
    let end = used() + ns;
    while used() < end {
        std::hint::black_box(0);
    }
}
