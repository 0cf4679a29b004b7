//! Reports processes that the OOM killer may choose because of a widening: logged when it begins, and in the
//! report while it lasts.

use enforcer_core::{
    sample::Sample,
    widening::{OomCandidates, oom_candidates},
    workload::Workload,
};

use super::{guard_event::BY, shared::Widening};
use crate::engine::decisions::{entry, subject};
use enforcer_report::decision::{DecisionRecord, DecisionState, DecisionSubject};

impl Widening {
    /// Finds the exposed processes. Returns a log text for those that were not exposed before.
    pub(in crate::engine) fn note_exposed(
        &self,
        workloads: &[Workload],
        sample: &Sample,
    ) -> Vec<(DecisionSubject, DecisionRecord)> {
        let added = self.added();
        let now = oom_candidates(&added, workloads, sample);
        let mut state = self.lock();
        let same = |one: &OomCandidates, other: &OomCandidates| {
            (&one.cgroup, &one.because_of, &one.nodes) == (&other.cgroup, &other.because_of, &other.nodes)
        };
        let new: Vec<OomCandidates> =
            now.iter().filter(|one| !state.exposed.iter().any(|other| same(one, other))).cloned().collect();
        state.exposed = now;
        drop(state);
        let record = |one: &OomCandidates| {
            let workload = workloads.iter().find(|workload| workload.cgroup == one.cgroup)?;
            let reason = one.sentence();
            tracing::info!("{}: {reason}", one.cgroup);
            Some((subject(workload), DecisionRecord { reason, ..entry(BY, DecisionState::Changed) }))
        };
        new.iter().filter_map(record).collect()
    }
}
