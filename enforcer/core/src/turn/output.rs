//! Output of a turn, and the function that decides it.

use serde::{Deserialize, Serialize};

use super::{Decision, Inputs, MoveHistory};
use crate::{
    decide::decide,
    rebalance::{self, NextTurn, RebalanceTurn},
};
use numa_placement::Allocations;

/// Limits of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnLimits {
    /// True if moves of workloads may begin.
    pub may_begin: bool,
    /// Most bytes that a turn moves.
    pub bytes_per_turn: u64,
}

/// Output of a turn.
#[derive(Debug)]
pub struct TurnOutput {
    /// The decision.
    pub decision: Decision,
    /// Moves to better places, and their state from then on; `None` if none were asked for.
    pub rebalanced: Option<(RebalanceTurn, MoveHistory)>,
    /// When the next turn should come; not recorded, because it changes no decision.
    pub next: NextTurn,
}

/// Decides one turn. `allocations` are those of the last turn, and become those of this one.
pub fn decide_once(inputs: &Inputs<'_>, allocations: &mut Allocations, terms: TurnLimits) -> TurnOutput {
    let decision = decide(inputs, allocations);
    let mut next = NextTurn::default();
    let rebalanced = inputs.policy.rebalance.enabled.then(|| {
        let mut past = inputs.history.rebalance.clone();
        let TurnLimits { may_begin, bytes_per_turn } = terms;
        let turn;
        (turn, next) = rebalance::turn(inputs, allocations, &mut past, &decision, bytes_per_turn, may_begin);
        (turn, past)
    });
    TurnOutput { decision, rebalanced, next }
}
