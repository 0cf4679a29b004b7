//! The NUMA system calls, behind a trait, batch reading of BPF maps, events of CPUs, the clock, the
//! heap, and the privileges of a thread.
//!
//! glibc has no wrapper for `move_pages(2)` and its kin, so they are raw system calls. [`Kernel`] is what the
//! rest of the daemon sees; [`linux::Linux`] makes the calls, [`fake::FakeKernel`] answers from memory and
//! records what was asked.
//!
//! `unsafe` is in [`affinity`], [`bpf_iter`], [`bpf_link`], [`heap`], [`linux`], [`map_batch`], [`peer`],
//! [`perf_event`] and [`probe_multi`] alone.
//!
//! A call is bounded by the number of pages that is handed in: the caller chooses batches that are
//! small enough not to stall the process that owns the pages.

pub mod affinity;
#[cfg(feature = "bpf")]
pub mod bpf;
#[cfg(feature = "bpf")]
pub mod bpf_iter;
#[cfg(feature = "bpf")]
mod bpf_link;
pub mod clock;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
pub mod heap;
pub mod linux;
#[cfg(feature = "bpf")]
pub mod map_batch;
pub mod peer;
#[cfg(feature = "bpf")]
pub mod perf_event;
pub mod privileges;
#[cfg(feature = "bpf")]
pub mod probe_multi;
pub mod readable;
pub mod waker;

use std::io;

use numa_topology::id::NodeId;

/// What the kernel says about one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStatus {
    /// It is on this node.
    On(NodeId),
    /// No answer for this page: `ENOENT` and `EFAULT` for a page that is not there, `EBUSY` for one
    /// that cannot be taken off its list now, `EACCES` for one that several processes map.
    Errno(i32),
}

/// The system calls that are used.
pub trait Kernel {
    /// On which node each page of the process is; `pages` are addresses in that process.
    ///
    /// Fails as a whole when the process is gone (`ESRCH`) or may not be looked at (`EPERM`).
    fn locate_pages(&self, pid: u32, pages: &[usize]) -> io::Result<Vec<PageStatus>>;

    /// Moves the pages that only this process maps to `to`, and says where each is now.
    ///
    /// The node must be in the process's own `cpuset.mems` (`EACCES` otherwise).
    fn move_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>>;

    /// The same, and those too that other processes map, which takes `CAP_SYS_NICE` (`EPERM` otherwise).
    fn move_shared_pages(&self, pid: u32, pages: &[usize], to: NodeId) -> io::Result<Vec<PageStatus>>;
}
