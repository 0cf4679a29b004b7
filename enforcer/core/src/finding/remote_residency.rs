//! Memory is on nodes that the workload's CPUs are not on.
//!
//! Judged by `memory.numa_stat` against the nodes of the CPUs that the workload may use, its threads' own
//! affinity included. The evidence names a process that binds its memory there itself. The finding says where
//! pages are, not whether they are accessed.

use super::{
    Finding, Rule, Severity,
    subject::{FindingWords, Subject},
};
use crate::words::{self, percent, size};

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let thresholds = &subject.policy.thresholds;
    let share = subject.figures.remote_residency?;
    if share < thresholds.remote_residency_warning || !subject.has_memory() {
        return None;
    }
    let severity =
        if share >= thresholds.remote_residency_critical { Severity::Critical } else { Severity::Warning };
    let (nodes, bytes) = subject.remote_memory();
    if bytes == 0 {
        // The memory is as near as the cgroups above allow.
        return None;
    }
    let cpu_nodes = &subject.figures.cpu_nodes;
    let bound = subject.bound_away();
    let own_doing = bound.as_ref().map_or(String::new(), |bound| {
        format!(
            "; it binds {} to {} itself, where new pages come from whatever else cpuset.mems allows",
            size(bound.bytes),
            words::nodes(&bound.nodes)
        )
    });
    let (severity, remedy) = subject.judge_by_memory(severity);
    let words = FindingWords {
        summary: format!(
            "{} of its memory is on {}, its CPUs are on {}",
            percent(share),
            words::nodes(&nodes),
            words::nodes(cpu_nodes)
        ),
        impact: format!("{} are remote to every CPU that it may run on{own_doing}", size(bytes)),
        remedy,
    };
    let mut evidence = subject.cpuset_evidence();
    evidence.extend(subject.residency_evidence());
    evidence.extend(subject.spread_evidence());
    evidence.extend(bound.into_iter().flat_map(|bound| bound.evidence));
    Some(subject.finding(Rule::RemoteResidency, severity, words, evidence))
}
