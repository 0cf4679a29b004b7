//! Does a pause keep the daemon from writing, and does it go on afterwards?

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::correct::corrected;
use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::Running,
    product::{self, Daemon},
    wait,
};

/// Memory of each workload.
const MEBIBYTES: usize = 64;

/// Turns in which a daemon that is not paused would have corrected it.
const TURNS: u32 = 3;

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
const LIMIT: Duration = Duration::from_mins(2);

/// Exit code of the commands that ask a daemon, where there is none.
const NO_DAEMON: i32 = 69;

/// A workload that is misplaced during a pause stays so, is corrected after it, and one that comes then is
/// corrected as if there had been none. What was done is explained.
pub(super) fn and_resume(checks: &mut Checks) -> Result<()> {
    let outcome = story(checks);
    if outcome.is_err() || !checks.passed() {
        println!("the daemon printed:\n{}", Daemon::printed());
    }
    outcome
}

fn story(checks: &mut Checks) -> Result<()> {
    checks.equal("without a daemon", Some(NO_DAEMON), product::run(&["status"])?.status);
    let paths = ["/work/first", "/work/second"];
    let rules = paths.map(|path| {
        format!("[[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\ncpus = 2\nmemory = \"64MiB\"\n")
    });
    let daemon = Daemon::start_with("enforce", &rules.concat())?;
    wait::until("the daemon answers", LIMIT, || {
        Ok((product::run(&["status"])?.status == Some(0)).then_some(()))
    })?;

    let paused = product::run(&["pause"])?;
    checks.equal("exit status of pause", Some(0), paused.status);
    // On CPUs of both nodes, so that a place must be chosen.
    let (first, hog) = misplaced(paths[0], "1-2")?;
    let before = first.cpuset()?;
    let metrics = daemon.metrics_after_ticks(TURNS)?;
    checks.equal("paused: the cpuset after some turns", &before, &first.cpuset()?);
    checks.equal("paused: the metric says so", 1.0, metrics.sum("numa_enforcer_paused", &[]));
    checks.equal("paused: it may not write", 0.0, metrics.sum("numa_enforcer_enforcing", &[]));
    checks.equal("paused: steps that were carried out", 0.0, applied(&metrics));
    let status = json(&["status", "-o", "json"])?;
    checks.holds("paused: status says so", !status["paused"].is_null(), &status["paused"]);
    let planned = latest(paths[0])?;
    checks.equal("paused: what is decided", Some("planned"), planned["state"].as_str());

    checks.equal("exit status of resume", Some(0), product::run(&["resume"])?.status);
    let node = corrected(&first, &hog)?;
    checks.note("the node that it was brought to", &node);
    checks.holds("resumed: the cpuset is another", first.cpuset()? != before, first.cpuset()?);

    // The control: what the pause kept from happening happens without it.
    let (second, other) = misplaced(paths[1], "2-3")?;
    corrected(&second, &other)?;

    let decisions = json(&["explain", "first", "-o", "json"])?;
    let decisions = decisions["decisions"].as_array().context("no decisions")?;
    let done =
        decisions.iter().find(|one| one["state"] == "corrected").context("no correction is explained")?;
    checks.equal("explained: what was asked", Some(2000), done["considered"]["asked"]["milliCpus"].as_u64());
    checks.equal("explained: CPUs before", Some("1-2"), done["considered"]["seen"]["cpus"].as_str());
    // They are those of the turn that chose the place; it was kept until it could be followed.
    let places = decisions.iter().filter_map(|one| one["considered"]["candidates"].as_array());
    checks.note("explained: most places of a decision", &format!("{:?}", places.map(Vec::len).max()));
    let steps = done["outcomes"].as_array().map_or(0, Vec::len);
    checks.holds("explained: steps", steps > 0, steps);
    let table = product::run(&["explain", "/work/first"])?;
    checks.holds("explained for people", table.stdout.contains("corrected"), &table.stdout);

    daemon.ends_well(checks)?;
    checks.equal("when it has ended", Some(NO_DAEMON), product::run(&["status"])?.status);
    Ok(())
}

/// A workload with its memory on node 0 and CPUs of node 1.
fn misplaced(path: &str, cpus: &str) -> Result<(Cgroup, Running)> {
    let cgroup = Cgroup::with_cpuset(path, cpus, "0")?;
    let hog = Running::hog(&cgroup, MEBIBYTES)?;
    Ok((cgroup, hog))
}

fn applied(metrics: &product::Metrics) -> f64 {
    metrics.sum("numa_enforcer_actions_total", &[("result", "applied")])
}

fn latest(path: &str) -> Result<Value> {
    let mut explanation = json(&["explain", path, "-o", "json"])?;
    let decisions = explanation["decisions"].as_array_mut().context("no decisions")?;
    decisions.pop().context("no decision")
}

fn json(arguments: &[&str]) -> Result<Value> {
    let output = product::run(arguments)?;
    ensure!(output.status == Some(0), "{arguments:?} failed: {}", output.stderr);
    serde_json::from_str(&output.stdout).with_context(|| format!("read what {arguments:?} printed"))
}
