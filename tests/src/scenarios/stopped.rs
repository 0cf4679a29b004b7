//! A container that ignores SIGTERM keeps its CPUs until its process is gone.

use std::{thread, time::Duration};

use anyhow::{Context, Result};

use super::pods::{LIMIT, Node, cpus, on_a_node, placing};
use crate::{
    check::Checks,
    cri::{Container, Cri},
    ids::Ids,
    product::Daemon,
    wait,
};

/// Grace period of a stop. The first process of a container has no handler for SIGTERM, so the kernel drops
/// the signal, and the runtime kills it at the end.
const GRACE: Duration = Duration::from_secs(20);

/// The end of a stop frees CPUs, and its beginning none: also where the daemon is killed and started again in
/// between.
pub(super) fn until_the_last_process_is_gone(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let daemon = placing()?;
    let (_pod_a, a) = node.exclusive("a")?;
    let (_pod_b, b) = node.exclusive("b")?;
    let (_pod_s, sharing) = node.sharing("sharing")?;
    let everywhere = cpus(&sharing)?;

    let taken = stopped_slowly(checks, node, &a, &daemon)?;
    freed(checks, "a", &taken, &sharing, &everywhere);
    a.remove()?;

    // The same, and the daemon does not hear the end: it is another one by then.
    let stopping = stop(&b);
    let own = cpus(&b)?;
    told_of_the_stop(checks, &daemon)?;
    daemon.process().kill()?;
    let daemon = placing()?;
    let (_pod_e, e) = node.exclusive("e")?;
    let theirs = cpus(&e)?;
    let runs = b.pid().is_ok();
    checks.holds("the control: b runs while another daemon places e", runs, runs);
    checks.holds("e is on none of b's CPUs", theirs.is_disjoint(&own), (&theirs, &own));
    stopping.join().ok().context("the thread that stops b")??;
    freed(checks, "b", &own, &sharing, &everywhere);

    daemon.ends_well(checks)
}

/// Stops a container whose process ignores that, and makes others meanwhile. Returns what it had.
fn stopped_slowly(checks: &mut Checks, node: &Node, container: &Container, daemon: &Daemon) -> Result<Ids> {
    let own = cpus(container)?;
    let pid = container.pid()?;
    let stopping = stop(container);
    told_of_the_stop(checks, daemon)?;
    let (_pod, other) = node.exclusive("d")?;
    let theirs = other.first_look()?.cpus;
    let (_pod_s, sharing) = node.sharing("sharing-meanwhile")?;
    let shared = sharing.first_look()?.cpus;
    // The control: what was looked at was looked at while the process ran.
    checks.equal(
        "the control: the process that is being stopped still runs",
        Some(pid),
        container.pid().ok(),
    );
    checks.holds("d is on none of its CPUs", theirs.is_disjoint(&own) && !theirs.is_empty(), (&theirs, &own));
    checks.holds("nor is a container that shares", shared.is_disjoint(&own), (&shared, &own));
    stopping.join().ok().context("the thread that stops")??;
    Ok(own)
}

/// Asks the runtime to stop a container, from another thread.
fn stop(container: &Container) -> thread::JoinHandle<Result<()>> {
    let id = container.id().to_owned();
    thread::spawn(move || Cri::new()?.stop(&id, GRACE))
}

/// Gives the runtime time to tell the daemon of a stop; some tell at its beginning, others at its end.
fn told_of_the_stop(checks: &mut Checks, daemon: &Daemon) -> Result<()> {
    let stops = || daemon.labelled("numa_enforcer_nri_calls_total", &[("call", "stop")]);
    let before = stops()?;
    let told = wait::until("the daemon was told of the stop", GRACE / 4, || {
        let now = stops()?;
        Ok((now > before).then_some(()))
    });
    checks.note("the runtime tells of a stop at its beginning", &told.is_ok().to_string());
    Ok(())
}

/// Its CPUs are for all that share when its process is gone.
fn freed(checks: &mut Checks, name: &str, own: &Ids, sharing: &Container, before: &Ids) {
    let back = wait::until("its CPUs are free", LIMIT, || {
        let now = cpus(sharing)?;
        Ok((!now.is_disjoint(own) || before.is_subset(&now)).then_some(now))
    });
    checks.holds(format!("the CPUs of {name} are free when its process is gone"), back.is_ok(), back);
}
