//! Containers that the product places when they are made, through the container runtime.

use anyhow::{Context, Result};

use super::pods::{LIMIT, Node, on_a_node, placing, plan, two};
use crate::{
    check::Checks,
    cri::{FirstLook, Pod},
    ids::Ids,
    topology::Topology,
    wait,
};

/// Guaranteed containers see one node's CPUs and memory before they do anything else, and no other container
/// is on these CPUs from then on. A Burstable one gives way, and gets its CPUs back.
pub(super) fn at_creation(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    without_placement(checks, node)?;

    let daemon = placing()?;
    let (_pod_a, a) = node.exclusive("guaranteed-a")?;
    let (_pod_b, b) = node.exclusive("guaranteed-b")?;
    let mut taken = Ids::new();
    for (name, container) in [("a", &a), ("b", &b)] {
        taken.extend(has_a_node(checks, name, &container.first_look()?, &node.machine, &taken)?);
    }

    let (_pod_s, sharing) = node.sharing("burstable")?;
    let before = sharing.first_look()?.cpus;
    checks.holds("CPUs of the Burstable one, exclusive to none", before.is_disjoint(&taken), &before);

    // Created and not started: containers that must give way have done so by now.
    let pod_c = Pod::run(&node.cri, &plan("guaranteed-c", &two()))?;
    let c = pod_c.create("main", &two())?;
    let given = sharing.cgroup.ids("cpuset.cpus.effective")?;
    checks.holds("it gave some away", given.is_subset(&before) && given != before, (&before, &given));
    c.start()?;
    let theirs = has_a_node(checks, "c", &c.first_look()?, &node.machine, &taken)?;
    checks.holds(
        "CPUs that are left to it, exclusive to none",
        given.is_disjoint(&theirs),
        (&given, &theirs),
    );

    // A kubelet's update knows of no cpuset; without an answer the runtime writes the one that it has stored.
    let own = a.cgroup.cpuset()?;
    a.update(&two())?;
    checks.equal("the cpuset of a after an update of a kubelet", own.clone(), a.cgroup.cpuset()?);

    c.stop()?;
    let back = wait::until("the Burstable one has back what it gave", LIMIT, || {
        Ok((sharing.cgroup.ids("cpuset.cpus.effective")? == before).then_some(()))
    });
    checks.holds("the Burstable one has back what it gave", back.is_ok(), back);
    c.remove()?;
    daemon.ends_well(checks)?;
    checks.equal("the cpuset of a when the daemon has ended", own, a.cgroup.cpuset()?);
    Ok(())
}

/// The control: the same container without the daemon.
fn without_placement(checks: &mut Checks, node: &Node) -> Result<()> {
    let (pod, container) = node.exclusive("control")?;
    let nodes = u32::try_from(node.machine.nodes.len())?;
    let everywhere = FirstLook { pid: 1, cpus: node.machine.cpus(), mems: (0..nodes).collect() };
    checks.equal("what a container sees first without the daemon", everywhere, container.first_look()?);
    pod.remove()
}

/// It has two CPUs of one node and the memory of that node, and none of what is `taken`; returns the CPUs.
fn has_a_node(
    checks: &mut Checks,
    name: &str,
    look: &FirstLook,
    machine: &Topology,
    taken: &Ids,
) -> Result<Ids> {
    checks.equal(format!("process that looked in {name}"), 1, look.pid);
    checks.equal(format!("CPUs that {name} sees first"), 2, look.cpus.len());
    let node = look.mems.first().copied().context("a container without memory nodes")?;
    let its_cpus = machine.nodes.get(usize::try_from(node)?).context("no such node")?.cpus()?;
    let is_one = look.mems.len() == 1 && look.cpus.is_subset(&its_cpus);
    checks.holds(format!("{name} is on one node"), is_one, (&look.cpus, &look.mems));
    checks.holds(format!("no other container is on the CPUs of {name}"), look.cpus.is_disjoint(taken), taken);
    Ok(look.cpus.clone())
}
