//! Against a kernel in memory.

use std::{fs, time::Duration};

use enforcer_core::{pacing::CallPacerLimits, plan::OutcomeResult};

use super::*;
use crate::step_effect::{Next, StepEffect};
use enforcer_host::HostRoot;
use enforcer_kernel::fake::{FakeCall, FakeKernel};

const START: usize = 0x7f00_0000_0000;

/// A process with `pages` pages of 4 KiB from [`START`], all on node 0.
fn process(pages: usize) -> (tempfile::TempDir, FakeKernel) {
    let dir = tempfile::tempdir().unwrap();
    let proc = dir.path().join("42");
    fs::create_dir(&proc).unwrap();
    let end = START + 2 * pages * 4096;
    fs::write(
        proc.join("numa_maps"),
        format!(
            "400000 default file=/bin/x mapped=3 N1=3 kernelpagesize_kB=4\n\
             7f0000000000 default anon={pages} N0={pages} N1=2 kernelpagesize_kB=4\n"
        ),
    )
    .unwrap();
    fs::write(
        proc.join("maps"),
        format!("00400000-00403000 r-xp 00000000 08:01 7 /bin/x\n{START:x}-{end:x} rw-p 00000000 00:00 0\n"),
    )
    .unwrap();
    let cgroup = dir.path().join("cgroup/below");
    fs::create_dir_all(&cgroup).unwrap();
    fs::write(dir.path().join("cgroup/cgroup.procs"), "").unwrap();
    fs::write(cgroup.join("cgroup.procs"), "0\n42\n43\n").unwrap();
    let kernel = FakeKernel::default();
    kernel.map(42, START, pages, 0);
    (dir, kernel)
}

/// Limits that the speed of this host does not reach.
fn limits() -> PageMoveLimits {
    let pace =
        CallPacerLimits { largest: 2 << 20, call: Duration::from_hours(1), ..CallPacerLimits::default() };
    PageMoveLimits { time: Duration::MAX, pace, ..PageMoveLimits::default() }
}

fn carry_out(dir: &Path, kernel: &FakeKernel, limits: PageMoveLimits) -> StepEffect {
    within(dir, kernel, &mut PageBudget::new(limits, Stop::default()))
}

fn within(dir: &Path, kernel: &FakeKernel, budget: &mut PageBudget) -> StepEffect {
    let from: NodeSet = "0-1".parse().unwrap();
    PageMove::new(kernel, &HostRoot::live().at(dir), budget)
        .carry_out(&dir.join("cgroup"), &from, NodeId(1))
        .into_effect(&from, NodeId(1))
}

#[test]
fn moves_everything_in_small_batches_and_tolerates_a_process_that_is_gone() {
    let (dir, kernel) = process(1300);
    let effect = carry_out(dir.path(), &kernel, limits());
    assert!(
        matches!(&effect.result, OutcomeResult::Applied { read_back } if read_back.starts_with("5324800 bytes of 1 ")),
        "{effect:?}"
    );
    assert_eq!((kernel.count_on(0), kernel.count_on(1)), (0, 1300));
    let sizes: Vec<_> = kernel
        .calls
        .borrow()
        .iter()
        .filter_map(|call| if let FakeCall::Move { pages, .. } = call { Some(*pages) } else { None })
        .collect();
    assert_eq!(sizes, [512, 512, 276]);
}

#[test]
fn says_what_did_not_move_and_goes_on() {
    let (dir, mut kernel) = process(10);
    kernel.stuck = vec![(42, START), (42, START + 4096)];
    let effect = carry_out(dir.path(), &kernel, limits());
    assert_eq!(effect.next, Next::Continue);
    assert!(
        matches!(&effect.result, OutcomeResult::Differs { read_back, .. } if read_back.contains("8192 bytes left: busy")),
        "{effect:?}"
    );
}

#[test]
fn stops_at_the_limit_and_pauses() {
    let (dir, kernel) = process(100);
    let few = PageMoveLimits { bytes: 20 * 4096, pages_per_question: 10, ..limits() };
    let effect = carry_out(dir.path(), &kernel, few);
    assert_eq!(effect.next, Next::Pause);
    assert_eq!(kernel.count_on(1), 20);
    let limits = PageMoveLimits { questions: 30, pages_per_question: 10, ..limits() };
    carry_out(dir.path(), &kernel, limits);
    assert_eq!(kernel.count_on(1), 30, "the first 20 are there already");
}

#[test]
fn a_huge_page_in_which_the_limit_is_reached_counts_as_a_whole() {
    let (dir, mut kernel) = process(1300);
    kernel.huge = [0, 512].map(|first| (42, START + first * 4096..START + (first + 512) * 4096)).to_vec();
    let few = PageMoveLimits { bytes: 100 * 4096, ..limits() };
    let mut budget = PageBudget::new(few, Stop::default());
    for (pages, sum) in [(512, 512), (512, 1024), (100, 1124)] {
        let effect = within(dir.path(), &kernel, &mut budget);
        assert_eq!(kernel.count_on(1), sum);
        assert_eq!(budget.bytes(), pages * 4096);
        let told = format!("{} bytes of 1 processes moved", pages * 4096);
        assert!(
            matches!(&effect.result, OutcomeResult::Unfinished { read_back, .. } if read_back.starts_with(&told)
                && read_back.contains(&format!("{} bytes and 1 processes", (1300 - pages) * 4096))),
            "{effect:?}"
        );
        budget.renew();
    }
}

