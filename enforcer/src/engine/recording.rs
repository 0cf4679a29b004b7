//! What of a turn is recorded, where that is asked for; where it is not, nothing is done.
//!
//! The facts are noted under the lock under which owners are found from them, what is given away under that
//! of the decision: nobody can change either in between, so that what is recorded is what was decided from.
//! The rest is the turn's own, and noted without a lock that a runtime would wait for.

use std::sync::Arc;

use enforcer_core::{
    decide::{Decision, Inputs, SelfPlacedWorkloads},
    degraded::Degraded,
    owner::Facts,
    place::{Allocations, Containers, Inventory},
    plan::Outcome,
    rebalance::Turn,
    replay::Terms,
    sample::Sample,
};

use crate::record::{PartRef, Recorder};

/// The recorder, if there is one.
#[derive(Default)]
pub(super) struct Recording(Option<Recorder>);

impl Recording {
    pub(super) const fn with(recorder: Recorder) -> Self {
        Self(Some(recorder))
    }

    /// A turn begins, with these facts.
    pub(super) fn begin(&mut self, facts: &Facts) {
        if let Some(recorder) = &mut self.0 {
            recorder.begin();
            recorder.note(PartRef::Facts(facts));
        }
    }

    /// What it decides from, but for what is given away.
    pub(super) fn seen(
        &mut self,
        inputs: &Inputs<'_>,
        inventory: &Arc<Inventory>,
        before: Option<&Sample>,
        terms: Terms,
    ) {
        if let Some(recorder) = &mut self.0 {
            recorder.seen(inputs, inventory, before, terms);
        }
    }

    /// What is given away, and to whom.
    pub(super) fn given(&mut self, containers: &Containers, allocations: &Allocations) {
        if let Some(recorder) = &mut self.0 {
            recorder.note(PartRef::Containers(containers));
            recorder.note(PartRef::Allocations(allocations));
        }
    }

    /// Who stays because of what its processes have set themselves.
    pub(super) fn self_placed(&mut self, left: &SelfPlacedWorkloads) {
        if let Some(recorder) = self.0.as_mut().filter(|_| !left.is_empty()) {
            recorder.note(PartRef::SelfPlaced(left));
        }
    }

    /// What it decided.
    pub(super) fn decided(&mut self, decision: &Decision, rebalanced: Option<&Turn>) {
        if let Some(recorder) = &mut self.0 {
            recorder.note(PartRef::Decision(decision));
            recorder.note(PartRef::Rebalanced(rebalanced));
        }
    }

    /// What became of it; the turn is over.
    pub(super) fn end(&mut self, outcomes: &[Outcome]) {
        if let Some(recorder) = &mut self.0 {
            recorder.note(PartRef::Outcomes(outcomes));
            recorder.end();
        }
    }

    /// Why turns are no longer recorded, if that is so.
    pub(super) fn degraded(&self) -> Option<Degraded> {
        self.0.as_ref().and_then(Recorder::degraded)
    }
}
