//! Workloads that run and get a better place: what of a turn is about them.
//!
//! The rule is in the core. What it begins here shows in the decision of the next turn, which is carried out as any
//! other: journalled, written in order, read back. Nothing begins while the daemon observes or is paused; what would is
//! in the report.

use enforcer_core::{
    decide::{Decision, Inputs},
    place::Allocations,
    rebalance::{self, Past, Turn, Verdict},
};

use crate::{
    enforce::pages::PageMoveLimits,
    report::tick::{RebalanceTotals, Rebalanced},
};

/// What a turn leads to: what is remembered from then on, and what is told.
pub(super) struct Rebalancing {
    pub(super) past: Past,
    turn: Turn,
}

/// Looks after what is under way and plans further moves, if that is asked for.
pub(super) fn turn(
    inputs: &Inputs<'_>,
    allocations: &mut Allocations,
    decision: &Decision,
    may_begin: bool,
) -> Option<Rebalancing> {
    if !inputs.policy.rebalance.enabled {
        return None;
    }
    let mut past = inputs.history.rebalance.clone();
    let limit = PageMoveLimits::default().bytes;
    let turn = rebalance::turn(inputs, allocations, &mut past, decision, limit, may_begin);
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
            Verdict::GivenUp => tracing::warn!("{cgroup}: could not be brought to where it was to be moved"),
        }
    }
    Some(Rebalancing { past, turn })
}

impl Rebalancing {
    /// Adds to what is counted; returns what is told.
    pub(super) fn tell(self, totals: &mut RebalanceTotals) -> Rebalanced {
        let Turn { report, begun, verdicts } = self.turn;
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
}
