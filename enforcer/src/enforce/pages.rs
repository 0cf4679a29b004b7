//! Moves a cgroup's pages from some nodes to another one, a few at a time.
//!
//! Writing `cpuset.mems` makes the kernel move everything in one go, and stalls whoever creates or
//! joins a cgroup meanwhile. So most pages are moved beforehand with `move_pages(2)`, which takes the
//! page tables of one process for one small batch at a time.
//!
//! `numa_maps` says which mappings have pages on the nodes to be left, and how many; `maps` says how
//! far they reach. Each such range is asked for in batches, and the pages on the wrong nodes are moved
//! in smaller ones, then asked for again: only what the kernel then shows on the wanted node counts as
//! moved. (Of a transparent huge page, the call that moves it reports all but one of its 4 KiB
//! parts as busy, although all of them move.)
//!
//! Cost: one question per page of the ranges, up to where the announced pages are found; both the
//! questions and the pages of one step are limited. Memory is bounded by the batch.
//!
//! Processes come and go while this runs: one that is gone is done. Pages that several processes map,
//! and page cache that nobody maps, cannot be moved in this way, and are said to be left.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use enforcer_core::{id::NodeId, plan::OutcomeResult, set::NodeSet};
use rustix::io::Errno;

use super::actuator::{Effect, Next};
use crate::kernel::{Kernel, PageStatus};

/// How much one step may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageMoveLimits {
    /// Pages in one call that asks.
    pub pages_per_question: usize,
    /// Pages in one call that moves: at most some milliseconds of page-table lock.
    pub pages_per_move: usize,
    /// Pages that one step asks for.
    pub questions: u64,
    /// Bytes that one step moves.
    pub bytes: u64,
}

impl Default for PageMoveLimits {
    fn default() -> Self {
        Self { pages_per_question: 4096, pages_per_move: 512, questions: 64 << 20, bytes: 4 << 30 }
    }
}

/// Cgroups below the workload's own that are looked into.
const MAX_CGROUPS: usize = 4096;

/// What a step of moving pages came to.
#[derive(Debug, Default)]
pub struct PageMoveReport {
    /// Bytes that are now on the wanted node.
    pub moved_bytes: u64,
    /// Bytes that were found on the nodes to be left and are still there, by error number (0: none
    /// was given).
    pub left_bytes: BTreeMap<i32, u64>,
    /// Processes that could not be worked on, with the cause; not those that are gone.
    pub refused: Vec<(u32, String)>,
    /// Processes that were worked on.
    pub processes: u32,
    /// A limit of the step was reached before everything was seen.
    pub out_of_budget: bool,
    /// The processes could not be listed.
    pub error: Option<String>,
}

/// One step of moving pages.
pub struct PageMove<'a> {
    kernel: &'a dyn Kernel,
    proc: &'a Path,
    limits: &'a PageMoveLimits,
    questions: u64,
    report: PageMoveReport,
}

/// A mapping with pages on the nodes to be left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    start: usize,
    end: usize,
    page_bytes: usize,
    /// Pages on the nodes to be left, as `numa_maps` counts them.
    pages: u64,
}

impl<'a> PageMove<'a> {
    /// Moves with `kernel`, and reads processes below `proc`.
    pub fn new(kernel: &'a dyn Kernel, proc: &'a Path, limits: &'a PageMoveLimits) -> Self {
        Self { kernel, proc, limits, questions: 0, report: PageMoveReport::default() }
    }

    /// Moves pages of every process in `cgroup` (a directory) and below it.
    pub fn carry_out(mut self, cgroup: &Path, from: &NodeSet, to: NodeId) -> PageMoveReport {
        let mut from = from.clone();
        from.remove(to);
        match processes_in(cgroup) {
            Ok(processes) => {
                for pid in processes {
                    if self.is_out_of_budget() {
                        break;
                    }
                    match self.move_process(pid, &from, to) {
                        Ok(()) => self.report.processes += 1,
                        Err(error) if is_gone(&error) => {}
                        Err(error) => self.report.refused.push((pid, error.to_string())),
                    }
                }
            }
            Err(error) => self.report.error = Some(error),
        }
        self.report.out_of_budget = self.is_out_of_budget();
        self.report
    }

    fn is_out_of_budget(&self) -> bool {
        self.questions >= self.limits.questions || self.report.moved_bytes >= self.limits.bytes
    }

    fn move_process(&mut self, pid: u32, from: &NodeSet, to: NodeId) -> io::Result<()> {
        for extent in read_extents(&self.proc.join(pid.to_string()), from)? {
            self.move_extent(pid, extent, from, to)?;
        }
        Ok(())
    }

