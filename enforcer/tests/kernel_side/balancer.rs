//! What the kernel's balancer does with tasks, and where it does not look; needs two nodes.

use std::{
    fs,
    time::{Duration, Instant},
};

use enforcer_core::sample::{BalancerSteps, Count as _, HintFaults, ScanSkips};
use enforcer_kernel::bpf::{Hook, Programs, WatchedCgroup};
use numa_topology::id::{CpuId, NodeId};

use crate::{
    OwnCgroup,
    memory::Pages,
    nodes::{node_of_sysfs, two_nodes},
    options, permitted, refused, run_anywhere, run_on,
};

/// Longest time until the balancer does something, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(100);

fn balancing(mode: u32) {
    fs::write("/proc/sys/kernel/numa_balancing", mode.to_string()).unwrap();
}

fn steps(programs: &mut Programs, cgroup: u64) -> BalancerSteps {
    programs.read().unwrap()[&cgroup].tallies.balancer()
}

fn any(steps: BalancerSteps) -> bool {
    steps != BalancerSteps::default()
}

/// Touches memory for so long.
fn use_for(pages: &mut Pages, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        pages.touch();
    }
}

/// A task that is put away from its memory and then let go is brought back, or that is tried; not while
/// balancing is off.
#[test]
fn the_balancers_steps_are_counted_where_it_makes_any() {
    if !permitted() {
        return;
    }
    let Some([(near, _), (far, _)]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return;
    };
    let (mut programs, degraded) = Programs::attach(&options(node_of_sysfs));
    if !programs.has(Hook::Balancer) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(near);
            let mut pages = Pages::touched(4_096);
            let cgroup = OwnCgroup::enter("balancer");
            programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
            let bounce = |pages: &mut Pages| {
                run_on(near);
                use_for(pages, Duration::from_secs(3));
                run_on(far);
                use_for(pages, Duration::from_millis(200));
                run_anywhere();
                use_for(pages, Duration::from_secs(2));
            };
            balancing(0);
            bounce(&mut pages);
            let off = steps(&mut programs, cgroup.id());
            assert!(!any(off), "balancing is off: {off:?}");
            balancing(1);
            let begun = Instant::now();
            while !any(steps(&mut programs, cgroup.id())) && begun.elapsed() < LIMIT {
                bounce(&mut pages);
            }
            let on = steps(&mut programs, cgroup.id());
            println!("{on:?} after {:?}", begun.elapsed());
            assert!(any(on), "{on:?}");
        });
    });
}

/// A CPU, its node and the programs, with the balancer on; `None` where this cannot be tested, or the kernel
/// has no such tracepoint, which must be the reason that is given then.
fn watching(hook: Hook, tracepoint: &str) -> Option<(CpuId, NodeId, Programs)> {
    if !permitted() {
        return None;
    }
    let Some([(near, near_node), _]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return None;
    };
    let (programs, _) = Programs::attach(&options(node_of_sysfs));
    if !programs.has(hook) {
        let state = programs.hooks().iter().find(|state| state.hook == hook).unwrap();
        let why = state.absent.as_deref().unwrap();
        assert!(why.contains(&format!("no tracepoint {tracepoint}")), "{why}");
        return None;
    }
    balancing(1);
    Some((near, near_node, programs))
}

/// Where a cpuset has memory of one node, newer kernels do not scan: then that is seen, and nothing faults.
/// Where it has two, it is not.
#[test]
fn a_cpuset_of_one_node_is_seen_not_to_be_scanned() {
    let Some((near, near_node, mut programs)) = watching(Hook::TaskSkips, "sched_skip_cpuset_numa") else {
        return;
    };
    for mems in ["", &near_node.0.to_string()] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                run_on(near);
                let cgroup = OwnCgroup::enter("task-skips");
                if fs::write(cgroup.path.join("cpuset.mems"), mems).is_err() {
                    return refused("no cpuset controller on cgroup v2");
                }
                programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
                let mut pages = Pages::touched(4_096);
                let seen = |programs: &mut Programs| {
                    let counters = programs.read().unwrap().remove(&cgroup.id()).unwrap();
                    let faults = counters.hint_faults.unwrap().into_values().fold(
                        HintFaults::default(),
                        |mut sum, more| {
                            sum.add(&more);
                            sum
                        },
                    );
                    let skips: ScanSkips = counters.tallies.scan_skips(true, true).unwrap();
                    (skips.one_node.unwrap(), faults.local + faults.remote)
                };
                let begun = Instant::now();
                let mut now = seen(&mut programs);
                while now == (0, 0) && begun.elapsed() < LIMIT {
                    use_for(&mut pages, Duration::from_secs(1));
                    now = seen(&mut programs);
                }
                println!("cpuset.mems {mems:?}: {now:?} skips and faults");
                let (skips, faults) = now;
                assert_eq!((skips > 0, faults > 0), (!mems.is_empty(), mems.is_empty()), "{now:?}");
            });
        });
    }
}

/// Mappings that are bound to a node are not scanned, others are.
#[test]
fn mappings_that_are_bound_are_seen_not_to_be_scanned() {
    const MAPPINGS: usize = 200;
    let Some((near, near_node, mut programs)) = watching(Hook::MappingSkips, "sched_skip_vma_numa") else {
        return;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(near);
            let cgroup = OwnCgroup::enter("mapping-skips");
            programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
            let mut pages = Pages::touched(4_096);
            let skips = |programs: &mut Programs| {
                let counters = programs.read().unwrap().remove(&cgroup.id()).unwrap();
                counters.tallies.scan_skips(true, true).unwrap()
            };
            // Every scan passes over some, such as those of the vDSO.
            let begun = Instant::now();
            while skips(&mut programs).unsuitable == Some(0) && begun.elapsed() < LIMIT {
                use_for(&mut pages, Duration::from_secs(1));
            }
            use_for(&mut pages, Duration::from_secs(5));
            let free = skips(&mut programs);
            let bound: Vec<Pages> = (0..MAPPINGS).map(|_| Pages::touched(2)).collect();
            for pages in &bound {
                pages.bind(near_node.0).unwrap();
            }
            let more = |now: ScanSkips| now.unsuitable.unwrap() - free.unsuitable.unwrap();
            let begun = Instant::now();
            while more(skips(&mut programs)) < MAPPINGS as u64 && begun.elapsed() < LIMIT {
                use_for(&mut pages, Duration::from_secs(1));
            }
            let now = skips(&mut programs);
            println!("{free:?} without, {now:?} with {MAPPINGS} bound mappings");
            assert!(free.unsuitable.unwrap() < MAPPINGS as u64 / 2, "{free:?}");
            assert!(more(now) >= MAPPINGS as u64, "{free:?} {now:?}");
        });
    });
}
