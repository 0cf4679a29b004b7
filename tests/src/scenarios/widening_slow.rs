//! A write of a cpuset that takes seconds, behind which others have to wait.
//!
//! The kernel moves the pages that a write of `cpuset.mems` leaves outside one such write after the other, and every write waits for
//! those before it (`cpuset_write_resmask` flushes one workqueue of all, kernel/cgroup/cpuset.c). [`Elsewhere`] keeps that queue busy
//! with memory that has nothing to do with the rest.

use std::{
    fs, io,
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::widening::{LIMIT, at_home, node_free_mebibytes};
use crate::{cgroup::Cgroup, hog::Hog, process::Running};

/// What moves elsewhere, in MiB: most of a node.
const MOVED: usize = 400;

/// Time between two looks at what lasts for half a second.
const PAUSE: Duration = Duration::from_millis(2);

/// The write that is under way meanwhile.
pub(super) type Moving = JoinHandle<io::Result<()>>;

/// Memory on one of the slower nodes, which goes to the other one by a single write.
pub(super) struct Elsewhere {
    cgroup: Cgroup,
    /// Nothing touches it meanwhile.
    _hog: Running,
    on: u32,
}

impl Elsewhere {
    pub(super) fn new() -> Result<Self> {
        let cgroup = Cgroup::with_cpuset("/work/elsewhere", "2-3", "2")?;
        let folder = cgroup.folder();
        let hog =
            Hog { cgroup: folder, mebibytes: MOVED, threads: 1, pause_ms: 600_000, mebibytes_per_second: 0 };
        Ok(Self { _hog: Running::hog_of(&hog)?, cgroup, on: 2 })
    }

    /// Begins to move it.
    pub(super) fn moving(&mut self) -> Moving {
        self.on = 5 - self.on;
        let (path, to) = (self.cgroup.folder().join("cpuset.mems"), self.on.to_string());
        thread::spawn(move || fs::write(path, to))
    }
}

/// Looks at something that does not last until it is there.
pub(super) fn closely<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if begun.elapsed() > LIMIT {
            bail!("{what}: not seen within {} s", LIMIT.as_secs());
        }
        sleep(PAUSE);
    }
}

/// What a filler leaves of node 0, in MiB, and what is left when it is soon time to add a node: 64 MiB are when it is.
const LEFT: usize = 160;
const SOON: usize = 110;

/// Memory of each who grows, in MiB: more than is left.
pub(super) const GROWN: usize = 190;
/// MiB per second by which they grow: what a slow machine can do.
pub(super) const RATE: usize = 25;

/// Somebody who fills node 0 but for a little.
pub(super) fn filler() -> Result<Running> {
    Running::hog(&at_home("/work/filler", 0)?, node_free_mebibytes(0)?.saturating_sub(LEFT))
}

/// Waits until there is so little left that a node will be added soon. Whoever grows has joined its cgroup long before: nobody
/// joins any while pages are moved.
pub(super) fn soon_full() -> Result<()> {
    closely("node 0 is soon full", || Ok((node_free_mebibytes(0)? < SOON).then_some(())))
}

/// Waits until all of it has moved.
pub(super) fn joined(write: Moving) -> Result<()> {
    write.join().ok().context("the writer panicked")?.context("move it elsewhere")
}
