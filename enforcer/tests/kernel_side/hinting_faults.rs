//! NUMA hinting faults; needs two nodes.

use std::fs;

use enforcer_core::sample::{HintFaults, PageMoveReason};
use enforcer_kernel::bpf::{AttachOptions, CgroupAxis, FunctionTracing, Hook, Programs, WatchedCgroup};
use numa_topology::id::NodeId;

use crate::{
    OwnCgroup,
    agreement::{compare_balancer, read_tasks},
    attached_by, axis,
    nodes::{node_of_sysfs, two_nodes},
    options, permitted, refused, run_on, thread_id, ways,
};

const PAGE: usize = 4096;

/// Compares the balancer's view of this thread in the iterator's record and in `sched`; its faults move to
/// the far node. The kernel takes faults over from a buffer with its next scan (`task_numa_placement`), for
/// which the thread must use its memory. False while that has not happened, or the counts change.
fn agrees_with_sched(near: NodeId, far: NodeId, mut touch_for_a_second: impl FnMut()) -> bool {
    (0..60).any(|_| {
        touch_for_a_second();
        let sched = || fs::read_to_string("/proc/thread-self/sched").unwrap();
        let numa = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.contains("numa_")).map(str::to_owned).collect()
        };
        let before = sched();
        let Some(tasks) = read_tasks() else { return true };
        let task = tasks.iter().find(|task| task.tid == thread_id()).unwrap();
        let nodes = task.faults_by_node.as_ref().unwrap();
        let known = nodes.contains_key(&far) && numa(&sched()) == numa(&before);
        println!("{:?} {:?} {nodes:?}", task.preferred_node, task.numa_faults);
        if known {
            compare_balancer(task, &before);
            assert!(nodes.keys().all(|node| [near, far].contains(node)), "{nodes:?}");
            assert_eq!(task.numa_faults, Some(nodes.values().sum()));
            // Control: kernel threads have no memory, and so no faults.
            let mut others = tasks.iter().filter(|task| task.kernel_thread);
            assert!(others.all(|task| task.faults_by_node == Some(std::collections::BTreeMap::new())));
        }
        known
    })
}

/// Has the balancer look at memory every second of run time, also where nothing it finds can be moved, which
/// makes it look half as often each time. The knob moved from sysctl to debugfs in Linux 5.13; without either
/// the tests wait longer.
fn scan_every_second() {
    let debugfs = "/sys/kernel/debug/sched/numa_balancing/scan_period_max_ms";
    let sysctl = "/proc/sys/kernel/numa_balancing_scan_period_max_ms";
    let set = [debugfs, sysctl].map(|knob| fs::write(knob, "1000"));
    println!("longest scan period is one second: {}", set.iter().any(Result::is_ok));
}

/// Pages of this process that are in memory.
fn resident_pages() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Memory that was touched on one node and is then used from another: each of its pages faults as
/// remote, moves once, and is local from then on.
#[test]
fn hinting_faults_are_local_or_remote() {
    faults_are_local_or_remote(FunctionTracing::Trampolines);
}

/// In a process of its own: the kernel remembers what a process has faulted on.
#[test]
fn hinting_faults_are_the_same_by_kprobes() {
    faults_are_local_or_remote(FunctionTracing::PerfProbes);
}

#[test]
fn hinting_faults_are_the_same_by_kprobes_without_perf_events() {
    faults_are_local_or_remote(FunctionTracing::MultiProbes);
}

