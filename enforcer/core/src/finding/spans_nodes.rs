//! The CPUs span nodes although one node would hold the workload.
//!
//! Only for a pinned workload: one that may run everywhere was not placed at all, and is judged by its
//! traffic.

use super::{
    Finding, Rule, Severity, remedy,
    subject::{FindingWords, Subject},
};
use crate::words;

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let cpus = subject.figures.cpus.as_ref().filter(|_| subject.is_pinned())?;
    let nodes = subject.inventory.machine.nodes_of(cpus);
    if nodes.len() < 2 {
        return None;
    }
    // If no node has room for all of it, several nodes are right.
    let advice = subject.advice().ok()?;
    if subject.inventory.machine.nodes_of(&advice.place.0).len() > 1 {
        return None;
    }
    let words = FindingWords {
        summary: format!("its {} CPUs {cpus} span {}", cpus.len(), words::nodes(&nodes)),
        impact: format!(
            "its threads share {} across nodes; {} alone has room for all of it",
            subject.memory().map_or("its memory".into(), words::size),
            words::nodes(&advice.to)
        ),
        remedy: Ok(remedy::realign(subject, advice)),
    };
    Some(subject.finding(Rule::SpansNodes, Severity::Warning, words, subject.cpuset_evidence()))
}
