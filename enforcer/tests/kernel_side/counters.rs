//! Placements and run time by cgroup and node, and what is not counted.

use std::{collections::BTreeMap, fs, time::Duration};

use enforcer_core::policy::RunTimeSource;
use enforcer_kernel::bpf::{
    AttachOptions, CgroupAxis, Hook, KernelCounters, Programs, Sizes, TICK_NS, WatchedCgroup,
};
use numa_topology::id::{CpuId, NodeId};
use rustix::process::Pid;

use crate::{OwnCgroup, burn, options, permitted, possible, refused, run_anywhere, run_on, two_cpus, ways};

#[test]
fn what_is_not_attached_is_degraded_by_name() {
    if !permitted() {
        return;
    }
    let (programs, degraded) = Programs::attach(&options(|_| NodeId(0)));
    let absent: Vec<&str> = programs
        .hooks()
        .iter()
        .filter(|state| state.absent.is_some() && !state.is_newer_than_the_kernel())
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
    let Some([first, second]) = two_cpus() else { return };
    let node = |cpu: CpuId| NodeId(cpu.0 * 100 + 72);
    let (mut programs, degraded) = Programs::attach(&options(node));
    if !programs.has(Hook::Placement) || !programs.has(Hook::RunTime) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let cgroup = OwnCgroup::enter("kernel-side");
            watch_alone(&mut programs, &[cgroup.id()]);
            for _ in 0..50 {
                run_on(second);
                run_on(first);
            }
            for _ in 0..BURSTS {
                burn(LONG_NS);
                run_on(second);
                burn(SHORT_NS);
                run_on(first);
            }
            let counters = programs.read().unwrap().remove(&cgroup.id()).unwrap();
            let placements: BTreeMap<(u32, u32), u64> = counters
                .placements
                .unwrap()
                .iter()
                .map(|one| ((one.src_numa.0, one.dst_numa.0), one.migrated))
                .collect();
            assert_eq!(
                placements,
                BTreeMap::from([
                    ((node(first).0, node(second).0), 50 + BURSTS),
                    ((node(second).0, node(first).0), 50 + BURSTS)
                ])
            );
            let time = counters.run_time.unwrap();
            println!("{time:?}");
            assert_eq!(time.len(), 2, "nothing ran elsewhere: {time:?}");
            let (long, short) = (time[&node(first)].samples, time[&node(second)].samples);
            assert!(long > short && short > 0, "three times as many: {time:?}");
            // 99 in a second, and half as many again for what runs between the bursts.
            assert!(long + short <= 99 * BURSTS * (LONG_NS + SHORT_NS) / 1_000_000_000 * 3 / 2, "{time:?}");
            assert!(time.values().all(|time| time.ns == time.samples * TICK_NS && time.misplaced_ns == 0));

            programs.watch(&BTreeMap::new()).unwrap();
            assert!(programs.read().unwrap().is_empty(), "what is not watched is not told");
        });
    });
    let drops = programs.drops().unwrap().unwrap();
    assert_eq!(drops.total(), 0, "{drops:?}");
}

/// Moves of a cgroup's tasks between nodes so far.
fn moves(programs: &mut Programs, cgroup: u64) -> u64 {
    let counters = programs.read().unwrap().remove(&cgroup).unwrap_or_default();
    between_nodes(&counters)
}

/// Moves to another node, and starts there.
fn between_nodes(counters: &KernelCounters) -> u64 {
    let moves = counters.placements.iter().flatten().filter(|one| one.src_numa != one.dst_numa);
    moves.map(|one| one.count()).sum()
}

/// Watches these cgroups, each for itself; there is room for all.
fn watch_alone(programs: &mut Programs, cgroups: &[u64]) {
    let wanted = cgroups.iter().map(|id| (*id, WatchedCgroup::alone(*id))).collect();
    assert_eq!(programs.watch(&wanted).unwrap(), 0);
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
            watch_alone(&mut programs, &[outer.id(), inner.id()]);
            for _ in 0..10 {
                run_on(second);
                run_on(first);
            }
            assert_eq!((moves(&mut programs, inner.id()), moves(&mut programs, outer.id())), (20, 0));
            let id = inner.id();
            drop(inner);
            let again = OwnCgroup::enter_below(&outer.path, "inner");
            assert_ne!(again.id(), id);
            watch_alone(&mut programs, &[outer.id(), again.id()]);
            assert_eq!(moves(&mut programs, again.id()), 0);
            run_on(second);
            assert_eq!(moves(&mut programs, again.id()), 1);
        });
    });
}

