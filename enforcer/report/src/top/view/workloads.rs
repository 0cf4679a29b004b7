//! The workloads, in the order that was asked for.

use enforcer_core::{audit::Verdict, named::Named as _};

use super::canvas::Canvas;
use crate::{
    style::Tone,
    top::{
        columns::{self, Column, Columns},
        layout::Rows,
        report::TopWorkload,
        sort::Sort,
        state::TopState,
    },
    units,
};

/// Content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Cpus,
    Nodes,
    Memory,
    Misplaced,
    Busy,
    Traffic,
    Moves,
    Verdict,
}

const COLUMNS: Columns<Of> = Columns {
    first: "workload",
    least: 18,
    others: &[
        Column { of: Of::Cpus, title: "CPUs", width: 11, rank: 7 },
        Column { of: Of::Nodes, title: "nodes", width: 5, rank: 5 },
        Column { of: Of::Memory, title: "memory", width: 8, rank: 4 },
        Column { of: Of::Misplaced, title: "misplaced", width: 10, rank: 1 },
        Column { of: Of::Busy, title: "busy", width: 6, rank: 6 },
        Column { of: Of::Traffic, title: "traffic", width: 8, rank: 0 },
        Column { of: Of::Moves, title: "moves/s", width: 8, rank: 2 },
        Column { of: Of::Verdict, title: "verdict", width: 10, rank: 3 },
    ],
};

pub(super) fn draw(state: &TopState, rows: Rows, canvas: &mut Canvas<'_>) {
    if rows.count == 0 {
        return;
    }
    let width = canvas.width();
    let sorted = match state.sort {
        Sort::Traffic => Of::Traffic,
        Sort::Bytes => Of::Misplaced,
        Sort::Migrations => Of::Moves,
    };
    canvas.bar(rows.at, &columns::heading(&COLUMNS, width, Some(sorted)));
    if state.turn().is_some() && state.order.is_empty() {
        let none = if state.filter.is_empty() { "no workload" } else { "no workload has that in its name" };
        canvas.put(0, rows.at + 1, none, Some(Tone::Quiet));
    }
    for ((row, workload, called), y) in state.on_screen().zip(rows.at + 1..rows.at + rows.count) {
        let cell =
            |column: Option<Of>| column.map_or_else(|| called.clone(), |column| cell(column, workload));
        canvas.put(0, y, &columns::row(&COLUMNS, width, cell), tone(workload));
        if row == state.selected {
            canvas.mark(y);
        }
    }
}

fn cell(column: Of, workload: &TopWorkload) -> String {
    let memory = || {
        workload
            .bytes_by_numa
            .as_ref()
            .map(|by_node| by_node.values().fold(0, |a: u64, b| a.saturating_add(*b)))
    };
    match column {
        Of::Cpus => units::known(workload.cpus.as_ref(), |cpus| units::ids(cpus, 11)),
        Of::Nodes => units::ids(&workload.numa_nodes, 5),
        Of::Memory => units::known(memory(), units::bytes),
        Of::Misplaced => units::known(workload.misplaced_bytes, units::bytes),
        Of::Busy => units::known(workload.cpus_used, |cpus| format!("{cpus:.2}")),
        Of::Traffic => units::known(workload.remote_traffic, units::percent),
        Of::Moves => units::known(workload.migrations_per_second, |moves| format!("{moves:.1}")),
        Of::Verdict => workload.verdict.name().to_owned(),
    }
}

/// Most are aligned, and stay without a colour.
fn tone(workload: &TopWorkload) -> Option<Tone> {
    match workload.verdict {
        Verdict::Misaligned | Verdict::Partial => Some(Tone::from(workload.verdict)),
        Verdict::Aligned | Verdict::Unknown => None,
    }
}
