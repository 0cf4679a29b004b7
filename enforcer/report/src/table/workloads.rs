//! The workloads of the audit, worst first.
//!
//! Residency and traffic are two separate columns.

use std::collections::BTreeMap;

use enforcer_core::{
    audit::{AuditVerdict, AuditedWorkload},
    named::Named as _,
    owner::Owner,
    sample::NodeBytes,
};
use numa_topology::id::NodeId;

use crate::{
    columns::{columns, push},
    style::{Style, Tone},
    text, units,
    view::{
        verdicts::VerdictCounts,
        words,
        workload::{WorkloadRow, most_first, worst_first},
    },
};

/// Rows of workloads that are not misaligned; those beyond it are counted in one line.
const ROWS: usize = 10;
/// Memory on more nodes than this is shown as the nodes that hold most.
const NODES_PER_ROW: usize = 4;
/// Width from which the kind of workload has a column.
const WIDE: usize = 100;
/// The name is not cut below this, whatever the other columns leave.
const NAME_AT_LEAST: usize = 12;

pub(super) fn render(out: &mut String, workloads: &[AuditedWorkload], style: Style) {
    if workloads.is_empty() {
        return;
    }
    style.heading(out, "Workloads");
    let sorted = worst_first(workloads);
    let misaligned = sorted.iter().filter(|row| row.workload.verdict == AuditVerdict::Misaligned).count();
    let shown = sorted.len().min(misaligned + ROWS);

    let wide = style.width >= WIDE;
    // No column where no cpuset has an owner.
    let owners = wide && sorted.iter().any(|row| row.owner() != Owner::Unowned);
    let mut header = vec!["workload"];
    if wide {
        header.push("kind");
    }
    if owners {
        header.push("owner");
    }
    header.extend(["CPUs", "nodes", "memory", "remote\nresid.", "remote\ntraffic", "verdict"]);
    let mut rows: Vec<Vec<String>> = sorted[..shown].iter().map(|row| cells(row, wide, owners)).collect();
    // The name gets what the other columns leave.
    let name_width = style.width.saturating_sub(others_width(&header, &rows)).max(NAME_AT_LEAST);
    for (cells, row) in rows.iter_mut().zip(&sorted) {
        cells[0] = called(&cells[0], row.distinct.as_deref(), name_width);
    }
    let mut table = columns(style, header);
    table.add_rows(rows);
    let mut lines = String::new();
    push(&mut lines, &table);
    for line in lines.lines() {
        out.push_str(&painted(line, style));
        out.push('\n');
    }
    if shown < sorted.len() {
        let rest: VerdictCounts = sorted[shown..].iter().map(|row| row.workload.verdict).collect();
        text::wrap(out, &format!("and {rest}"), style.width, "  ", "  ");
    }
}

/// A name cut to `width` columns, with the text that makes it unique below.
fn called(name: &str, distinct: Option<&str>, width: usize) -> String {
    let name = text::fit(name, width);
    match distinct {
        Some(distinct) => format!("{name}\n{}", text::fit(&format!("({distinct})"), width)),
        None => name,
    }
}

/// The cells of one workload, its full name first.
fn cells(row: &WorkloadRow<'_>, wide: bool, owners: bool) -> Vec<String> {
    let workload = row.workload;
    let mut cells = vec![workload.name.clone()];
    if wide {
        cells.push(words::origin(&workload.origin).into());
    }
    if owners {
        cells.push(row.owner().name().into());
    }
    cells.extend([
        row.cpus(11),
        row.nodes(5),
        memory(workload.bytes_by_numa.as_ref()),
        row.remote_residency(),
        units::measured(row.remote_ratio()),
        workload.verdict.name().into(),
    ]);
    cells
}

/// Width of all columns but the first one's text, with the two blanks before each.
fn others_width(header: &[&str], rows: &[Vec<String>]) -> usize {
    let cell = |cell: &str| cell.lines().map(text::width).max().unwrap_or(0);
    let others = header.iter().enumerate().skip(1).map(|(index, title)| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|text| cell(text));
        cells.chain([cell(title)]).max().unwrap_or(0)
    });
    others.sum::<usize>() + 2 * header.len()
}

/// Memory by node, most first.
fn memory(by_node: Option<&BTreeMap<NodeId, NodeBytes>>) -> String {
    let Some(by_node) = by_node else { return "?".into() };
    let sizes = most_first(by_node);
    let lines = units::folded(units::by_node(sizes.iter().map(|(node, size)| (node, size))), NODES_PER_ROW);
    if lines.is_empty() { "-".into() } else { lines.join("\n") }
}

/// A row with its last word in colour, where that is a verdict.
fn painted(line: &str, style: Style) -> String {
    let verdicts =
        [AuditVerdict::Misaligned, AuditVerdict::Aligned, AuditVerdict::Partial, AuditVerdict::Unknown];
    for of in verdicts {
        if let Some(front) = line.strip_suffix(of.name()).filter(|front| front.ends_with(' ')) {
            return format!("{front}{}", style.paint(Tone::from(of), of.name()));
        }
    }
    line.to_owned()
}
