//! The daemon or the container runtime ends and comes back while containers run.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::pods::{LIMIT, Node, connected, cpus, disconnected, node_of, placing, plan, told, two};
use crate::{
    check::Checks,
    containerd::Containerd,
    cri::{Container, Pod},
    ids::Ids,
    topology::Topology,
    wait,
};

/// How long a creation has gone on when the daemon is killed. One takes some seconds in an emulated guest:
/// before the runtime asks, about then, and when it has its answer.
const KILLED_AFTER: [Duration; 3] = [Duration::ZERO, Duration::from_millis(700), Duration::from_secs(3)];

/// Whether the daemon or the runtime restarts, containers go on where they are, and each has its place
/// afterwards.
pub(super) fn while_containers_run(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

fn story(checks: &mut Checks) -> Result<()> {
    let (containerd, node) = Node::start()?;
    let daemon = placing()?;
    let (_pod_a, a) = node.exclusive("a")?;
    let (_pod_s, sharing) = node.sharing("sharing")?;
    let before = (a.cgroup.cpuset()?, sharing.cgroup.cpuset()?);

    daemon.ends_well(checks)?;
    let mut daemon = placing()?;
    daemon.metrics_after_ticks(2)?;
    let after = (a.cgroup.cpuset()?, sharing.cgroup.cpuset()?);
    checks.equal("cpusets after a restart of the daemon", before.clone(), after);

    for (round, delay) in KILLED_AFTER.into_iter().enumerate() {
        let name = format!("c{round}");
        let pod = Pod::run(&node.cri, &plan(&name, &two()))?;
        let killing = thread::spawn(move || {
            thread::sleep(delay);
            daemon.process().kill()
        });
        let begin = Instant::now();
        let container = pod.create("main", &two())?;
        checks.note("seconds that a creation took", &format!("{:.1}", begin.elapsed().as_secs_f64()));
        killing.join().ok().context("the thread that kills")??;
        container.start()?;
        let look = container.first_look()?;
        checks.holds(
            format!("{name} runs somewhere"),
            !look.cpus.is_empty() && !look.mems.is_empty(),
            (&look.cpus, &look.mems),
        );
        checks.equal("the cpuset of a meanwhile", before.0.clone(), a.cgroup.cpuset()?);

        daemon = placing()?;
        right_again(checks, &name, [&a, &container], &sharing, &node.machine)?;
        pod.remove()?;
    }

    // That it is connected is what the latest turn saw, which may be from before.
    let links = || daemon.labelled("numa_enforcer_nri_calls_total", &[("call", "synchronize")]);
    let before_it = links()?;
    let containerd = containerd.restart(&node.cri)?;
    wait::until("the runtime has listed its containers again", LIMIT, || {
        Ok((links()? > before_it).then_some(()))
    })?;
    connected(&daemon)?;
    daemon.metrics_after_ticks(2)?;
    checks.equal("the cpuset of a after a restart of the runtime", before.0.clone(), a.cgroup.cpuset()?);
    let (_pod_b, b) = node.exclusive("b")?;
    let (theirs, own) = (b.first_look()?.cpus, cpus(&a)?);
    checks.holds("b is placed at creation again", theirs.len() == 2 && theirs.is_disjoint(&own), &theirs);
    gone_runtime(checks, containerd, &daemon, &a, &before.0)?;
    daemon.ends_well(checks)
}

/// Each has two exclusive CPUs of one node; the sharing container has the rest.
fn right_again(
    checks: &mut Checks,
    name: &str,
    alone: [&Container; 2],
    sharing: &Container,
    machine: &Topology,
) -> Result<()> {
    let state = || -> Result<(Vec<Ids>, Ids)> {
        Ok((alone.iter().map(|one| cpus(one)).collect::<Result<_>>()?, cpus(sharing)?))
    };
    let right = wait::until("every container has what it should", LIMIT, || {
        let (owned, shared) = state()?;
        let mut of_one_node = true;
        for own in &owned {
            of_one_node &= own.len() == 2 && node_of(own, machine)?.is_some();
        }
        let apart = owned[0].is_disjoint(&owned[1]) && owned.iter().all(|own| own.is_disjoint(&shared));
        Ok((of_one_node && apart && !shared.is_empty()).then_some(()))
    });
    checks.holds(format!("every container has what it should, {name} too"), right.is_ok(), state()?);
    Ok(())
}

/// A runtime that stays away is said to; containers stay as they are.
fn gone_runtime(
    checks: &mut Checks,
    containerd: Containerd,
    daemon: &crate::product::Daemon,
    a: &Container,
    before: &(String, String),
) -> Result<()> {
    containerd.kill()?;
    let missed = disconnected(daemon);
    checks.holds("the daemon misses the runtime", missed.is_ok(), missed);
    checks.equal("the cpuset of a without a runtime", before.clone(), a.cgroup.cpuset()?);
    Ok(())
}
