//! Undo after the host has changed: cgroups of containers by systemd, a kubelet that has given CPUs away
//! since, a runtime that has set another cpuset since.
//!
//! `restore` gives each container what its kubelet and its runtime want now, on every level that remembers:
//! the files of its cgroup, the properties of its scope, what its runtime has stored. A daemon-reload and a
//! restart of the runtime change nothing afterwards.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result};

use super::pods::{self, LIMIT, MEBIBYTES, cpus, placing, plan, told};
use crate::{
    cgroup::Cgroup,
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Container, Cri, Pod},
    ids::{self, Ids},
    kubelet::CpuState,
    process::{self, Output},
    product,
    systemd::{must, property},
    wait,
};

/// What the kubelet gives to a container for itself.
const EXCLUSIVE: &str = "3-4";

/// What is left for the others then.
const SHARED: &str = "0-2,5-7";

/// Longest time for a command: a bound on a hang.
const COMMAND: Duration = Duration::from_mins(3);

/// Beside a static CPU manager, undone over systemd's own socket as in a pod; then without one, undone with
/// systemctl as on a host.
pub(super) fn stays_undone(checks: &mut Checks) -> Result<()> {
    told(checks, |checks| {
        let cri = Containerd::start_unit()?;
        beside_a_static_kubelet(checks, &cri)?;
        after_an_update(checks, &cri)
    })
}

fn beside_a_static_kubelet(checks: &mut Checks, cri: &Cri) -> Result<()> {
    let mut state = CpuState { policy: "static", shared: "0-7".into(), ..CpuState::default() };
    state.write()?;
    let daemon = placing()?;
    let amounts = Amounts { cpus: "0-7", ..Amounts::burstable(500, MEBIBYTES) };
    let pod = Pod::run_in_slice(cri, &plan("shared", &amounts))?;
    let shared = pod.start("main", &amounts)?;
    checks.equal("CPUs of a container that shares, placed on one node", 4, shared.first_look()?.cpus.len());
    let scope = Scope::of(&shared)?;
    let set = scope.properties()?;
    checks.holds("the runtime has set them of its scope", ids::parse(&set.0)?.len() == 4, &set);

    // Docker in docker: a neighbour with cgroups below keeps the controller from being taken away.
    let neighbour = Cgroup::at(&format!("{}/neighbour", pod.cgroup.path()));
    fs::create_dir(neighbour.folder()).context("make a cgroup beside a container")?;
    neighbour.write("cgroup.subtree_control", "+cpuset")?;
    fs::create_dir(neighbour.child("inner").folder()).context("make a cgroup below it")?;

    // The kubelet gives CPUs away, and updates the sharing container.
    let exclusive = Amounts { cpus: EXCLUSIVE, ..Amounts::guaranteed(2, MEBIBYTES) };
    let other = Pod::run_in_slice(cri, &plan("exclusive", &exclusive))?;
    state.shared = SHARED.into();
    state.exclusive.insert(other.uid(), ("main".to_owned(), EXCLUSIVE.to_owned()));
    state.write()?;
    let owner = other.start("main", &exclusive)?;
    checks.equal("CPUs of the owner", ids::parse(EXCLUSIVE)?, owner.first_look()?.cpus);
    shared.update(&Amounts { cpus: SHARED, ..amounts })?;
    daemon.metrics_after_ticks(2)?;
    daemon.ends_well(checks)?;

    let output = by_the_socket(&["restore", "--state-dir", product::STATE])?;
    checks.holds("restore succeeds", output.status == Some(0), (&output.stdout, &output.stderr));
    let now = |checks: &mut Checks, when: &str| -> Result<()> {
        checks.equal(format!("{when}: CPUs of the sharing container"), ids::parse(SHARED)?, cpus(&shared)?);
        checks.equal(format!("{when}: its memory nodes"), Ids::from([0, 1]), pods::mems(&shared)?);
        let (cpus_set, mems_set) = scope.properties()?;
        checks.equal(format!("{when}: CPUs of its scope"), ids::parse(SHARED)?, ids::parse(&cpus_set)?);
        let everywhere = ["", "0-1", "0,1"].contains(&mems_set.as_str());
        checks.holds(format!("{when}: memory nodes of its scope"), everywhere, mems_set);
        checks.equal(format!("{when}: CPUs of the owner"), ids::parse(EXCLUSIVE)?, cpus(&owner)?);
        Ok(())
    };
    now(checks, "after restore")?;
    must(&["daemon-reload"])?;
    now(checks, "after a daemon-reload")?;
    Containerd::restart_unit(cri)?;
    now(checks, "after a restart of the runtime")?;
    must(&["daemon-reload"])?;
    now(checks, "after both")
}

/// Without a static kubelet what the runtime was told last is what counts.
fn after_an_update(checks: &mut Checks, cri: &Cri) -> Result<()> {
    const WANTED: &str = "1,4-7";
    CpuState { policy: "none", ..CpuState::default() }.write()?;
    let daemon = placing()?;
    let amounts = Amounts::burstable(500, MEBIBYTES);
    let pod = Pod::run_in_slice(cri, &plan("updated", &amounts))?;
    let updated = pod.start("main", &amounts)?;
    checks.equal("CPUs of one that is placed", 4, updated.first_look()?.cpus.len());
    daemon.metrics_after_ticks(2)?;
    updated.update(&Amounts { cpus: WANTED, ..amounts })?;
    daemon.metrics_after_ticks(2)?;
    checks.equal("it stays where it was placed", 4, cpus(&updated)?.len());
    daemon.ends_well(checks)?;
    let output = product::run(&["restore", "--state-dir", product::STATE])?;
    checks.holds("restore succeeds", output.status == Some(0), (&output.stdout, &output.stderr));
    let scope = Scope::of(&updated)?;
    for when in ["after restore", "after a daemon-reload"] {
        checks.equal(format!("{when}: CPUs of it"), ids::parse(WANTED)?, cpus(&updated)?);
        checks.equal(
            format!("{when}: CPUs of its scope"),
            ids::parse(WANTED)?,
            ids::parse(&scope.properties()?.0)?,
        );
        must(&["daemon-reload"])?;
    }
    Ok(())
}

/// Runs the product where there is no `systemctl`, as in its image.
fn by_the_socket(arguments: &[&str]) -> Result<Output> {
    let hidden = "mount --bind /dev/null /usr/bin/systemctl && exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", hidden, product::PROGRAM]).args(arguments);
    process::run(&mut command, COMMAND)
}

/// The unit of a container.
struct Scope(String);

impl Scope {
    /// Of one that runs.
    fn of(container: &Container) -> Result<Self> {
        let name = container.cgroup.path().rsplit('/').next().context("a cgroup without a name")?;
        let unit = name.to_owned();
        wait::until("systemd has the scope", LIMIT, || {
            Ok((property(&unit, "ActiveState")? == "active").then_some(()))
        })?;
        Ok(Self(unit))
    }

    /// `AllowedCPUs` and `AllowedMemoryNodes`, as lists.
    fn properties(&self) -> Result<(String, String)> {
        let of = |name: &str| Ok::<_, anyhow::Error>(property(&self.0, name)?.replace(' ', ","));
        Ok((of("AllowedCPUs")?, of("AllowedMemoryNodes")?))
    }
}
