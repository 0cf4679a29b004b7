//! The part of a turn about running workloads that move to a better place.
//!
//! The core has the rule. A move that begins here shows in the next turn's decision, which is carried out as
//! any other: journalled, written in order, read back. No move begins while the daemon observes or is paused;
//! the report names the moves that would.

use enforcer_core::rebalance::{Turn, Verdict};

use enforcer_report::tick::{RebalanceTotals, Rebalanced};

/// Logs and counts moves that begin and the outcomes of those in flight; returns the report.
pub(super) fn tell(turn: Turn, totals: &mut RebalanceTotals) -> Rebalanced {
    for one in turn.report.moves.iter().filter(|_| turn.begun) {
        tracing::info!("{}: moved to node {}: {}", one.workload, one.to, one.reason);
    }
    for (cgroup, verdict) in &turn.verdicts {
        match verdict {
            Verdict::Held => tracing::info!("{cgroup}: fares better where it was moved to"),
            Verdict::Reverted => {
                tracing::warn!("{cgroup}: does not fare better where it was moved to, and goes back");
            }
            Verdict::Stays => {
                tracing::warn!("{cgroup}: does not fare better where it was moved to, but cannot go back");
            }
            Verdict::Idle => {
                tracing::info!("{cgroup}: has run too little since it was moved to tell; it stays");
            }
            Verdict::GivenUp => tracing::warn!("{cgroup}: could not be brought to where it was to be moved"),
        }
    }
    let Turn { report, begun, verdicts } = turn;
    let of = |wanted: Verdict| verdicts.values().filter(|verdict| **verdict == wanted).count() as u64;
    if begun {
        totals.begun += report.moves.len() as u64;
        totals.bytes = totals.bytes.saturating_add(report.bytes);
    }
    totals.held += of(Verdict::Held);
    totals.reverted += of(Verdict::Reverted);
    totals.stays += of(Verdict::Stays);
    totals.given_up += of(Verdict::GivenUp);
    Rebalanced { begun, report }
}
