//! Records the inputs and results of turns on request; otherwise it does nothing.
//!
//! The facts are recorded under the lock under which owners are found, and grants under that of the decision.
//! So the record holds exactly the inputs of the decision. All else belongs to the turn and is recorded
//! without a lock.

use std::sync::Arc;

use enforcer_core::{
    hosted::Containers,
    owner::OwnershipFacts,
    plan::Outcome,
    rebalance::RebalanceTurn,
    sample::Sample,
    turn::{Decision, Inputs, SelfPlacedWorkloads, TurnLimits},
};
use numa_placement::{Allocations, Inventory};
use numa_topology::degraded::Degraded;

use crate::record::{PartRef, Recorder};

/// The recorder, if recording is on.
#[derive(Default)]
pub(super) struct TurnLog(Option<Recorder>);

impl TurnLog {
    pub(super) const fn with(recorder: Recorder) -> Self {
        Self(Some(recorder))
    }

    /// Begins a turn with these facts.
    pub(super) fn begin(&mut self, facts: &OwnershipFacts) {
        if let Some(recorder) = &mut self.0 {
            recorder.begin();
            recorder.note(PartRef::Facts(facts));
        }
    }

    /// Records the inputs of the decision, without the grants.
    pub(super) fn note_inputs(
        &mut self,
        inputs: &Inputs<'_>,
        inventory: &Arc<Inventory>,
        before: Option<&Sample>,
        terms: TurnLimits,
    ) {
        if let Some(recorder) = &mut self.0 {
            recorder.note_inputs(inputs, inventory, before, terms);
        }
    }

    /// Records the grants.
    pub(super) fn given(&mut self, containers: &Containers, allocations: &Allocations) {
        if let Some(recorder) = &mut self.0 {
            recorder.note(PartRef::Containers(containers));
            recorder.note(PartRef::Allocations(allocations));
        }
    }

    /// Records workloads that stay because of what their processes have set themselves.
    pub(super) fn self_placed(&mut self, left: &SelfPlacedWorkloads) {
        if let Some(recorder) = self.0.as_mut().filter(|_| !left.is_empty()) {
            recorder.note(PartRef::SelfPlaced(left));
        }
    }

    /// Records the decision.
    pub(super) fn decided(&mut self, decision: &Decision, rebalanced: Option<&RebalanceTurn>) {
        if let Some(recorder) = &mut self.0 {
            recorder.note(PartRef::Decision(decision));
            recorder.note(PartRef::Rebalanced(rebalanced));
        }
    }

    /// Records the outcomes and ends the turn.
    pub(super) fn end(&mut self, outcomes: &[Outcome]) {
        if let Some(recorder) = &mut self.0 {
            recorder.note(PartRef::Outcomes(outcomes));
            recorder.end();
        }
    }

    /// Why turns are no longer recorded, if so.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        self.0.as_ref().and_then(Recorder::degraded)
    }
}
