//! The clock, tick by tick: the program runs when the test says so (`BPF_PROG_TEST_RUN`), and on which CPU.

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use enforcer_core::sample::RunTime;
use enforcer_kernel::bpf::{AttachOptions, Programs, TICK_NS, WatchedCgroup};
use numa_topology::{
    id::{CpuId, NodeId},
    set::NodeSet,
};

use crate::{OwnCgroup, burn, options, permitted, refused, run_on, two_cpus};

/// Enough to see one that is missing.
const TICKS: u64 = 100;

/// Each CPU is a node of its own.
fn node(cpu: CpuId) -> NodeId {
    NodeId(cpu.0 * 100 + 72)
}

fn load(options: &AttachOptions) -> Option<Programs> {
    if !permitted() {
        return None;
    }
    Programs::rehearsal(options).inspect_err(|error| refused(error)).ok()
}

/// Watches the cgroup; what runs elsewhere than on that node is misplaced.
fn watch(programs: &mut Programs, id: u64, allowed: NodeId) {
    let allowed = Some(NodeSet::from_iter([allowed]));
    let unwatched =
        programs.watch(&[(id, WatchedCgroup { owner: id, allowed, heirs: true })].into()).unwrap();
    assert_eq!(unwatched, 0);
}

fn counted(programs: &mut Programs, id: u64) -> BTreeMap<NodeId, RunTime> {
    programs.read().unwrap().remove(&id).unwrap().run_time.unwrap()
}

fn tick(programs: &Programs, cpu: CpuId) {
    for _ in 0..TICKS {
        programs.rehearse_tick(cpu).unwrap();
    }
}

#[test]
fn every_tick_is_counted_once_for_its_task_and_node() {
    let (Some(mut programs), Some([first, second])) = (load(&options(node)), two_cpus()) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let cgroup = OwnCgroup::enter("rehearsal");
            // No workload is watched yet.
            tick(&programs, first);
            watch(&mut programs, cgroup.id(), node(second));
            // Control: the clock itself is not attached.
            burn(50_000_000);
            assert_eq!(counted(&mut programs, cgroup.id()), BTreeMap::new());

            tick(&programs, first);
            let time = |misplaced| RunTime {
                ns: TICKS * TICK_NS,
                misplaced_ns: if misplaced { TICKS * TICK_NS } else { 0 },
                samples: TICKS,
            };
            let mut expected = BTreeMap::from([(node(first), time(true))]);
            assert_eq!(counted(&mut programs, cgroup.id()), expected);
            run_on(second);
            tick(&programs, second);
            expected.insert(node(second), time(false));
            assert_eq!(counted(&mut programs, cgroup.id()), expected);
            assert_eq!(programs.drops().unwrap().unwrap().total(), 0);
        });
    });
}

#[test]
fn a_tick_on_a_cpu_without_a_node_is_a_drop() {
    let Some([first, second]) = two_cpus() else { return };
    let known = options(node);
    let cpu_node = known.cpu_node.iter().filter(|(cpu, _)| **cpu != second).map(|(cpu, node)| (*cpu, *node));
    let options = AttachOptions { cpu_node: cpu_node.collect(), ..known.clone() };
    let Some(mut programs) = load(&options) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(second);
            let cgroup = OwnCgroup::enter("rehearsal-drop");
            watch(&mut programs, cgroup.id(), node(first));
            tick(&programs, second);
            assert_eq!(counted(&mut programs, cgroup.id()), BTreeMap::new());
            let drops = programs.drops().unwrap().unwrap();
            assert_eq!((drops.unknown_cpu, drops.total()), (TICKS, TICKS));
        });
    });
}

/// Lets the other thread end, also where this one panics.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn tick_of_another_cpu_counts_for_the_task_there() {
    let (Some(mut programs), Some([first, second])) = (load(&options(node)), two_cpus()) else { return };
    let over = AtomicBool::new(false);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            run_on(second);
            let cgroup = OwnCgroup::enter("rehearsal-other");
            send.send(cgroup.id()).unwrap();
            while !over.load(Ordering::Relaxed) {
                burn(100_000);
            }
        });
        let programs = &mut programs;
        scope.spawn(move || {
            let _ended = End(over);
            run_on(first);
            let id = receive.recv().unwrap();
            watch(programs, id, node(second));
            // Others may run there too, and a tick is theirs then; in the end it is this one's turn.
            let mut ticked = 0;
            while counted(programs, id).is_empty() {
                assert!(ticked < 100 * TICKS, "of {ticked} ticks it had none");
                std::thread::sleep(Duration::from_millis(1));
                programs.rehearse_tick(second).unwrap();
                ticked += 1;
            }
            let ran = counted(programs, id);
            let there = RunTime { ns: TICK_NS, misplaced_ns: 0, samples: 1 };
            assert_eq!(ran, [(node(second), there)].into());
        });
    });
}
