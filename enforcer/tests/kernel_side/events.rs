//! What the ring of events has, and what it has not: exact either way.

use std::collections::BTreeMap;

use enforcer_core::sample::TaskEventKind;
use enforcer_kernel::bpf::{
    AttachOptions, DrainedEvents, EVENT_INTERVAL_NS, Hook, KernelEvent, Programs, Sizes, WatchedCgroup,
};
use numa_topology::id::NodeId;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};

use crate::{OwnCgroup, options, permitted, possible, refused, run_on, thread_id, two_cpus};

/// Bytes that an event takes in the ring, with its header.
const RECORD: u64 = 40;

/// What a load left behind.
struct Seen {
    told: DrainedEvents<KernelEvent>,
    /// Placements where the workload should not be, from the counters.
    misplaced: u64,
    ring_full: u64,
    limited: u64,
    cgroup: u64,
    tid: u32,
    /// The node on which the workload should not be.
    wrong: NodeId,
}

/// Moves a thread of a watched cgroup to a CPU where it should not be and back, so many times, without
/// taking an event out meanwhile. Each CPU is declared a node.
fn bounce(rounds: u32, event_interval_ns: u64, event_bytes: u32) -> Option<Seen> {
    if !permitted() {
        return None;
    }
    let [first, second] = two_cpus()?;
    let usual = options(|cpu| NodeId(cpu.0));
    let sizes = Sizes { event_bytes, ..usual.sizes };
    let (mut programs, degraded) = Programs::attach(&AttachOptions { event_interval_ns, sizes, ..usual });
    if !programs.has(Hook::Placement) {
        refused(&format!("{degraded:?}"));
        return None;
    }
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            run_on(first);
            let cgroup = OwnCgroup::enter(&format!("events-{rounds}"));
            let owner = cgroup.id();
            let at_first = WatchedCgroup {
                allowed: Some([NodeId(first.0)].into_iter().collect()),
                ..WatchedCgroup::alone(owner)
            };
            assert_eq!(programs.watch(&[(owner, at_first)].into()).unwrap(), 0);
            for _ in 0..rounds {
                run_on(second);
                run_on(first);
            }
            let counters = programs.read().unwrap().remove(&owner).unwrap();
            let drops = programs.drops().unwrap().unwrap();
            Seen {
                told: programs.take_events().unwrap(),
                misplaced: counters.placements.iter().flatten().map(|one| one.misplaced).sum(),
                ring_full: drops.events,
                limited: drops.limited,
                cgroup: owner,
                tid: thread_id(),
                wrong: NodeId(second.0),
            }
        });
        Some(load.join().unwrap())
    })
}

#[test]
fn every_event_is_reported_with_its_task_and_nodes() {
    let Some(seen) = bounce(50, 0, 1 << 16) else { return };
    assert!(seen.misplaced >= 50);
    assert_eq!((seen.told.told, seen.ring_full, seen.limited), (seen.misplaced, 0, 0));
    let ours: Vec<_> = seen.told.latest.iter().filter(|event| event.tid == seen.tid).collect();
    assert_eq!(ours.len(), 50);
    for event in &ours {
        assert_eq!(
            (event.owner, event.cgroup, event.kind),
            (seen.cgroup, seen.cgroup, TaskEventKind::Migrated)
        );
        assert!(event.dst_numa == seen.wrong && event.src_numa != seen.wrong, "{event:?}");
    }
    assert!(ours.is_sorted_by_key(|event| event.time_ns));
}

/// An undrained ring holds exactly the records that fit, and the rest is counted.
#[test]
fn a_full_ring_holds_what_fits_and_counts_the_rest() {
    let page = u32::try_from(rustix::param::page_size()).unwrap();
    for (bytes, rounds) in [(page, 4 * page / 40), (1 << 20, 27_000)] {
        let Some(seen) = bounce(rounds, 0, bytes) else { return };
        let fits = u64::from(bytes) / RECORD;
        println!("{bytes} bytes: {} told, {} dropped of {}", seen.told.told, seen.ring_full, seen.misplaced);
        assert_eq!(seen.told.told, fits);
        assert_eq!(seen.ring_full, seen.misplaced - fits);
        assert_eq!(seen.told.told, seen.told.latest.len() as u64 + seen.told.forgotten);
    }
}

