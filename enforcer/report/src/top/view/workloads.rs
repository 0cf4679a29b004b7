//! The workloads, in the order that was asked for.

use enforcer_core::{audit::AuditVerdict, named::Named as _};

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
enum WorkloadColumn {
    Cpus,
    Nodes,
    Memory,
    Misplaced,
    Busy,
    Traffic,
    Moves,
    Verdict,
}

const COLUMNS: Columns<WorkloadColumn> = Columns {
    first: "workload",
    least: 18,
    others: &[
        Column { of: WorkloadColumn::Cpus, title: "CPUs", width: 11, rank: 7 },
        Column { of: WorkloadColumn::Nodes, title: "nodes", width: 5, rank: 5 },
        Column { of: WorkloadColumn::Memory, title: "memory", width: 8, rank: 4 },
        Column { of: WorkloadColumn::Misplaced, title: "misplaced", width: 10, rank: 1 },
        Column { of: WorkloadColumn::Busy, title: "busy", width: 6, rank: 6 },
        Column { of: WorkloadColumn::Traffic, title: "traffic", width: 8, rank: 0 },
        Column { of: WorkloadColumn::Moves, title: "moves/s", width: 8, rank: 2 },
        Column { of: WorkloadColumn::Verdict, title: "verdict", width: 10, rank: 3 },
    ],
};

pub(super) fn draw(state: &TopState, rows: Rows, canvas: &mut Canvas<'_>) {
    if rows.count == 0 {
        return;
    }
    let width = canvas.width();
    let sorted = match state.sort {
        Sort::Traffic => WorkloadColumn::Traffic,
        Sort::Bytes => WorkloadColumn::Misplaced,
        Sort::Migrations => WorkloadColumn::Moves,
    };
    canvas.bar(rows.at, &columns::heading(&COLUMNS, width, Some(sorted)));
    if state.turn().is_some() && state.order.is_empty() {
        let none = if state.filter.is_empty() { "no workload" } else { "no workload has that in its name" };
        canvas.put(0, rows.at + 1, none, Some(Tone::Quiet));
    }
    for ((row, workload, called), y) in state.on_screen().zip(rows.at + 1..rows.at + rows.count) {
        let cell = |column: Option<WorkloadColumn>| {
            column.map_or_else(|| called.clone(), |column| cell(column, workload))
        };
        canvas.put(0, y, &columns::row(&COLUMNS, width, cell), tone(workload));
        if row == state.selected {
            canvas.mark(y);
        }
    }
}

fn cell(column: WorkloadColumn, workload: &TopWorkload) -> String {
    let memory = || {
        workload
            .bytes_by_numa
            .as_ref()
            .map(|by_node| by_node.values().fold(0, |a: u64, b| a.saturating_add(*b)))
    };
    match column {
        WorkloadColumn::Cpus => units::known(workload.cpus.as_ref(), |cpus| units::ids(cpus, 11)),
        WorkloadColumn::Nodes => units::ids(&workload.numa_nodes, 5),
        WorkloadColumn::Memory => units::known(memory(), units::bytes),
        WorkloadColumn::Misplaced => units::known(workload.misplaced_bytes, units::bytes),
        WorkloadColumn::Busy => units::known(workload.cpus_used, |cpus| format!("{cpus:.2}")),
        WorkloadColumn::Traffic => units::known(workload.remote_traffic, units::percent),
        WorkloadColumn::Moves => units::known(workload.migrations_per_second, |moves| format!("{moves:.1}")),
        WorkloadColumn::Verdict => workload.verdict.name().to_owned(),
    }
}

/// Most are aligned, and stay without a colour.
fn tone(workload: &TopWorkload) -> Option<Tone> {
    match workload.verdict {
        AuditVerdict::Misaligned | AuditVerdict::Partial => Some(Tone::from(workload.verdict)),
        AuditVerdict::Aligned | AuditVerdict::Unknown => None,
    }
}
