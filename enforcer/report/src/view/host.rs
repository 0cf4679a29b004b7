//! The host of an audit and the sum of it: name, facts, summary, remarks.

use enforcer_core::{
    audit::{Audit, Summary},
    named::Named as _,
};

use super::{machine, verdicts::VerdictCounts, words};
use crate::units;

/// Is it of a machine that was captured, and not of one that is there?
fn is_captured(audit: &Audit) -> bool {
    audit.taken_at.is_none()
}

/// Display name of the machine.
pub(crate) fn name(audit: &Audit) -> &str {
    let unnamed = if is_captured(audit) { "a captured machine" } else { "this host" };
    audit.host.hostname.as_deref().unwrap_or(unnamed)
}

/// What a reader of the figures must know of the host, each with its label.
pub(crate) fn facts(audit: &Audit) -> Vec<(&'static str, String)> {
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let host = &audit.host;
    let mut facts = vec![
        ("Kernel", known(&host.kernel)),
        ("CPU", known(&host.cpu_model)),
        ("Cgroups", known(&host.cgroup_version)),
        ("Settings", words::settings(&audit.settings)),
    ];
    let set_aside = machine::set_aside(&audit.topology).join("; ");
    facts.extend((!set_aside.is_empty()).then_some(("CPUs", set_aside)));
    facts
}

/// The audit in one sentence.
pub(crate) fn summary(summary: &Summary) -> String {
    let total = units::count(summary.total, "workload");
    let counted = VerdictCounts::from(summary);
    if summary.total == 0 {
        return "no workload was seen; could not determine whether anything is aligned".into();
    }
    if summary.total == summary.unknown {
        return format!("{total}: {counted}; could not determine whether they are aligned");
    }
    // Beside what an earlier audit has.
    let new = if summary.known > 0 { "new " } else { "" };
    let worst = match summary.worst {
        Some(severity) => format!("worst {new}finding {}", severity.name()),
        None => format!("no {new}findings"),
    };
    format!("{total}: {counted}; {worst}")
}

/// Remarks below the summary: findings that are left out, and what a sample would tell.
pub(crate) fn remarks(audit: &Audit) -> Vec<String> {
    let Summary { known, unsampled, .. } = audit.summary;
    let left_out = (known > 0)
        .then(|| format!("{} left out: an earlier audit has them", units::count(known, "finding")));
    // Residency says nothing about a workload that may run wherever its memory is.
    let advice = (unsampled > 0).then(|| {
        let how = if is_captured(audit) { ", and a captured machine has none" } else { ": --sample 10s" };
        format!("{unsampled} of the unknown may run on several nodes; only memory traffic can tell{how}")
    });
    left_out.into_iter().chain(advice).collect()
}
