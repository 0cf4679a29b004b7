//! Does a node that is added count at once, although every write returns late while pages of others are
//! moved?
//!
//! A write of a cpuset takes effect long before it returns: its tasks may use the node when `Mems_allowed` of
//! `/proc/PID/status` has it. So the daemon must not wait for the return of any other write: neither for
//! another workload nor for a cgroup above. The control is a single writer for two workloads, in the same
//! machine: the second write waits while pages of others are moved.

use std::{fs, thread, time::Instant};

use anyhow::{Context, Result};

use super::{
    widening::{Fate, LIMIT, at_home, fate, kills},
    widening_slow::{Elsewhere, GROWN, RATE, closely, filler, growing, sleeper, writes_under_way},
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    process::Running,
    product::{self, Daemon, STATE},
    wait,
};

/// Part of the time that a write takes while pages of others are moved, by which a node that was asked for
/// has to count: 0.2 s or more, because a write takes longer than two there.
const AT_ONCE: f64 = 0.1;

/// When a node counted, and what was so then.
struct Counted {
    /// Seconds since its write began, for each workload that got the node.
    after: Vec<f64>,
    /// Writes that had not returned by then.
    under_way: usize,
    /// Seconds until the last of them had.
    returned: f64,
}

/// May this process use node 1?
fn may_use_it(one: &Running) -> Result<bool> {
    Ok(one.mems_allowed()?.contains(&1))
}

/// Waits until all of these have got node 1 from the daemon, and until its writes have returned.
fn counted(daemon: &Daemon, those: &[&Running]) -> Result<Counted> {
    let mut begun = Instant::now();
    closely("a node is asked for", || {
        let looked = Instant::now();
        if writes_under_way(daemon.pid())? > 0 {
            return Ok(Some(()));
        }
        begun = looked;
        Ok(None)
    })?;
    let mut after = vec![None; those.len()];
    closely("it counts for all", || {
        for (one, after) in those.iter().zip(&mut after) {
            if after.is_none() && may_use_it(one)? {
                *after = Some(begun.elapsed().as_secs_f64());
            }
        }
        Ok(after.iter().all(Option::is_some).then_some(()))
    })?;
    let under_way = writes_under_way(daemon.pid())?;
    closely("the writes return", || Ok((writes_under_way(daemon.pid())? == 0).then_some(())))?;
    let returned = begun.elapsed().as_secs_f64();
    Ok(Counted { after: after.into_iter().flatten().collect(), under_way, returned })
}

/// What must hold of that, where a write takes so many seconds.
fn check(checks: &mut Checks, what: &str, counted: &Counted, takes: f64) {
    for after in &counted.after {
        checks.below(format!("{what}: seconds until the node counts"), AT_ONCE * takes, Some(*after));
    }
    let all = counted.after.len();
    checks.equal(format!("{what}: writes that have not returned by then"), all, counted.under_way);
    checks.above(format!("{what}: seconds until they have returned"), takes / 2.0, Some(counted.returned));
}

/// One writer for all: returns the seconds until the node counts for each, from the begin of the first write.
fn one_after_the_other(those: &[(&Cgroup, &Running)]) -> Result<Vec<f64>> {
    let files: Vec<_> = those.iter().map(|(cgroup, _)| cgroup.folder().join("cpuset.mems")).collect();
    let begun = Instant::now();
    let writer = thread::spawn(move || files.iter().try_for_each(|file| fs::write(file, "0-1")));
    let mut after = Vec::new();
    for (_, one) in those {
        let seen = || Ok(may_use_it(one)?.then(|| begun.elapsed()));
        after.push(closely("the node counts", seen)?.as_secs_f64());
    }
    writer.join().ok().context("the writer panicked")?.context("write both")?;
    Ok(after)
}

