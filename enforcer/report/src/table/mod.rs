//! The audit as text: host, workloads, findings, missing sources, summary.
//!
//! Misaligned workloads and findings are always shown; long lists of aligned workloads become one line with
//! their number.

mod findings;
mod host;
mod workloads;

use comfy_table::{ContentArrangement, Table, presets};
use enforcer_core::audit::{Audit, Summary};

use super::{
    causes,
    style::{Style, Tone},
    text, units, words,
};

/// The whole report, ending in a newline.
pub fn render(audit: &Audit, style: Style) -> String {
    let mut out = String::new();
    host::render(&mut out, audit, style);
    workloads::render(&mut out, &audit.workloads, style);
    findings::render(&mut out, &audit.findings, style);
    degraded(&mut out, audit, style);
    out.push('\n');
    text::wrap(&mut out, &summary(&audit.summary), style.width, "", "  ");
    if audit.summary.known > 0 {
        text::wrap(&mut out, &known(&audit.summary), style.width, "", "  ");
    }
    if audit.summary.unsampled > 0 {
        text::wrap(&mut out, &advice(audit), style.width, "", "  ");
    }
    out
}

/// Remark about known findings, which are left out.
pub(super) fn known(summary: &Summary) -> String {
    format!("{} left out: an earlier audit has them", units::count(summary.known, "finding"))
}

/// Residency says nothing about a workload that may run wherever its memory is.
pub(super) fn advice(audit: &Audit) -> String {
    let how = if words::is_captured(audit) { ", and a captured machine has none" } else { ": --sample 10s" };
    let unsampled = audit.summary.unsampled;
    format!("{unsampled} of the unknown may run on several nodes; only memory traffic can tell{how}")
}

fn degraded(out: &mut String, audit: &Audit, style: Style) {
    if audit.degraded.is_empty() {
        return;
    }
    heading(out, style, "Could not see");
    for line in causes::lines(&audit.degraded) {
        text::wrap(out, &line, style.width, "  ", "      ");
    }
}

pub(super) fn summary(summary: &Summary) -> String {
    let total = units::count(summary.total, "workload");
    let counted = match units::verdicts(summary) {
        counted if counted.is_empty() => String::new(),
        counted => format!(": {counted}"),
    };
    if summary.total == 0 {
        return "no workload was seen; could not determine whether anything is aligned".into();
    }
    if summary.total == summary.unknown {
        return format!("{total}{counted}; could not determine whether they are aligned");
    }
    // Beside what an earlier audit has.
    let new = if summary.known > 0 { "new " } else { "" };
    let worst = match summary.worst {
        Some(severity) => format!("worst {new}finding {}", words::severity(severity)),
        None => format!("no {new}findings"),
    };
    format!("{total}{counted}; {worst}")
}

pub(super) fn heading(out: &mut String, style: Style, title: &str) {
    out.push('\n');
    out.push_str(&style.paint(Tone::Heading, title).to_string());
    out.push('\n');
}

/// An empty table of the house style: columns of text, no lines.
pub(super) fn columns<'a>(style: Style, header: impl IntoIterator<Item = &'a str>) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(style.width).unwrap_or(u16::MAX))
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((2, 0));
    }
    table
}

/// Appends a table without the blanks that fill its last column.
pub(super) fn push(out: &mut String, table: &Table) {
    for line in table.lines() {
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

#[cfg(test)]
mod tests;
