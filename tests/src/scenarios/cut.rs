//! The connection to a container runtime is cut while it tells what there is, and containers die as soon as
//! they run.

use anyhow::{Context as _, Result};

use super::pods::{CONFIG, LIMIT, Node, connected, cpus, mems, node_of, on_a_node, plan, two};
use crate::{
    check::Checks,
    containerd::NRI,
    cri::{Container, Pod, Program},
    go_between::GoBetween,
    ids::Ids,
    product::Daemon,
    topology::Topology,
    wait,
};

/// Where the daemon is told that the runtime is.
const SOCKET: &str = "/run/between.sock";
/// Containers that die at once, one after another: more than the node has CPUs for.
const DYING: usize = 6;
/// What these run.
const ENDS: Program<'static> =
    Program { command: &["true"], environment: &[], folder: None, cdi_devices: &[] };

/// A cut-off message loses no container, and an ended container leaves nothing behind.
pub(super) fn while_it_tells(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let (_pod_a, a) = node.exclusive("a")?;
    let (_pod_s, sharing) = node.sharing("sharing")?;
    let nothing = (String::new(), String::new());
    checks.equal("the cpuset of a before there is a daemon", nothing, a.cgroup.cpuset()?);

    let between = GoBetween::start(SOCKET, NRI)?;
    let config = CONFIG.replacen("[nri]\n", &format!("[nri]\nsocket = \"{SOCKET}\"\n"), 1);
    let daemon = Daemon::start_with("enforce", &config)?;
    connected(&daemon)?;
    checks.equal("connections that were cut", 1, between.cuts());
    checks.above("connections", 1.0, Some(f64::from(between.connections())));
    is_right(checks, "after the cut", &a, &sharing, &node.machine)?;
    daemon.metrics_after_ticks(1)?;
    checks.equal("containers that the daemon knows", Some(2.0), known(&daemon)?);

    let before = a.cgroup.cpuset()?;
    for number in 0..DYING {
        let name = format!("dying-{number}");
        let pod = Pod::run(&node.cri, &plan(&name, &two()))?;
        let container = pod.start_of("main", &two(), &ENDS)?;
        // Every other one is still there, dead, when the daemon looks.
        if number % 2 == 0 {
            daemon.metrics_after_ticks(2)?;
        }
        drop(container);
        pod.remove()?;
    }
    let forgotten = wait::until("the ended container is forgotten", LIMIT, || {
        Ok((known(&daemon)? == Some(2.0)).then_some(()))
    });
    checks.holds("the daemon knows only containers that exist", forgotten.is_ok(), known(&daemon)?);
    checks.equal("the cpuset of a, which lived on", before, a.cgroup.cpuset()?);
    is_right(checks, "after all died", &a, &sharing, &node.machine)?;

    // There is as much room as before the first container.
    let (_pod_b, b) = node.exclusive("b")?;
    let (_pod_c, c) = node.exclusive("c")?;
    for (name, one) in [("b", &b), ("c", &c)] {
        let own = one.first_look()?.cpus;
        let alone = own.len() == 2 && node_of(&own, &node.machine)?.is_some() && own.is_disjoint(&cpus(&a)?);
        checks.holds(format!("{name} has two CPUs of one node from the beginning"), alone, &own);
    }
    daemon.ends_well(checks)
}

/// The container with a CPU request has two CPUs of one node and that node's memory. Memory comes after the
/// CPUs, because the pages move first. The other container has none of these CPUs.
fn is_right(
    checks: &mut Checks,
    when: &str,
    alone: &Container,
    sharing: &Container,
    machine: &Topology,
) -> Result<()> {
    let state = || Ok::<_, anyhow::Error>((cpus(alone)?, mems(alone)?, cpus(sharing)?));
    let right = wait::until("every container has what it should", LIMIT, || {
        let (own, mems, shared) = state()?;
        let node = node_of(&own, machine)?.and_then(|node| u32::try_from(node).ok());
        let has_a_place = own.len() == 2 && node.is_some_and(|node| mems == Ids::from([node]));
        Ok((has_a_place && own.is_disjoint(&shared) && !shared.is_empty()).then_some(()))
    });
    checks.holds(format!("every container has what it should {when}"), right.is_ok(), state()?);
    Ok(())
}

fn known(daemon: &Daemon) -> Result<Option<f64>> {
    daemon.value("numa_enforcer_nri_containers").context("containers that the daemon knows")
}
