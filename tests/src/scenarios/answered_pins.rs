//! A container's process keeps the CPU that it has pinned itself to when an answer to its runtime takes other
//! CPUs from it, also when the daemon is killed right after the answer; and has a CPU that went with these
//! again when its container has.
//!
//! Up to Linux 6.1 the runtime's write of the cpuset forgets the pin. Control: the same write without a
//! daemon, after which such a kernel lets the process run on all CPUs of its container.

use std::fs;

use anyhow::{Context, Result};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};

use super::{
    others_pins::is_before_6_2,
    pods::{CONFIG, LIMIT, MEBIBYTES, Node, alone, connected, cpus, node_of, on_a_node, placing},
};
use crate::{
    check::Checks,
    cri::{Amounts, Container},
    ids::{self, Ids},
    product::Daemon,
    wait,
};

/// On two nodes of four CPUs.
pub(super) fn outlive_answers(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let daemon = placing()?;
    let (_pod, sharing) = node.sharing("sharing")?;
    let home = cpus(&sharing)?;
    // The other node is full, so that each further container takes CPUs of this one.
    let (_filler, full) = alone(&node.cri, "filler", &Amounts::guaranteed(4, MEBIBYTES))?;
    let is_apart = node_of(&home, &node.machine)?.is_some() && cpus(&full)?.is_disjoint(&home);
    checks.holds("the container is on a node of its own", is_apart, (&home, cpus(&full)?));

    let (guest, _) = node.exclusive("guest")?;
    let left = narrowed(&sharing, &home)?;
    guest.remove()?;
    widened(&sharing, &home)?;
    let pin = Ids::from([*left.first().context("a CPU that stays its own")?]);
    let pid = sharing.pid()?;
    set_affinity(pid, &pin)?;

    let (guest, _) = node.exclusive("guest")?;
    checks.equal("CPUs of the container beside the guest", &left, &narrowed(&sharing, &home)?);
    stays(checks, "beside the guest", pid, &pin)?;
    guest.remove()?;
    widened(&sharing, &home)?;
    stays(checks, "after the guest", pid, &pin)?;

    let gone = Ids::from([*home.difference(&left).next().context("a CPU that goes")?]);
    set_affinity(pid, &gone)?;
    let (guest, _) = node.exclusive("guest")?;
    narrowed(&sharing, &home)?;
    stays(checks, "of which nothing is left", pid, &left)?;
    guest.remove()?;
    widened(&sharing, &home)?;
    stays(checks, "of which nothing was left", pid, &gone)?;
    set_affinity(pid, &pin)?;

    let (guest, _) = node.exclusive("guest")?;
    daemon.process().kill()?;
    narrowed(&sharing, &home)?;
    let next = Daemon::start_with("enforce", CONFIG)?;
    connected(&next)?;
    stays(checks, "under the daemon after the one that was killed", pid, &pin)?;
    guest.remove()?;
    widened(&sharing, &home)?;
    stays(checks, "at last", pid, &pin)?;
    next.ends_well(checks)?;

    let all: Vec<String> = left.iter().map(ToString::to_string).collect();
    sharing.cgroup.write("cpuset.cpus", &all.join(","))?;
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let expected = if is_before_6_2(&release) { &left } else { &pin };
    checks.equal(format!("the control: the same write by hand on {release}"), expected, &affinity(pid)?);
    Ok(())
}

/// Its CPUs when they have become fewer.
fn narrowed(container: &Container, home: &Ids) -> Result<Ids> {
    wait::until("the container has fewer CPUs", LIMIT, || {
        let now = cpus(container)?;
        Ok((now != *home && now.is_subset(home)).then_some(now))
    })
}

fn widened(container: &Container, home: &Ids) -> Result<()> {
    wait::until("the container has its CPUs back", LIMIT, || Ok((cpus(container)? == *home).then_some(())))
}

fn stays(checks: &mut Checks, when: &str, pid: u32, pin: &Ids) -> Result<()> {
    checks.comes_to_hold(format!("the pin {when}"), LIMIT, || {
        let now = affinity(pid)?;
        Ok((now == *pin, now))
    })
}

fn set_affinity(pid: u32, cpus: &Ids) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(usize::try_from(*cpu)?);
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id")?;
    sched_setaffinity(Some(pid), &set).context("pin a process")
}

fn affinity(pid: u32) -> Result<Ids> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    ids::parse(list.context("an affinity")?)
}
