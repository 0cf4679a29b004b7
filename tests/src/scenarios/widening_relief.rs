//! Do workloads survive that another memory node does not help: a process bound to the full node, and a
//! workload declared to stay? And are workloads named that the OOM killer may choose because of a widening?
//!
//! The controls: a bound process is killed although its cpuset has a node with room, and the load of the
//! strict one is too much for its node without the daemon.

use anyhow::{Context, Result};

use super::widening::{
    Fate, LIMIT, MEBIBYTES, at_home, fate, guarding, kills, mebibytes_on, node_free_mebibytes,
};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    hog::Hog,
    process::Running,
    product::{self, Daemon, STATE},
    wait,
};

pub(super) const RELIEVED: &str = "numa_enforcer_memory_relieved_bytes_total";

/// Growth in MiB per second: slow enough for one thread that moves pages in an emulated machine, beside
/// another one.
const RATE: usize = 15;

/// The same where each page has to be moved by that thread before it is missed: on a busy host an emulated
/// one may stand still for a second or two, while time and the growing process go on.
const BOUND_RATE: usize = 8;

/// What the neighbour of a strict one has, in MiB.
const NEIGHBOUR: usize = 250;

/// Scenario 7: bound by `MPOL_BIND` to the node that is full.
pub(super) fn of_bound_process(checks: &mut Checks) -> Result<()> {
    let control = Cgroup::with_cpuset("/work/control", "0-1", "0-1")?;
    let mut hog = Running::growing_bound(&control, 0, MEBIBYTES, BOUND_RATE)?;
    checks.equal("control: as wide as it can be", Fate::Killed, fate(&mut hog, MEBIBYTES)?);
    checks.equal("control: oom and oom_kill", [0, 1], kills(&control)?);

    let cgroup = at_home("/work/bound", 0)?;
    let daemon = guarding(&[&cgroup], "")?;
    let mut hog = Running::growing_bound(&cgroup, 0, MEBIBYTES, BOUND_RATE)?;
    let found = fate(&mut hog, MEBIBYTES)?;
    checks.equal("with the daemon", Fate::Lives, found);
    if found == Fate::Killed {
        println!("{}", Daemon::printed());
    }
    checks.equal("oom and oom_kill", [0, 0], kills(&cgroup)?);
    let on = mebibytes_on(&hog)?;
    checks.note("MiB on each node", &on);
    checks.holds("it has memory on the node that was added", on[1] > 100, on);
    checks.equal("MiB on slower nodes", [0, 0], [on[2], on[3]]);
    let policy =
        std::fs::read_to_string(format!("/proc/{}/numa_maps", hog.pid())).context("read numa_maps")?;
    checks.holds("it is still bound to its node alone", policy.contains(" bind:0 "), "seen in numa_maps");
    let metrics = daemon.metrics_after_ticks(2)?;
    checks.above("bytes that made room", 100e6, Some(metrics.sum(RELIEVED, &[("cause", "bound")])));
    checks.above("processes exposed", 0.5, Some(metrics.sum("numa_enforcer_memory_exposed_processes", &[])));
    let explain = ["explain", cgroup.path()];
    product::comes_to_say(
        checks,
        "explain names the owner of the moved pages",
        &explain,
        "bound to node 0 went to node 1",
    )?;
    product::comes_to_say(
        checks,
        "explain names the exposed process",
        &explain,
        "can be chosen by the OOM killer",
    )?;
    product::comes_to_say(
        checks,
        "status says what was added",
        &["status"],
        "/work/bound: 1 beside its own",
    )?;
    product::comes_to_say(
        checks,
        "audit names what added the node",
        &["audit"],
        "numa-enforcer added node 1 to it",
    )?;
    daemon.ends_well(checks)?;
    hog.kill()?;
    product::run(&["restore", "--state-dir", STATE])?;
    checks.equal("after restore", "0".to_owned(), cgroup.cpuset()?.1);
    Ok(())
}

