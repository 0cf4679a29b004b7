//! The workloads of the audit, worst first.
//!
//! Residency and traffic are two columns and never one: where the memory is, and what is accessed.

use std::{cmp::Reverse, collections::BTreeMap};

use enforcer_core::{
    audit::{AuditedWorkload, Verdict},
    id::NodeId,
    owner::Owner,
    sample::NodeBytes,
    workload::Origin,
};

use super::{columns, heading, push};
use crate::report::{
    style::{Style, Tone},
    text, units,
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
    heading(out, style, "Workloads");
    let mut sorted: Vec<&AuditedWorkload> = workloads.iter().collect();
    sorted.sort_by_key(|workload| Reverse(rank(workload.verdict)));
    let misaligned = sorted.iter().filter(|workload| workload.verdict == Verdict::Misaligned).count();
    let shown = sorted.len().min(misaligned + ROWS);

    let wide = style.width >= WIDE;
    // Where nobody owns anything a column says nothing.
    let owners = wide && sorted.iter().any(|workload| owner(workload) != Owner::Nobody.as_str());
    let mut header = vec!["workload"];
    if wide {
        header.push("kind");
    }
    if owners {
        header.push("owner");
    }
    header.extend(["CPUs", "nodes", "memory", "remote\nresid.", "remote\ntraffic", "verdict"]);
    let mut rows: Vec<Vec<String>> =
        sorted[..shown].iter().map(|workload| row(workload, wide, owners)).collect();
    // The name gets what the other columns leave.
    let name_width = style.width.saturating_sub(others_width(&header, &rows)).max(NAME_AT_LEAST);
    for row in &mut rows {
        row[0] = text::fit(&row[0], name_width);
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
        let line = folded(&sorted[shown..]);
        text::wrap(out, &line, style.width, "  ", "  ");
    }
}

/// The cells of one workload, its full name first.
fn row(workload: &AuditedWorkload, wide: bool, owners: bool) -> Vec<String> {
    let mut row = vec![workload.name.clone()];
    if wide {
        row.push(kind(&workload.origin).into());
    }
    if owners {
        row.push(owner(workload).into());
    }
    row.extend([
        workload.cpus.as_ref().map_or_else(|| "?".into(), |cpus| units::ids(cpus, 11)),
        units::ids(&workload.numa_nodes, 5),
        memory(workload.bytes_by_numa.as_ref()),
        workload.remote_residency.map_or_else(|| "?".into(), units::percent),
        workload.traffic.as_ref().map_or_else(|| "n/a".into(), |t| units::percent(t.remote_ratio)),
        verdict(workload.verdict).into(),
    ]);
    row
}

/// Whose its cpuset is.
fn owner(workload: &AuditedWorkload) -> &'static str {
    workload.owner.as_ref().map_or(Owner::Nobody, |ownership| ownership.owner).as_str()
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

/// `and 37 aligned, 2 unknown`.
fn folded(rest: &[&AuditedWorkload]) -> String {
    let mut counts: BTreeMap<Reverse<u8>, (usize, Verdict)> = BTreeMap::new();
    for workload in rest {
        counts.entry(Reverse(rank(workload.verdict))).or_insert((0, workload.verdict)).0 += 1;
    }
    let counts: Vec<String> =
        counts.values().map(|(number, of)| format!("{number} {}", verdict(*of))).collect();
    format!("and {}", counts.join(", "))
}

/// Where the memory is, most first.
fn memory(by_node: Option<&BTreeMap<NodeId, NodeBytes>>) -> String {
    let Some(by_node) = by_node else { return "?".into() };
    let mut sizes: Vec<(u64, NodeId)> =
        by_node.iter().map(|(node, bytes)| (total(bytes), *node)).filter(|(size, _)| *size > 0).collect();
    sizes.sort_by_key(|(size, node)| (Reverse(*size), *node));
    let mut lines: Vec<String> = sizes
        .iter()
        .take(NODES_PER_ROW)
        .map(|(size, node)| format!("{node}: {}", units::bytes(*size)))
        .collect();
    if sizes.len() > NODES_PER_ROW {
        lines.push(format!("and {} more", sizes.len() - NODES_PER_ROW));
    }
    if lines.is_empty() { "-".into() } else { lines.join("\n") }
}

/// `shmem` is part of `file` and must not be counted twice.
fn total(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(bytes.file).saturating_add(bytes.kernel.unwrap_or(0))
}

/// A row with its last word in colour, where that is a verdict.
fn painted(line: &str, style: Style) -> String {
    let verdicts = [Verdict::Misaligned, Verdict::Aligned, Verdict::Partial, Verdict::Unknown];
    for of in verdicts {
        if let Some(front) = line.strip_suffix(verdict(of)).filter(|front| front.ends_with(' ')) {
            return format!("{front}{}", style.paint(Tone::from(of), verdict(of)));
        }
    }
    line.to_owned()
}

const fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Misaligned => 3,
        Verdict::Partial => 2,
        Verdict::Aligned => 1,
        Verdict::Unknown => 0,
    }
}

/// In one word.
pub(in crate::report) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Aligned => "aligned",
        Verdict::Partial => "partial",
        Verdict::Misaligned => "misaligned",
        Verdict::Unknown => "unknown",
    }
}

const fn kind(origin: &Origin) -> &'static str {
    match origin {
        Origin::Pod { .. } => "pod",
        Origin::Container { .. } => "container",
        Origin::Unit { .. } => "unit",
        Origin::VirtualMachine { .. } => "machine",
        Origin::Cgroup => "cgroup",
        Origin::Process { .. } => "process",
    }
}