#[test]
fn what_does_not_fit_into_a_map_is_a_drop() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let small = Sizes { move_cells: 0, moves: 2, slots: 4, ..options(|cpu| NodeId(cpu.0)).sizes };
    let full = AttachOptions { sizes: small, ..options(|cpu| NodeId(cpu.0)) };
    let (mut programs, degraded) = Programs::attach(&full);
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let mut watched = BTreeMap::new();
            let ids: Vec<u64> = (0..4)
                .map(|number| {
                    let cgroup = OwnCgroup::enter(&format!("full-{number}"));
                    watched.insert(cgroup.id(), WatchedCgroup::alone(cgroup.id()));
                    assert_eq!(programs.watch(&watched).unwrap(), 0);
                    run_on(second);
                    run_on(first);
                    cgroup.id()
                })
                .collect();
            watched.insert(1 << 40, WatchedCgroup::alone(1 << 40));
            assert_eq!(programs.watch(&watched).unwrap(), 1, "all four slots are taken");
            let counted: u64 = ids.iter().map(|id| moves(&mut programs, *id)).sum();
            let dropped = programs.drops().unwrap().unwrap().map_full;
            assert!(counted <= 2 && counted + dropped >= 8, "{counted} counted, {dropped} dropped");
        });
    });
}

/// There is room for two cgroups: the workload, and one of those that are made below it.
#[test]
fn new_cgroups_without_room_are_counted() {
    if !permitted() {
        return;
    }
    let usual = options(|cpu| NodeId(cpu.0));
    let sizes = Sizes { managed: 2, ..usual.sizes };
    let (mut programs, degraded) = Programs::attach(&AttachOptions { sizes, ..usual });
    if !programs.has(Hook::CgroupTree) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cgroup = OwnCgroup::enter("without-room");
            watch_alone(&mut programs, &[cgroup.id()]);
            let unwatched = |programs: &Programs| programs.drops().unwrap().unwrap().unwatched;
            let heirs = ["one", "two", "three"].map(|name| cgroup.path.join(name));
            for (number, heir) in heirs.iter().enumerate() {
                fs::create_dir(heir).unwrap();
                assert_eq!(unwatched(&programs), number as u64);
                assert_eq!(programs.fill().unwrap(), (2, 2));
            }
            for heir in &heirs {
                fs::remove_dir(heir).unwrap();
            }
        });
    });
}

/// CPU that this thread runs on.
fn current_cpu() -> CpuId {
    CpuId(u32::try_from(rustix::thread::sched_getcpu()).unwrap())
}

/// How often the kernel says that this thread was moved (`set_task_cpu` in kernel/sched/core.c).
fn own_moves() -> Option<u64> {
    moves_of("thread-self")
}

/// Migrations of a sleeping thread: there are none.
fn moves_when_asleep(thread: Pid) -> u64 {
    let thread = format!("self/task/{thread}");
    let is_asleep = || {
        let stat = fs::read_to_string(format!("/proc/{thread}/stat")).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    while !is_asleep() {
        std::thread::sleep(Duration::from_millis(1));
    }
    moves_of(&thread).unwrap()
}

fn moves_of(thread: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{thread}/sched")).ok()?;
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
            watch_alone(&mut programs, &[cgroup.id()]);
            let (mut silent, mut otherwise) = (0, 0);
            let (report, reports) = std::sync::mpsc::channel();
            let gate = std::sync::Arc::new(std::sync::Mutex::new(()));
            let closed = gate.lock().unwrap();
            let mut all = Vec::new();
            for _ in 0..STARTED {
                run_on(first);
                run_anywhere();
                let before = own_moves();
                let (report, gate) = (report.clone(), gate.clone());
                all.push(std::thread::spawn(move || {
                    report.send((current_cpu(), rustix::thread::gettid())).unwrap();
                    drop(gate.lock());
                }));
                let stayed = current_cpu() == first && own_moves() == before;
                let (cpu, thread) = reports.recv().unwrap();
                // All of them sleep until they are counted: one that ends may be moved once more.
                let moves = moves_when_asleep(thread);
                if stayed && moves == 0 {
                    silent += u64::from(cpu != first);
                } else {
                    // Placed elsewhere or not, then moved, perhaps to where its creator is.
                    otherwise += 1 + moves;
                }
            }
            let counters = programs.read().unwrap().remove(&cgroup.id()).unwrap();
            let counted = between_nodes(&counters);
            let starts: u64 = counters.placements.iter().flatten().map(|one| one.started).sum();
            assert_eq!(starts, STARTED as u64, "every start is seen, wherever it is");
            let most = silent + otherwise + own_moves().unwrap();
            drop(closed);
            for one in all {
                one.join().unwrap();
            }
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
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cgroup = OwnCgroup::enter("inside");
            watch_alone(&mut programs, &[cgroup.id()]);
            for cpu in possible().iter().take(2).collect::<Vec<_>>().into_iter().cycle().take(40) {
                run_on(cpu);
            }
            assert_eq!(moves(&mut programs, cgroup.id()), 0);
        });
    });
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
    for way in ways() {
        let (programs, _) =
            Programs::attach(&AttachOptions { functions: way, ..with(CgroupAxis::Unified, false) });
        let hooks = |programs: &Programs| Hook::ALL.map(|hook| programs.has(hook));
        // Where trampolines are refused, kprobes are there instead.
        assert_eq!(hooks(&programs), hooks(&quiet), "{way:?} {:?}", programs.hooks());
    }
    for (axis, log) in [(CgroupAxis::Unified, true), (CgroupAxis::Cpuset, false), (CgroupAxis::Cpuset, true)]
    {
        for run_time in [RunTimeSource::Clock, RunTimeSource::Switches] {
            let (mut programs, _) = Programs::attach(&AttachOptions { run_time, ..with(axis, log) });
            // Not every host has a hierarchy of cgroup v1.
            let hooks =
                |programs: &Programs| Hook::ALL.map(|hook| hook == Hook::CgroupTree || programs.has(hook));
            assert_eq!(
                hooks(&programs),
                hooks(&quiet),
                "{axis:?} log {log} {run_time:?} {:?}",
                programs.hooks()
            );
            run_on(possible().first().unwrap());
            programs.read().unwrap();
        }
    }
}

