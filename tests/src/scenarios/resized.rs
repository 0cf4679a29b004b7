//! Running containers that get other CPUs from a kubelet, through the container runtime.

use anyhow::Result;

use super::pods::{LIMIT, MEBIBYTES, Node, cpus, node_of, on_a_node, placing};
use crate::{
    check::Checks,
    cri::{Amounts, Container},
    ids::Ids,
    product::Daemon,
    wait,
};

/// From two CPUs to four and back; what does not fit takes nothing away, and what is given back is free.
pub(super) fn in_place(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    without_placement(checks, node)?;

    let daemon = placing()?;
    let (_pod_a, a) = node.exclusive("a")?;
    let two = a.first_look()?.cpus;
    checks.equal("CPUs of a at first", 2, two.len());

    resize(checks, &a, 4, || Ok(cpus(&a)?.len() == 4))?;
    let four = cpus(&a)?;
    checks.holds("a has four CPUs, the two among them", four.len() == 4 && two.is_subset(&four), &four);
    checks.holds("they are of one node", node_of(&four, &node.machine)?.is_some(), &four);

    let (_pod_b, b) = node.exclusive("b")?;
    let other = b.first_look()?.cpus;
    checks.holds("b has CPUs that a has not", other.len() == 2 && other.is_disjoint(&four), &other);

    let before = a.cgroup.cpuset()?;
    resize(checks, &a, 6, || Ok(a.cgroup.cpuset()? == before))?;
    checks.equal("the cpuset of a after a resize that does not fit", before.clone(), a.cgroup.cpuset()?);
    refused(checks, &daemon);
    resize(checks, &a, 4, || Ok(a.cgroup.cpuset()? == before))?;
    checks.equal("and when the kubelet has taken it back", before, a.cgroup.cpuset()?);
    let none = wait::until("no container waits for a place", LIMIT, || {
        Ok(daemon.value("numa_enforcer_nri_containers_unplaced")?.filter(|count| *count == 0.0))
    });
    checks.equal("resized containers without a place then", Some(0.0), none.ok());

    resize(checks, &a, 2, || Ok(cpus(&a)?.len() == 2))?;
    let back = cpus(&a)?;
    checks.holds("a has two of its four", back.len() == 2 && back.is_subset(&four), &back);
    let (_pod_c, c) = node.exclusive("c")?;
    let freed = c.first_look()?.cpus;
    let taken: Ids = back.union(&other).copied().collect();
    checks.holds("what a gave back can be had", freed.len() == 2 && freed.is_disjoint(&taken), &freed);
    daemon.ends_well(checks)
}

/// Resizes a container, and sees to it that what is waited for is there when the runtime says that it is
/// done: only where the daemon says that its answer came too late for the runtime, as on a busy host, the
/// next turn may bring it.
fn resize(
    checks: &mut Checks,
    container: &Container,
    count: i64,
    mut is_there: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let late = || Daemon::printed().matches("the answer to update came too late").count();
    let before = late();
    container.update(&guaranteed(count))?;
    if is_there()? {
        return Ok(());
    }
    let what = format!("what follows from a resize to {count} CPUs");
    wait::until(&what, LIMIT, || Ok(is_there()?.then_some(())))?;
    checks.equal(format!("{what} came with a turn: answers that came too late"), 1, late() - before);
    Ok(())
}

/// The control: without the daemon a resize changes time, not CPUs.
fn without_placement(checks: &mut Checks, node: &Node) -> Result<()> {
    let (pod, container) = node.exclusive("control")?;
    container.update(&guaranteed(4))?;
    checks.equal("CPUs after a resize without the daemon", node.machine.cpus(), cpus(&container)?);
    checks.equal("its CPU time", "400000 100000", &container.cgroup.read("cpu.max")?);
    pod.remove()
}

/// It is said why, and counted.
fn refused(checks: &mut Checks, daemon: &Daemon) {
    let unplaced = wait::until("the refused resize is counted", LIMIT, || {
        Ok(daemon.value("numa_enforcer_nri_containers_unplaced")?.filter(|count| *count > 0.0))
    });
    checks.equal("resized containers without a place", Some(1.0), unplaced.ok());
    // What it says is printed by a thread of its own.
    let line = wait::until("the daemon names the container and the reason", LIMIT, || {
        let printed = Daemon::printed();
        let line = printed.lines().find(|line| line.contains("default/a/main keeps what it has"));
        Ok(line.map(ToOwned::to_owned))
    });
    checks.holds(
        "the daemon names the container and the reason",
        line.is_ok(),
        line.as_deref().unwrap_or("nothing"),
    );
}

fn guaranteed(count: i64) -> Amounts {
    Amounts::guaranteed(count, MEBIBYTES)
}
