//! A crowded host: does the audit see all of it, and what does that cost?
//!
//! The counts are asserted. The times are printed as notes and asserted nowhere: emulation is slow and
//! the machines below it are shared. `cargo xtask bench` quotes them.

use std::fs;

use anyhow::{Context, Result};

use crate::{cgroup::Cgroup, check::Checks, hog::Hog, measure, process::Running, product};

/// Workloads, each in its own cgroup.
const CGROUPS: usize = 200;
/// Threads of each.
const THREADS: usize = 50;
/// Runs of each command that are counted.
const RUNS: usize = 5;

/// 200 cgroups with 10,000 threads.
pub(super) fn audit(checks: &mut Checks) -> Result<()> {
    fs::write("/proc/sys/kernel/threads-max", "40000").context("allow so many threads")?;
    let mut herd = Vec::with_capacity(CGROUPS);
    for number in 0..CGROUPS {
        let node = number % 2;
        let cpus = if node == 0 { "0-1" } else { "2-3" };
        let cgroup = Cgroup::with_cpuset(&format!("/herd/{number:03}"), cpus, &node.to_string())?;
        let hog = Hog {
            cgroup: cgroup.folder(),
            mebibytes: 0,
            threads: THREADS,
            pause_ms: 600_000,
            mebibytes_per_second: 0,
        };
        herd.push((Running::hog_of(&hog)?, cgroup));
    }
    let (report, _) = product::audit(&[])?;
    let mut threads = 0;
    for (_, cgroup) in &herd {
        // The main thread waits for the others.
        threads += report.workload(cgroup)?["tasks"].as_u64().unwrap_or(0);
    }
    checks.equal("threads that the audit sees", (CGROUPS * (THREADS + 1)) as u64, threads);
    let cost = measure::cost(&mut product::command(&["audit", "-o", "json"]), RUNS, &[0, 1])?;
    checks.note("audit", &cost);
    Ok(())
}
