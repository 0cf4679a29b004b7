//! How remote the memory accesses of the containers of resource claims are, and what turns corrected.

use std::collections::BTreeMap;

use enforcer_core::{
    dra::ClaimUid,
    model::Model,
    plan::{Outcome, OutcomeResult},
};
use enforcer_report::turn_events::correction;

use super::SharedLedger;

/// Fewest observations of a figure that counts.
const FEWEST: u64 = 100;
/// Part of a CPU that a container counts for at least.
const LEAST: f64 = 0.001;

impl SharedLedger {
    /// Takes the figures of a turn. Containers of one claim count by the CPU time that they took.
    pub(in crate::engine) fn note_remote_accesses(&self, model: &Model) {
        let mut state = self.lock();
        let mut sums = BTreeMap::<ClaimUid, (f64, f64)>::new();
        for (id, claims) in state.claims.claiming() {
            let figures = state.held.containers.cgroup(id).and_then(|cgroup| model.workloads.get(cgroup));
            let traffic = figures.and_then(|figures| figures.traffic.as_ref());
            let Some(traffic) = traffic.filter(|traffic| traffic.samples >= FEWEST) else { continue };
            let used = figures.and_then(|figures| figures.cpus_used).unwrap_or_default().max(LEAST);
            for claim in claims {
                let (remote, all) = sums.entry(claim.clone()).or_default();
                *remote += traffic.remote_ratio * used;
                *all += used;
            }
        }
        state.claims.remote_accesses =
            sums.into_iter().map(|(claim, (remote, all))| (claim, remote / all)).collect();
    }

    /// Notes what a turn has corrected of containers with claims, the latest for each claim.
    pub(in crate::engine) fn note_corrections(&self, outcomes: &[Outcome]) {
        let is_applied = |outcome: &&Outcome| matches!(outcome.result, OutcomeResult::Applied { .. });
        let applied: Vec<&Outcome> = outcomes.iter().filter(is_applied).collect();
        if applied.is_empty() {
            return;
        }
        let mut state = self.lock();
        let mut corrected = Vec::new();
        for (id, claims) in state.claims.claiming() {
            let Some(cgroup) = state.held.containers.cgroup(id) else { continue };
            let of_container = applied.iter().filter(|outcome| outcome.step.action.cgroup() == cgroup);
            let notes: Vec<String> = of_container.map(|outcome| correction(outcome)).collect();
            if !notes.is_empty() {
                corrected.extend(claims.iter().map(|claim| (claim.clone(), notes.join("; "))));
            }
        }
        state.claims.corrections.extend(corrected);
    }
}
