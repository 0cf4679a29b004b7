//! Placements and run time by cgroup and node, and what is not counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use enforcer::observe::bpf::{AttachOptions, CgroupAxis, Hook, Programs};
use enforcer_core::id::{CpuId, NodeId};

use crate::{OwnCgroup, burn, options, permitted, possible, refused, run_anywhere, run_on};

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

/// Each CPU is declared a node of its own with a high number: every move crosses nodes.
///
/// Ticks of the clock are lost while a virtual CPU waits for its host, so they have no lower bound in time:
/// the thread goes to and fro, and three times as much work on one node must show as more ticks.
#[test]
fn moves_and_run_time_are_counted_by_cgroup_and_node() {
    const BURSTS: u64 = 20;
    const LONG_NS: u64 = 75_000_000;
    const SHORT_NS: u64 = 25_000_000;
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
            for _ in 0..BURSTS {
                burn(LONG_NS);
                run_on(*second);
                burn(SHORT_NS);
                run_on(*first);
            }
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
                    ((node(*first).0, node(*second).0), 50 + BURSTS),
                    ((node(*second).0, node(*first).0), 50 + BURSTS)
                ])
            );
            let ticks = counters.run_ticks.unwrap();
            println!("ticks {ticks:?}");
            assert_eq!(ticks.len(), 2, "nothing ran elsewhere: {ticks:?}");
            let (long, short) = (ticks[&node(*first)], ticks[&node(*second)]);
            assert!(long > short && short > 0, "three times as many: {ticks:?}");
            // 99 in a second, and half as many again for what runs between the bursts.
            assert!(long + short <= 99 * BURSTS * (LONG_NS + SHORT_NS) / 1_000_000_000 * 3 / 2, "{ticks:?}");

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
                let before = own_moves();
                let started = std::thread::spawn(|| (current_cpu(), own_moves().unwrap()));
                let stayed = current_cpu() == first && own_moves() == before;
                let (cpu, moves) = started.join().unwrap();
                if stayed && moves == 0 {
                    silent += u64::from(cpu != first);
                } else {
                    // Placed elsewhere or not, then moved, perhaps to where its creator is.
                    otherwise += 1 + moves;
                }
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
