//! The workloads of the audit, worst first.
//!
//! Residency and traffic are two separate columns.

use std::{cmp::Reverse, collections::BTreeMap};

use enforcer_core::{
    audit::{AuditedWorkload, Verdict},
    owner::Owner,
    sample::NodeBytes,
};
use numa_topology::id::NodeId;

use super::{columns, heading, push};
use crate::{
    apart::apart_in,
    style::{Style, Tone},
    text, units, words,
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
    let mut sorted: Vec<(&AuditedWorkload, Option<String>)> =
        workloads.iter().zip(apart_in(workloads)).collect();
    sorted.sort_by_key(|(workload, _)| Reverse(words::rank(workload.verdict)));
    let misaligned = sorted.iter().filter(|(workload, _)| workload.verdict == Verdict::Misaligned).count();
    let shown = sorted.len().min(misaligned + ROWS);

    let wide = style.width >= WIDE;
    // No column where no cpuset has an owner.
    let owners = wide && sorted.iter().any(|(workload, _)| words::owner(workload) != Owner::Nobody.as_str());
    let mut header = vec!["workload"];
    if wide {
        header.push("kind");
    }
    if owners {
        header.push("owner");
    }
    header.extend(["CPUs", "nodes", "memory", "remote\nresid.", "remote\ntraffic", "verdict"]);
    let mut rows: Vec<Vec<String>> =
        sorted[..shown].iter().map(|(workload, _)| row(workload, wide, owners)).collect();
    // The name gets what the other columns leave.
    let name_width = style.width.saturating_sub(others_width(&header, &rows)).max(NAME_AT_LEAST);
    for (row, (_, behind)) in rows.iter_mut().zip(&sorted) {
        row[0] = called(&row[0], behind.as_deref(), name_width);
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

/// A name cut to `width` columns, with the text that makes it unique below.
fn called(name: &str, behind: Option<&str>, width: usize) -> String {
    let name = text::fit(name, width);
    match behind {
        Some(behind) => format!("{name}\n{}", text::fit(&format!("({behind})"), width)),
        None => name,
    }
}

/// The cells of one workload, its full name first.
fn row(workload: &AuditedWorkload, wide: bool, owners: bool) -> Vec<String> {
    let mut row = vec![workload.name.clone()];
    if wide {
        row.push(words::origin(&workload.origin).into());
    }
    if owners {
        row.push(words::owner(workload).into());
    }
    row.extend([
        workload.cpus.as_ref().map_or_else(|| "?".into(), |cpus| units::ids(cpus, 11)),
        units::ids(&workload.numa_nodes, 5),
        memory(workload.bytes_by_numa.as_ref()),
        workload.remote_residency.map_or_else(|| "?".into(), units::percent),
        workload.traffic.as_ref().map_or_else(|| "n/a".into(), |t| units::percent(t.remote_ratio)),
        words::verdict(workload.verdict).into(),
    ]);
    row
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
fn folded(rest: &[(&AuditedWorkload, Option<String>)]) -> String {
    let mut counts: BTreeMap<Reverse<u8>, (usize, Verdict)> = BTreeMap::new();
    for (workload, _) in rest {
        counts.entry(Reverse(words::rank(workload.verdict))).or_insert((0, workload.verdict)).0 += 1;
    }
    let counts: Vec<String> =
        counts.values().map(|(number, of)| format!("{number} {}", words::verdict(*of))).collect();
    format!("and {}", counts.join(", "))
}

/// Memory by node, most first.
fn memory(by_node: Option<&BTreeMap<NodeId, NodeBytes>>) -> String {
    let Some(by_node) = by_node else { return "?".into() };
    let sizes = words::most_first(by_node);
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

/// A row with its last word in colour, where that is a verdict.
fn painted(line: &str, style: Style) -> String {
    let verdicts = [Verdict::Misaligned, Verdict::Aligned, Verdict::Partial, Verdict::Unknown];
    for of in verdicts {
        if let Some(front) = line.strip_suffix(words::verdict(of)).filter(|front| front.ends_with(' ')) {
            return format!("{front}{}", style.paint(Tone::from(of), words::verdict(of)));
        }
    }
    line.to_owned()
}
