//! Pods that come and go by the hundred while others make room for each: does the runtime hang?
//!
//! Runtimes before NRI 0.12.1 hang for good when a plugin tells them of changes unasked while a kubelet asks them for
//! something; the daemon answers instead. The control is a plugin that does what the daemon must not.

use std::collections::BTreeSet;

use anyhow::Result;

use super::pods::{END, MEBIBYTES, TOPOLOGY, alone, cpus, placing, told};
use crate::{
    check::Checks,
    containerd::{Containerd, NRI},
    cri::Amounts,
    topology::Topology,
    unsolicited::Unsolicited,
};

/// Pods that are made, run and removed, one after another.
const LIVES: u32 = 200;
/// Requests within which a runtime hangs that is told of changes all the time; one to three were enough so far.
const UPDATES: i64 = 40;

/// Two hundred lives of pods, and the control.
pub(super) fn is_not_met(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

fn story(checks: &mut Checks) -> Result<()> {
    let machine = Topology::load(TOPOLOGY)?;
    let two = Amounts::guaranteed(2, MEBIBYTES);
    let (containerd, cri) = Containerd::start()?;
    let daemon = placing()?;
    // More than a node has, so that it shares the CPUs of all.
    let (_pod, sharing) = alone(&cri, "sharing", &Amounts::burstable(5000, MEBIBYTES))?;
    let before = cpus(&sharing)?;
    let (mut wrong, mut made_room) = (0, 0);
    for life in 0..LIVES {
        let (pod, container) = alone(&cri, &format!("life-{life}"), &two)?;
        let (own, others) = (cpus(&container)?, cpus(&sharing)?);
        // Who shares has made room, where the new one took what it had, and gets it back when that ends.
        let left: BTreeSet<u32> = before.difference(&own).copied().collect();
        wrong += u32::from(own.len() != 2 || !own.is_subset(&machine.cpus()) || others != left);
        made_room += u32::from(left != before);
        pod.remove()?;
    }
    checks.equal("lives in which not everybody had what it should", 0, wrong);
    checks.above("lives for which the one that shares made room", 0.0, Some(f64::from(made_room)));
    let created = daemon.metrics_after_ticks(1)?.sum("numa_enforcer_nri_calls_total", &[("call", "create")]);
    checks.equal("creations that the daemon was asked about", f64::from(LIVES + 1), created);
    checks.equal("CPUs of the one that shares, when all have ended", before, cpus(&sharing)?);
    checks.equal("exit status of the daemon after SIGTERM", Some(0), daemon.process().terminate(END)?);

    let (_pod, container) = alone(&cri, "control", &Amounts::burstable(500, MEBIBYTES))?;
    let plugin = Unsolicited::start(NRI)?;
    let done =
        (0..UPDATES).take_while(|more| container.update(&Amounts::burstable(600 + more, MEBIBYTES)).is_ok());
    let done = done.count();
    checks.holds("a runtime that is told unasked hangs", done < usize::try_from(UPDATES)?, done);
    drop(plugin);
    containerd.kill()
}
