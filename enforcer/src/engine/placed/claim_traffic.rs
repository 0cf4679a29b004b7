//! How remote the memory accesses of the containers of resource claims are.

use std::collections::BTreeMap;

use enforcer_core::{dra::ClaimUid, model::Model};

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
}
