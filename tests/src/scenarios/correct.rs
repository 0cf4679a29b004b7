//! Does the daemon correct what is declared, nothing else, and can all of it be undone?

use std::{fs, time::Duration};

use anyhow::{Context, Result};

use super::workloads::Pair;
use crate::{
    cgroup::Cgroup,
    check::Checks,
    ids::{self, Ids},
    memory,
    process::Running,
    product::{self, Daemon},
    wait,
};

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
pub(super) const LIMIT: Duration = Duration::from_mins(2);

/// Ticks within which remote traffic must be gone: 30 s at the interval of [`Daemon::start`]. Counted in
/// ticks, so that a starved guest takes longer without failing (SPECIFICATION.md).
const TICKS: f64 = 15.0;

/// In observe mode nothing changes; in enforce mode CPUs, memory nodes and pages of the declared
/// workload come together, and the workload that is not declared stays as it is.
pub(super) fn enforce(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let untouched = pair.home_cgroup.cpuset()?;
    observing_changes_nothing(checks, &pair)?;

    let daemon = Daemon::start("enforce", &[&pair.away_cgroup])?;
    let node = corrected(&pair.away_cgroup, &pair.away)?;
    let share = wait::until("the pages of away are with its CPUs", LIMIT, || {
        let share = memory::share_on(pair.away.pid(), node)?;
        Ok((share > 0.9).then_some(share))
    });
    checks.above(format!("share of away's pages on node {node}, by numa_maps"), 0.9, share.ok());
    let traffic = wait::until("remote traffic is gone", LIMIT, || {
        Ok(daemon.remote_traffic(&pair.away_cgroup)?.filter(|ratio| *ratio < 0.1))
    });
    checks.below("remote traffic of away, by the daemon's metrics", 0.1, traffic.ok());
    checks.below("turns until it was gone", TICKS + 0.5, daemon.ticks()?);
    checks.below(
        "remote residency of away, by the daemon's metrics",
        0.1,
        daemon.remote_residency(&pair.away_cgroup)?,
    );
    checks.equal("the cpuset of home", untouched, pair.home_cgroup.cpuset()?);
    // Twice what it needs; without giving back what loading programs took it has more than 20.
    let anonymous = f64::from(u32::try_from(memory::anonymous_kib(daemon.pid())?)?) / 1024.0;
    checks.below("anonymous MiB of the daemon", 12.0, Some(anonymous));
    daemon.ends_well(checks)?;
    Ok(())
}

/// The control: the same daemon, which may not write.
fn observing_changes_nothing(checks: &mut Checks, pair: &Pair) -> Result<()> {
    let before = pair.away_cgroup.cpuset()?;
    let daemon = Daemon::start("observe", &[&pair.away_cgroup])?;
    let traffic = wait::until("the daemon sees remote traffic", LIMIT, || {
        Ok(daemon.remote_traffic(&pair.away_cgroup)?.filter(|ratio| *ratio > 0.9))
    });
    checks.above("observe: remote traffic of away, by the daemon's metrics", 0.9, traffic.ok());
    checks.equal("observe: the cpuset of away", before, pair.away_cgroup.cpuset()?);
    checks.above(
        "observe: share of away's pages on node 0",
        0.9,
        Some(memory::share_on(pair.away.pid(), 0)?),
    );
    daemon.end().map(drop)
}

/// Waits until CPUs and memory of a workload are on one node, by `/proc`; returns the node.
pub(super) fn corrected(cgroup: &Cgroup, process: &Running) -> Result<u32> {
    let seen = wait::until(&format!("{} is on one node", cgroup.path()), LIMIT, || {
        let (cpus, mems) = (process.cpus_allowed()?, process.mems_allowed()?);
        let mut nodes = mems.iter();
        let (Some(&node), None) = (nodes.next(), nodes.next()) else { return Ok(None) };
        Ok(cpus.is_subset(&cpus_of(node)?).then_some(node))
    });
    seen.with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))
}

fn cpus_of(node: u32) -> Result<Ids> {
    ids::parse(&fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))?)
}

/// `restore` after the daemon ended as it should.
pub(super) fn restore(checks: &mut Checks) -> Result<()> {
    restore_after(checks, |daemon| daemon.end().map(drop))
}

/// `restore` after the daemon was killed.
pub(super) fn restore_after_kill(checks: &mut Checks) -> Result<()> {
    restore_after(checks, |daemon| daemon.process().kill())
}

