//! The nodes of `cpuset.cpus` and those of `cpuset.mems` differ.
//!
//! Disjoint: every new page is remote, critical. CPUs on nodes without allowed memory: threads there only
//! have remote memory, a warning. Memory nodes wider than the CPUs' (often a `cpuset.mems` that was never
//! set): pages may become remote, a note. The definition of near memory is that of the advice: for CPUs
//! without memory of their own the nearest allowed memory is near, and a node that is there for the kernel,
//! beside movable memory, is no mismatch. Memory of a GPU is neither near nor far; if there is no other
//! memory, nothing is left for the program: critical as well. A workload that may use every CPU has not been
//! placed, and its memory nodes alone are no mismatch.

use super::{
    Finding, Rule, Severity,
    subject::{FindingWords, Subject},
};
use crate::{decide::near_memory, words};

pub(super) fn assess(subject: &Subject<'_>) -> Option<Finding> {
    let cpus = subject.figures.cpus.as_ref()?;
    let mems = subject.figures.mems.as_ref()?;
    let machine = &subject.inventory.machine;
    let cpu_nodes = machine.nodes_of(cpus);
    let ordinary = mems.intersection(&machine.ordinary_memory_nodes());
    let gpus = mems.intersection(&machine.gpu_memory_nodes());
    if cpu_nodes.is_empty() || ordinary.is_empty() && gpus.is_empty() {
        return None;
    }
    let near = near_memory(subject.inputs, subject.workload, &cpu_nodes);
    let homes = subject.locality.homes(&ordinary);
    // A node without memory of its own cannot be asked for it.
    let without_memory = cpu_nodes.difference(&homes).intersection(&machine.ordinary_memory_nodes());
    let far = ordinary.difference(&near).difference(&machine.kernel_only(&ordinary, &near));

    let (severity, impact) = if ordinary.is_empty() {
        let gpus = words::nodes(&gpus);
        let impact = format!(
            "every page that it allocates, for its programs as well, is taken from memory of a GPU on {gpus}, which \
             is there for the GPU"
        );
        (Severity::Critical, impact)
    } else if far == ordinary {
        (
            Severity::Critical,
            format!(
                "every page it allocates on {} is remote to its CPUs on {}",
                words::nodes(&ordinary),
                words::nodes(&cpu_nodes)
            ),
        )
    } else if !without_memory.is_empty() {
        (
            Severity::Warning,
            format!("threads on {} can only have remote memory", words::nodes(&without_memory)),
        )
    } else if !far.is_empty() && subject.is_pinned() {
        (Severity::Info, format!("pages may be allocated on {}, where it has no CPU", words::nodes(&far)))
    } else {
        return None;
    };
    let (severity, mut remedy) = subject.judge(severity);
    if let Some(lacks) = subject.advice().ok().and_then(|advice| advice.lacks.as_ref()) {
        remedy = Err(lacks.reason.clone());
    }
    let words = FindingWords {
        summary: format!(
            "its CPUs are on {}, its memory may be on {}",
            words::nodes(&cpu_nodes),
            words::nodes(mems)
        ),
        impact,
        remedy,
    };
    Some(subject.finding(Rule::CpusetMismatch, severity, words, subject.cpuset_evidence()))
}
