//! The kernel side on the running kernel: hooks attach or say why not, and what they count is true.
//!
//! Needs root; elsewhere each test says that it is skipped. In CI (`CI=true`) root may not skip.
#![cfg(feature = "bpf")]
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and says what it skips")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use enforcer::observe::bpf::{AttachOptions, CgroupAxis, Hook, Programs, TaskIterator, TaskRecord};
use enforcer_core::{
    id::{CpuId, NodeId},
    sample::HintFaults,
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

fn tasks_of_proc() -> BTreeSet<u32> {
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    entries("/proc".into())
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .flat_map(|entry| entries(format!("{}/task", entry.path().display())))
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .collect()
}

fn thread_id() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap()
}

/// Field of `/proc/thread-self/stat` by its number in `proc_pid_stat(5)`.
fn stat_field(number: usize) -> String {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let after_comm = &stat[stat.rfind(')').unwrap() + 2..];
    after_comm.split(' ').nth(number - 3).unwrap().to_owned()
}

fn status_field(name: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line[name.len() + 1..].trim().to_owned()
}

fn read_tasks() -> Option<Vec<TaskRecord>> {
    match TaskIterator::open(axis().0, possible()) {
        Ok(tasks) => Some(tasks.read().unwrap()),
        Err(error) => {
            refused(&error.to_string());
            None
        }
    }
}

#[test]
fn the_iterator_lists_the_threads_that_proc_lists() {
    if !permitted() {
        return;
    }
    let before = tasks_of_proc();
    let Some(tasks) = read_tasks() else { return };
    let after = tasks_of_proc();
    let seen: BTreeSet<u32> = tasks.iter().map(|task| task.tid).collect();
    assert_eq!(seen.len(), tasks.len(), "no thread comes twice");
    assert!(tasks.is_sorted_by_key(|task| task.tid));
    let lived_through: BTreeSet<u32> = before.intersection(&after).copied().collect();
    // Some kernels of managed virtual machines hide the host's own init from BPF.
    let hidden = |tid: &&u32| !seen.contains(&1) && Path::new(&format!("/proc/1/task/{tid}")).exists();
    let missing: Vec<&u32> = lived_through.difference(&seen).filter(|tid| !hidden(tid)).collect();
    assert!(missing.is_empty(), "threads that lived all the time are missing: {missing:?}");
    let born_and_gone = seen.iter().filter(|tid| !before.contains(tid) && !after.contains(tid)).count();
    assert!(born_and_gone * 20 <= seen.len(), "{born_and_gone} of {} are not in /proc", seen.len());
}

