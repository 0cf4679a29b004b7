//! A declared cgroup that is made while the daemon waits for its next turn.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::Running,
    product::{self, Daemon},
    wait,
};

/// Far longer than a correction takes: what comes sooner was not found by a turn that was due anyway.
const INTERVAL: Duration = Duration::from_mins(10);

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
const LIMIT: Duration = Duration::from_mins(2);

/// Workloads that come late, one after another.
const LIVES: usize = 5;

/// A second, and what an emulated machine of a busy host adds.
const CORRECTED_WITHIN: f64 = 5.0;

/// A process that enters a declared cgroup is corrected at once; one in an undeclared cgroup stays as it is.
pub(super) fn between_two_turns(checks: &mut Checks) -> Result<()> {
    let declared = Cgroup::create("/late/declared")?;
    declared.remove()?;
    let daemon = Daemon::start_every(INTERVAL, "enforce", &product::rules(&[&declared]))?;
    wait::until("the first turn is over", LIMIT, || Ok(daemon.ticks()?.filter(|ticks| *ticks >= 1.0)))
        .with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))?;

    let other = Cgroup::create("/late/other")?;
    let neighbour = Running::spawn(Command::new("sleep").arg("1000"))?;
    other.adopt(neighbour.pid())?;
    let mut seconds = Vec::new();
    for _ in 0..LIVES {
        seconds.push(corrected_after(declared.path())?);
    }
    checks.note("seconds until each late workload was on one node", &seconds);
    seconds.sort_by(f64::total_cmp);
    let median = seconds.get(LIVES / 2).copied();
    checks.note("their median", &median);
    checks.below("seconds until a late workload is on one node, at the median", CORRECTED_WITHIN, median);
    checks.equal("the cpuset of an undeclared workload", (String::new(), String::new()), other.cpuset()?);
    daemon.ends_well(checks)?;
    Ok(())
}

/// Makes the declared cgroup and ends it again; returns how long it was where it should not be.
fn corrected_after(path: &str) -> Result<f64> {
    let declared = Cgroup::create(path)?;
    let late = Running::spawn(Command::new("sleep").arg("1000"))?;
    let begun = Instant::now();
    declared.adopt(late.pid())?;
    wait::until("the late one is on one node", LIMIT, || {
        let mems = declared.ids("cpuset.mems.effective")?;
        Ok((mems.len() == 1 && declared.ids("cpuset.cpus.effective")?.len() == 2).then_some(()))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    late.kill()?;
    wait::until("an ended cgroup is empty", LIMIT, || Ok(declared.remove().ok()))?;
    Ok(seconds)
}
