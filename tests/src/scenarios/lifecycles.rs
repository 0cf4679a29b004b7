//! Containers that come and go by the hundred: does anything of them stay behind?

use anyhow::{Context, Result};

use super::pods::{Node, cpus, on_a_node, placing, plan, two};
use crate::{check::Checks, cri::Pod, ids::Ids, memory, product::Daemon, wait};

/// Containers that are made, started and removed, one after another.
const LIVES: u32 = 100;

/// Lives after which the daemon should grow no more: it remembers why the latest 32 that ended were where
/// they were.
const WARM: u32 = 40;

/// Anonymous memory that the daemon may have more of after sixty further lives, in KiB: pages that its
/// allocator keeps, not 4 KiB for each of them.
const SLACK_KIB: u64 = 256;

/// A hundred containers, each with CPUs of its own beside one that shares.
pub(super) fn leave_nothing(checks: &mut Checks) -> Result<()> {
    on_a_node(checks, story)
}

fn story(checks: &mut Checks, node: &Node) -> Result<()> {
    let daemon = placing()?;
    let (_pod_s, sharing) = node.sharing("sharing")?;
    let at_first = cpus(&sharing)?;

    let pod = Pod::run(&node.cri, &plan("lives", &two()))?;
    let (mut misplaced, mut warm) = (0, None);
    for life in 1..=LIVES {
        let container = pod.start("main", &two())?;
        let own = cpus(&container)?;
        misplaced += u32::from(own.len() != 2 || !own.is_disjoint(&cpus(&sharing)?));
        container.stop()?;
        container.remove()?;
        if life == WARM {
            daemon.metrics_after_ticks(1)?;
            warm = Some(memory::anonymous_kib(daemon.pid())?);
        }
    }
    checks.equal("lives without two CPUs of their own", 0, misplaced);
    pod.remove()?;
    daemon.metrics_after_ticks(2)?;
    let (warm, end) = (warm.context("too few lives")?, memory::anonymous_kib(daemon.pid())?);
    checks.holds("the daemon is as small as after the first forty", end <= warm + SLACK_KIB, (warm, end));
    nothing_is_left(checks, &daemon)?;
    checks.equal("CPUs of the one that shares, as at first", at_first, cpus(&sharing)?);

    // All CPUs that can be had can still be had.
    let mut taken = Ids::new();
    let mut pods = Vec::new();
    for name in ["x", "y", "z"] {
        let (pod, container) = node.exclusive(name)?;
        let own = container.first_look()?.cpus;
        checks.holds(format!("{name} has CPUs of its own"), own.len() == 2 && own.is_disjoint(&taken), &own);
        taken.extend(own);
        pods.push(pod);
    }
    checks.equal(
        "CPUs that were left to share",
        node.machine.cpus().len() - taken.len(),
        cpus(&sharing)?.len(),
    );
    daemon.ends_well(checks)
}

/// The daemon knows the container that is there, and no other.
fn nothing_is_left(checks: &mut Checks, daemon: &Daemon) -> Result<()> {
    let known = wait::until("the daemon knows one container", super::pods::LIMIT, || {
        Ok(daemon.value("numa_enforcer_nri_containers")?.filter(|count| *count < 2.0))
    });
    checks.equal("containers that the daemon knows", Some(1.0), known.ok());
    let metrics = daemon.metrics_after_ticks(0)?;
    let created = metrics.sum("numa_enforcer_nri_calls_total", &[("call", "create")]);
    checks.equal("creations that it was asked about", f64::from(LIVES + 1), created);
    // A starved guest is late now and then; then the container is placed by a turn.
    let late = metrics.sum("numa_enforcer_nri_late_answers_total", &[]);
    checks.note("answers that came too late", &late.to_string());
    Ok(())
}
