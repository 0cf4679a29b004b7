//! The audit as text: host, workloads, findings, missing sources, summary.
//!
//! Misaligned workloads and findings are always shown; long lists of aligned workloads become one line with
//! their number.

mod findings;
mod host;
mod workloads;

use enforcer_core::{audit::Audit, finding::Finding};

use super::{
    style::Style,
    text,
    view::{causes, host as host_view},
};

/// The whole report, ending in a newline.
pub fn render(audit: &Audit, style: Style) -> String {
    let mut out = String::new();
    host::render(&mut out, audit, style);
    workloads::render(&mut out, &audit.workloads, style);
    findings::render(&mut out, &audit.findings, style);
    style.section(&mut out, "Could not see", &causes::lines(&audit.degraded));
    out.push('\n');
    for sentence in [host_view::summary(&audit.summary)].into_iter().chain(host_view::remarks(audit)) {
        text::wrap(&mut out, &sentence, style.width, "", "  ");
    }
    out
}

/// Findings, grouped by workload, below a heading of the caller's.
pub(super) fn findings(out: &mut String, findings: &[Finding], style: Style) {
    findings::groups(out, findings, style);
}

#[cfg(test)]
mod tests;
