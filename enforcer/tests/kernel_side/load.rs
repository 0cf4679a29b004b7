//! Many moves at once, from several threads: nothing that is counted gets lost, and what is not told is
//! counted to the event.
//!
//! The kernel's own count of each thread is the control: `se.nr_migrations` grows in `set_task_cpu`, beside
//! the tracepoint (kernel/sched/core.c).

use std::{
    fs,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use enforcer_kernel::bpf::{
    AttachOptions, CgroupAxis, EVENT_INTERVAL_NS, Hook, Programs, Sizes, WatchedCgroup,
};
use numa_topology::id::NodeId;

use crate::{OwnCgroup, axis, options, permitted, refused, run_on, two_cpus};

const THREADS: usize = 4;

/// Where moves are counted, and what becomes of their events.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    /// Is there a cell for every pair of nodes, or only a hash of those that are used?
    cells: bool,
    event_interval_ns: u64,
    event_bytes: u32,
    /// Is the ring drained meanwhile?
    drained: bool,
}

const USUAL: Load = Load {
    name: "usual",
    cells: true,
    event_interval_ns: EVENT_INTERVAL_NS,
    event_bytes: 1 << 18,
    drained: true,
};

const LOADS: [Load; 4] = [
    USUAL,
    Load { name: "hash", cells: false, ..USUAL },
    // How much of it is told depends on how fast both are.
    Load { name: "all-told", event_interval_ns: 0, event_bytes: 1 << 12, ..USUAL },
    Load { name: "full-ring", event_interval_ns: 0, event_bytes: 1 << 12, drained: false, ..USUAL },
];

/// Moves of all threads of a cgroup so far, by the kernel's own count; `None` where it does not tell.
fn moved(cgroup: &OwnCgroup) -> Option<u64> {
    let file = if axis().0 == CgroupAxis::Cpuset { "tasks" } else { "cgroup.threads" };
    let threads = fs::read_to_string(cgroup.path.join(file)).unwrap();
    let of = |tid: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/self/task/{tid}/sched")).ok()?;
        let line = text.lines().find(|line| line.starts_with("se.nr_migrations"))?;
        line.split(':').nth(1)?.trim().parse().ok()
    };
    threads.lines().map(of).sum()
}

/// Forces at least so many moves between two CPUs, each of which is a node, and compares all counts.
fn bounce(load: Load, forced: usize) {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let usual = options(|cpu| NodeId(cpu.0));
    let Load { event_interval_ns, event_bytes, .. } = load;
    assert!(usual.sizes.move_cells > 0, "two CPUs are few nodes: {:?}", usual.sizes);
    let sizes = if load.cells {
        Sizes { event_bytes, ..usual.sizes }
    } else {
        Sizes { event_bytes, move_cells: 0, moves: 64, ..usual.sizes }
    };
    let (mut programs, degraded) = Programs::attach(&AttachOptions { event_interval_ns, sizes, ..usual });
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    let rounds = forced.div_ceil(2 * THREADS);
    thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let cgroup = OwnCgroup::enter(&format!("load-{}", load.name));
            run_on(first);
            let owner = cgroup.id();
            let at_first =
                WatchedCgroup { allowed: Some([NodeId(first.0)].into_iter().collect()), ..WatchedCgroup::alone(owner) };
            let Some(before) = moved(&cgroup) else {
                println!("skipped: needs /proc/PID/sched");
                return;
            };
            assert_eq!(programs.watch(&[(owner, at_first)].into()).unwrap(), 0);
            let (done, all_are) = (AtomicUsize::new(0), Barrier::new(THREADS + 1));
            let began = Instant::now();
            thread::scope(|workers| {
                for _ in 0..THREADS {
                    workers.spawn(|| {
                        for _ in 0..rounds {
                            run_on(second);
                            run_on(first);
                        }
                        done.fetch_add(1, Ordering::Release);
                        // It stays, and where it is, until its moves are read.
                        all_are.wait();
                    });
                }
                while done.load(Ordering::Acquire) < THREADS {
                    if load.drained {
                        programs.drain();
                    }
                    thread::sleep(Duration::from_millis(10));
                }
                let took = began.elapsed();
                let moved = moved(&cgroup).unwrap() - before;
                let counters = programs.read().unwrap().remove(&owner).unwrap();
                let (mut migrated, mut misplaced) = (0, 0);
                for one in counters.placements.iter().flatten() {
                    migrated += one.migrated;
                    misplaced += one.misplaced;
                }
                let drops = programs.drops().unwrap().unwrap();
                let told = programs.take_events().unwrap().told;
                println!(
                    "{}: {moved} moves in {took:?}, {migrated} counted; of {misplaced} misplaced {told} told, {} \
                     limited, {} dropped",
                    load.name, drops.limited, drops.events
                );
                all_are.wait();
                assert!(moved >= (2 * THREADS * rounds) as u64, "each was forced: {moved}");
                assert_eq!(migrated, moved, "none is lost, none is made up");
                assert!(misplaced >= moved / 2, "half of them: {misplaced} of {moved}");
                assert_eq!(told + drops.limited + drops.events, misplaced, "each is accounted for");
                assert_eq!(drops.total(), 0, "{drops:?}");
                match (load.drained, load.event_interval_ns) {
                    (true, 0) => {}
                    (false, 0) => assert!(drops.events > misplaced / 2, "the ring was not drained: {drops:?}"),
                    _ => assert!(drops.limited > misplaced / 2, "too many to tell: {drops:?}"),
                }
            });
        });
    });
}

#[test]
fn no_move_is_lost_under_load() {
    for load in LOADS {
        bounce(load, 10_000);
    }
}

/// As many as 100,000 a second for 10 s.
#[test]
#[ignore = "takes minutes: run it with --ignored"]
fn of_a_million_moves_none_is_lost() {
    for load in LOADS {
        bounce(load, 1_000_000);
    }
}
