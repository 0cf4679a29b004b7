//! Does a widened workload return to its own node when there is room, without a stall of other workloads?
//!
//! The kernel moves all pages that a narrower `cpuset.mems` leaves outside within that one write, and a
//! process that creates a cgroup or joins one meanwhile waits for it (`cpuset_post_attach` flushes the
//! workqueue, kernel/cgroup/cpuset.c). The control is that write, with the same memory on the wrong node, in
//! the same machine: it has to be worse by far.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::widening::{Fate, LIMIT, at_home, fate, guarding, mebibytes_on, node_free_mebibytes};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::Running,
    product::{self, STATE},
    wait,
};

/// What a workload has, in MiB: more than the filler leaves on its node.
const MEBIBYTES: usize = 280;

/// What is left beside the filler.
const LEFT: usize = 160;

/// Quickly enough for a scenario.
const SOON: &str = "\n[memory.widening]\nnarrow_after = \"3s\"\n";

/// A process that is moved from one new cgroup to another.
struct Prober {
    process: Running,
    made: usize,
}

impl Prober {
    fn new() -> Result<Self> {
        Ok(Self { process: Running::spawn(Command::new("sleep").arg("100000"))?, made: 0 })
    }

    /// How long it takes to make a cgroup and to join it.
    fn probe(&mut self) -> Result<Duration> {
        self.made += 1;
        let begun = Instant::now();
        let cgroup = Cgroup::create(&format!("/probes/{}", self.made))?;
        cgroup.adopt(self.process.pid())?;
        Ok(begun.elapsed())
    }

    /// The longest while that is not over.
    fn longest(&mut self, mut over: impl FnMut() -> Result<bool>) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        wait::until("it is narrow again", LIMIT, || {
            let is_over = over()?;
            longest = longest.max(self.probe()?);
            Ok(is_over.then_some(()))
        })?;
        Ok(longest)
    }
}

/// A filler on node 1 that leaves little.
fn filler(name: &str) -> Result<Running> {
    let filled = at_home(name, 1)?;
    Running::hog(&filled, node_free_mebibytes(1)?.saturating_sub(LEFT))
}

/// Scenario 11.
pub(super) fn without_a_stall(checks: &mut Checks) -> Result<()> {
    let mut prober = Prober::new()?;

    let naive = Cgroup::with_cpuset("/work/naive", "2-3", "0-1")?;
    let full = filler("/work/filler-naive")?;
    let hog = Running::hog(&naive, MEBIBYTES)?;
    checks.note("control: MiB on each node", &mebibytes_on(&hog)?);
    full.kill()?;
    let path = naive.folder().join("cpuset.mems");
    let write = thread::spawn(move || fs::write(path, "1"));
    let stalled = prober.longest(|| Ok(write.is_finished()))?;
    write.join().ok().context("the writer panicked")?.context("narrow it at once")?;
    let on = mebibytes_on(&hog)?;
    checks.holds("control: its pages came at once", on[1] >= MEBIBYTES as u64 && on[0] < 10, on);
    hog.kill()?;

    let cgroup = at_home("/work/home", 1)?;
    let full = filler("/work/filler")?;
    let daemon = guarding(&[&cgroup], SOON)?;
    let mut hog = Running::growing(&cgroup, MEBIBYTES, 100)?;
    checks.equal("it lives", Fate::Lives, fate(&mut hog, MEBIBYTES)?);
    let on = mebibytes_on(&hog)?;
    checks.note("MiB on each node while it is wide", &on);
    checks.holds("it has memory elsewhere", on[0] > 50, on);
    // Longer than what has to be waited for.
    daemon.metrics_after_ticks(6)?;
    checks.equal("without room it stays wide", "0-1".to_owned(), cgroup.cpuset()?.1);
    product::comes_to_say(checks, "and why is told", &["status"], "its own nodes have")?;

    full.kill()?;
    let slowest = prober.longest(|| Ok(cgroup.cpuset()?.1 == "1"))?;
    let on = mebibytes_on(&hog)?;
    checks.holds("its pages are at home", on[1] >= MEBIBYTES as u64 && on[0] < 10, on);
    let ratio = stalled.as_secs_f64() / slowest.as_secs_f64().max(1e-6);
    checks.note("slowest mkdir and attach: all at once, by the daemon", &[stalled, slowest]);
    checks.above("how much worse all at once is", 2.0, Some(ratio));
    daemon.ends_well(checks)?;
    product::run(&["restore", "--state-dir", STATE])?;
    Ok(())
}
