//! The part of a turn about running workloads that move to a better place.
//!
//! The core has the rule. A move that begins here shows in the next turn's decision, which is carried out as
//! any other: journalled, written in order, read back. No move begins while the daemon observes or is paused;
//! the report names the moves that would.

use enforcer_core::rebalance::{MoveVerdict, RebalanceTurn};

use enforcer_report::tick::{RebalanceTotals, Rebalanced};

/// Logs and counts moves that begin and the outcomes of those in flight; returns the report.
pub(super) fn report_moves(turn: RebalanceTurn, totals: &mut RebalanceTotals) -> Rebalanced {
    for one in turn.report.moves.iter().filter(|_| turn.begun) {
        tracing::info!("{}: moved to node {}: {}", one.workload, one.to, one.reason);
    }
    for (cgroup, verdict) in &turn.verdicts {
        match verdict {
            MoveVerdict::Held => tracing::info!("{cgroup}: fares better where it was moved to"),
            MoveVerdict::Reverted => {
                tracing::warn!("{cgroup}: does not fare better where it was moved to, and goes back");
            }
            MoveVerdict::Stays => {
                tracing::warn!("{cgroup}: does not fare better where it was moved to, but cannot go back");
            }
            MoveVerdict::Idle => {
                tracing::info!("{cgroup}: has run too little since it was moved to tell; it stays");
            }
            MoveVerdict::GivenUp => {
                tracing::warn!("{cgroup}: could not be brought to where it was to be moved");
            }
        }
    }
    let RebalanceTurn { report, begun, verdicts } = turn;
    let of = |wanted: MoveVerdict| verdicts.values().filter(|verdict| **verdict == wanted).count() as u64;
    if begun {
        totals.begun += report.moves.len() as u64;
        totals.bytes = totals.bytes.saturating_add(report.bytes);
    }
    totals.held += of(MoveVerdict::Held);
    totals.reverted += of(MoveVerdict::Reverted);
    totals.stays += of(MoveVerdict::Stays);
    totals.given_up += of(MoveVerdict::GivenUp);
    Rebalanced { begun, report }
}