#[test]
fn the_iterator_agrees_with_proc_about_this_thread() {
    if !permitted() {
        return;
    }
    let voluntary: u64 = status_field("voluntary_ctxt_switches").parse().unwrap();
    let Some(tasks) = read_tasks() else { return };
    let tid = thread_id();
    let task = tasks.iter().find(|task| task.tid == tid).unwrap();
    assert_eq!(task.pid, std::process::id());
    assert_eq!(task.command, fs::read_to_string("/proc/thread-self/comm").unwrap().trim());
    assert_eq!(task.cpus_allowed, Some(status_field("Cpus_allowed_list").parse::<CpuSet>().unwrap()));
    assert!(possible().contains(task.cpu.unwrap()));
    assert_eq!(task.policy.to_string(), stat_field(41));
    assert_eq!(task.state, 0, "the reader runs while it is read");
    assert!(!task.kernel_thread);
    assert!(task.run_ns > 0);
    assert!((voluntary..voluntary + 1_000).contains(&task.voluntary_switches));
    let (_, mount) = axis();
    assert_eq!(task.cgroup, Some(fs::metadata(mount.join(own_cgroup())).unwrap().ino()));
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

#[test]
fn what_is_not_attached_is_degraded_by_name() {
    if !permitted() {
        return;
    }
    let (programs, degraded) = Programs::attach(&options(|_| NodeId(0)));
    let absent: Vec<&str> = programs
        .hooks()
        .iter()
        .filter(|state| state.absent.is_some())
        .map(|state| state.hook.source())
        .collect();
    let named: Vec<&str> = degraded.iter().map(|entry| entry.source.as_str()).collect();
    println!("{degraded:#?}");
    assert!(named == absent || named == ["bpf"], "{named:?} {absent:?}");
    assert!(degraded.iter().all(|entry| !entry.reason.is_empty() && !entry.effect.is_empty()));
    for hook in [Hook::Placement, Hook::RunTime] {
        if !programs.has(hook) {
            refused(&format!("{hook:?}: {degraded:?}"));
        }
    }
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

    fn move_to(cgroup: &Path) {
        // A thread on v1, a process on v2, where threads of one process stay together.
        let (file, id) = match axis().0 {
            CgroupAxis::Cpuset => ("tasks", thread_id()),
            CgroupAxis::Unified => ("cgroup.procs", std::process::id()),
        };
        fs::write(cgroup.join(file), id.to_string()).unwrap();
    }

    fn id(&self) -> u64 {
        fs::metadata(&self.path).unwrap().ino()
    }
}

impl Drop for OwnCgroup {
    fn drop(&mut self) {
        Self::move_to(&self.back);
        fs::remove_dir(&self.path).unwrap();
    }
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

/// Each CPU is declared a node of its own with a high number: every move crosses nodes.
#[test]
fn moves_and_run_time_are_counted_by_cgroup_and_node() {
    if !permitted() {
        return;
    }
    let cpus: Vec<CpuId> = possible().iter().take(2).collect();
    let [first, second] = cpus.as_slice() else {
        println!("skipped: needs two CPUs");
        return;
    };
    let node = |cpu: CpuId| NodeId(cpu.0 * 100 + 72);
    let (mut programs, degraded) = Programs::attach(&options(node));
    if !programs.has(Hook::Placement) || !programs.has(Hook::RunTime) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(*first);
            let cgroup = OwnCgroup::enter("kernel-side");
            for _ in 0..50 {
                run_on(*second);
                run_on(*first);
            }
            burn(1_000_000_000);
            run_on(*second);
            burn(500_000_000);
            let counters = programs.read().unwrap().remove(&cgroup.id()).unwrap();
            let placements: BTreeMap<(u32, u32), u64> = counters
                .placements
                .unwrap()
                .iter()
                .map(|one| ((one.src_numa.0, one.dst_numa.0), one.count))
                .collect();
            assert_eq!(
                placements,
                BTreeMap::from([
                    ((node(*first).0, node(*second).0), 51),
                    ((node(*second).0, node(*first).0), 50)
                ])
            );
            let ticks = counters.run_ticks.unwrap();
            println!("ticks {ticks:?}");
            assert!((60..=140).contains(&ticks[&node(*first)]), "about 99 in {ticks:?}");
            assert!((25..=80).contains(&ticks[&node(*second)]), "about 50 in {ticks:?}");

            let id = cgroup.id();
            drop(cgroup);
            programs.retain(&BTreeSet::new()).unwrap();
            assert!(!programs.read().unwrap().contains_key(&id), "a dead cgroup is forgotten");
        });
    });
    let drops = programs.drops().unwrap().unwrap();
    assert_eq!(drops.total(), 0, "{drops:?}");
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

/// Moves of a cgroup's tasks between nodes so far.
fn moves(programs: &mut Programs, cgroup: u64) -> u64 {
    let counters = programs.read().unwrap().remove(&cgroup).unwrap_or_default();
    counters.placements.iter().flatten().map(|one| one.count).sum()
}

#[test]
fn a_cgroup_counts_for_itself_alone_and_starts_from_zero_when_it_is_made_again() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let (mut programs, degraded) = Programs::attach(&options(|cpu| NodeId(cpu.0)));
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let outer = OwnCgroup::enter("outer");
            let inner = OwnCgroup::enter_below(&outer.path, "inner");
            for _ in 0..10 {
                run_on(second);
                run_on(first);
            }
            assert_eq!((moves(&mut programs, inner.id()), moves(&mut programs, outer.id())), (20, 0));
            let id = inner.id();
            drop(inner);
            let again = OwnCgroup::enter_below(&outer.path, "inner");
            assert_ne!(again.id(), id);
            assert_eq!(moves(&mut programs, again.id()), 0);
        });
    });
}

