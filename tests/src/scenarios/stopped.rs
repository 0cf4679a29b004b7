//! A container that ignores SIGTERM keeps its CPUs until its process is gone.

use std::{thread, time::Duration};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::pods::{LIMIT, MEBIBYTES, Node, alone, cpus, on_a_node, placing};
use crate::{
    check::Checks,
    cri::{Amounts, Container, Cri},
    ids::Ids,
    product::Daemon,
};

/// Grace period of a stop: longer than anything here takes. The first process of a container has no handler
/// for SIGTERM, so the kernel drops the signal; it is killed here when everything has been looked at.
const GRACE: Duration = Duration::from_mins(3);

/// The end of a stop frees CPUs, and its beginning none: also where the daemon is killed and started again in
/// between.
pub(super) fn until_the_last_process_is_gone(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let daemon = placing()?;
    let (_pod_a, a) = node.exclusive("a")?;
    let (_pod_b, b) = node.exclusive("b")?;
    // More than a node has, so that it shares all CPUs that no other container has for itself.
    let (_pod_s, sharing) = alone(&node.cri, "sharing", &Amounts::burstable(5000, MEBIBYTES))?;

    let taken = stopped_slowly(checks, node, &a, &sharing, &daemon)?;
    freed(checks, "a", &taken, &sharing)?;
    a.remove()?;

    // The same, and the daemon does not hear the end: it is another one by then.
    let stopping = Stopping::begin(&b)?;
    let own = cpus(&b)?;
    told_of_the_stop(checks, &daemon)?;
    daemon.process().kill()?;
    let daemon = placing()?;
    let (_pod_e, e) = node.exclusive("e")?;
    let theirs = cpus(&e)?;
    checks.holds("e is on none of b's CPUs", theirs.is_disjoint(&own), (&theirs, &own));
    stopping.end(checks, &b)?;
    freed(checks, "b", &own, &sharing)?;
    daemon.ends_well(checks)
}

/// Stops a container that ignores the signal, and creates another one meanwhile. Returns its place.
fn stopped_slowly(
    checks: &mut Checks,
    node: &Node,
    container: &Container,
    sharing: &Container,
    daemon: &Daemon,
) -> Result<Ids> {
    let own = cpus(container)?;
    let stopping = Stopping::begin(container)?;
    told_of_the_stop(checks, daemon)?;
    let (_pod, other) = node.exclusive("d")?;
    let theirs = other.first_look()?.cpus;
    checks.holds("d is on none of its CPUs", theirs.is_disjoint(&own) && !theirs.is_empty(), (&theirs, &own));
    let shared = cpus(sharing)?;
    checks.holds("nor is the container that shares", shared.is_disjoint(&own), (&shared, &own));
    stopping.end(checks, container)?;
    Ok(own)
}

/// A stop of a container that is under way: its process ignores it.
struct Stopping {
    process: Pid,
    call: thread::JoinHandle<Result<()>>,
}

impl Stopping {
    /// Asks the runtime, from another thread.
    fn begin(container: &Container) -> Result<Self> {
        let pid = i32::try_from(container.pid()?).ok().and_then(Pid::from_raw).context("a process id")?;
        let id = container.id().to_owned();
        Ok(Self { process: pid, call: thread::spawn(move || Cri::new()?.stop(&id, GRACE)) })
    }

    /// Kills the process, and waits until the runtime has stopped the container.
    fn end(self, checks: &mut Checks, container: &Container) -> Result<()> {
        // The control: what was looked at was looked at while the process ran.
        let runs = container.pid().is_ok() && !self.call.is_finished();
        checks.holds("the control: the process that is being stopped still runs", runs, runs);
        kill_process(self.process, Signal::KILL).context("kill the process of a container")?;
        self.call.join().ok().context("the thread that stops")?
    }
}

/// Gives the runtime time to tell the daemon of a stop; some tell at its beginning, others at its end.
fn told_of_the_stop(checks: &mut Checks, daemon: &Daemon) -> Result<()> {
    let stops = || daemon.labelled("numa_enforcer_nri_calls_total", &[("call", "stop")]);
    let before = stops()?;
    daemon.metrics_after_ticks(2)?;
    checks.note("the runtime tells of a stop at its beginning", &(stops()? > before));
    Ok(())
}

/// Its CPUs are for all that share when its process is gone.
fn freed(checks: &mut Checks, name: &str, own: &Ids, sharing: &Container) -> Result<()> {
    checks.comes_to_hold(format!("the CPUs of {name} are free when its process is gone"), LIMIT, || {
        let now = cpus(sharing)?;
        Ok((own.is_subset(&now), now))
    })
}
