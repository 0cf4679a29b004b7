//! One turn: what it is given ([`Inputs`]), what it yields ([`Decision`]), and how it is decided.
//!
//! Problem: decisions, the rebalance and the widening read the same host and the same past, and each changes
//! what the others are given in the next turn. Idea: the values that pass between them know none of them.
//! [`History`] lasts between turns: corrections, drift, moves, attempts of partitions. [`decide_turn`] calls
//! them in order, and repeats that for workloads whose processes have placed themselves.
//!
//! Invariant: only [`decide_once`] and [`decide_turn`] know [`crate::decide`] and [`crate::rebalance`], which
//! decide.

mod decision;
mod drift;
mod history;
mod inputs;
mod move_history;
mod moves;
mod output;
mod partition_attempts;
mod partitions;
mod protected;
mod rounds;
mod self_placed;
mod self_placed_answers;
mod target;

pub use self::{
    decision::{Decision, Refusal, RefusalCause},
    drift::{Drift, DriftCounts, DriftFate, DriftRecordError, LastingDrift},
    history::History,
    inputs::{Inputs, WrittenCgroups},
    move_history::MoveHistory,
    moves::{Cpus, Figures, Move},
    output::{TurnLimits, TurnOutput, decide_once},
    partition_attempts::PartitionAttempts,
    partitions::{AddedAbove, Partitioned, WantedPartition},
    protected::{FallbackNode, ProtectedWorkload, Widened},
    rounds::{TurnHost, decide_turn},
    self_placed::{SelfPlaced, SelfPlacedWorkloads},
    self_placed_answers::{ANSWER_LASTS_NS, SelfPlacedAnswers},
    target::{CpusetTarget, DriftStatus},
};
pub(crate) use self::{drift::REPAIRS, move_history::InFlightMove};
