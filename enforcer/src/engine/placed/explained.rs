//! Records the decisions of a runtime's calls, for `explain`.
//!
//! A decision is recorded for its own container and for each other container that it changed.
//!
//! Invariant: it changes neither grants nor answers.

use enforcer_core::{considered::DecisionTrace, hosted::CallOutcome, turn::RefusalCause};
use numa_placement::trial::UpdateReport;

use super::Ledger;
use crate::engine::decisions::entry;
use enforcer_report::decision::{DecisionRecord, DecisionState};

impl Ledger {
    /// Records the decision about each container, and what it changed for others.
    pub(super) fn explain(&self, call: &str, settled: &mut CallOutcome) {
        let shown = |id: &str| self.roster.name_of(id);
        let taken = self.held.allocations.exclusive_cpus();
        let updates: Vec<UpdateReport> = settled
            .others
            .iter()
            .map(|(id, cpuset)| UpdateReport {
                container: shown(id),
                cpus: cpuset.cpus.clone(),
                mems: cpuset.mems.clone(),
            })
            .collect();
        let paused = self.overrides.is_paused();
        // A synchronization is about all containers.
        let about = settled.weighed.keys().next().filter(|_| call != "synchronize").map(|id| shown(id));
        let about = about.map(|name| format!(" about {name}")).unwrap_or_default();
        for (id, weighed) in std::mem::take(&mut settled.weighed) {
            let given = self.held.grant(&id);
            let why = || given.map(|given| given.why().into_owned()).unwrap_or_default();
            let (state, cause, reason) = match settled.rejections.get(&id) {
                None => (DecisionState::Placed, None, why()),
                Some(rejection) if self.held.has_place(&id) => {
                    let reason = format!("it keeps what it has: {rejection}");
                    (DecisionState::Refused, Some(RefusalCause::NoPlace), reason)
                }
                Some(rejection) => (DecisionState::Unplaced, None, rejection.to_string()),
            };
            let record = DecisionRecord {
                cause,
                reason,
                paused,
                considered: DecisionTrace::of_container(weighed, given, &taken),
                updates: updates.clone(),
                warnings: settled.warnings.clone(),
                ..entry(call, state)
            };
            self.trace.decisions.note(self.subject(&id), record);
        }
        for (update, id) in updates.into_iter().zip(settled.others.keys()) {
            let reason = format!("the runtime's call `{call}`{about} changed what is left for it");
            let updates = vec![update];
            let record = DecisionRecord { paused, reason, updates, ..entry(call, DecisionState::Changed) };
            self.trace.decisions.note(self.subject(id), record);
        }
    }
}
