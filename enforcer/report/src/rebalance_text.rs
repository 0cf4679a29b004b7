//! Moves as text: each move with its cost and gain, and each misplaced workload that stays.

use std::fmt::Write;

use enforcer_core::rebalance::{Cpus, Move, RebalanceReport, UnmovedWorkload};
use numa_topology::set::NodeSet;

use super::{
    style::{Style, Tone},
    text, units,
    view::causes,
};

/// Lists of CPUs are cut beyond this.
const LIST_WIDTH: usize = 24;

/// The whole report.
pub fn render(report: &RebalanceReport, style: Style) -> String {
    let mut out = String::new();
    for one in &report.moves {
        moved(&mut out, report, one, style);
    }
    for left in &report.left {
        stays(&mut out, left, style);
    }
    if !report.left.is_empty() {
        out.push('\n');
    }
    for line in causes::lines(&report.degraded) {
        text::hang(&mut out, "not seen  ", &line, style.width);
    }
    if !report.degraded.is_empty() {
        out.push('\n');
    }
    text::wrap(&mut out, &summary(report), style.width, "", "");
    out
}

fn moved(out: &mut String, report: &RebalanceReport, one: &Move, style: Style) {
    let others = report.moves.iter().filter(|other| other.group == one.group).count() - 1;
    let title = format!("{}. {} to node {}", one.group, text::escape(one.workload.as_str()), one.to);
    out.push_str(&style.paint(Tone::Heading, title).to_string());
    out.push_str(if others > 0 { ", together with the other of this number\n" } else { "\n" });
    let mut row = |name: &str, value: &str| {
        text::hang(out, &format!("  {name:<8} "), value, style.width);
    };
    match &one.cpus_to {
        Some(to) => row("CPUs", &format!("{} -> {}", cpus(&one.cpus_from), cpus(to))),
        None => row("CPUs", &format!("{}, as they are", cpus(&one.cpus_from))),
    }
    if one.bytes > 0 {
        let from: NodeSet = one.bytes_from.keys().copied().collect();
        let word = if from.len() == 1 { "node" } else { "nodes" };
        let size = units::bytes(one.bytes);
        row(
            "memory",
            &format!("{size} from {word} {}, about {}", units::ids(&from, LIST_WIDTH), seconds(one.seconds)),
        );
    } else {
        row("memory", "stays where it is");
    }
    row(
        "remote",
        &format!("{} -> {}", units::measured(one.now.remote_ratio), units::measured(one.then.remote_ratio)),
    );
    row("why", &one.reason);
    out.push('\n');
}

pub(super) fn cpus(cpus: &Cpus) -> String {
    if cpus.exclusive.is_empty() {
        let word = if cpus.nodes.len() == 1 { "node" } else { "nodes" };
        return format!("shared ones of {word} {}", units::ids(&cpus.nodes, LIST_WIDTH));
    }
    units::ids(&cpus.exclusive, LIST_WIDTH)
}

fn stays(out: &mut String, left: &UnmovedWorkload, style: Style) {
    let line = format!("{}: {}", text::escape(left.workload.as_str()), left.reason);
    text::hang(out, "stays     ", &line, style.width);
}

pub(super) fn summary(report: &RebalanceReport) -> String {
    let RebalanceReport { bytes, budget_bytes, seconds: time, gain, cost, .. } = report;
    let mut line = match report.moves.len() {
        0 => "no move is worth its cost".to_owned(),
        moves => {
            let moves = units::count(moves, "move");
            let (bytes, budget) = (units::bytes(*bytes), units::bytes(*budget_bytes));
            let time = seconds(*time);
            format!(
                "{moves}: {bytes} of {budget} that may be moved, about {time}; {gain:.1} CPU seconds are saved for {cost:.1}"
            )
        }
    };
    if !report.left.is_empty() {
        let _ = write!(line, "; {}", units::count(report.left.len(), "workload"));
        line.push_str(if report.left.len() == 1 {
            " stays although its memory is far"
        } else {
            " stay although their memory is far"
        });
    }
    line
}

pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.0} s") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use enforcer_core::{
        rebalance::{Figures, REBALANCE_SCHEMA_VERSION},
        workload::{CgroupPath, QosClass},
    };
    use numa_topology::{degraded::Degraded, id::NodeId};

    use super::*;

    #[test]
    fn moves_are_told_with_bytes_time_and_gain() {
        let figures = |remote, lost| Figures { remote_ratio: Some(remote), lost };
        let cpus = |exclusive: &str, nodes: &str| Cpus {
            exclusive: exclusive.parse().unwrap(),
            nodes: nodes.parse().unwrap(),
        };
        let one = |group, name: &str, to, cpus_from, cpus_to, bytes| Move {
            group,
            workload: CgroupPath::new(name),
            qos: QosClass::Guaranteed,
            to: NodeId(to),
            cpus_from,
            cpus_to,
            bytes_from: if bytes > 0 { BTreeMap::from([(NodeId(1 - to), bytes)]) } else { BTreeMap::new() },
            bytes,
            seconds: 0.0625,
            now: figures(1.0, 0.3),
            then: figures(0.0, 0.0),
            gain: 360.0,
            cost: 0.1,
            reason:
                "100% of its accesses are remote: its CPUs go from node 0 to node 1; that saves 360.0 CPU \
                     seconds within 10m and costs 0.1"
                    .into(),
        };
        let report = RebalanceReport {
            schema_version: REBALANCE_SCHEMA_VERSION,
            moves: vec![
                one(1, "/shop/orders", 1, cpus("0-1", "0"), Some(cpus("4-5", "1")), 0),
                one(1, "/shop/\u{1b}[31mcart", 0, cpus("4-5", "1"), Some(cpus("0-1", "0")), 0),
                one(2, "/shop/search", 0, cpus("", "0"), None, 64 << 20),
            ],
            left: vec![UnmovedWorkload {
                workload: CgroupPath::new("/batch"),
                ailing: true,
                reason: "97% of its accesses are remote, but it is not declared".into(),
            }],
            bytes: 64 << 20,
            budget_bytes: 4 << 30,
            seconds: 0.0625,
            gain: 540.0,
            cost: 0.3,
            degraded: vec![Degraded::new("bpf", "not permitted", "run time is estimated")],
        };
        let style = Style { width: 90, colour: false };
        insta::assert_snapshot!(render(&report, style));
        let none = RebalanceReport { budget_bytes: 4 << 30, ..RebalanceReport::default() };
        assert_eq!(render(&none, style), "no move is worth its cost\n");
    }
}
