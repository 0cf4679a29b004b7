//! The NUMA nodes: how full they are, what presses, and what their CPUs fetch from elsewhere.

use enforcer_core::sample::PressureKind;

use super::canvas::Canvas;
use crate::{
    style::Tone,
    top::{
        columns::{self, Column, Columns},
        layout::Rows,
        report::TopNode,
        state::TopState,
    },
    units,
};

/// Content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::top) enum NodeColumn {
    Full,
    Used,
    Free,
    Cache,
    Pressure,
    Remote,
}

/// The table.
pub(in crate::top) const COLUMNS: Columns<NodeColumn> = Columns {
    first: "node CPUs",
    least: 11,
    others: &[
        Column { of: NodeColumn::Full, title: "full", width: 17, rank: 5 },
        Column { of: NodeColumn::Used, title: "used", width: 9, rank: 0 },
        Column { of: NodeColumn::Free, title: "free", width: 9, rank: 1 },
        Column { of: NodeColumn::Cache, title: "cache", width: 9, rank: 4 },
        Column { of: NodeColumn::Pressure, title: "pressure", width: 12, rank: 3 },
        Column { of: NodeColumn::Remote, title: "remote", width: 6, rank: 2 },
    ],
};

/// Share of remote accesses from which on a node is worth a look.
const REMOTE: f64 = 0.2;

pub(super) fn draw(state: &TopState, rows: Rows, canvas: &mut Canvas<'_>) {
    if rows.count == 0 {
        return;
    }
    let width = canvas.width();
    canvas.bar(rows.at, &columns::heading(&COLUMNS, width, None));
    let nodes = state.turn().map_or(&[][..], |turn| &turn.nodes);
    let room = usize::from(rows.count - 1);
    let shown = if nodes.len() > room { room.saturating_sub(1) } else { nodes.len() };
    let mut y = rows.at + 1;
    for node in nodes.iter().take(shown) {
        canvas.put(0, y, &columns::row(&COLUMNS, width, |column| cell(column, node)), tone(node));
        y += 1;
    }
    if shown < nodes.len() {
        let more = format!("and {}: n shows all", units::count(nodes.len() - shown, "more node"));
        canvas.put(0, y, &more, Some(Tone::Quiet));
    }
}

/// A cell; `None` is the first column.
pub(in crate::top) fn cell(column: Option<NodeColumn>, node: &TopNode) -> String {
    let used = node.total_bytes.zip(node.free_bytes).map(|(total, free)| total.saturating_sub(free));
    match column {
        None if node.cpus.is_empty() => format!("{:<4} no CPUs", node.id),
        None => format!("{:<4} {}", node.id, node.cpus),
        Some(NodeColumn::Full) => units::known(used.zip(node.total_bytes), |(used, total)| full(used, total)),
        Some(NodeColumn::Used) => units::known(used, units::bytes),
        Some(NodeColumn::Free) => units::known(node.free_bytes, units::bytes),
        Some(NodeColumn::Cache) => units::known(node.cache_bytes, units::bytes),
        Some(NodeColumn::Pressure) => pressure(node),
        Some(NodeColumn::Remote) => units::known(node.remote_ratio, units::percent),
    }
}

/// How the node is doing.
pub(in crate::top) fn tone(node: &TopNode) -> Option<Tone> {
    let worst = node.pressure.iter().flatten().map(|one| one.kind).max();
    match worst {
        Some(PressureKind::OomVictim | PressureKind::ReclaimRetry) => Some(Tone::Bad),
        Some(PressureKind::DirectReclaim) => Some(Tone::Notice),
        _ => node.remote_ratio.filter(|ratio| *ratio >= REMOTE).map(|_| Tone::Notice),
    }
}

/// `[|||||     ]  47%`: used, page cache included.
fn full(used: u64, total: u64) -> String {
    const BAR: u64 = 10;
    let part =
        |of: u64| u128::from(used).saturating_mul(u128::from(of)).checked_div(u128::from(total)).unwrap_or(0);
    let bars = usize::try_from(part(BAR).min(u128::from(BAR))).unwrap_or(0);
    format!("[{:<10}] {:>3}%", "|".repeat(bars), part(100))
}

/// The worst kind and how often, since the turn before.
fn pressure(node: &TopNode) -> String {
    let Some(pressure) = &node.pressure else { return "?".to_owned() };
    let Some(worst) = pressure.iter().max_by_key(|one| one.kind) else { return "none".to_owned() };
    let word = match worst.kind {
        PressureKind::KswapdWoken => "kswapd",
        PressureKind::DirectReclaim => "reclaim",
        PressureKind::ReclaimRetry => "retry",
        PressureKind::OomVictim => "killed",
    };
    format!("{word} {}", worst.events)
}