fn faults_are_local_or_remote(functions: FunctionTracing) {
    if !permitted() {
        return;
    }
    let Some([(near, near_node), (far, far_node)]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return;
    };
    if !ways().contains(&functions) {
        println!("this kernel is not built for {functions:?}");
        return;
    }
    fs::write("/proc/sys/kernel/numa_balancing", "1").unwrap();
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").unwrap();
    // Page moves of this process do not count as the daemon's.
    let foreign = AttachOptions { own_tgid: None, functions, ..options(node_of_sysfs) };
    let (mut programs, degraded) = Programs::attach(&foreign);
    if !attached_by(&programs, Hook::HintFaults, functions) {
        return refused(&format!("{functions:?}: {degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(near);
            let cgroup = OwnCgroup::enter("hint-faults");
            programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
            let pages = 10_240;
            let enough = pages as u64 - pages as u64 / 100;
            let mut memory = vec![0u8; pages * PAGE];
            let mut touch = || memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
            touch();
            run_on(far);
            let mut touch_for_a_second = || {
                let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
                while std::time::Instant::now() < until {
                    touch();
                }
            };
            // The kernel scans once a second of run time; the guest may be slow.
            let (mut faults, mut elsewhere) = (HintFaults::default(), 0);
            for _ in 0..60 {
                touch_for_a_second();
                let counters = programs.read().unwrap();
                let by_node = counters[&cgroup.id()].hint_faults.clone().unwrap();
                faults = by_node.get(&far_node).copied().unwrap_or_default();
                println!("{by_node:?}");
                elsewhere = by_node.get(&near_node).map_or(0, |faults| faults.remote);
                if faults.migrated >= enough && faults.local > 0 {
                    break;
                }
            }
            // The harness's own threads are in the cgroup too, and run where they like: one of their huge
            // pages is 512.
            assert!(elsewhere <= pages as u64 / 10, "{elsewhere} on the node of the memory");
            // No page moves twice: not those, nor what tests before this one left in the process. Once a
            // task has been scanned a few times, a page faults once more before it moves: then the kernel
            // knows that the same task came again (`should_numa_migrate_memory`, kernel/sched/fair.c).
            let most = resident_pages() * 11 / 10;
            assert!((enough..=most).contains(&faults.migrated), "{faults:?}, at most {most} pages");
            assert!(
                (faults.migrated..=2 * most).contains(&faults.remote),
                "{faults:?}, at most {most} pages"
            );
            assert!(faults.migrate_failed * 10 <= faults.remote, "{faults:?}");
            assert!(faults.local > 0, "{faults:?}");
            if programs.has(Hook::PageMoves) {
                let moves = programs.read().unwrap()[&cgroup.id()].tallies.page_moves();
                println!("{moves:?}");
                let balancing = moves.get(&PageMoveReason::Balancing).copied().unwrap_or_default();
                assert!(balancing.moved >= faults.migrated, "{moves:?} {faults:?}");
            }
            assert!(agrees_with_sched(near_node, far_node, touch_for_a_second), "the balancer knows of them");
        });
    });
}

/// Memory of a cgroup that is bound to one node faults as remote again and again and never moves; from
/// Linux 6.17 on the kernel does not look at it, and then nothing is counted. The control is the test above:
/// the same memory without a bound faults once and moves.
#[test]
fn pages_that_may_not_move_fail_to_or_do_not_fault() {
    const PAGES: usize = 5_120;
    if !permitted() {
        return;
    }
    let Some([(near, near_node), (far, far_node)]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return;
    };
    let (CgroupAxis::Unified, mount) = axis() else {
        println!("skipped: needs the cpuset controller on cgroup v2");
        return;
    };
    fs::write(mount.join("cgroup.subtree_control"), "+cpuset").unwrap();
    fs::write("/proc/sys/kernel/numa_balancing", "1").unwrap();
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").unwrap();
    scan_every_second();
    let (mut programs, degraded) = Programs::attach(&options(node_of_sysfs));
    if !programs.has(Hook::HintFaults) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cgroup = OwnCgroup::enter("bound-faults");
            fs::write(cgroup.path.join("cpuset.mems"), near_node.to_string()).unwrap();
            run_on(near);
            programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
            let mut memory = vec![0u8; PAGES * PAGE];
            let mut touch = || memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = byte.wrapping_add(1));
            touch();
            run_on(far);
            let mut faults = HintFaults::default();
            // A period that grows to a minute, in a guest that shares its CPUs with other guests.
            for second in 0..150 {
                let until = std::time::Instant::now() + std::time::Duration::from_secs(1);
                while std::time::Instant::now() < until {
                    touch();
                }
                let counters = programs.read().unwrap();
                faults =
                    counters[&cgroup.id()].hint_faults.clone().unwrap().remove(&far_node).unwrap_or_default();
                let nothing_looks = second >= 30 && faults == HintFaults::default();
                if faults.remote >= 2 * PAGES as u64 || nothing_looks {
                    break;
                }
            }
            println!("{faults:?}");
            if faults == HintFaults::default() {
                return;
            }
            // Each page more than once, which no page does that moves.
            assert!(faults.remote >= PAGES as u64 * 3 / 2, "{faults:?}");
            // Not each is tried to be moved (`should_numa_migrate_memory` in kernel/sched/fair.c).
            assert!(faults.migrate_failed >= PAGES as u64 / 2, "{faults:?}");
            assert!(
                faults.migrated * 20 <= faults.remote && faults.local * 20 <= faults.remote,
                "{faults:?}"
            );
        });
    });
}
