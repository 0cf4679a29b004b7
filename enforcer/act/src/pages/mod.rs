//! Moves a cgroup's pages from some nodes to another one, a few at a time.
//!
//! A write of `cpuset.mems` makes the kernel move all pages in one go, and stalls every process that creates
//! or joins a cgroup meanwhile. So most pages are moved beforehand with `move_pages(2)`, which locks the page
//! tables of one process for one small batch at a time.
//!
//! Each range with pages on the wrong nodes ([`extent`]) is asked for in batches, and the pages found there
//! are moved in smaller ones, then asked for again: only what the kernel then shows on the wanted node counts
//! as moved. (Of a transparent huge page, the call that moves it reports all but one of its 4 KiB parts as
//! busy, although all of them move; those too that it was not asked for, because the budget ended there. So
//! they are looked for as well.)
//!
//! Cost: one question per page of the ranges, up to where the announced pages are found, within the
//! [`PageBudget`] of the plan. Memory is bounded by the batch.
//!
//! Processes come and go while this runs: an ended process is done, and so is one with an id that was reused
//! ([`incarnation`]). Shared memory of several processes of the cgroup moves as well, as long as none of its
//! pages has more mappers than the cgroup has ([`mappers`]): memory that processes of other cgroups map
//! belongs to them, too. Other pages that several processes map, such as libraries, and files that no process
//! maps, such as tmpfs, cannot be moved in this way. They are reported as left: at the end the places of all
//! pages are read ([`verify`]).

mod budget;
mod extent;
mod flow;
mod incarnation;
mod mappers;
mod outcome;
#[cfg(test)]
mod tests;
mod there;
mod verify;

use std::{io, path::Path, time::Instant};

use numa_topology::{id::NodeId, set::NodeSet};
use rustix::io::Errno;

pub use self::{
    budget::{PageBudget, PageMoveLimits, Spent, Stop},
    flow::move_flow,
    outcome::{MoveInterruption, PageMoveReport},
    there::each_there,
};
use self::{
    extent::{Extent, read_extents},
    incarnation::{Incarnation, is_reused},
    mappers::OwnMappers,
};
use enforcer_host::{HostPath, processes::processes_in};
use enforcer_kernel::{Kernel, PageStatus};

/// One step of moving pages.
pub struct PageMove<'a> {
    kernel: &'a dyn Kernel,
    proc: &'a HostPath,
    budget: &'a mut PageBudget,
    report: PageMoveReport,
    /// Announced by `numa_maps` and not reached before the budget ended.
    unreached_bytes: u64,
    /// Processes of the cgroup.
    processes: Vec<u32>,
    /// How many of these map shared memory; counted when a step comes to any.
    mappers: Option<OwnMappers>,
}

impl<'a> PageMove<'a> {
    /// Moves with `kernel` within `budget`, and reads processes below `proc`.
    pub fn new(kernel: &'a dyn Kernel, proc: &'a HostPath, budget: &'a mut PageBudget) -> Self {
        Self {
            kernel,
            proc,
            budget,
            report: PageMoveReport::default(),
            unreached_bytes: 0,
            processes: Vec::new(),
            mappers: None,
        }
    }

    /// The same, of so many bytes at most.
    #[must_use]
    pub fn at_most(self, most_bytes: Option<u64>) -> Self {
        self.budget.begin_step(most_bytes);
        self
    }

    /// Moves pages of every process in `cgroup` (a directory) and below it.
    pub fn carry_out(mut self, cgroup: &Path, from: &NodeSet, to: NodeId) -> PageMoveReport {
        let mut from = from.clone();
        from.remove(to);
        let processes = match processes_in(cgroup) {
            Ok(processes) => processes,
            Err(error) => return PageMoveReport { error: Some(error), ..self.report },
        };
        self.processes.clone_from(&processes);
        for (index, &pid) in processes.iter().enumerate() {
            match self.move_process(pid, &from, to) {
                Ok(()) => self.report.processes += 1,
                Err(error) if is_gone(&error) => {}
                // Told already where anything came of it.
                Err(error) if is_reused(&error) => {
                    self.report.reused.entry(pid).or_default();
                }
                Err(error) => self.report.refused.push((pid, error.to_string())),
            }
            let spent = self.budget.spent();
            if spent == Some(Spent::Step) {
                // What it leaves has no place there.
                return self.report;
            }
            if let Some(because) = spent {
                let (bytes, processes) = (self.unreached_bytes, processes.len() - index - 1);
                // That it ended with the very last page is no interruption.
                self.report.interrupted =
                    (bytes > 0 || processes > 0).then_some(MoveInterruption { because, bytes, processes });
                break;
            }
        }
        if self.report.interrupted.is_none() {
            self.report.residue = verify::residue(self.proc, &processes, cgroup, &from);
        }
        self.report
    }

