//! What the scenarios with containers of a real runtime have in common: the node, the daemon that places on
//! it, and pods of one container.

use std::time::Duration;

use anyhow::Result;

use crate::{
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Container, Cri, Plan, Pod},
    ids::Ids,
    product::Daemon,
    topology::Topology,
    wait,
};

/// Two nodes of four CPUs each: three containers can have two each for themselves, and two are left for the
/// others.
pub(super) const TOPOLOGY: &str = "ccx";

/// Memory of each container.
pub(super) const MEBIBYTES: i64 = 64;

/// Longest wait for the daemon: a bound on a hang, not a promise. The host may be busy.
pub(super) const LIMIT: Duration = Duration::from_mins(3);

/// A node with no other placement.
pub(super) const CONFIG: &str = "[nri]\nplace = true\n[placement.hints]\npolicy = \"single-numa-node\"\n";

/// Plays a scenario, and shows what runtime and daemon printed if it does not end well.
pub(super) fn told(checks: &mut Checks, story: impl FnOnce(&mut Checks) -> Result<()>) -> Result<()> {
    let outcome = story(checks);
    if outcome.is_err() || !checks.passed() {
        println!(
            "containerd printed:\n{}\nthe daemon printed:\n{}",
            Containerd::printed(),
            Daemon::printed()
        );
    }
    outcome
}

/// The machine of [`TOPOLOGY`] with a container runtime.
pub(super) struct Node {
    /// As its file describes it.
    pub(super) machine: Topology,
    pub(super) cri: Cri,
}

impl Node {
    /// Starts the runtime.
    pub(super) fn start() -> Result<(Containerd, Self)> {
        let machine = Topology::load(TOPOLOGY)?;
        let (containerd, cri) = Containerd::start()?;
        Ok((containerd, Self { machine, cri }))
    }

    /// A pod with one container that has two CPUs for itself.
    pub(super) fn exclusive(&self, name: &str) -> Result<(Pod<'_>, Container<'_>)> {
        alone(&self.cri, name, &two())
    }

    /// A pod with one container that shares CPUs.
    pub(super) fn sharing(&self, name: &str) -> Result<(Pod<'_>, Container<'_>)> {
        alone(&self.cri, name, &Amounts::burstable(500, MEBIBYTES))
    }
}

/// Plays a scenario on a node; its runtime runs from beginning to end.
pub(super) fn on_a_node(
    checks: &mut Checks,
    story: impl FnOnce(&mut Checks, &Node) -> Result<()>,
) -> Result<()> {
    told(checks, |checks| {
        let (containerd, node) = Node::start()?;
        story(checks, &node)?;
        containerd.stop()
    })
}

/// Two CPUs of its own.
pub(super) fn two() -> Amounts {
    Amounts::guaranteed(2, MEBIBYTES)
}

/// Starts the daemon, and waits until it is connected to the runtime.
pub(super) fn placing() -> Result<Daemon> {
    let daemon = Daemon::start_with("enforce", CONFIG)?;
    connected(&daemon)?;
    Ok(daemon)
}

/// Waits until the daemon is connected to the runtime.
pub(super) fn connected(daemon: &Daemon) -> Result<()> {
    is_up(daemon, 1.0, "the daemon is connected to the runtime")
}

/// Waits until the daemon knows that the runtime is gone.
pub(super) fn disconnected(daemon: &Daemon) -> Result<()> {
    is_up(daemon, 0.0, "the daemon misses the runtime")
}

fn is_up(daemon: &Daemon, up: f64, what: &str) -> Result<()> {
    wait::until(what, LIMIT, || Ok((daemon.value("numa_enforcer_nri_up")? == Some(up)).then_some(())))
}

/// A pod with one container, as it is announced.
pub(super) fn plan<'a>(name: &'a str, amounts: &'a Amounts) -> Plan<'a> {
    Plan { name, annotations: &[], containers: std::slice::from_ref(amounts) }
}

/// A pod with one container.
pub(super) fn alone<'a>(cri: &'a Cri, name: &str, amounts: &Amounts) -> Result<(Pod<'a>, Container<'a>)> {
    let pod = Pod::run(cri, &plan(name, amounts))?;
    let container = pod.start("main", amounts)?;
    Ok((pod, container))
}

/// CPUs that a container may run on now.
pub(super) fn cpus(container: &Container) -> Result<Ids> {
    container.cgroup.ids("cpuset.cpus.effective")
}

/// Memory nodes that a container may use now.
pub(super) fn mems(container: &Container) -> Result<Ids> {
    container.cgroup.ids("cpuset.mems.effective")
}

/// The node that has all these CPUs; `None` where they are of several nodes, or none.
pub(super) fn node_of(cpus: &Ids, machine: &Topology) -> Result<Option<usize>> {
    let mut node = None;
    for (index, one) in machine.nodes.iter().enumerate() {
        if !cpus.is_empty() && cpus.is_subset(&one.cpus()?) {
            node = Some(index);
        }
    }
    Ok(node)
}
