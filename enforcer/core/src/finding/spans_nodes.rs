//! The CPUs span nodes although one node would hold the workload.
//!
//! Only for a workload that somebody pinned: one that may run everywhere was not placed at all, and
//! is judged by its traffic.

use super::{
    Finding, Rule, Severity, remedy,
    subject::{Subject, Words, size},
};
use crate::place::{Allocations, NearestFit, Placement, Request};

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let cpus = subject.figures.cpus.as_ref().filter(|_| subject.is_pinned())?;
    let nodes = subject.machine.nodes_of(cpus);
    if nodes.len() < 2 {
        return None;
    }
    let request = Request {
        workload: &subject.workload.cgroup,
        cpus: u32::try_from(cpus.len()).ok()?,
        memory_bytes: None,
        now: Some(subject.figures),
        nodes: None,
        bounds: None,
        available_bytes: std::collections::BTreeMap::new(),
    };
    let one = NearestFit.place(subject.machine, &Allocations::default(), &request).ok()?;
    let words = Words {
        summary: format!("its {} CPUs {cpus} span nodes {nodes}", cpus.len()),
        impact: format!(
            "its threads share {} across nodes; node {} alone has room for all of it",
            subject.memory().map_or("its memory".into(), size),
            one.mems
        ),
        remedy: remedy::set_cpuset(&subject.workload.cgroup, Some(&one.cpus), Some(&one.mems)),
    };
    Some(subject.finding(Rule::SpansNodes, Severity::Warning, words, subject.cpuset_evidence()))
}
