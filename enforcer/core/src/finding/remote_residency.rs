//! Memory is on nodes that the workload's CPUs are not on.
//!
//! Judged by `memory.numa_stat` against the nodes of the CPUs that the workload may use, its threads'
//! own affinity included. What it says is where pages are, not whether they are accessed.

use super::{
    Finding, Rule, Severity, remedy,
    subject::{Subject, Words, percent, size},
};

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let thresholds = &subject.policy.thresholds;
    let share = subject.figures.remote_residency?;
    if share < thresholds.remote_residency_warning || !subject.has_memory() {
        return None;
    }
    let severity =
        if share >= thresholds.remote_residency_critical { Severity::Critical } else { Severity::Warning };
    let (nodes, bytes) = subject.remote_memory();
    let cpu_nodes = &subject.figures.cpu_nodes;
    let words = Words {
        summary: format!("{} of its memory is on nodes {nodes}, its CPUs are on {cpu_nodes}", percent(share)),
        impact: format!("{} are remote to every CPU that it may run on", size(bytes)),
        remedy: remedy(subject),
    };
    let mut evidence = subject.cpuset_evidence();
    evidence.extend(subject.residency_evidence());
    Some(subject.finding(Rule::RemoteResidency, severity, words, evidence))
}

/// The daemon moves the pages; without it, the workload's processes by hand.
fn remedy(subject: &Subject<'_>) -> String {
    let (from, _) = subject.remote_memory();
    let mut processes: Vec<u32> = subject
        .sample
        .tasks
        .iter()
        .filter(|task| task.cgroup.as_ref() == Some(&subject.workload.cgroup))
        .map(|task| task.pid)
        .collect();
    processes.sort_unstable();
    processes.dedup();
    match processes[..] {
        [pid] => remedy::migrate_pages(pid, &from, &subject.figures.cpu_nodes),
        _ => remedy::declare(&subject.workload.cgroup),
    }
}
