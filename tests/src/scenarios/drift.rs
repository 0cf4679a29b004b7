//! Another program writes a cpuset that the daemon keeps.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::workloads::Pair;
use crate::{
    cgroup::Cgroup,
    check::Checks,
    product::{self, Daemon},
    wait,
};

/// Far longer than a repair takes: what comes sooner was not found by a turn that was due anyway.
const INTERVAL: Duration = Duration::from_mins(10);

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
const LIMIT: Duration = Duration::from_mins(2);

/// A second, and what an emulated machine of a busy host adds: the turn that would be due otherwise is
/// minutes away.
const REPAIRED_WITHIN: f64 = 15.0;

/// Long enough for several repairs.
const A_WHILE: Duration = Duration::from_secs(8);

/// CPUs that the other program writes, on other nodes than the memory.
const THEIRS: &str = "0-3";

/// The daemon restores the cpuset within about a second, three times. The fourth write is left alone and
/// reported, until the configuration is read again. An undeclared workload is not restored.
pub(super) fn repaired(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let (ours, not_ours) = (&pair.home_cgroup, &pair.away_cgroup);
    let right = ours.cpuset()?;

    ours.write("cpuset.cpus", THEIRS)?;
    thread::sleep(A_WHILE);
    checks.equal("without the daemon it stays as it was written", THEIRS, &ours.read("cpuset.cpus")?);
    ours.write("cpuset.cpus", &right.0)?;

    let daemon = Daemon::start_every(INTERVAL, "enforce", &product::rules(&[ours]))?;
    // The second follows at once, because what is to be kept is watched from the first one on.
    wait::until("two turns are over", LIMIT, || Ok(daemon.ticks()?.filter(|ticks| *ticks >= 2.0)))
        .with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))?;
    checks.equal("what is in place stays", &right, &ours.cpuset()?);
    not_ours.write("cpuset.cpus", THEIRS)?;

    for (time, file, value) in
        [(1, "cpuset.cpus", THEIRS), (2, "cpuset.mems", "0-1"), (3, "cpuset.cpus", "3")]
    {
        ours.write(file, value)?;
        let seconds = until_it_is(ours, &right);
        checks.below(
            format!("time {time}: seconds until {file} was put back"),
            REPAIRED_WITHIN,
            seconds.ok(),
        );
        let repaired = wait::until("the turn is over", LIMIT, || {
            Ok(drifted(&daemon, "repaired")?.filter(|repaired| *repaired >= f64::from(time)))
        });
        checks.equal(format!("time {time}: repairs by the metrics"), Some(f64::from(time)), repaired.ok());
    }

    ours.write("cpuset.cpus", THEIRS)?;
    let left_alone = wait::until("the metrics say that it is left alone", LIMIT, || {
        Ok(drifted(&daemon, "left-alone")?.filter(|left_alone| *left_alone > 0.0))
    });
    checks.equal("the fourth time it is left alone, by the metrics", Some(1.0), left_alone.ok());
    thread::sleep(A_WHILE);
    checks.equal("and stays so", THEIRS, &ours.read("cpuset.cpus")?);
    checks.equal("repairs", Some(3.0), drifted(&daemon, "repaired")?);
    let degraded = daemon.labelled("numa_enforcer_degraded", &[("feature", "drift")])?;
    checks.equal("which is degraded by name", Some(1.0), degraded);
    checks.equal("what is not declared stays as written", THEIRS, &not_ours.read("cpuset.cpus")?);

    let pid = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw).context("a process id")?;
    kill_process(pid, Signal::HUP).context("send SIGHUP")?;
    let seconds = until_it_is(ours, &right);
    checks.below(
        "seconds until it is put back when the configuration is read again",
        REPAIRED_WITHIN,
        seconds.ok(),
    );
    daemon.ends_well(checks)?;
    Ok(())
}

fn drifted(daemon: &Daemon, result: &str) -> Result<Option<f64>> {
    daemon.labelled("numa_enforcer_cpuset_drift_total", &[("result", result)])
}

/// Seconds until a cgroup has this cpuset.
fn until_it_is(cgroup: &Cgroup, wanted: &(String, String)) -> Result<f64> {
    let begun = Instant::now();
    wait::until("it is put back", LIMIT, || Ok((cgroup.cpuset()? == *wanted).then_some(())))?;
    Ok(begun.elapsed().as_secs_f64())
}
