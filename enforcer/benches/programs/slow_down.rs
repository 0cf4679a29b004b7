//! How much slower work is while the programs are attached.
//!
//! The same work with and without them, in turns, so that what else the machine does meets both; each pair of
//! runs gives a ratio, and what is quoted is the middle one of many with the quarters around it. Hackbench is
//! measured by the CPU time that it used: what the machine does for others is not in it. The kernel's
//! statistics are off meanwhile, as they are in use. Between two runs of hackbench there are some percent,
//! with programs or without, so one more run is made with the statistics on: how much of its CPU time the
//! programs themselves took.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use wait4::Wait4 as _;

use crate::{host::Host, pairs::STATISTICS};

/// Pairs of runs.
const PAIRS: usize = 101;
/// Groups of 40 tasks that write to each other through pipes, and messages of each: about two seconds of CPU
/// time.
const HACKBENCH: [&str; 5] = ["--pipe", "--groups", "1", "--loops", "4000"];

/// Measures and prints both lines.
pub(super) fn measure(host: &Host) -> Result<()> {
    ensure!(fs::read_to_string(STATISTICS)?.trim() == "0", "{STATISTICS} is on and would be measured too");
    compare(host)?;
    fs::write(STATISTICS, "1").with_context(|| format!("write {STATISTICS}"))?;
    let share = share(host);
    fs::write(STATISTICS, "0").with_context(|| format!("write {STATISTICS}"))?;
    share
}

/// The programs' share of hackbench's CPU time.
fn share(host: &Host) -> Result<()> {
    let (programs, _) = host.attach(&host.options(), true)?;
    let cost = || programs.costs().iter().fold((0, 0), |sum, cost| (sum.0 + cost.runs, sum.1 + cost.run_ns));
    let before = cost();
    let seconds = hackbench()?;
    let after = cost();
    let (runs, took) = (after.0 - before.0, Duration::from_nanos(after.1 - before.1));
    println!(
        "programs: took {:.2} % of the {seconds:.1} s of CPU time of hackbench, the statistics among them, in {runs} runs",
        100.0 * took.as_secs_f64() / seconds
    );
    Ok(())
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

fn compare(host: &Host) -> Result<()> {
    // Caches are warm from the first one.
    hackbench()?;
    let mut ratios = Vec::new();
    for pair in 0..PAIRS {
        let attached = || -> Result<f64> {
            let (_programs, _) = host.attach(&host.options(), true)?;
            hackbench()
        };
        let (with, without) = if pair % 2 == 0 {
            let with = attached()?;
            (with, hackbench()?)
        } else {
            let without = hackbench()?;
            (attached()?, without)
        };
        ratios.push((with / without - 1.0) * 100.0);
    }
    ratios.sort_by(f64::total_cmp);
    let [low, middle, high] = [PAIRS / 4, PAIRS / 2, PAIRS - 1 - PAIRS / 4].map(|at| ratios[at]);
    println!(
        "programs: slow-down of switches and moves (hackbench): {middle:+.1} % ({low:+.1} to {high:+.1}, {PAIRS} pairs of runs)"
    );
    Ok(())
}
