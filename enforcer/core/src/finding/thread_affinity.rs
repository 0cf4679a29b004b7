//! A thread's own affinity leaves it outside the node of its workload.
//!
//! The node of a workload is the one with nearly all of its memory. A thread that may not run there
//! was left behind, as happens when a cpuset is widened and the threads keep their old narrow
//! affinity (kernels from 6.2 on), or was pinned by the program itself. Worth knowing: a program may
//! want that.

use super::{
    Evidence, Finding, Rule, Severity,
    subject::{Subject, Words},
};
use crate::sample::TaskSample;

/// Share of the memory that makes a node the workload's own.
const HOME_PERCENT: u64 = 80;

/// Threads named in the evidence; the rest is counted.
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
        subject.owns(task)
            && task.cpus_allowed.as_ref().is_some_and(|cpus| !cpus.is_empty() && cpus.is_disjoint(&local))
    };
    let strays: Vec<&TaskSample> = subject.sample.tasks.iter().filter(outside).collect();
    let first = strays.first()?;
    let words = Words {
        summary: format!("{} of its threads may not run on node {home}, where its memory is", strays.len()),
        impact: format!("what is accessed from there on node {home} is remote"),
        remedy: format!("taskset -pc {local} {}", first.tid),
    };
    let named = strays.iter().take(NAMED).filter_map(|task| {
        let cpus = task.cpus_allowed.as_ref()?;
        Some(Evidence {
            source: format!("/proc/{}/task/{}/status Cpus_allowed_list", task.pid, task.tid),
            value: cpus.to_string(),
        })
    });
    let evidence = named.chain(subject.residency_evidence()).collect();
    Some(subject.finding(Rule::ThreadAffinity, Severity::Info, words, evidence))
}