#[test]
fn a_refusal_for_every_process_fails_the_step() {
    let (dir, mut kernel) = process(10);
    kernel.failing.insert(42, Errno::PERM.raw_os_error());
    let effect = carry_out(dir.path(), &kernel, limits());
    assert_eq!(effect.next, Next::RollBack);
    assert!(
        matches!(&effect.result, OutcomeResult::Failed { error } if error.contains("first 42")),
        "{effect:?}"
    );
    assert_eq!(kernel.count_on(0), 10);
}

#[test]
fn the_limit_is_the_plans_and_is_renewed_for_the_next() {
    let (dir, kernel) = process(100);
    let limits = PageMoveLimits { bytes: 20 * 4096, pages_per_question: 10, ..limits() };
    let mut budget = PageBudget::new(limits, Stop::default());
    within(dir.path(), &kernel, &mut budget);
    let effect = within(dir.path(), &kernel, &mut budget);
    assert_eq!(kernel.count_on(1), 20, "nothing is left for a second step");
    assert!(
        matches!(&effect.result, OutcomeResult::Unfinished { read_back, .. } if read_back.contains("409600 bytes and 1 processes are still to be done")),
        "{effect:?}"
    );
    budget.renew();
    within(dir.path(), &kernel, &mut budget);
    assert_eq!(kernel.count_on(1), 40);
}

#[test]
fn a_step_that_moves_a_part_is_done_with_it_and_leaves_the_rest_to_the_next() {
    let (dir, kernel) = process(100);
    let from: NodeSet = "0".parse().unwrap();
    let mut budget = PageBudget::new(limits(), Stop::default());
    let mut step = |to: u32, pages: Option<u64>| {
        PageMove::new(&kernel, &HostRoot::live().at(dir.path()), &mut budget)
            .at_most(pages.map(|pages| pages * 4096))
            .carry_out(&dir.path().join("cgroup"), &from, NodeId(to))
            .into_effect(&from, NodeId(to))
    };
    for (to, part, on) in [(1, Some(30), [70, 30, 0]), (2, Some(50), [20, 30, 50]), (2, None, [0, 30, 70])] {
        let effect = step(to, part);
        assert_eq!(effect.next, Next::Continue, "{effect:?}");
        assert!(matches!(effect.result, OutcomeResult::Applied { .. }), "{effect:?}");
        assert_eq!([0, 1, 2].map(|node| kernel.count_on(node)), on);
    }
}

#[test]
fn a_stop_or_the_end_of_the_time_leaves_the_rest_for_later() {
    let (dir, kernel) = process(100);
    let stop = Stop::default();
    stop.request();
    let over = PageMoveLimits { time: Duration::ZERO, ..limits() };
    for (mut budget, said) in [
        (PageBudget::new(limits(), stop), "told to end"),
        (PageBudget::new(over, Stop::default()), "time for one turn is over"),
    ] {
        let effect = within(dir.path(), &kernel, &mut budget);
        assert_eq!(effect.next, Next::Pause);
        assert!(
            matches!(&effect.result, OutcomeResult::Unfinished { read_back, .. } if read_back.contains(said)),
            "{effect:?}"
        );
    }
    assert_eq!(kernel.calls.borrow().len(), 0);
}

#[test]
fn huge_pages_are_moved_one_at_a_time() {
    let (dir, kernel) = process(0);
    let huge = 2 << 20;
    let line = "7f0000000000 default file=/x huge N0=3 kernelpagesize_kB=2048\n";
    fs::write(dir.path().join("42/numa_maps"), line).unwrap();
    let end = START + 3 * huge;
    fs::write(dir.path().join("42/maps"), format!("{START:x}-{end:x} rw-p 0 0:0 7 /x\n")).unwrap();
    for index in 0..3 {
        kernel.map(42, START + index * huge, 1, 0);
    }
    carry_out(dir.path(), &kernel, limits());
    let moves: Vec<_> = kernel
        .calls
        .borrow()
        .iter()
        .filter_map(|call| if let FakeCall::Move { pages, .. } = call { Some(*pages) } else { None })
        .collect();
    assert_eq!(moves, [1, 1, 1]);
}

/// A kernel in which the process ends during the `after`th move and another process gets its id.
struct Reusing<'a> {
    kernel: &'a FakeKernel,
    stat: std::path::PathBuf,
    after: usize,
}

