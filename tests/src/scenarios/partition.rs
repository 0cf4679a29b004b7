//! CPUs of a workload that everything else of the host is kept off, by a partition of the kernel.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result};

use crate::{
    cgroup::Cgroup,
    check::Checks,
    ids::Ids,
    process::Running,
    product::{self, Daemon},
    wait,
};

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
const LIMIT: Duration = Duration::from_mins(2);

/// Turns after which a daemon has done what it does: the cpuset, what is above, the partition.
const SETTLED: u32 = 5;

/// A workload with a process in it, and an unconfined process.
struct Scene {
    above: Cgroup,
    cgroup: Cgroup,
    _inside: Running,
    stranger: Running,
}

impl Scene {
    fn new() -> Result<Self> {
        let cgroup = Cgroup::create("/part/a")?;
        let inside = Running::spawn(Command::new("sleep").arg("1000"))?;
        cgroup.adopt(inside.pid())?;
        let stranger = Running::spawn(Command::new("sleep").arg("1000"))?;
        Cgroup::create("/stranger")?.adopt(stranger.pid())?;
        Ok(Self { above: Cgroup::at("/part"), cgroup, _inside: inside, stranger })
    }

    fn daemon(&self, partition: &str) -> Result<Daemon> {
        let config = format!("{}{partition}", product::rules(&[&self.cgroup]));
        Daemon::start_with("enforce", &config)
    }

    /// CPUs of the workload on which the stranger may run.
    fn trespassed(&self) -> Result<usize> {
        let own: Ids = self.cgroup.ids("cpuset.cpus")?;
        Ok(own.intersection(&self.stranger.cpus_allowed()?).count())
    }
}

/// With a partition no other task runs there, without one every task may; and all of it is undone.
pub(super) fn keeps_strangers_out(checks: &mut Checks) -> Result<()> {
    let scene = Scene::new()?;
    let strangers = scene.stranger.cpus_allowed()?;
    // The control.
    let daemon = scene.daemon("")?;
    daemon.metrics_after_ticks(SETTLED)?;
    checks.equal("without: CPUs of the workload", 2, scene.cgroup.ids("cpuset.cpus.effective")?.len());
    checks.equal("without: those where the stranger may run", 2, scene.trespassed()?);
    daemon.ends_well(checks)?;

    let daemon = scene.daemon("partition = \"isolated\"\n")?;
    let begun = wait::until("the partition lives", LIMIT, || {
        Ok((scene.cgroup.read("cpuset.cpus.partition")? == "isolated").then_some(()))
    });
    begun.with_context(|| format!("the daemon printed:\n{}", Daemon::printed()))?;
    checks.equal("CPUs of the workload", 2, scene.cgroup.ids("cpuset.cpus.effective")?.len());
    checks.equal("those where the stranger may run", 0, scene.trespassed()?);
    checks.equal(
        "exclusive above",
        scene.cgroup.read("cpuset.cpus")?,
        scene.above.read("cpuset.cpus.exclusive")?,
    );
    let settled = daemon.metrics_after_ticks(1)?.sum("numa_enforcer_actions_total", &[]);
    let later = daemon.metrics_after_ticks(SETTLED)?.sum("numa_enforcer_actions_total", &[]);
    checks.equal("steps after that", 0.0, later - settled);

    // Another program ends the partition: the daemon begins it again.
    scene.cgroup.write("cpuset.cpus.partition", "member")?;
    let again = wait::until("the partition lives again", LIMIT, || {
        Ok((scene.cgroup.read("cpuset.cpus.partition")? == "isolated").then_some(()))
    });
    checks.holds("it begins again", again.is_ok(), "");
    daemon.ends_well(checks)?;
    checks.equal("after its end", "isolated".to_owned(), scene.cgroup.read("cpuset.cpus.partition")?);

    // A daemon that finds it takes it as it is, although all cgroups above lack its CPUs.
    let found = scene.cgroup.read("cpuset.cpus")?;
    let daemon = scene.daemon("partition = \"isolated\"\n")?;
    let actions = daemon.metrics_after_ticks(SETTLED)?.sum("numa_enforcer_actions_total", &[]);
    checks.equal("steps of another daemon", 0.0, actions);
    checks.equal("its CPUs", found, scene.cgroup.read("cpuset.cpus")?);
    checks.equal("exit status of that daemon", Some(0), daemon.end()?);
    checks.equal("after its end", "isolated".to_owned(), scene.cgroup.read("cpuset.cpus.partition")?);

    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.equal("exit status of restore", Some(0), output.status);
    checks.equal("the partition", "member".to_owned(), scene.cgroup.read("cpuset.cpus.partition")?);
    checks.equal("exclusive above", String::new(), scene.above.read("cpuset.cpus.exclusive")?);
    checks.equal("CPUs of the stranger", strangers, scene.stranger.cpus_allowed()?);
    Ok(())
}

/// Where the kernel refuses, the workload has its CPUs all the same, and it is said by name.
pub(super) fn refused(checks: &mut Checks) -> Result<()> {
    let scene = Scene::new()?;
    // A neighbour of the cgroup above has these CPUs for partitions of its own.
    let neighbour = Cgroup::create("/neighbour")?;
    neighbour.write("cpuset.cpus.exclusive", "0-3")?;
    let daemon = scene.daemon("partition = \"root\"\n")?;
    let metrics = daemon.metrics_after_ticks(SETTLED)?;
    checks.equal("the partition", "member".to_owned(), scene.cgroup.read("cpuset.cpus.partition")?);
    checks.equal("CPUs of the workload", 2, scene.cgroup.ids("cpuset.cpus.effective")?.len());
    checks.equal(
        "it is named as degraded",
        1.0,
        metrics.sum("numa_enforcer_degraded", &[("feature", "partition")]),
    );
    let settled = metrics.sum("numa_enforcer_actions_total", &[]);
    let later = daemon.metrics_after_ticks(SETTLED)?.sum("numa_enforcer_actions_total", &[]);
    checks.equal("steps that are tried again", 0.0, later - settled);
    checks.equal("what the neighbour has", "0-3".to_owned(), neighbour.read("cpuset.cpus.exclusive")?);
    Ok(())
}