fn restore_after(checks: &mut Checks, end: impl FnOnce(Daemon) -> Result<()>) -> Result<()> {
    let pair = Pair::start()?;
    let originals = pair.away_cgroup.cpuset()?;
    let daemon = Daemon::start("enforce", &[&pair.away_cgroup])?;
    corrected(&pair.away_cgroup, &pair.away)?;
    end(daemon)?;
    let changed = pair.away_cgroup.cpuset()?;
    checks.holds("the daemon has written to the cpuset", changed != originals, changed);

    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("exit status of restore", Some(0), output.status);
    checks.equal("cpuset.cpus and cpuset.mems after restore", &originals, &pair.away_cgroup.cpuset()?);
    checks.equal("CPUs of away after restore, by /proc", Ids::from([2, 3]), pair.away.cpus_allowed()?);

    let again = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("exit status of a second restore", Some(0), again.status);
    checks.equal("the cpuset after a second restore", &originals, &pair.away_cgroup.cpuset()?);
    Ok(())
}

/// A daemon that is to restore when it ends leaves nothing behind, in its journal neither.
pub(super) fn restore_on_exit(checks: &mut Checks) -> Result<()> {
    let pair = Pair::start()?;
    let originals = pair.away_cgroup.cpuset()?;
    let daemon = Daemon::start_for_a_while(&[&pair.away_cgroup])?;
    corrected(&pair.away_cgroup, &pair.away)?;
    let changed = pair.away_cgroup.cpuset()?;
    checks.holds("the daemon has written to the cpuset", changed != originals, changed);
    daemon.ends_well(checks)?;
    checks.equal("the cpuset after its end", &originals, &pair.away_cgroup.cpuset()?);
    let left = product::run(&["restore", "--dry-run", "--state-dir", product::STATE])?;
    checks.holds("nothing is left to put back", left.stdout.contains("nothing to put back"), left.stdout);
    Ok(())
}

/// Originals that were inherited are empty files.
///
/// The kernel refuses to empty a cpuset that has tasks (`validate_change` in
/// `kernel/cgroup/cpuset.c`); they come back all the same, and the neighbour keeps its own.
pub(super) fn restore_inherited(checks: &mut Checks) -> Result<()> {
    let nursery = Cgroup::with_cpuset("/nursery", "0-1", "0")?;
    let cgroup = Cgroup::with_cpuset("/work/inherits", "2-3", "\n")?;
    let neighbour = Cgroup::with_cpuset("/work/neighbour", "0-1", "0")?;
    let untouched = neighbour.cpuset()?;
    let hog = Running::hog(&nursery, 64)?;
    cgroup.adopt(hog.pid())?;
    let (originals, nodes) = (cgroup.cpuset()?, hog.mems_allowed()?);
    checks.equal("before: cpuset.mems is inherited", "", originals.1.as_str());
    checks.above("before: share of the pages on node 0", 0.9, Some(memory::share_on(hog.pid(), 0)?));

    let daemon = Daemon::start("enforce", &[&cgroup])?;
    corrected(&cgroup, &hog)?;
    daemon.end()?;
    checks.holds(
        "the daemon has written to cpuset.mems",
        cgroup.cpuset()?.1 != originals.1,
        cgroup.cpuset()?,
    );

    product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("with tasks: nodes they may use", nodes, hog.mems_allowed()?);
    checks.equal("with tasks: the original files", &originals, &cgroup.cpuset()?);
    checks.equal("the neighbour's files", untouched, neighbour.cpuset()?);
    hog.kill()?;
    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("without tasks: exit status of restore", Some(0), output.status);
    checks.equal("without tasks: the original files", &originals, &cgroup.cpuset()?);
    restore_anywhere(checks)
}

/// A workload that could run anywhere can do so again.
fn restore_anywhere(checks: &mut Checks) -> Result<()> {
    let cgroup = Cgroup::create("/work/anywhere")?;
    let hog = Running::hog(&cgroup, 64)?;
    let originals = cgroup.cpuset()?;
    checks.equal("anywhere: nothing is set", (String::new(), String::new()), originals.clone());
    let (cpus, nodes) = (hog.cpus_allowed()?, hog.mems_allowed()?);
    let daemon = Daemon::start_for("enforce", &cgroup, "0")?;
    wait::until("it is brought to node 0", LIMIT, || {
        Ok((hog.cpus_allowed()? == Ids::from([0, 1])).then_some(()))
    })?;
    daemon.end()?;
    product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("anywhere: the files after restore", &originals, &cgroup.cpuset()?);
    checks.equal("anywhere: its CPUs after restore", cpus, hog.cpus_allowed()?);
    checks.equal("anywhere: its nodes after restore", nodes, hog.mems_allowed()?);
    Ok(())
}