#[test]
fn what_does_not_fit_into_a_map_is_a_drop() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let full = AttachOptions { entries: Some(2), ..options(|cpu| NodeId(cpu.0)) };
    let (mut programs, degraded) = Programs::attach(&full);
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let ids: Vec<u64> = (0..4)
                .map(|number| {
                    let cgroup = OwnCgroup::enter(&format!("full-{number}"));
                    run_on(second);
                    run_on(first);
                    cgroup.id()
                })
                .collect();
            let counted: u64 = ids.iter().map(|id| moves(&mut programs, *id)).sum();
            let dropped = programs.drops().unwrap().unwrap().map_full;
            assert!(counted <= 2 && counted + dropped >= 8, "{counted} counted, {dropped} dropped");
        });
    });
}

/// CPU that this thread runs on.
fn current_cpu() -> CpuId {
    CpuId(u32::try_from(rustix::thread::sched_getcpu()).unwrap())
}

/// How often the kernel says that this thread was moved (`set_task_cpu` in kernel/sched/core.c).
fn own_moves() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/sched").ok()?;
    let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.split(':').nth(1)?.trim().parse().ok()
}

/// Threads that start on another CPU than their creator's are placed there without a move
/// (`wake_up_new_task` in kernel/sched/core.c): `sched_migrate_task` alone would miss all of them.
#[test]
fn a_first_placement_is_counted_though_no_task_moved() {
    const STARTED: usize = 200;
    if !permitted() {
        return;
    }
    let (Some([first, _]), Some(_)) = (two_cpus(), own_moves()) else {
        println!("skipped: needs two CPUs and /proc/PID/sched");
        return;
    };
    let (mut programs, degraded) = Programs::attach(&options(|cpu| NodeId(cpu.0)));
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The creator's own CPU is busy, so that others are idler.
        scope.spawn(|| {
            run_on(first);
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                burn(1_000_000);
            }
        });
        scope.spawn(|| {
            let cgroup = OwnCgroup::enter("first-placement");
            let (mut silent, mut otherwise) = (0, 0);
            for _ in 0..STARTED {
                run_on(first);
                run_anywhere();
                let started = std::thread::spawn(|| (current_cpu(), own_moves().unwrap()));
                let stayed = current_cpu() == first;
                let (cpu, moves) = started.join().unwrap();
                silent += u64::from(stayed && moves == 0 && cpu != first);
                otherwise += moves + u64::from(!stayed);
            }
            let counted = moves(&mut programs, cgroup.id());
            let most = silent + otherwise + own_moves().unwrap();
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            println!("{silent} of {STARTED} placed silently, {counted} counted, at most {most}");
            assert!(counted >= silent, "{counted} of {silent} first placements were counted");
            assert!(counted <= most + STARTED as u64 / 10, "{counted} counted, at most {most} happened");
            if silent < STARTED as u64 / 10 {
                println!("skipped: only {silent} threads started elsewhere, this host is busy");
            }
        });
    });
}

#[test]
fn a_move_inside_a_node_is_not_counted() {
    if !permitted() {
        return;
    }
    let (mut programs, degraded) = Programs::attach(&options(|_| NodeId(5)));
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    let cpus: Vec<CpuId> = possible().iter().take(2).collect();
    for cpu in cpus.into_iter().cycle().take(40) {
        run_on(cpu);
    }
    let counters = programs.read().unwrap();
    assert!(counters.values().all(|one| one.placements.iter().all(Vec::is_empty)), "{counters:?}");
}

