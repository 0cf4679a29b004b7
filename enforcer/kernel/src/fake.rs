//! A kernel in memory: pages are where the test puts them, and every call is recorded.

use std::{cell::RefCell, collections::BTreeMap, io, ops::Range};

use numa_topology::id::NodeId;
use rustix::io::Errno;

use super::{Kernel, PageStatus};

/// A call and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FakeCall {
    /// A query of the nodes of pages.
    Locate {
        /// Process.
        pid: u32,
        /// Number of pages.
        pages: usize,
    },
    /// A move of pages.
    Move {
        /// Process.
        pid: u32,
        /// Number of pages.
        pages: usize,
        /// Target node.
        to: NodeId,
    },
}

/// Pages by process and address, and pages that refuse to move.
#[derive(Debug, Default)]
pub struct FakeKernel {
    /// Where each page is.
    pub pages: RefCell<BTreeMap<(u32, usize), NodeId>>,
    /// Pages that answer `EBUSY` when they are to be moved.
    pub stuck: Vec<(u32, usize)>,
    /// Pages that other processes map: `EACCES` when they are to be moved as a process's own.
    pub shared: Vec<(u32, usize)>,
    /// Whether [`move_shared_pages`](Kernel::move_shared_pages) moves those; it fails with `EPERM` otherwise.
    pub moves_shared: bool,
    /// Pages of 4 KiB that are parts of one huge page: what moves one of them moves all.
    pub huge: Vec<(u32, Range<usize>)>,
    /// Processes for which every call fails with this error number.
    pub failing: BTreeMap<u32, i32>,
    /// All calls in order.
    pub calls: RefCell<Vec<FakeCall>>,
}

impl FakeKernel {
    /// Puts `count` pages of 4 KiB from `start` on a node.
    pub fn map(&self, pid: u32, start: usize, count: usize, node: u32) {
        let mut pages = self.pages.borrow_mut();
        for index in 0..count {
            pages.insert((pid, start + index * 4096), NodeId(node));
        }
    }

    /// Pages on a node.
    pub fn count_on(&self, node: u32) -> usize {
        self.pages.borrow().values().filter(|on| on.0 == node).count()
    }

    fn check(&self, pid: u32) -> io::Result<()> {
        self.failing.get(&pid).map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(*code)))
    }
}

impl Kernel for FakeKernel {
    fn locate_pages(&self, pid: u32, pages: &[usize]) -> io::Result<Vec<PageStatus>> {
        self.calls.borrow_mut().push(FakeCall::Locate { pid, pages: pages.len() });
        self.check(pid)?;
        let map = self.pages.borrow();
        Ok(pages
            .iter()
            .map(|page| {
                map.get(&(pid, *page))
                    .map_or(PageStatus::Errno(Errno::NOENT.raw_os_error()), |node| PageStatus::On(*node))
            })
            .collect())
    }

    fn move_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>> {
        self.calls.borrow_mut().push(FakeCall::Move { pid, pages: pages.len(), to });
        self.check(pid)?;
        Ok(self.moved(pid, pages, to, &self.shared))
    }

    fn move_shared_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>> {
        self.calls.borrow_mut().push(FakeCall::Move { pid, pages: pages.len(), to });
        self.check(pid)?;
        if !self.moves_shared {
            return Err(io::Error::from_raw_os_error(Errno::PERM.raw_os_error()));
        }
        Ok(self.moved(pid, pages, to, &[]))
    }
}

impl FakeKernel {
    fn moved(&self, pid: u32, pages: &[usize], to: NodeId, unmovable: &[(u32, usize)]) -> Vec<PageStatus> {
        let mut map = self.pages.borrow_mut();
        let busy = PageStatus::Errno(Errno::BUSY.raw_os_error());
        // Huge pages that this call has moved: the kernel answers `EBUSY` for their other parts.
        let mut moved_whole: Vec<Range<usize>> = Vec::new();
        pages
            .iter()
            .map(|page| match map.get(&(pid, *page)) {
                None => PageStatus::Errno(Errno::NOENT.raw_os_error()),
                Some(_) if moved_whole.iter().any(|whole| whole.contains(page)) => busy,
                Some(_) if unmovable.contains(&(pid, *page)) => {
                    PageStatus::Errno(Errno::ACCESS.raw_os_error())
                }
                Some(_) if self.stuck.contains(&(pid, *page)) => busy,
                Some(_) => {
                    let huge = self.huge.iter().find(|(owner, whole)| *owner == pid && whole.contains(page));
                    let whole = huge.map_or(*page..*page + 1, |(_, whole)| whole.clone());
                    map.range_mut((pid, whole.start)..(pid, whole.end)).for_each(|(_, node)| *node = to);
                    moved_whole.extend(huge.is_some().then_some(whole));
                    PageStatus::On(to)
                }
            })
            .collect()
    }
}
