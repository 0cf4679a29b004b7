//! A service of systemd keeps its place when systemd reads its units again.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::{
    cgroup::Cgroup,
    check::Checks,
    ids::Ids,
    product::{self, Daemon},
    systemd::{HogService, must},
    wait,
};

/// Memory of each service.
const MEBIBYTES: usize = 64;

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
const LIMIT: Duration = Duration::from_mins(3);

/// What the control writes behind systemd's back.
const WRITTEN: &str = "2-3";

/// What the daemon sets is there after a daemon-reload, without the daemon; what is only written to the
/// cgroup is not. `restore` takes it back.
pub(super) fn keeps_its_place(checks: &mut Checks) -> Result<()> {
    let everywhere = Ids::from([0, 1, 2, 3]);
    // systemd looks after what a property of the unit says.
    let written = HogService::start("written", MEBIBYTES)?;
    must(&["set-property", "--runtime", "--", &written.unit, "AllowedCPUs=0-3"])?;
    Cgroup::create(written.cgroup.path())?.write("cpuset.cpus", WRITTEN)?;
    checks.equal("control: CPUs as written", Ids::from([2, 3]), written.cpus_allowed()?);
    must(&["daemon-reload"])?;
    checks.equal("control: CPUs after a daemon-reload", &everywhere, &written.cpus_allowed()?);

    let placed = HogService::start("placed", MEBIBYTES)?;
    checks.equal("before: CPUs", &everywhere, &placed.cpus_allowed()?);
    let daemon = Daemon::start("enforce", &[&placed.cgroup])?;
    let (cpus, mems) = on_one_node(&placed)?;
    let (cpus_set, mems_set) = placed.properties()?;
    checks.holds(
        "AllowedCPUs says the same",
        crate::ids::parse(&cpus_set.replace(' ', ","))? == cpus,
        cpus_set,
    );
    checks.holds("AllowedMemoryNodes says the same", crate::ids::parse(&mems_set)? == mems, mems_set);
    must(&["daemon-reload"])?;
    daemon.metrics_after_ticks(2)?;
    let repaired = daemon.labelled("numa_enforcer_cpuset_drift_total", &[("result", "repaired")])?;
    checks.equal("repairs after a daemon-reload", Some(0.0), repaired);
    let missing = daemon.labelled("numa_enforcer_degraded", &[("feature", "systemd")])?;
    checks.equal("systemd is not degraded", None, missing.filter(|value| *value > 0.0));
    daemon.ends_well(checks)?;

    must(&["daemon-reload"])?;
    checks.equal("CPUs after a daemon-reload without the daemon", &cpus, &placed.cpus_allowed()?);
    checks.equal("nodes after a daemon-reload without the daemon", &mems, &placed.mems_allowed()?);

    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.holds("restore succeeds", output.status == Some(0), (&output.stdout, &output.stderr));
    checks.equal("properties after restore", (String::new(), String::new()), placed.properties()?);
    checks.equal("CPUs after restore", &everywhere, &placed.cpus_allowed()?);
    must(&["daemon-reload"])?;
    checks.equal("CPUs after restore and a daemon-reload", &everywhere, &placed.cpus_allowed()?);
    Ok(())
}

/// Waits until a service has the CPUs and the memory of one node.
pub(super) fn on_one_node(service: &HogService) -> Result<(Ids, Ids)> {
    let seen = wait::until(&format!("{} is on one node", service.unit), LIMIT, || {
        let (cpus, mems) = (service.cpus_allowed()?, service.mems_allowed()?);
        Ok((cpus.len() == 2 && mems.len() == 1).then_some((cpus, mems)))
    });
    seen.with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))
}
