//! Counts of moved pages by reason and by the moving process; needs two nodes.

use std::process::Command;

use enforcer_core::sample::{OtherPageMoves, PageMoveReason, PageMovesByReason};
use enforcer_kernel::{
    Kernel as _, PageStatus,
    bpf::{AttachOptions, Hook, Programs, WatchedCgroup},
    linux::Linux,
};
use numa_topology::id::NodeId;

use crate::{OwnCgroup, memory::Pages, nodes::two_nodes, options, permitted, refused, run_on};

const COUNT: usize = 64;
const PROCESS: &str = "KERNEL_SIDE_MOVE_PROCESS";
const FIRST: &str = "KERNEL_SIDE_MOVE_FIRST";
const NODE: &str = "KERNEL_SIDE_MOVE_NODE";

/// The process of the test below that moves pages of another.
#[test]
#[ignore = "a process of the test below"]
fn mover() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (Some(pid), Some(first), Some(node)) = (number(PROCESS), number(FIRST), number(NODE)) else { return };
    let pages: Vec<usize> = (0..COUNT).map(|page| usize::try_from(first).unwrap() + page * 4096).collect();
    move_all(u32::try_from(pid).unwrap(), &pages, NodeId(u32::try_from(node).unwrap()));
}

fn move_all(pid: u32, pages: &[usize], to: NodeId) {
    let status = Linux.move_pages(pid, pages, to).unwrap();
    assert!(status.iter().all(|page| *page == PageStatus::On(to)), "{status:?}");
}

/// Pages that the cgroup moved, and that others did.
fn counted(programs: &mut Programs, cgroup: u64) -> (PageMovesByReason, OtherPageMoves) {
    let counters = programs.read().unwrap().remove(&cgroup).unwrap();
    (counters.tallies.page_moves(), programs.other_page_moves().unwrap().unwrap())
}

/// Pages that moved for a reason; the kernel moves some for reasons of its own meanwhile.
fn moved(moves: &PageMovesByReason, reason: PageMoveReason) -> u64 {
    moves.get(&reason).map_or(0, |moves| moves.moved)
}

#[test]
fn pages_are_counted_by_reason_and_by_mover() {
    if !permitted() {
        return;
    }
    let Some([(near, near_node), (_, far_node)]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return;
    };
    let usual = options(|cpu| NodeId(cpu.0));
    let (mut ours, degraded) = Programs::attach(&usual);
    let (mut unfiltered, _) = Programs::attach(&AttachOptions { own_tgid: None, ..usual });
    if !ours.has(Hook::PageMoves) {
        return refused(&format!("{degraded:?}"));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run_on(near);
            let pages = Pages::touched(COUNT);
            let cgroup = OwnCgroup::enter("page-moves");
            for programs in [&mut ours, &mut unfiltered] {
                programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
            }
            let by = PageMoveReason::Syscall;
            move_all(0, &pages.addresses(), far_node);
            let (of_cgroup, others) = counted(&mut ours, cgroup.id());
            assert_eq!(
                (moved(&others.own, by), moved(&of_cgroup, by)),
                (COUNT as u64, 0),
                "the daemon's own doing"
            );
            let (of_cgroup, others) = counted(&mut unfiltered, cgroup.id());
            assert_eq!(
                (moved(&others.own, by), moved(&of_cgroup, by)),
                (0, COUNT as u64),
                "without an own process"
            );

            // What is there already is not moved again.
            for _ in 0..2 {
                pages.bind(near_node.0).unwrap();
                let (of_cgroup, _) = counted(&mut unfiltered, cgroup.id());
                let by_policy = moved(&of_cgroup, PageMoveReason::Mempolicy);
                assert_eq!((by_policy, moved(&of_cgroup, by)), (COUNT as u64, COUNT as u64));
            }
        });
    });
}

/// Another process moves the pages of this one: neither the daemon nor a workload, as it is in no watched
/// cgroup.
#[test]
fn pages_that_another_process_moves_are_not_the_daemons() {
    if !permitted() {
        return;
    }
    let Some([(near, _), (_, far_node)]) = two_nodes() else {
        println!("skipped: needs two NUMA nodes with CPUs");
        return;
    };
    let (mut programs, degraded) = Programs::attach(&options(|cpu| NodeId(cpu.0)));
    if !programs.has(Hook::PageMoves) {
        return refused(&format!("{degraded:?}"));
    }
    run_on(near);
    let pages = Pages::touched(COUNT);
    crate::run_anywhere();
    let status = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "pages::mover"])
        .env(PROCESS, std::process::id().to_string())
        .env(FIRST, pages.addresses()[0].to_string())
        .env(NODE, far_node.0.to_string())
        .status()
        .unwrap();
    assert!(status.success(), "{status:?}");
    let others = programs.other_page_moves().unwrap().unwrap();
    let by = PageMoveReason::Syscall;
    assert_eq!((moved(&others.elsewhere, by), moved(&others.own, by)), (COUNT as u64, 0), "{others:?}");
    // An unwatched cgroup is counted for no workload.
    assert!(programs.read().unwrap().is_empty());
}
