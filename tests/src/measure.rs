//! What one run of a program costs: wall time, CPU time, peak memory.
//!
//! The kernel's own accounting of the finished child (`wait4`), so nothing is sampled and nothing is
//! missed. These machines are shared and noisy: quote medians.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use wait4::Wait4 as _;

/// One finished run.
#[derive(Debug, Clone, Copy)]
struct Run {
    wall: Duration,
    cpu: Duration,
    peak_bytes: u64,
}

/// Medians over several runs.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Runs that were counted.
    pub runs: usize,
    /// Wall time in milliseconds.
    pub wall_ms: f64,
    /// Shortest wall time in milliseconds.
    pub wall_min_ms: f64,
    /// Longest wall time in milliseconds.
    pub wall_max_ms: f64,
    /// User and system time in milliseconds.
    pub cpu_ms: f64,
    /// Peak resident memory in bytes: the largest of all runs.
    pub peak_bytes: u64,
}

/// Runs a program once to warm up and then `runs` times; its output is thrown away.
///
/// `accepted` says which exit statuses are a result and not a failure.
pub fn cost(command: &mut Command, runs: usize, accepted: &[i32]) -> Result<Cost> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    once(command, accepted)?;
    let mut all = (0..runs).map(|_| once(command, accepted)).collect::<Result<Vec<_>>>()?;
    let peak_bytes = all.iter().map(|run| run.peak_bytes).max().context("no run to measure")?;
    all.sort_by_key(|run| run.cpu);
    let cpu_ms = millis(all[all.len() / 2].cpu);
    all.sort_by_key(|run| run.wall);
    let wall = |at: usize| millis(all[at].wall);
    Ok(Cost {
        runs,
        wall_ms: wall(all.len() / 2),
        wall_min_ms: wall(0),
        wall_max_ms: wall(all.len() - 1),
        cpu_ms,
        peak_bytes,
    })
}

fn once(command: &mut Command, accepted: &[i32]) -> Result<Run> {
    let started = Instant::now();
    let child = command.spawn().with_context(|| format!("run {}", command.get_program().display()))?;
    let used = child.wait4().context("wait for the program")?;
    let wall = started.elapsed();
    let status = used.status.code();
    ensure!(
        status.is_some_and(|status| accepted.contains(&status)),
        "{} ended with {}",
        command.get_program().display(),
        used.status
    );
    Ok(Run { wall, cpu: used.rusage.utime + used.rusage.stime, peak_bytes: used.rusage.maxrss })
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_costs_memory_and_time() {
        let cost = cost(Command::new("sh").args(["-c", "exit 1"]), 3, &[0, 1]).unwrap();
        assert_eq!(cost.runs, 3);
        assert!(cost.peak_bytes > 100_000, "{cost:?}");
        assert!(cost.wall_min_ms <= cost.wall_ms && cost.wall_ms <= cost.wall_max_ms, "{cost:?}");
    }

    #[test]
    fn a_status_that_was_not_expected_is_an_error() {
        assert!(cost(Command::new("sh").args(["-c", "exit 7"]), 1, &[0]).is_err());
    }
}
