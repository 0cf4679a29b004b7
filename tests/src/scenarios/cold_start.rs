//! Containers that begin on slow memory, through the container runtime.
//!
//! The controls: the same container without the annotation has the fast memory from the beginning; and what
//! was written before the end stays where it was, so that a daemon which only forgets the annotation, or
//! which writes the fast nodes alone, does not pass.

use anyhow::{Context, Result};

use super::pods::{CONFIG, LIMIT, MEBIBYTES, connected, mems, told};
use crate::{
    check::Checks,
    containerd::Containerd,
    cri::{Amounts, Plan, Pod},
    ids::Ids,
    memory,
    product::{self, Daemon},
    wait,
};

/// The nodes without CPUs.
const SLOW: [u32; 2] = [2, 3];
const ASKS: [(&str, &str); 3] = [
    ("engine.numa-enforcer.io", "pools"),
    ("memory-type.numa-enforcer.io", "dram,pmem"),
    ("cold-start.numa-enforcer.io", "{duration: 40s}"),
];

/// Slow memory at first, all of it when the start is over, though the daemon was started again meanwhile.
pub(super) fn ends(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

fn story(checks: &mut Checks) -> Result<()> {
    let (containerd, cri) = Containerd::start()?;
    let daemon = Daemon::start_with("enforce", CONFIG)?;
    connected(&daemon)?;
    let amounts = [Amounts::guaranteed(1, MEBIBYTES)];
    let every_slow: Ids = SLOW.into();

    let control = Pod::run(&cri, &Plan { name: "control", annotations: &ASKS[..2], containers: &amounts })?;
    let look = control.start("main", &amounts[0])?.first_look()?;
    checks.holds(
        "control, not asked for: nodes at first",
        !look.mems.is_disjoint(&every_slow) && !look.mems.is_subset(&every_slow),
        &look.mems,
    );

    let pod = Pod::run(&cri, &Plan { name: "cold", annotations: &ASKS, containers: &amounts })?;
    let container = pod.start("main", &amounts[0])?;
    let slow = container.first_look()?.mems;
    checks.holds("nodes at first", slow.len() == 1 && slow.is_subset(&every_slow), &slow);
    let node = *slow.first().context("the container may allocate nowhere")?;
    let pids = container.cgroup.read("cgroup.procs")?;
    let pid = pids.lines().next().context("the container has no process")?.parse()?;
    let before = memory::share_on(pid, node)?;
    // What the runtime prepared before the container had its cpuset is elsewhere: its arguments, for one.
    checks.above("share of its few pages on the slow node at first", 0.5, Some(before));

    daemon.metrics_after_ticks(2)?;
    daemon.ends_well(checks)?;
    let daemon = Daemon::start_with("enforce", CONFIG)?;
    connected(&daemon)?;
    checks.equal("nodes after a restart of the daemon", slow.clone(), mems(&container)?);
    let at_end = wait::until("it has fast memory as well", LIMIT, || {
        let now = mems(&container)?;
        Ok((now.len() > 1).then_some(now))
    })?;
    checks.holds("nodes at the end", at_end.is_superset(&slow), &at_end);
    checks.equal(
        "share of its memory on the slow node, which was not moved",
        before,
        memory::share_on(pid, node)?,
    );
    product::comes_to_say(
        checks,
        "explain tells of it",
        &["explain", container.cgroup.path()],
        "cold start is over",
    )?;
    daemon.metrics_after_ticks(5)?;
    checks.equal("nodes later", at_end, mems(&container)?);
    daemon.ends_well(checks)?;
    containerd.stop()
}