/// Both walks from a task to its cgroup and the programs' diagnostics pass the verifier, whichever
/// hierarchy this host uses.
#[test]
fn every_setting_loads() {
    if !permitted() {
        return;
    }
    let with = |cgroups, log| AttachOptions { cgroups, log, ..options(|cpu| NodeId(cpu.0)) };
    let (quiet, degraded) = Programs::attach(&with(CgroupAxis::Unified, false));
    if !quiet.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    for (axis, log) in [(CgroupAxis::Unified, true), (CgroupAxis::Cpuset, false), (CgroupAxis::Cpuset, true)]
    {
        let (mut programs, _) = Programs::attach(&with(axis, log));
        assert_eq!(programs.hooks(), quiet.hooks(), "{axis:?} log {log}");
        run_on(possible().first().unwrap());
        programs.read().unwrap();
    }
}

#[test]
fn a_task_on_a_cpu_without_a_node_is_a_drop() {
    if !permitted() {
        return;
    }
    let mut without_nodes = options(|_| NodeId(0));
    without_nodes.cpu_node = possible().iter().map(|cpu| (cpu, NodeId(100_000))).collect();
    let (mut programs, degraded) = Programs::attach(&without_nodes);
    if !programs.has(Hook::RunTime) {
        return refused(&format!("{degraded:?}"));
    }
    burn(200_000_000);
    assert!(programs.read().unwrap().values().all(|one| one.run_ticks.iter().all(BTreeMap::is_empty)));
    assert!(programs.drops().unwrap().unwrap().unknown_cpu > 0);
}

/// The first CPU of each of the first two nodes that have CPUs.
fn two_nodes() -> Option<[(CpuId, NodeId); 2]> {
    let nodes = |file: &str| fs::read_to_string(format!("/sys/devices/system/node/{file}")).ok();
    let with_cpus: NodeSet = nodes("has_cpu")?.trim().parse().unwrap();
    let first_cpu = |node: NodeId| -> CpuId {
        let cpus: CpuSet = nodes(&format!("node{node}/cpulist")).unwrap().trim().parse().unwrap();
        cpus.first().unwrap()
    };
    let mut nodes = with_cpus.iter().map(|node| (first_cpu(node), node));
    Some([nodes.next()?, nodes.next()?])
}

/// Node of every CPU as sysfs has it.
fn node_of_sysfs(cpu: CpuId) -> NodeId {
    let mut entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).unwrap().flatten();
    let number = |name: &str| name.strip_prefix("node")?.parse().ok();
    NodeId(entries.find_map(|entry| number(&entry.file_name().to_string_lossy())).unwrap())
}

const PAGE: usize = 4096;

/// Memory that was touched on one node and is then used from another: each of its pages faults once as
/// remote, moves, and is local from then on.
#[test]
fn hinting_faults_are_local_or_remote() {
    if !permitted() {
        return;
    }
    let Some([(near, near_node), (far, far_node)]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return;
    };
    fs::write("/proc/sys/kernel/numa_balancing", "1").unwrap();
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").unwrap();
    let (mut programs, degraded) = Programs::attach(&options(node_of_sysfs));
    if !programs.has(Hook::HintFaults) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(near);
            let cgroup = OwnCgroup::enter("hint-faults");
            let pages = 10_240;
            let mut memory = vec![0u8; pages * PAGE];
            let mut touch = || memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
            touch();
            run_on(far);
            // The kernel scans once a second of run time; the guest may be slow.
            let mut faults = HintFaults::default();
            for _ in 0..60 {
                let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
                while std::time::Instant::now() < until {
                    touch();
                }
                let counters = programs.read().unwrap();
                let by_node = counters[&cgroup.id()].hint_faults.clone().unwrap();
                faults = by_node.get(&far_node).copied().unwrap_or_default();
                println!("{by_node:?}");
                assert_eq!(by_node.get(&near_node).map_or(0, |faults| faults.remote), 0);
                if faults.remote >= pages as u64 && faults.local > 0 {
                    break;
                }
            }
            let expected = pages as u64 - pages as u64 / 100..=pages as u64 + pages as u64 / 50;
            assert!(expected.contains(&faults.remote), "{faults:?}");
            assert!(faults.migrated * 10 >= faults.remote * 9, "{faults:?}");
            assert!(faults.local > 0, "{faults:?}");
        });
    });
}