    fn move_extent(&mut self, pid: u32, extent: Extent, from: &NodeSet, to: NodeId) -> io::Result<()> {
        let mut expected = extent.pages;
        let mut address = extent.start;
        while expected > 0 && address < extent.end && !self.is_out_of_budget() {
            let batch: Vec<usize> = (address..extent.end)
                .step_by(extent.page_bytes)
                .take(self.limits.pages_per_question)
                .collect();
            let Some(last) = batch.last() else { break };
            address = last.saturating_add(extent.page_bytes);
            self.questions += batch.len() as u64;
            let status = self.kernel.locate_pages(pid, &batch)?;
            let found: Vec<usize> = batch
                .into_iter()
                .zip(status)
                .filter(|(_, status)| matches!(status, PageStatus::On(node) if from.contains(*node)))
                .map(|(page, _)| page)
                .collect();
            expected = expected.saturating_sub(found.len() as u64);
            for pages in found.chunks(self.limits.pages_per_move) {
                self.move_batch(pid, pages, extent.page_bytes, from, to)?;
            }
        }
        Ok(())
    }

    /// Moves one batch, and counts by what a second look shows.
    fn move_batch(
        &mut self,
        pid: u32,
        pages: &[usize],
        page_bytes: usize,
        from: &NodeSet,
        to: NodeId,
    ) -> io::Result<()> {
        let answers = self.kernel.move_pages(pid, pages, to)?;
        let now = self.kernel.locate_pages(pid, pages)?;
        for (answer, now) in answers.into_iter().zip(now) {
            match now {
                PageStatus::On(node) if node == to => self.report.moved_bytes += page_bytes as u64,
                PageStatus::On(node) if from.contains(node) => {
                    let code = if let PageStatus::Errno(code) = answer { code } else { 0 };
                    *self.report.left_bytes.entry(code).or_default() += page_bytes as u64;
                }
                // Freed, swapped out or moved by somebody else in the meantime.
                PageStatus::On(_) | PageStatus::Errno(_) => {}
            }
        }
        Ok(())
    }
}

impl PageMoveReport {
    /// As the effect of a step: what was moved, and what is left and why.
    pub fn into_effect(self, from: &NodeSet, to: NodeId) -> Effect {
        let text = self.describe(from, to);
        let nothing_done = self.processes == 0 && !self.refused.is_empty();
        let complete = self.left_bytes.is_empty() && self.refused.is_empty() && !self.out_of_budget;
        let (result, next) = if self.error.is_some() || nothing_done {
            (OutcomeResult::Failed { error: text }, Next::RollBack)
        } else if complete {
            (OutcomeResult::Applied { read_back: text }, Next::Continue)
        } else {
            let wanted = format!("all pages of nodes {from} on node {to}");
            // What does not move now is left to the kernel when the memory set is narrowed.
            let next = if self.out_of_budget { Next::Pause } else { Next::Continue };
            (OutcomeResult::Differs { wanted, read_back: text }, next)
        };
        Effect { result, undo: Vec::new(), next }
    }

    fn describe(&self, from: &NodeSet, to: NodeId) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let mut parts = vec![format!(
            "{} bytes of {} processes moved from nodes {from} to node {to}",
            self.moved_bytes, self.processes
        )];
        for (code, bytes) in &self.left_bytes {
            let why = match Errno::from_raw_os_error(*code) {
                Errno::ACCESS => "mapped by several processes".to_owned(),
                Errno::BUSY => "busy".to_owned(),
                Errno::NOMEM => "no room on the node".to_owned(),
                _ if *code == 0 => "no reason given".to_owned(),
                errno => errno.to_string(),
            };
            parts.push(format!("{bytes} bytes left: {why}"));
        }
        if let Some((pid, error)) = self.refused.first() {
            parts.push(format!("{} processes refused, first {pid}: {error}", self.refused.len()));
        }
        if self.out_of_budget {
            parts.push("the limit of one step is reached".to_owned());
        }
        parts.join("; ")
    }
}

/// Did the process end?
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::SRCH | Errno::NOENT))
}

/// Processes of a cgroup and of those below it, each once.
fn processes_in(cgroup: &Path) -> Result<Vec<u32>, String> {
    let mut pending = vec![cgroup.to_owned()];
    let mut processes = Vec::new();
    let mut seen = 0;
    while let Some(dir) = pending.pop() {
        seen += 1;
        let path = dir.join("cgroup.procs");
        match fs::read_to_string(&path) {
            Ok(text) => processes.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok())),
            Err(error) if dir == cgroup => return Err(format!("reading {}: {error}", path.display())),
            // Gone meanwhile, or a threaded cgroup, whose processes its parent lists.
            Err(_) => {}
        }
        if seen + pending.len() < MAX_CGROUPS {
            pending.extend(children_of(&dir));
        }
    }
    processes.sort_unstable();
    processes.dedup();
    // Process 0 is one that this process cannot see, and to the system call it is the caller.
    processes.retain(|pid| *pid != 0);
    Ok(processes)
}