#[test]
fn a_task_on_a_cpu_without_a_node_is_a_drop() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let mut without_second = options(|_| NodeId(0));
    without_second.cpu_node.retain(|cpu, _| *cpu != second);
    let (mut programs, degraded) = Programs::attach(&without_second);
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let cgroup = OwnCgroup::enter("no-node");
            watch_alone(&mut programs, &[cgroup.id()]);
            run_on(second);
            assert_eq!(moves(&mut programs, cgroup.id()), 0);
            assert!(programs.drops().unwrap().unwrap().unknown_cpu > 0);
        });
    });
}

/// Each CPU is a node, the cgroup may be on the first one only.
#[test]
fn what_runs_where_it_should_not_is_misplaced_and_heirs_count_for_their_workload() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let exact = AttachOptions { run_time: RunTimeSource::Switches, ..options(|cpu| NodeId(cpu.0)) };
    let (mut programs, degraded) = Programs::attach(&exact);
    if ![Hook::Placement, Hook::RunTime, Hook::CgroupTree].into_iter().all(|hook| programs.has(hook)) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let outer = OwnCgroup::enter("misplaced");
            let owner = outer.id();
            let at_first = WatchedCgroup {
                allowed: Some([NodeId(first.0)].into_iter().collect()),
                ..WatchedCgroup::alone(owner)
            };
            assert_eq!(programs.watch(&[(owner, at_first)].into()).unwrap(), 0);
            // The programs are not told of this one.
            let heir = OwnCgroup::enter_below(&outer.path, "heir");
            let (watched, _) = programs.fill().unwrap();
            assert_eq!(watched, 2);
            for _ in 0..5 {
                run_on(second);
                run_on(first);
            }
            burn(200_000_000);
            run_on(second);
            burn(100_000_000);
            run_on(first);
            let counters = programs.read().unwrap().remove(&owner).unwrap();
            let to = |cpu: CpuId| -> u64 {
                let there = counters.placements.iter().flatten().filter(|one| one.dst_numa.0 == cpu.0);
                there.map(|one| one.misplaced).sum()
            };
            assert_eq!((to(second), to(first)), (6, 0));
            let time = counters.run_time.clone().unwrap();
            assert_eq!(time[&NodeId(first.0)].misplaced_ns, 0, "{time:?}");
            let there = time[&NodeId(second.0)];
            assert!(there.misplaced_ns == there.ns && there.ns >= 100_000_000, "{time:?}");

            // From now on it may be on the other one only, and its heir follows.
            let at_second = WatchedCgroup {
                allowed: Some([NodeId(second.0)].into_iter().collect()),
                ..WatchedCgroup::alone(owner)
            };
            assert_eq!(programs.watch(&[(owner, at_second)].into()).unwrap(), 0);
            run_on(second);
            run_on(first);
            let counters = programs.read().unwrap().remove(&owner).unwrap();
            let misplaced: u64 = counters.placements.iter().flatten().map(|one| one.misplaced).sum();
            assert_eq!(misplaced, 7);

            drop(heir);
            let gone = (0..100).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                programs.fill().unwrap().0 == 1
            });
            assert!(gone, "a removed cgroup is watched no longer");
        });
    });
}

/// A row is given to another workload when its owner is gone: the new one starts from zero.
#[test]
fn a_slot_that_changes_hands_starts_from_zero() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let sizes = Sizes { slots: 1, ..options(|cpu| NodeId(cpu.0)).sizes };
    let (mut programs, degraded) = Programs::attach(&AttachOptions { sizes, ..options(|cpu| NodeId(cpu.0)) });
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            for round in 1..4 {
                let cgroup = OwnCgroup::enter(&format!("slot-{round}"));
                watch_alone(&mut programs, &[cgroup.id()]);
                for _ in 0..round {
                    run_on(second);
                    run_on(first);
                }
                burn(50_000_000);
                let counters = programs.read().unwrap().remove(&cgroup.id()).unwrap();
                assert_eq!(between_nodes(&counters), 2 * round);
                if let Some(time) = &counters.run_time {
                    let samples: u64 = time.values().map(|time| time.samples).sum();
                    assert!(samples < 20, "of one round alone: {time:?}");
                }
            }
        });
    });
}