/// Scenario 12: head of line.
pub(super) fn is_not_waited_for(checks: &mut Checks) -> Result<()> {
    let elsewhere = Elsewhere::new()?;
    let takes = elsewhere.takes().as_secs_f64();
    checks.note("seconds that a write takes while pages of others are moved", &takes);

    let (first, second) = (at_home("/work/first", 0)?, at_home("/work/second", 0)?);
    let sleepers = [sleeper(&first)?, sleeper(&second)?];
    let moving = elsewhere.moving()?;
    let after = one_after_the_other(&[(&first, &sleepers[0]), (&second, &sleepers[1])])?;
    moving.end()?;
    let [of_first, of_second] = after[..] else { anyhow::bail!("not two") };
    checks.below(
        "control: seconds until it counts for the first of one writer",
        AT_ONCE * takes,
        Some(of_first),
    );
    checks.above("control: the same for the second", takes / 2.0, Some(of_second));

    let _filler = filler()?;
    two(checks, &elsewhere)?;
    nested(checks, &elsewhere)
}

/// Two that fill the same node.
fn two(checks: &mut Checks, elsewhere: &Elsewhere) -> Result<()> {
    let (one, other) =
        (Cgroup::with_cpuset("/work/one", "0", "0")?, Cgroup::with_cpuset("/work/other", "1", "0")?);
    let _sleepers = [sleeper(&one)?, sleeper(&other)?];
    let rules = product::rules(&[&one, &other]).replace("cpus = 2", "cpus = 1");
    let daemon = Daemon::start_with("enforce", &rules)?;
    daemon.metrics_after_ticks(2)?;
    let mut hogs = [growing(&one, RATE / 2)?, growing(&other, RATE / 2)?];
    let moving = elsewhere.moving()?;
    let [a, b] = &hogs;
    let found = counted(&daemon, &[a, b])?;
    moving.end()?;
    check(checks, "two", &found, elsewhere.takes().as_secs_f64());
    for (cgroup, hog) in [&one, &other].into_iter().zip(&mut hogs) {
        checks.equal(format!("{}: it lives", cgroup.path()), Fate::Lives, fate(hog, GROWN)?);
        checks.equal(format!("{}: oom and oom_kill", cgroup.path()), [0, 0], kills(cgroup)?);
    }
    daemon.ends_well(checks)?;
    product::run(&["restore", "--state-dir", STATE])?;
    hogs.into_iter().try_for_each(Running::kill)
}

/// One below a cgroup that is the daemon's, and is widened first.
fn nested(checks: &mut Checks, elsewhere: &Elsewhere) -> Result<()> {
    let slice = Cgroup::with_cpuset("/work/ours", "2-3", "0-1")?;
    let declared = format!("{}numa_nodes = \"0\"\n", product::rules(&[&slice]));
    let inside = sleeper(&slice)?;
    let daemon = Daemon::start_with("enforce", &declared)?;
    wait::until("the slice is on node 0", LIMIT, || {
        Ok((slice.cpuset()? == ("0-1".to_owned(), "0".to_owned())).then_some(()))
    })?;
    daemon.end()?;
    // Nothing may run in it once there is a cgroup below.
    inside.kill()?;
    let leaf = at_home("/work/ours/leaf", 0)?;
    let _sleeper = sleeper(&leaf)?;
    let daemon = Daemon::start_with("enforce", &product::rules(&[&leaf]))?;
    daemon.metrics_after_ticks(2)?;
    let mut hog = growing(&leaf, RATE)?;
    let moving = elsewhere.moving()?;
    let found = counted(&daemon, &[&hog])?;
    moving.end()?;
    check(checks, "nested", &found, elsewhere.takes().as_secs_f64());
    checks.equal("nested: memory nodes above it", "0-1".to_owned(), slice.cpuset()?.1);
    checks.equal("nested: it lives", Fate::Lives, fate(&mut hog, GROWN)?);
    checks.equal("nested: oom and oom_kill", [0, 0], kills(&leaf)?);
    daemon.ends_well(checks)?;
    hog.kill()
}
