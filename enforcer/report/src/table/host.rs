//! The head of the audit: host, settings, NUMA nodes with their distances.

use comfy_table::CellAlignment;
use enforcer_core::audit::Audit;
use numa_topology::{Node, Topology};

use crate::{
    columns::{columns, push},
    style::Style,
    text, units,
    view::{self, words},
};

/// Beyond this, the rest of the nodes is one line.
const NODES_SHOWN: usize = 16;
/// Beyond this, distances are left to `topology`.
const DISTANCES_SHOWN: usize = 8;

pub(super) fn render(out: &mut String, audit: &Audit, style: Style) {
    let name = ("Host", audit.host.hostname.clone().unwrap_or_else(|| "unknown".to_owned()));
    let taken = audit.taken_at.clone().map(|at| ("Taken", at));
    for (label, value) in [name].into_iter().chain(taken).chain(view::host::facts(audit)) {
        text::hang(out, &format!("{label:<10}"), &value, style.width);
    }
    style.heading(out, "NUMA nodes");
    nodes(out, &audit.topology, style);
}

fn nodes(out: &mut String, machine: &Topology, style: Style) {
    let with_distances = (2..=DISTANCES_SHOWN).contains(&machine.nodes.len());
    let with_hugepages = machine.nodes.iter().any(|node| node.hugepages.iter().any(|pages| pages.total > 0));
    let (title, cell) = distance_title(machine);
    let mut header = vec!["node", "CPUs", "memory", "free", "kind"];
    if with_hugepages {
        header.push("huge pages");
    }
    if with_distances {
        header.push(&title);
    }
    let mut table = columns(style, header);
    for (node, distances) in machine.nodes.iter().zip(&machine.distances).take(NODES_SHOWN) {
        let mut row = vec![
            node.id.to_string(),
            units::ids(&node.cpus, style.width / 5),
            units::size(node.mem_total_bytes),
            units::size(node.mem_free_bytes),
            kind(node),
        ];
        if with_hugepages {
            row.push(hugepages(node));
        }
        if with_distances {
            let distance =
                |d: &Option<u32>| format!("{:>cell$}", d.map_or_else(|| "-".into(), |d| d.to_string()));
            row.push(distances.iter().map(distance).collect::<Vec<_>>().join(" "));
        }
        table.add_row(row);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if matches!(index, 2 | 3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    push(out, &table);
    if let Some((least, most)) = farthest(machine).filter(|_| machine.nodes.len() > DISTANCES_SHOWN) {
        let line = format!("distances between two nodes: {least} to {most}");
        text::wrap(out, &line, style.width, "  ", "  ");
    }
    if let Some(folded) = machine.nodes.len().checked_sub(NODES_SHOWN).filter(|folded| *folded > 0) {
        let line = format!("and {}: see `numa-enforcer topology`", units::count(folded, "more node"));
        text::wrap(out, &line, style.width, "  ", "  ");
    }
}

/// Title of the column of distances and the width of one: where the ids are not 0, 1, 2, ..., the
/// title says which distance is to which node.
fn distance_title(machine: &Topology) -> (String, usize) {
    let ids = || machine.nodes.iter().map(|node| node.id.0);
    let longest = ids().chain(machine.distances.iter().flatten().copied().flatten()).max().unwrap_or(0);
    let cell = longest.to_string().len().max(2);
    if ids().zip(0..).all(|(id, place)| id == place) {
        return ("distances".into(), cell);
    }
    let ids: Vec<String> = ids().map(|id| format!("{id:>cell$}")).collect();
    (format!("distances to\n{}", ids.join(" ")), cell)
}

/// Least and greatest distance between two nodes.
fn farthest(machine: &Topology) -> Option<(u32, u32)> {
    let rows = machine.distances.iter().enumerate();
    let others = rows.flat_map(|(from, row)| row.iter().enumerate().filter(move |(to, _)| *to != from));
    others.filter_map(|(_, distance)| *distance).fold(None, |range, distance| match range {
        None => Some((distance, distance)),
        Some((least, most)) => Some((least.min(distance), most.max(distance))),
    })
}

fn kind(node: &Node) -> String {
    words::memory_kind(node.kind).trim_start_matches("memory of ").to_owned()
}

fn hugepages(node: &Node) -> String {
    let sizes: Vec<String> = node
        .hugepages
        .iter()
        .filter(|pages| pages.total > 0)
        .map(|pages| format!("{} x {}", pages.total, units::bytes(pages.size_bytes)))
        .collect();
    sizes.join(", ")
}
