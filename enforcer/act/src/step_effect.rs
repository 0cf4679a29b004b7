//! What one step of a plan came to, and what that means for the steps behind it.

use enforcer_core::plan::OutcomeResult;

use super::journal::EntryKey;

/// How to take one write back within the same plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// Which file, in which life of its cgroup.
    pub key: EntryKey,
    /// Content before the step.
    pub before: String,
}

/// How the plan goes on after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The workload's next step.
    Continue,
    /// Nothing more for this workload in this plan; what is done stays.
    Pause,
    /// Nothing more for this workload, because it has ended.
    Gone,
    /// The earlier steps of the workload and of its group, and this one, are taken back.
    RollBack,
}

/// Result of one step.
#[derive(Debug)]
pub struct StepEffect {
    /// For the report.
    pub result: OutcomeResult,
    /// Writes that were made, in order.
    pub undo: Vec<Undo>,
    /// How the workload's steps go on.
    pub next: Next,
}