    fn move_process(&mut self, pid: u32, from: &NodeSet, to: NodeId) -> io::Result<()> {
        let process = Incarnation::now(self.proc, pid);
        for extent in read_extents(&self.proc.join(pid.to_string()), from)? {
            let unreached = self.move_extent(&process, extent, from, to)?;
            if self.budget.spent().is_some() {
                self.unreached_bytes += unreached.saturating_mul(extent.page_bytes as u64);
            }
        }
        Ok(())
    }

    /// How many of the announced pages were not found before the budget ended, or at all.
    fn move_extent(
        &mut self,
        process: &Incarnation,
        extent: Extent,
        from: &NodeSet,
        to: NodeId,
    ) -> io::Result<u64> {
        let pid = process.pid;
        let mut expected = extent.pages;
        let mut address = extent.start;
        while expected > 0 && address < extent.end && self.budget.spent().is_none() {
            let batch: Vec<usize> = (address..extent.end)
                .step_by(extent.page_bytes)
                .take(self.budget.limits().pages_per_question)
                .collect();
            let Some(last) = batch.last() else { break };
            address = last.saturating_add(extent.page_bytes);
            let asked = batch.len() as u64;
            let status = self.kernel.locate_pages(pid, &batch)?;
            let found: Vec<usize> = batch
                .into_iter()
                .zip(status)
                .filter(|(_, status)| matches!(status, PageStatus::On(node) if from.contains(*node)))
                .map(|(page, _)| page)
                .collect();
            let mut left = &found[..];
            while !left.is_empty()
                && let Some(pages) = self.budget.next_call(extent.page_bytes)
            {
                let (pages, more) = left.split_at(pages.min(left.len()));
                self.move_batch(process, pages, &extent, from, to)?;
                expected = expected.saturating_sub(pages.len() as u64);
                left = more;
            }
            if !left.is_empty() && left.len() < found.len() {
                expected = expected.saturating_sub(self.count_along(process, left, extent.page_bytes, to)?);
            }
            self.budget.asked(asked);
        }
        Ok(expected)
    }

    /// Counts pages that moved with others of their huge page when the budget ended inside of it; returns how
    /// many.
    fn count_along(
        &mut self,
        process: &Incarnation,
        left: &[usize],
        page_bytes: usize,
        to: NodeId,
    ) -> io::Result<u64> {
        let now = self.kernel.locate_pages(process.pid, left)?;
        process.check()?;
        let along = now.iter().filter(|status| **status == PageStatus::On(to)).count() as u64;
        let bytes = along.saturating_mul(page_bytes as u64);
        self.report.moved_bytes = self.report.moved_bytes.saturating_add(bytes);
        self.budget.moved_along(bytes);
        Ok(along)
    }

    /// Is it shared memory that several processes of the cgroup map, and no other ones?
    fn is_of_the_cgroup_alone(&mut self, extent: &Extent, from: &NodeSet) -> bool {
        let Some(file) = extent.file else { return false };
        let (proc, processes) = (self.proc, &self.processes);
        self.mappers
            .get_or_insert_with(|| OwnMappers::count(proc, processes, from))
            .are_all(file, extent.sharers)
    }

    /// Moves one batch, and counts by what a second look shows.
    fn move_batch(
        &mut self,
        process: &Incarnation,
        pages: &[usize],
        extent: &Extent,
        from: &NodeSet,
        to: NodeId,
    ) -> io::Result<()> {
        let (pid, page_bytes) = (process.pid, extent.page_bytes);
        let is_shared = self.is_of_the_cgroup_alone(extent, from);
        process.check()?;
        let begun = Instant::now();
        let shared = is_shared.then(|| self.kernel.move_shared_pages(pid, pages, to));
        // Not without CAP_SYS_NICE.
        let answers = match shared {
            Some(answers) if !answers.as_ref().is_err_and(is_forbidden) => answers,
            _ => self.kernel.move_pages(pid, pages, to),
        };
        self.budget.moved(pages.len() as u64 * page_bytes as u64, begun.elapsed());
        let answers = answers?;
        let now = self.kernel.locate_pages(pid, pages)?;
        if let Err(error) = process.check() {
            if is_reused(&error) {
                let bytes = pages.len() as u64 * page_bytes as u64;
                *self.report.reused.entry(pid).or_default() += bytes;
            }
            return Err(error);
        }
        for (answer, now) in answers.into_iter().zip(now) {
            match now {
                PageStatus::On(node) if node == to => self.report.moved_bytes += page_bytes as u64,
                PageStatus::On(node) if from.contains(node) => {
                    let code = if let PageStatus::Errno(code) = answer { code } else { 0 };
                    *self.report.left_bytes.entry(code).or_default() += page_bytes as u64;
                }
                // Freed, swapped out or moved by another process in the meantime.
                PageStatus::On(_) | PageStatus::Errno(_) => {}
            }
        }
        Ok(())
    }
}

fn is_forbidden(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::PERM))
}

/// Did the process end?
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::SRCH | Errno::NOENT))
}
