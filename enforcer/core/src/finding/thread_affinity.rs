//! A thread's own affinity leaves it outside the node of its workload.
//!
//! The node of a workload is the one with nearly all of its memory. A thread that may not run there was left
//! behind, as happens when a cpuset is widened and the threads keep their old narrow affinity (kernels from
//! 6.2 on), or the program pinned it. The finding is a note: the program may want that. If the thread's own
//! hinting faults find its memory local, the thread is left out.

use super::{
    Evidence, Finding, Rule, Severity,
    subject::{FindingWords, Subject},
};
use crate::sample::TaskSample;
use numa_topology::id::NodeId;

/// Share of the memory that makes a node the workload's own.
const HOME_PERCENT: u64 = 80;

/// Limit of threads named in the evidence; the rest is counted.
const NAMED: usize = 3;

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let home = subject.dominant_node(HOME_PERCENT).filter(|_| subject.has_memory())?;
    let allowed = subject.figures.cpus.as_ref()?;
    let local = subject.inventory.machine.node(home)?.cpus.intersection(allowed);
    if local.is_empty() || !subject.figures.cpu_nodes.contains(home) {
        // No thread runs there: that is remote residency.
        return None;
    }
    let outside = |task: &&TaskSample| {
        task.cpus_allowed.as_ref().is_some_and(|cpus| !cpus.is_empty() && cpus.is_disjoint(&local))
            && !keeps_to_itself(subject, task)
    };
    let strays: Vec<&TaskSample> = subject.threads.of(subject.workload).into_iter().filter(outside).collect();
    let first = strays.first()?;
    let words = FindingWords {
        summary: format!("{} of its threads may not run on node {home}, where its memory is", strays.len()),
        impact: format!("what is accessed from there on node {home} is remote"),
        remedy: Ok(format!("taskset -pc {local} {}", first.tid)),
    };
    let named = strays.iter().take(NAMED).filter_map(|task| {
        let cpus = task.cpus_allowed.as_ref()?;
        Some(Evidence {
            source: format!("/proc/{}/task/{}/status Cpus_allowed_list", task.pid, task.tid),
            value: cpus.to_string(),
        })
    });
    let accesses = strays.iter().take(NAMED).filter_map(|task| accesses(task));
    let evidence = named.chain(accesses).chain(subject.residency_evidence()).collect();
    Some(subject.finding(Rule::ThreadAffinity, Severity::Info, words, evidence))
}

/// Are the thread's accesses local to the CPUs that it may run on, by enough of its own hinting faults?
fn keeps_to_itself(subject: &Subject<'_>, task: &TaskSample) -> bool {
    let (Some(faults), Some(cpus)) = (&task.faults_by_node, &task.cpus_allowed) else { return false };
    let nodes = subject.inventory.machine.nodes_of(cpus);
    let sum = |wanted: &dyn Fn(NodeId) -> bool| {
        let pages = faults.iter().filter(|(node, _)| wanted(**node)).map(|(_, pages)| *pages);
        pages.fold(0u64, u64::saturating_add)
    };
    let own = sum(&|node| subject.locality.is_near(node, &nodes));
    let all = sum(&|node| !subject.locality.is_gpu(node));
    let enough = all >= subject.policy.thresholds.min_samples;
    enough && u128::from(own) * 100 >= u128::from(all) * u128::from(HOME_PERCENT)
}

/// Evidence of its hinting faults, and the node that the kernel prefers for it.
fn accesses(task: &TaskSample) -> Option<Evidence> {
    let faults = task.faults_by_node.as_ref().filter(|faults| !faults.is_empty())?;
    let mut parts: Vec<String> = faults.iter().map(|(node, pages)| format!("N{node}={pages}")).collect();
    parts.extend(task.preferred_node.map(|node| format!("prefers node {node}")));
    let source = format!("/proc/{}/task/{}/sched numa_faults", task.pid, task.tid);
    Some(Evidence { source, value: parts.join(" ") })
}
