//! Counters of memory accesses: software events take their way, because few machines have the others.

use enforcer_core::{
    hardware::{AccessEvents, Candidates, NearCounts, PerfEvent, TYPE_SOFTWARE},
    sample::{Count as _, HardwareAccesses},
};
use enforcer_kernel::bpf::{AttachOptions, HardwareEvents, Hook, Programs, WatchedCgroup};
use numa_topology::id::{CpuId, NodeId};

use crate::{OwnCgroup, options, permitted, refused, run_anywhere, run_on, two_cpus};

/// `PERF_COUNT_SW_PAGE_FAULTS` and `PERF_COUNT_SW_CONTEXT_SWITCHES` (`include/uapi/linux/perf_event.h`).
const PAGE_FAULTS: u64 = 2;
const CONTEXT_SWITCHES: u64 = 3;
/// A type that no PMU has.
const NO_PMU: u32 = u32::MAX - 1;

const fn event(kind: u32, config: u64) -> PerfEvent {
    PerfEvent { kind, config, config1: 0 }
}

/// Switches are near accesses, faults are remote ones.
const SOFTWARE: AccessEvents = AccessEvents {
    name: "software",
    near: event(TYPE_SOFTWARE, CONTEXT_SWITCHES),
    counts: NearCounts::Local,
    remote: event(TYPE_SOFTWARE, PAGE_FAULTS),
};
/// The second event of it cannot be opened.
const HALF: AccessEvents = AccessEvents { name: "half", remote: event(NO_PMU, 0), ..SOFTWARE };

/// Each CPU is a node of its own with a high number.
fn node(cpu: CpuId) -> NodeId {
    NodeId(cpu.0 * 100 + 72)
}

fn opening(events: &[AccessEvents]) -> AttachOptions {
    let candidates = Candidates { events: events.to_vec(), only_generic: None };
    AttachOptions { hardware: HardwareEvents { candidates, period: 1 }, ..options(node) }
}

/// Touches so many pages for the first time, one fault each. They are handed back so that the next ones are
/// others.
fn fault(pages: usize) -> Vec<u8> {
    const PAGE: usize = 4_096;
    // Above this malloc maps anew always (`DEFAULT_MMAP_THRESHOLD_MAX`, malloc/malloc.c of glibc); below it
    // it may hand out what another test has touched and freed.
    const FRESH: usize = 40 << 20;
    let mut memory = vec![0u8; FRESH.max(pages * PAGE)];
    memory.iter_mut().step_by(PAGE).take(pages).for_each(|byte| *byte = 1);
    memory
}

/// This thread leaves its CPU so many times.
fn leave(times: u32) {
    for _ in 0..times {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// How often this thread was switched out so far, by the kernel's own count: a busy host adds to it.
fn switched_out() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    counts.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
}

#[test]
fn accesses_are_counted_by_workload_and_node() {
    const FAULTS: usize = 3_000;
    const SWITCHES: u32 = 400;
    if !permitted() {
        return;
    }
    let Some([first, second]) = two_cpus() else { return };
    // The first pair cannot be opened whole: the next one is.
    let (mut programs, degraded) = Programs::attach(&opening(&[HALF, SOFTWARE]));
    if !programs.has(Hook::Hardware) {
        return refused(&format!("{degraded:?}"));
    }
    // A huge page would be one fault.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(first);
            let cgroup = OwnCgroup::enter("hardware");
            run_on(first);
            let early = fault(FAULTS);
            leave(SWITCHES);
            programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
            let read = |programs: &mut Programs| {
                programs.read().unwrap().remove(&cgroup.id()).unwrap().hardware.unwrap()
            };
            let before = read(&mut programs);
            let begun = switched_out();
            let later = fault(FAULTS);
            run_on(second);
            let preempted = switched_out() - begun;
            leave(SWITCHES);
            let counted = read(&mut programs);
            let left = switched_out() - begun - preempted;
            println!("{before:?} {counted:?}");
            let of = |cpu: CpuId| {
                let [now, then] =
                    [&counted, &before].map(|all| all.get(&node(cpu)).copied().unwrap_or_default());
                now.minus(&then)
            };
            let (faults, switches) = (FAULTS as u64, u64::from(SWITCHES));
            // Something else of the harness may run in the cgroup; it does less than this.
            assert!((faults - faults / 50..faults * 3 / 2).contains(&of(first).remote), "{counted:?}");
            assert!(of(second).remote < faults / 2, "{counted:?}");
            // A sleep that is over before it began leaves no CPU.
            let expected = switches - switches / 10..left.max(switches) + switches / 2;
            assert!(expected.contains(&of(second).local), "{left} left: {counted:?}");
            assert!(of(first).local < preempted + switches / 2, "{preempted} preempted: {counted:?}");
            let each_is_a_sample = |one: &HardwareAccesses| one.samples == one.local + one.remote;
            assert!(counted.values().all(each_is_a_sample), "{counted:?}");
            // What was done before it was watched is in no figure.
            let unwatched: u64 = before.values().map(|one| one.samples).sum();
            assert!(unwatched < switches, "{before:?}");
            drop((early, later));
            run_anywhere();
        });
    });
    rustix::thread::disable_transparent_huge_pages(false).unwrap();
    let drops = programs.drops().unwrap().unwrap();
    assert_eq!(drops.total(), 0, "{drops:?}");
}

#[test]
fn counters_that_are_not_there_are_named_with_what_was_tried() {
    if !permitted() {
        return;
    }
    let (programs, degraded) = Programs::attach(&opening(&[HALF]));
    assert!(!programs.has(Hook::Hardware));
    assert_eq!(programs.nothing().hardware, None);
    let entry = degraded.iter().find(|entry| entry.source == Hook::Hardware.source());
    let Some(entry) = entry else { return refused(&format!("{degraded:?}")) };
    println!("{entry:?}");
    assert!(entry.reason.contains("half on CPU ") && entry.reason.contains("No such file"), "{entry:?}");
}
