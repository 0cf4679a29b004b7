//! Writes of cpusets that take seconds, caused and measured here.
//!
//! The kernel moves the pages that a write of `cpuset.mems` leaves outside on one global workqueue, and every
//! write waits until all that was queued before it is moved (`cpuset_write_resmask`, kernel/cgroup/cpuset.c).
//! [`Elsewhere`] keeps that queue long: memory of several unrelated cgroups goes to and fro, each part as
//! soon as it has arrived. So a write waits for nearly all of it, whenever it begins and however quick the
//! machine is.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::widening::{LIMIT, at_home, node_free_mebibytes};
use crate::{cgroup::Cgroup, hog::Hog, process::Running};

/// Most parts of what moves elsewhere, and MiB of each: half of them are on each of the slower nodes, which
/// have room for more.
const PARTS: usize = 12;
const MOVED: usize = 60;

/// So long a write should take at least, where there are parts enough.
const WANTED: Duration = Duration::from_secs(4);

/// Shortest write with which the scenario shows anything. A growing workload gets a node 2 s before its own
/// ones are full. It is slowed down when less time is left than a write took before, and that write must be
/// in progress by then.
const LEAST: Duration = Duration::from_secs(2);

/// Time between two looks at what lasts for half a second.
const PAUSE: Duration = Duration::from_millis(2);

/// Threads of the daemon that write for a widening are called so.
const WRITER: &str = "widening-write";

/// A part on one of the slower nodes. Nothing touches it while it moves.
fn part(index: usize) -> Result<(Cgroup, Running)> {
    let at = if index.is_multiple_of(2) { "2" } else { "3" };
    let cgroup = Cgroup::with_cpuset(&format!("/work/elsewhere{index}"), "2-3", at)?;
    let folder = cgroup.folder();
    let hog =
        Hog { cgroup: folder, mebibytes: MOVED, threads: 1, pause_ms: 600_000, mebibytes_per_second: 0 };
    Ok((cgroup, Running::hog_of(&hog)?))
}

/// Memory on the slower nodes.
pub(super) struct Elsewhere {
    parts: Vec<(Cgroup, Running)>,
    takes: Duration,
}

impl Elsewhere {
    /// Puts as many parts there as it takes, and measures how long a write takes while they move.
    pub(super) fn new() -> Result<Self> {
        let first = part(0)?;
        let begun = Instant::now();
        first.0.write("cpuset.mems", "3")?;
        first.0.write("cpuset.mems", "2")?;
        let each = (begun.elapsed().as_millis() / 2).max(1);
        let wanted = usize::try_from(WANTED.as_millis().div_ceil(each)).unwrap_or(PARTS) + 1;
        let mut parts = vec![first];
        for index in 1..wanted.clamp(2, PARTS) {
            parts.push(part(index)?);
        }
        let mut elsewhere = Self { parts, takes: Duration::ZERO };
        let bystander = at_home("/work/bystander", 0)?;
        let moving = elsewhere.moving()?;
        let mut took = Vec::new();
        for mems in ["0-1", "0", "0-1"] {
            let begun = Instant::now();
            bystander.write("cpuset.mems", mems)?;
            took.push(begun.elapsed());
        }
        moving.end()?;
        elsewhere.takes = took.into_iter().min().unwrap_or_default();
        ensure!(elsewhere.takes > LEAST, "a write takes only {:?} while pages are moved", elsewhere.takes);
        Ok(elsewhere)
    }

    /// How long a write takes while it moves, at least.
    pub(super) fn takes(&self) -> Duration {
        self.takes
    }

    /// Moves it to and fro from now on. No process can join a cgroup meanwhile.
    pub(super) fn moving(&self) -> Result<Moving> {
        let mut moving = Moving { over: Arc::default(), writers: Vec::new() };
        let mut begun = Vec::new();
        for (cgroup, _) in &self.parts {
            let (path, over) = (cgroup.folder().join("cpuset.mems"), Arc::clone(&moving.over));
            let [from, to] = if cgroup.read("cpuset.mems")? == "2" { ["2", "3"] } else { ["3", "2"] };
            begun.push((cgroup, from));
            moving.writers.push(thread::spawn(move || {
                let mut there = [to, from].into_iter().cycle();
                while let Some(mems) = there.next().filter(|_| !over.load(Ordering::Relaxed)) {
                    fs::write(&path, mems)?;
                }
                Ok(())
            }));
        }
        // What the file holds changes when it is queued.
        for (cgroup, from) in begun {
            closely("it moves", || Ok((cgroup.read("cpuset.mems")? != from).then_some(())))?;
        }
        Ok(moving)
    }
}

/// Threads that move the memory. When this is dropped they finish their current writes.
pub(super) struct Moving {
    over: Arc<AtomicBool>,
    writers: Vec<JoinHandle<io::Result<()>>>,
}

impl Moving {
    /// Waits until nothing moves any more.
    pub(super) fn end(mut self) -> Result<()> {
        self.over.store(true, Ordering::Relaxed);
        for writer in self.writers.drain(..) {
            writer.join().ok().context("a writer panicked")?.context("move it elsewhere")?;
        }
        Ok(())
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Writes for widenings that are under way in this process.
pub(super) fn writes_under_way(pid: u32) -> Result<usize> {
    let path = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&path).with_context(|| format!("list {path}"))?.flatten();
    // A thread may end at any moment.
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    Ok(names.filter(|name| name.trim_end() == WRITER).count())
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

/// What a filler leaves of node 0, in MiB: 64 MiB are when a node is added.
const LEFT: usize = 200;

/// Memory of each growing process, in MiB: more than is left.
pub(super) const GROWN: usize = 240;

/// Growth in MiB per second: what a slow machine can do.
pub(super) const RATE: usize = 40;

/// A process that fills node 0 but for a little.
pub(super) fn filler() -> Result<Running> {
    Running::hog(&at_home("/work/filler", 0)?, node_free_mebibytes(0)?.saturating_sub(LEFT))
}

/// Anonymous and other memory of a cgroup, in MiB.
pub(super) fn mebibytes_of(cgroup: &Cgroup) -> Result<f64> {
    let bytes: f64 = cgroup.read("memory.current")?.parse().context("read memory.current")?;
    Ok(bytes / f64::from(1 << 20))
}

/// An idle process in this cgroup: a workload without a process is not watched.
pub(super) fn sleeper(cgroup: &Cgroup) -> Result<Running> {
    let sleeper = Running::spawn(std::process::Command::new("sleep").arg("100000"))?;
    cgroup.adopt(sleeper.pid())?;
    Ok(sleeper)
}

/// A growing process in this cgroup, already started: it could not join while pages are moved.
pub(super) fn growing(cgroup: &Cgroup, rate: usize) -> Result<Running> {
    let hog = Running::growing(cgroup, GROWN, rate)?;
    let before = mebibytes_of(cgroup)?;
    closely("it grows", || Ok((mebibytes_of(cgroup)? > before + 10.0).then_some(())))?;
    Ok(hog)
}
