//! One turn as values: what it is given ([`Inputs`]) and what it yields ([`Decision`]).
//!
//! Problem: decisions, the rebalance and the widening read the same host and the same past, and each changes
//! what the others are given in the next turn. Idea: the values that pass between them are below all three
//! and know none of them. [`History`] lasts between turns: corrections, drift, moves, attempts of partitions.
//!
//! Invariant: nothing here decides; [`crate::decide`], [`crate::rebalance`] and [`crate::widening`] do.

mod decision;
mod drift;
mod history;
mod inputs;
mod move_history;
mod moves;
mod partition_attempts;
mod partitions;
mod protected;
mod self_placed;
mod target;

pub use self::{
    decision::{Decision, Refusal, RefusalCause},
    drift::{Drift, DriftCounts, DriftFate, DriftRecordError, LastingDrift},
    history::History,
    inputs::{Inputs, WrittenCgroups},
    move_history::MoveHistory,
    moves::{Cpus, Figures, Move},
    partition_attempts::PartitionAttempts,
    partitions::{AddedAbove, Partitioned, WantedPartition},
    protected::{FallbackNode, ProtectedWorkload, Widened},
    self_placed::{SelfPlaced, SelfPlacedWorkloads},
    target::{CpusetTarget, DriftStatus},
};
pub(crate) use self::{drift::REPAIRS, move_history::InFlightMove};
