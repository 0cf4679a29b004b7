//! One word per workload.
//!
//! The worst of its findings decides: critical is *misaligned*, a warning is *partial*, and notes of severity
//! info do not count. Without findings it is *aligned*, given enough measurements:
//! - on a machine with fewer than two CPU nodes nothing can be remote;
//! - otherwise its CPUs must be known, and either its memory by node or the nodes that it may use;
//! - a workload with CPUs on several nodes may be remote although all its memory is on these nodes: only a
//!   traffic figure can tell, unless it has too little memory to matter or did not run.
//!
//! Everything else is *unknown*.

use super::AuditVerdict;
use crate::{finding::Severity, model::WorkloadModel, policy::Thresholds};

/// The verdict on a workload with `worst` as its worst finding.
pub(super) fn judge(
    cpu_nodes_of_machine: usize,
    figures: Option<&WorkloadModel>,
    worst: Option<Severity>,
    thresholds: &Thresholds,
) -> AuditVerdict {
    match worst {
        Some(Severity::Critical) => AuditVerdict::Misaligned,
        Some(Severity::Warning) => AuditVerdict::Partial,
        Some(Severity::Info) | None => {
            let judged = figures.is_some_and(|figures| enough_seen(figures, thresholds));
            if cpu_nodes_of_machine < 2 || judged { AuditVerdict::Aligned } else { AuditVerdict::Unknown }
        }
    }
}

fn enough_seen(figures: &WorkloadModel, thresholds: &Thresholds) -> bool {
    if figures.cpu_nodes.is_empty() {
        return false;
    }
    let memory = figures.accessed_bytes();
    if figures.cpu_nodes.len() == 1 {
        return memory.is_some() || figures.mems.is_some();
    }
    let little = memory.is_some_and(|bytes| bytes < thresholds.min_memory.0);
    let idle = figures.cpus_used.is_some_and(|cpus| cpus <= 0.0);
    let sampled = figures.traffic.as_ref().is_some_and(|traffic| traffic.samples >= thresholds.min_samples);
    little || idle || sampled
}
