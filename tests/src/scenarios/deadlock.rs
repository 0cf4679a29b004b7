//! Pods that come and go by the hundred while others make room for each, and workloads that sit the wrong way
//! round are moved: does the runtime hang?
//!
//! Runtimes before NRI 0.12.1 hang for good when a plugin tells them of changes unasked while a kubelet asks
//! them for something; the daemon answers instead. The control is a plugin that does what the daemon must
//! not.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;

use super::pods::{CONFIG, MEBIBYTES, Node, alone, connected, cpus, told};
use crate::{
    cgroup::Cgroup, check::Checks, containerd::NRI, cri::Amounts, process::Running, product::Daemon,
    unsolicited::Unsolicited, wait::until,
};

/// Pods that are made, run and removed, one after another.
const LIVES: u32 = 200;
/// Requests within which a runtime hangs that is told of changes all the time; one to three were enough so
/// far.
const UPDATES: i64 = 40;

/// Lives after which another workload is started the wrong way round.
const FAR_LIVES: u32 = 20;
const REBALANCE: &str = "[rebalance]\nenabled = true\nmin_samples = 20\n[[workload]]\nname = \"far\"\ncgroup = \"/far/*\"\ncpus = 1\npolicy = \"none\"\n";

/// A CPU and the memory node beside it, where it begins, and the CPU where it is put then.
const FAR_FROM: (&str, &str) = ("7", "1");
const FAR_TO: &str = "0";
/// CPUs of such workloads at any time.
const OF_FAR: usize = 2;

/// Within this, every container has what it should: an answer that comes too late for the runtime is written
/// by the next turn.
const SETTLED: Duration = Duration::from_secs(20);
/// Within this, what ended is seen to have ended, and its CPUs are back.
const BACK: Duration = Duration::from_mins(1);

/// A workload that is no container, with its CPU on one node and its memory on another, until it is dropped.
struct Far {
    _process: Running,
    _cgroup: Cgroup,
}

impl Far {
    fn start(number: u32) -> Result<Self> {
        let cgroup = Cgroup::with_cpuset(&format!("/far/{number}"), FAR_FROM.0, FAR_FROM.1)?;
        let process = Running::hog(&cgroup, 32)?;
        cgroup.write("cpuset.cpus", FAR_TO)?;
        Ok(Self { _process: process, _cgroup: cgroup })
    }
}

/// Two hundred lives of pods, and the control.
pub(super) fn is_not_met(checks: &mut Checks) -> Result<()> {
    told(checks, story)
}

fn story(checks: &mut Checks) -> Result<()> {
    let (containerd, node) = Node::start()?;
    let daemon = Daemon::start_with("enforce", &format!("{CONFIG}{REBALANCE}"))?;
    connected(&daemon)?;
    // More than a node has, so that it shares the CPUs of all.
    let (_pod, sharing) = alone(&node.cri, "sharing", &Amounts::burstable(5000, MEBIBYTES))?;
    let before = cpus(&sharing)?;
    let (mut wrong, mut waited, mut made_room) = (0, 0, 0);
    let mut far = None;
    for life in 0..LIVES {
        if life % FAR_LIVES == 0 {
            far = Some(Far::start(life)?);
        }
        let (pod, container) = node.exclusive(&format!("life-{life}"))?;
        let (mut left, mut looks) = (BTreeSet::new(), 0);
        let right = until("every container has what it should", SETTLED, || {
            looks += 1;
            let own = cpus(&container)?;
            let others = cpus(&sharing)?;
            // The sharing container has left the CPUs that the new one took, and gets them back when that
            // ends. The far workload has a CPU for itself too, and the one before it may have its own until a
            // turn after its end.
            left = before.difference(&own).copied().collect();
            let gone = left.difference(&others).count();
            let right = own.len() == 2
                && own.is_subset(&node.machine.cpus())
                && others.is_subset(&left)
                && gone <= OF_FAR;
            Ok(right.then_some(()))
        });
        wrong += u32::from(right.is_err());
        waited += u32::from(looks > 1);
        made_room += u32::from(left != before);
        pod.remove()?;
    }
    drop(far);
    checks.equal("lives in which a container had not what it should", 0, wrong);
    checks.above("lives for which the one that shares made room", 0.0, Some(f64::from(made_room)));
    let metrics = daemon.metrics_after_ticks(1)?;
    let moves = metrics.sum("numa_enforcer_rebalance_moves_total", &[("outcome", "begun")]);
    checks.above("moves of workloads that were begun meanwhile", 0.0, Some(moves));
    let late = metrics.sum("numa_enforcer_nri_late_answers_total", &[]);
    checks.note(
        "lives in which that was not so at the first look, and answers that came late",
        &format!("{waited}, {late}"),
    );
    let created = metrics.sum("numa_enforcer_nri_calls_total", &[("call", "create")]);
    checks.equal("creations that the daemon was asked about", f64::from(LIVES + 1), created);
    until("the one that shares has all CPUs again when all have ended", BACK, || {
        Ok((cpus(&sharing)? == before).then_some(()))
    })?;
    daemon.ends_well(checks)?;

    let (_pod, container) = node.sharing("control")?;
    let plugin = Unsolicited::start(NRI)?;
    let done =
        (0..UPDATES).take_while(|more| container.update(&Amounts::burstable(600 + more, MEBIBYTES)).is_ok());
    let done = done.count();
    checks.holds("a runtime that is told unasked hangs", done < usize::try_from(UPDATES)?, done);
    drop(plugin);
    containerd.kill()
}