impl Kernel for Reusing<'_> {
    fn locate_pages(&self, pid: u32, pages: &[usize]) -> io::Result<Vec<PageStatus>> {
        self.kernel.locate_pages(pid, pages)
    }

    fn move_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>> {
        let answers = self.kernel.move_pages(pid, pages, to);
        let moves =
            self.kernel.calls.borrow().iter().filter(|call| matches!(call, FakeCall::Move { .. })).count();
        if moves == self.after {
            started(&self.stat, 9_000);
        }
        answers
    }

    fn move_shared_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>> {
        self.kernel.move_shared_pages(pid, pages, to)
    }
}

fn started(stat: &Path, ticks: u64) {
    let text = format!("42 (worker) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n");
    fs::write(stat, text).unwrap();
}

#[test]
fn a_number_that_was_given_to_another_process_is_named_and_nothing_of_it_is_counted() {
    let (dir, kernel) = process(1300);
    let stat = dir.path().join("42/stat");
    started(&stat, 700);
    let reusing = Reusing { kernel: &kernel, stat, after: 2 };
    let from: NodeSet = "0-1".parse().unwrap();
    let mut budget = PageBudget::new(limits(), Stop::default());
    let effect = PageMove::new(&reusing, &HostRoot::live().at(dir.path()), &mut budget)
        .carry_out(&dir.path().join("cgroup"), &from, NodeId(1))
        .into_effect(&from, NodeId(1));
    let moves = kernel.calls.borrow().iter().filter(|call| matches!(call, FakeCall::Move { .. })).count();
    assert_eq!(moves, 2, "no call after that");
    let told = ["2097152 bytes of 0 processes moved", "process 42 ended", "2097152 bytes of the call"];
    assert!(
        matches!(&effect.result, OutcomeResult::Differs { read_back, .. }
            if told.iter().all(|words| read_back.contains(words))),
        "{effect:?}"
    );
    // The control: a process that stays.
    let (dir, kernel) = process(1300);
    started(&dir.path().join("42/stat"), 700);
    assert!(matches!(carry_out(dir.path(), &kernel, limits()).result, OutcomeResult::Applied { .. }));
}

/// Mappings of one line each for processes of the cgroup, which are 42 and those below it in `mappers`: the
/// file, how many processes map its pages, and the inode for each.
fn shared(dir: &Path, file: &str, mapmax: u64, mappers: &[(u32, u64)]) {
    let mut procs = "42\n43\n44\n45\n".to_owned();
    for (pid, inode) in mappers {
        fs::create_dir_all(dir.join(pid.to_string())).unwrap();
        let line =
            format!("{START:x} default file={file} dirty=100 mapmax={mapmax} N0=100 kernelpagesize_kB=4\n");
        fs::write(dir.join(format!("{pid}/numa_maps")), line).unwrap();
        let end = START + 100 * 4096;
        let line =
            format!("{START:x}-{end:x} rw-s 00000000 00:01 {inode}   {}\n", file.replace("\\040", " "));
        fs::write(dir.join(format!("{pid}/maps")), line).unwrap();
        procs.push_str(&pid.to_string());
        procs.push('\n');
    }
    fs::write(dir.join("cgroup/below/cgroup.procs"), procs).unwrap();
}

/// As of a database: what its processes share is by far the most of its memory.
#[test]
fn shared_memory_of_the_cgroup_alone_moves_though_several_of_its_processes_map_it() {
    const ZERO: &str = "/dev/zero\\040(deleted)";
    for (file, mapmax, mappers, moves_shared, moved) in [
        (ZERO, 2, &[(42, 7), (43, 7)][..], true, 100),
        (ZERO, 3, &[(42, 7), (43, 7), (44, 7)], true, 100),
        // A process of another cgroup maps it, too, be they more or fewer than the processes of this one.
        (ZERO, 9, &[(42, 7), (43, 7)], true, 0),
        (ZERO, 3, &[(42, 7), (43, 7)], true, 0),
        (ZERO, 2, &[(42, 7)], true, 0),
        // What its other process maps is other memory of that name.
        (ZERO, 2, &[(42, 7), (43, 8)], true, 0),
        ("/dev/shm/x", 4, &[(42, 7), (43, 7), (44, 7)], true, 0),
        ("/dev/shm/x", 3, &[(42, 7), (43, 7), (44, 7)], true, 100),
        // Without CAP_SYS_NICE.
        (ZERO, 2, &[(42, 7), (43, 7)], false, 0),
        // A library is no memory of the workload's own.
        ("/lib/libc.so.6", 2, &[(42, 7), (43, 7)], true, 0),
    ] {
        let (dir, mut kernel) = process(100);
        shared(dir.path(), file, mapmax, mappers);
        kernel.shared = (0..100).map(|page| (42, START + page * 4096)).collect();
        kernel.moves_shared = moves_shared;
        carry_out(dir.path(), &kernel, limits());
        assert_eq!(kernel.count_on(1), moved, "{file}, {mapmax} processes map it, its own {mappers:?}");
    }
}
