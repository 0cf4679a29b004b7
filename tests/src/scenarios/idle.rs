//! A node on which nothing happens: what does a daemon cost that keeps two hundred workloads in place?
//!
//! That nothing is written is asserted. Time and memory are printed as notes: emulation makes every instruction
//! slow, so the share of a CPU is a bound from above on what a real one needs.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{cgroup::Cgroup, check::Checks, hog::Hog, memory, process::Running, product::Daemon};

/// Workloads, each in its own cgroup.
const WORKLOADS: usize = 200;
/// Declares all of them, on either node, where each of them fits.
const RULE: &str =
    "[[workload]]\nname = \"idle\"\ncgroup = \"/idle/*\"\ncpus = 1\nmemory = \"1MiB\"\nclass = \"shared\"\n";
/// Turns after which everybody is where it should be: a plan has a bounded number of steps.
const SETTLED: u32 = 20;
/// Turns that are measured.
const TURNS: u32 = 12;
/// Between two turns, as it is without a word in the configuration.
const INTERVAL: Duration = Duration::from_secs(10);
/// Of `utime` and `stime` in a second: `USER_HZ`, the same for every program on every kernel that is booted here.
const USER_HZ: f64 = 100.0;

/// Two hundred workloads that sleep.
pub(super) fn of_two_hundred(checks: &mut Checks) -> Result<()> {
    let mut herd = Vec::with_capacity(WORKLOADS);
    for number in 0..WORKLOADS {
        let node = number % 2;
        let cpus = if node == 0 { "0-1" } else { "2-3" };
        let cgroup = Cgroup::with_cpuset(&format!("/idle/{number:03}"), cpus, &node.to_string())?;
        let hog = Hog {
            cgroup: cgroup.folder(),
            mebibytes: 0,
            threads: 1,
            pause_ms: 600_000,
            mebibytes_per_second: 0,
        };
        herd.push((Running::hog_of(&hog)?, cgroup));
    }
    // First in quick turns, so that nothing is left to be done.
    let daemon = Daemon::start_with("enforce", RULE)?;
    let settled = daemon.metrics_after_ticks(SETTLED)?;
    checks.equal("workloads in place", 200.0, settled.sum("numa_enforcer_workload_aligned", &[]));
    daemon.process().kill()?;

    let daemon = Daemon::start_every(INTERVAL, "enforce", RULE)?;
    daemon.metrics_after_ticks(2)?;
    let (before, start) = (cpu_seconds(daemon.pid())?, Instant::now());
    let actions = daemon.metrics_after_ticks(0)?.sum("numa_enforcer_actions_total", &[]);
    let later = daemon.metrics_after_ticks(TURNS)?.sum("numa_enforcer_actions_total", &[]);
    let share = (cpu_seconds(daemon.pid())? - before) / start.elapsed().as_secs_f64();
    checks.equal("steps that were tried meanwhile", 0.0, later - actions);
    checks.note("percent of one CPU", &format!("{:.2}", share * 100.0));
    checks.note(
        "MiB of the daemon",
        &format!("{:.1}", f64::from(u32::try_from(memory::resident_kib(daemon.pid())?)?) / 1024.0),
    );
    checks.note(
        "MiB of it anonymous",
        &format!("{:.1}", f64::from(u32::try_from(memory::anonymous_kib(daemon.pid())?)?) / 1024.0),
    );
    Ok(())
}

/// CPU time of a process, by `utime` and `stime` of `/proc/PID/stat`.
fn cpu_seconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    // The name before it may hold anything.
    let fields = text.rsplit_once(')').with_context(|| format!("{path}: {text:?}"))?.1;
    let mut times = fields.split_whitespace().skip(11).take(2).map(str::parse::<u32>);
    let (Some(Ok(user)), Some(Ok(system))) = (times.next(), times.next()) else {
        anyhow::bail!("{path} has no times: {text:?}");
    };
    Ok((f64::from(user) + f64::from(system)) / USER_HZ)
}