/// A few events wake no reader; a half-full ring does.
#[test]
fn half_a_ring_of_events_wakes_the_reader() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let page = u32::try_from(rustix::param::page_size()).unwrap();
    let usual = options(|cpu| NodeId(cpu.0));
    let sizes = Sizes { event_bytes: page, ..usual.sizes };
    let (mut programs, degraded) = Programs::attach(&AttachOptions { event_interval_ns: 0, sizes, ..usual });
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let cgroup = OwnCgroup::enter("events-half");
            let at_first = Some([NodeId(first.0)].into_iter().collect());
            let watch = WatchedCgroup { allowed: at_first, ..WatchedCgroup::alone(cgroup.id()) };
            assert_eq!(programs.watch(&[(cgroup.id(), watch)].into()).unwrap(), 0);
            let filling = programs.filling_fd().unwrap();
            epoll::add(&epoll, filling, epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
            let woken = |longest_s| {
                let longest = Timespec { tv_sec: longest_s, tv_nsec: 0 };
                epoll::wait(&epoll, spare_capacity(&mut Vec::with_capacity(1)), Some(&longest)).unwrap()
            };
            let a_third = u64::from(page) / RECORD / 3;
            for (longest_s, times) in [(0, 0), (10, 1)] {
                for _ in 0..a_third {
                    run_on(second);
                    run_on(first);
                }
                assert_eq!(woken(longest_s), times);
            }
            programs.drain();
            assert_eq!(woken(0), 0, "nothing is left");
        });
    });
}

#[test]
fn one_event_of_a_workload_and_cpu_is_sent_in_an_interval() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    let cpus = possible().iter().count() as u64;
    let Some(seen) = bounce(200, HOUR_NS, 1 << 16) else { return };
    assert!((1..=cpus).contains(&seen.told.told), "one from each CPU: {}", seen.told.told);
    assert_eq!((seen.limited, seen.ring_full), (seen.misplaced - seen.told.told, 0));

    let Some(seen) = bounce(2_000, EVENT_INTERVAL_NS, 1 << 16) else { return };
    let times = || seen.told.latest.iter().map(|event| event.time_ns);
    let span = times().max().unwrap() - times().min().unwrap();
    assert!(seen.told.told <= cpus * (span / EVENT_INTERVAL_NS + 1), "{} in {span} ns", seen.told.told);
    assert_eq!(seen.limited, seen.misplaced - seen.told.told);
}

/// No event stays behind for the next workload of the slot.
#[test]
fn event_belongs_to_the_owner_of_the_slot_when_it_was_sent() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let usual = options(|cpu| NodeId(cpu.0));
    let sizes = Sizes { slots: 1, ..usual.sizes };
    let (mut programs, degraded) = Programs::attach(&AttachOptions { event_interval_ns: 0, sizes, ..usual });
    if !programs.has(Hook::Placement) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let nowhere = |id| {
                BTreeMap::from([(
                    id,
                    WatchedCgroup { allowed: Some([].into_iter().collect()), ..WatchedCgroup::alone(id) },
                )])
            };
            let one = OwnCgroup::enter("events-one");
            programs.watch(&nowhere(one.id())).unwrap();
            run_on(second);
            let (before, tid) = (one.id(), thread_id());
            drop(one);
            let two = OwnCgroup::enter("events-two");
            assert_eq!(programs.watch(&nowhere(two.id())).unwrap(), 0);
            run_on(first);
            let told = programs.take_events().unwrap();
            let owners: Vec<u64> =
                told.latest.iter().filter(|event| event.tid == tid).map(|event| event.owner).collect();
            assert_eq!(owners, [before, two.id()]);
        });
    });
}

/// A cgroup that was created since is named itself; it counts for its workload.
#[test]
fn an_event_of_an_heir_says_in_which_cgroup_it_was() {
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    let usual = options(|cpu| NodeId(cpu.0));
    let (mut programs, degraded) = Programs::attach(&AttachOptions { event_interval_ns: 0, ..usual });
    if ![Hook::Placement, Hook::CgroupTree].into_iter().all(|hook| programs.has(hook)) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let outer = OwnCgroup::enter("events-outer");
            let owner = outer.id();
            let at_first = WatchedCgroup {
                allowed: Some([NodeId(first.0)].into_iter().collect()),
                ..WatchedCgroup::alone(owner)
            };
            assert_eq!(programs.watch(&[(owner, at_first)].into()).unwrap(), 0);
            run_on(second);
            run_on(first);
            let heir = OwnCgroup::enter_below(&outer.path, "heir");
            run_on(second);
            run_on(first);
            let (heirs, tid) = (heir.id(), thread_id());
            let told = programs.take_events().unwrap();
            let ours = told.latest.iter().filter(|event| event.tid == tid);
            let seen: Vec<_> = ours.map(|event| (event.owner, event.cgroup, event.dst_numa)).collect();
            assert_eq!(seen, [(owner, owner, NodeId(second.0)), (owner, heirs, NodeId(second.0))]);
        });
    });
}