/// A neighbour that leaves the CPU to others for most of the time.
fn calm(cgroup: &Cgroup) -> Hog {
    let cgroup = cgroup.folder();
    Hog { cgroup, mebibytes: NEIGHBOUR, threads: 1, pause_ms: 500, mebibytes_per_second: 0 }
}

/// Scenario 9: one that is declared to stay, and a neighbour that may go elsewhere.
pub(super) fn of_strict_workload(checks: &mut Checks) -> Result<()> {
    // More than the neighbour leaves.
    let wanted = node_free_mebibytes(0)?.saturating_sub(NEIGHBOUR) + 40;
    for with_daemon in [false, true] {
        let what = if with_daemon { "with the daemon" } else { "control" };
        let neighbour = Cgroup::with_cpuset(&format!("/work/neighbour-{with_daemon}"), "0", "0")?;
        let strict = Cgroup::with_cpuset(&format!("/work/strict-{with_daemon}"), "1", "0")?;
        let mut beside = Running::hog_of(&calm(&neighbour))?;
        let daemon = if with_daemon {
            let rules = product::rules(&[&neighbour, &strict]).replace("cpus = 2", "cpus = 1");
            let daemon = Daemon::start_with("enforce", &format!("{rules}strict_memory = true\n"))?;
            daemon.metrics_after_ticks(2)?;
            Some(daemon)
        } else {
            None
        };
        let mut hog = Running::growing(&strict, wanted, RATE / 2)?;
        let found = fate(&mut hog, wanted)?;
        let killed = kills(&strict)?[1] + kills(&neighbour)?[1];
        checks.equal(format!("{what}: kills"), u64::from(!with_daemon), killed);
        let Some(daemon) = daemon else { continue };
        if killed > 0 {
            println!("{}", Daemon::printed());
        }
        checks.equal(format!("{what}: the strict one"), Fate::Lives, found);
        checks.equal(format!("{what}: the neighbour lives"), false, beside.has_ended()?);
        checks.equal(format!("{what}: the strict one's memory nodes"), "0".to_owned(), strict.cpuset()?.1);
        let (own, on) = (mebibytes_on(&hog)?, mebibytes_on(&beside)?);
        checks.holds(
            format!("{what}: the strict one is at home"),
            own[0] >= wanted as u64 && own[1] == 0,
            own,
        );
        checks.holds(format!("{what}: the neighbour has gone elsewhere"), on[1] > 20, on);
        let metrics = daemon.metrics_after_ticks(2)?;
        let moved = metrics.sum(RELIEVED, &[("cause", "neighbour")]);
        checks.above(format!("{what}: bytes that made room"), 20e6, Some(moved));
        daemon.ends_well(checks)?;
        product::run(&["restore", "--state-dir", STATE])?;
    }
    Ok(())
}

/// Scenario 18: a widened workload can be killed because of another one, and that is reported before it
/// happens.
pub(super) fn names_exposed_workloads(checks: &mut Checks) -> Result<()> {
    let widened = at_home("/work/widened", 1)?;
    let daemon = guarding(&[&widened], "lower_tiers = false")?;
    let mut hog = Running::growing(&widened, MEBIBYTES, 100)?;
    checks.equal("it was widened and lives", Fate::Lives, fate(&mut hog, MEBIBYTES)?);
    daemon.metrics_after_ticks(2)?;
    product::comes_to_print(checks, "it is named as exposed", "can be chosen by the OOM killer")?;
    // Smaller than it, on the node that was added: the kernel takes the largest that may use that node.
    let stranger = Cgroup::with_cpuset("/work/stranger", "0-1", "0")?;
    let mut other = Running::growing(&stranger, MEBIBYTES, 100)?;
    wait::until("the OOM killer has acted", LIMIT, || {
        Ok((hog.has_ended()? || other.has_ended()?).then_some(()))
    })?;
    checks.equal("it was killed for the stranger", true, hog.has_ended()?);
    daemon.ends_well(checks)?;
    Ok(())
}
