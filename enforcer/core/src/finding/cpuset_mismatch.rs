//! The nodes of `cpuset.cpus` and those of `cpuset.mems` differ.
//!
//! Disjoint: every new page is remote, critical. CPUs on nodes without allowed memory: threads there
//! only have remote memory, a warning. Memory nodes wider than the CPUs' (often a `cpuset.mems` that
//! was never set): pages may become remote, worth knowing. Memory-only nodes count as the CPU node
//! they are closest to. A workload that may use every CPU has not been placed, and has no mismatch
//! on account of its memory nodes alone.

use super::{
    Finding, Rule, Severity, remedy,
    subject::{Subject, Words},
};
use crate::{id::NodeId, set::NodeSet, words};

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let cpus = subject.figures.cpus.as_ref()?;
    let mems = subject.figures.mems.as_ref()?;
    let cpu_nodes = subject.inventory.machine.nodes_of(cpus);
    let homes = subject.locality.homes(mems);
    if cpu_nodes.is_empty() || homes.is_empty() {
        return None;
    }
    let without_memory = cpu_nodes.difference(&homes);
    let without_cpus = homes.difference(&cpu_nodes);
    // A node that has no memory of its own cannot be asked for it.
    let without_memory: NodeSet = without_memory.iter().filter(|node| has_memory(subject, *node)).collect();

    let (severity, impact) = if cpu_nodes.is_disjoint(&homes) {
        (
            Severity::Critical,
            format!(
                "every page it allocates on {} is remote to its CPUs on {}",
                words::nodes(mems),
                words::nodes(&cpu_nodes)
            ),
        )
    } else if !without_memory.is_empty() {
        (
            Severity::Warning,
            format!("threads on {} can only have remote memory", words::nodes(&without_memory)),
        )
    } else if !without_cpus.is_empty() && subject.is_pinned() {
        (
            Severity::Info,
            format!("pages may be allocated on {}, where it has no CPU", words::nodes(&without_cpus)),
        )
    } else {
        return None;
    };
    let words = Words {
        summary: format!(
            "its CPUs are on {}, its memory may be on {}",
            words::nodes(&cpu_nodes),
            words::nodes(mems)
        ),
        impact,
        remedy: remedy::realign(subject),
    };
    Some(subject.finding(Rule::CpusetMismatch, severity, words, subject.cpuset_evidence()))
}

fn has_memory(subject: &Subject<'_>, node: NodeId) -> bool {
    subject.inventory.machine.node(node).is_some_and(|node| node.mem_total_bytes != Some(0))
}