fn children_of(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// Mappings of a process with pages on the nodes to be left; only those are kept in memory.
fn read_extents(process: &Path, from: &NodeSet) -> io::Result<Vec<Extent>> {
    let mut extents: BTreeMap<usize, Extent> = BTreeMap::new();
    for line in BufReader::new(File::open(process.join("numa_maps"))?).split(b'\n') {
        if let Some(extent) = wanted_mapping(&String::from_utf8_lossy(&line?), from) {
            extents.insert(extent.start, extent);
        }
    }
    for line in BufReader::new(File::open(process.join("maps"))?).split(b'\n') {
        if let Some((start, end)) = range_of(&String::from_utf8_lossy(&line?))
            && let Some(extent) = extents.get_mut(&start)
        {
            extent.end = end;
        }
    }
    Ok(extents.into_values().collect())
}

/// `address policy [key=value]...` (`/proc/PID/numa_maps`, Documentation/filesystems/proc.rst); `None`
/// for a mapping without pages on the nodes to be left. The end is not in this file.
fn wanted_mapping(line: &str, from: &NodeSet) -> Option<Extent> {
    let mut words = line.split_ascii_whitespace();
    let start = usize::from_str_radix(words.next()?, 16).ok()?;
    let (mut pages, mut page_bytes) = (0u64, 4096);
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        if key == "kernelpagesize_kB" {
            page_bytes = value.parse::<usize>().ok()?.checked_mul(1024)?;
        } else if let Some(node) = key.strip_prefix('N').and_then(|number| number.parse().ok())
            && from.contains(NodeId(node))
        {
            pages = pages.saturating_add(value.parse().ok()?);
        }
    }
    (pages > 0 && page_bytes > 0).then_some(Extent { start, end: start, page_bytes, pages })
}

/// `start-end perms offset dev inode path` (`/proc/PID/maps`, Documentation/filesystems/proc.rst).
fn range_of(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fake::{Call, FakeKernel};

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
            format!(
                "00400000-00403000 r-xp 00000000 08:01 7 /bin/x\n{START:x}-{end:x} rw-p 00000000 00:00 0\n"
            ),
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

    fn carry_out(dir: &Path, kernel: &FakeKernel, limits: PageMoveLimits) -> Effect {
        let from: NodeSet = "0-1".parse().unwrap();
        PageMove::new(kernel, dir, &limits)
            .carry_out(&dir.join("cgroup"), &from, NodeId(1))
            .into_effect(&from, NodeId(1))
    }

    #[test]
    fn moves_everything_in_small_batches_and_tolerates_a_process_that_is_gone() {
        let (dir, kernel) = process(1300);
        let effect = carry_out(dir.path(), &kernel, PageMoveLimits::default());
        assert!(
            matches!(&effect.result, OutcomeResult::Applied { read_back } if read_back.starts_with("5324800 bytes of 1 ")),
            "{effect:?}"
        );
        assert_eq!((kernel.count_on(0), kernel.count_on(1)), (0, 1300));
        let sizes: Vec<_> = kernel
            .calls
            .borrow()
            .iter()
            .filter_map(|call| if let Call::Move { pages, .. } = call { Some(*pages) } else { None })
            .collect();
        assert_eq!(sizes, [512, 512, 276]);
    }

    #[test]
    fn says_what_did_not_move_and_goes_on() {
        let (dir, mut kernel) = process(10);
        kernel.stuck = vec![(42, START), (42, START + 4096)];
        let effect = carry_out(dir.path(), &kernel, PageMoveLimits::default());
        assert_eq!(effect.next, Next::Continue);
        assert!(
            matches!(&effect.result, OutcomeResult::Differs { read_back, .. } if read_back.contains("8192 bytes left: busy")),
            "{effect:?}"
        );
    }

    #[test]
    fn stops_at_the_limit_and_pauses() {
        let (dir, kernel) = process(100);
        let limits = PageMoveLimits { bytes: 20 * 4096, pages_per_question: 10, ..PageMoveLimits::default() };
        let effect = carry_out(dir.path(), &kernel, limits);
        assert_eq!(effect.next, Next::Pause);
        assert_eq!(kernel.count_on(1), 20);
        let limits = PageMoveLimits { questions: 30, pages_per_question: 10, ..PageMoveLimits::default() };
        carry_out(dir.path(), &kernel, limits);
        assert_eq!(kernel.count_on(1), 30, "the first 20 are there already");
    }

    #[test]
    fn a_refusal_for_every_process_fails_the_step() {
        let (dir, mut kernel) = process(10);
        kernel.failing.insert(42, Errno::PERM.raw_os_error());
        let effect = carry_out(dir.path(), &kernel, PageMoveLimits::default());
        assert_eq!(effect.next, Next::RollBack);
        assert!(
            matches!(&effect.result, OutcomeResult::Failed { error } if error.contains("first 42")),
            "{effect:?}"
        );
        assert_eq!(kernel.count_on(0), 10);
    }

    #[test]
    fn nonsense_in_numa_maps_is_no_mapping() {
        let from: NodeSet = "0".parse().unwrap();
        for line in [
            "",
            "zz default N0=1",
            "1000 default N0=x",
            "1000 default N1=5",
            "1000 default N0=1 kernelpagesize_kB=0",
        ] {
            assert_eq!(wanted_mapping(line, &from), None, "{line}");
        }
        assert_eq!(range_of("1000"), None);
    }
}
