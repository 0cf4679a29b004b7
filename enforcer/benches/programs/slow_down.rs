//! How much slower work is while the programs are attached.
//!
//! The same work with and without them, in turns, so that what else the machine does meets both; each pair of
//! short runs gives a ratio, and what is quoted is the middle one of many with the quarters around it. Hackbench
//! is measured by the CPU time that it used: what the machine does for others is not in it. Moves are made by
//! a thread of the kernel, so they are measured by the clock, and by one thread that does nothing else, which
//! no workload does. The kernel's statistics are off, as they are in use.

use std::{
    fs,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use wait4::Wait4 as _;

use crate::{
    host::Host,
    load::{anywhere, bounce},
    pairs::STATISTICS,
};

/// Pairs of runs.
const PAIRS: usize = 201;
/// Times that a thread goes there and back in a run.
const BOUNCES: u32 = 2_000;
/// Groups of 40 tasks that write to each other through pipes, and messages of each.
const HACKBENCH: [&str; 5] = ["--pipe", "--groups", "1", "--loops", "400"];

/// Measures every load and prints a line for each.
pub(super) fn measure(host: &Host) -> Result<()> {
    ensure!(fs::read_to_string(STATISTICS)?.trim() == "0", "{STATISTICS} is on and would be measured too");
    compare(host, "switches and moves (hackbench)", hackbench)?;
    let moved = compare(host, "nothing but moves (a thread between two CPUs)", || {
        let start = Instant::now();
        bounce(host.ends, BOUNCES).map(|()| start.elapsed().as_secs_f64())
    });
    anywhere(host.ends)?;
    moved
}

/// Seconds of CPU time, those of its children among them.
fn hackbench() -> Result<f64> {
    let child = Command::new("hackbench")
        .args(HACKBENCH)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("start hackbench")?;
    let ended = child.wait4().context("wait for hackbench")?;
    ensure!(ended.status.success(), "hackbench ended with {}", ended.status);
    Ok((ended.rusage.utime + ended.rusage.stime).as_secs_f64())
}

/// `work` gives how long it took.
fn compare(host: &Host, what: &str, work: impl Fn() -> Result<f64>) -> Result<()> {
    // Caches are warm from the first one.
    work()?;
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        let attached = || -> Result<f64> {
            let (_programs, _) = host.attach(&host.options(), true)?;
            work()
        };
        let (with, without) = if pair % 2 == 0 {
            let with = attached()?;
            (with, work()?)
        } else {
            let without = work()?;
            (attached()?, without)
        };
        ratios.push((with / without - 1.0) * 100.0);
    }
    ratios.sort_by(f64::total_cmp);
    let [low, middle, high] = [PAIRS / 4, PAIRS / 2, PAIRS - 1 - PAIRS / 4].map(|at| ratios[at]);
    println!(
        "programs: slow-down of {what}: {middle:+.1} % ({low:+.1} to {high:+.1}, {PAIRS} pairs of runs)"
    );
    Ok(())
}
