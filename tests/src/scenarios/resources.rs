//! What containers read of their own place, through the container runtime.

use std::fs;

use anyhow::{Context, Result};

use super::pods::{LIMIT, Node, connected, cpus, on_a_node};
use crate::{
    check::Checks,
    cri::Container,
    ids::{self, Ids},
    product::Daemon,
    wait,
};

/// Where a container finds it.
const FILE: &str = ".numa-enforcer/resources.sh";

/// A node on which containers can read their place.
const CONFIG: &str = "[nri]\nplace = true\nexpose = true\n[placement.hints]\npolicy = \"single-numa-node\"\n";

/// A container reads its own CPUs and memory nodes, cannot write them, and reads others as soon as it must
/// make room; so it is after a restart of the daemon, and of a container that is gone nothing is left.
pub(super) fn read_by_containers(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    without_exposure(checks, node)?;

    let daemon = exposing()?;
    // It comes first, and has all CPUs of its node until others come.
    let (_pod_s, sharing) = node.sharing("sharing")?;
    let before = read(&sharing, "SHARED_CPUS")?;
    let (_pod_a, a) = node.exclusive("a")?;
    let look = a.first_look()?;
    checks.equal("EXCLUSIVE_CPUS of a", look.cpus.clone(), read(&a, "EXCLUSIVE_CPUS")?);
    checks.equal("SHARED_CPUS of a", Ids::new(), read(&a, "SHARED_CPUS")?);
    for name in ["ALL_MEMS", "DRAM_MEMS"] {
        checks.equal(format!("{name} of a"), look.mems.clone(), read(&a, name)?);
    }
    checks.holds("a cannot write it", fs::write(path(&a)?, "x").is_err(), path(&a)?);

    checks.equal("SHARED_CPUS of the sharing container", cpus(&sharing)?, read(&sharing, "SHARED_CPUS")?);
    let (_pod_b, b) = node.exclusive("b")?;
    let (pod_c, c) = node.exclusive("c")?;
    follows(checks, "when others came", &sharing)?;
    checks.holds("it is another", read(&sharing, "SHARED_CPUS")? != before, &before);
    checks.holds("of the machine", before.is_subset(&node.machine.cpus()), &before);

    daemon.ends_well(checks)?;
    let daemon = exposing()?;
    c.stop()?;
    let folder = format!("{}/exposed/{}", crate::product::STATE, c.id());
    c.remove()?;
    pod_c.remove()?;
    follows(checks, "after a restart of the daemon, when one has gone", &sharing)?;
    let gone = wait::until("the directory of a removed container is gone", LIMIT, || {
        Ok((!fs::exists(&folder).context("look for the directory")?).then_some(()))
    });
    checks.holds("the directory of a removed container is gone", gone.is_ok(), &folder);
    checks.equal("EXCLUSIVE_CPUS of b", cpus(&b)?, read(&b, "EXCLUSIVE_CPUS")?);
    daemon.ends_well(checks)
}

/// The control: the same container without the daemon.
fn without_exposure(checks: &mut Checks, node: &Node) -> Result<()> {
    let (pod, container) = node.exclusive("control")?;
    container.first_look()?;
    checks.holds("without the daemon there is nothing", fs::read(path(&container)?).is_err(), FILE);
    pod.remove()
}

fn exposing() -> Result<Daemon> {
    let daemon = Daemon::start_with("enforce", CONFIG)?;
    connected(&daemon)?;
    Ok(daemon)
}

/// Waits until a container that shares CPUs reads those that its cgroup has.
fn follows(checks: &mut Checks, when: &str, container: &Container<'_>) -> Result<()> {
    let same = wait::until("it reads the CPUs that it has", LIMIT, || {
        let (has, reads) = (cpus(container)?, read(container, "SHARED_CPUS")?);
        Ok((has == reads).then_some(has))
    });
    let reads = read(container, "SHARED_CPUS")?;
    checks.holds(format!("SHARED_CPUS are those of the cgroup {when}"), same.is_ok(), &reads);
    Ok(())
}

/// The file as the container's own processes see it.
fn path(container: &Container<'_>) -> Result<String> {
    Ok(format!("/proc/{}/root/{FILE}", container.pid()?))
}

/// A list of the file.
fn read(container: &Container<'_>, name: &str) -> Result<Ids> {
    let path = path(container)?;
    let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let list = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    ids::parse(list.with_context(|| format!("no {name} in {text:?}"))?.trim_matches('"'))
}
