//! Claims that have lost CPUs: offline, or given away by the kubelet.
//!
//! Idea: a claim keeps what is left, and gets as many others of its node, as near as the placement engine
//! finds them. The last shared CPU of a node is not taken. CPUs that come back,
//! or that another claim gives back, are taken up at the next call.

use std::sync::Arc;

use numa_placement::hints::cpu::{CpuOptions, grow};
use numa_topology::set::CpuSet;

use super::{ClaimLedger, ClaimUid, PreparedClaim};
use crate::dra::ClaimSupply;

/// Change of a prepared claim's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuRepair {
    /// The claim.
    pub uid: ClaimUid,
    /// CPUs that it had and that are no longer there.
    pub lost: CpuSet,
    /// CPUs that it has instead.
    pub gained: CpuSet,
    /// Promised CPUs that it does not have now; the device is unhealthy while it is not 0.
    pub missing: u64,
}

impl ClaimLedger {
    /// Makes the claims fit the machine. Returns the claims that have other CPUs now, in order of uid.
    pub fn settle(&mut self, supply: &ClaimSupply) -> Vec<CpuRepair> {
        if supply.nodes().is_empty() {
            // Nothing is known of the machine yet.
            return Vec::new();
        }
        let before = self.cpus_by_claim();
        self.lose(supply);
        let mut taken = self.exclusive_cpus();
        let options = CpuOptions { align_by_uncore_cache: true, ..CpuOptions::default() };
        let short = self.claims.values_mut().filter(|claim| claim.missing_cpus() > 0).map(Arc::make_mut);
        for result in short.flat_map(|claim| &mut claim.results) {
            let missing = usize::try_from(result.missing_cpus()).unwrap_or(usize::MAX);
            let Some(budget) = supply.node(result.node).filter(|_| missing > 0) else { continue };
            let shared = budget.cpus.difference(&taken).len();
            let free = budget.exclusive_pool.difference(&taken);
            let more = missing.min(free.len()).min(shared.saturating_sub(1));
            if let Ok(cpus) = grow(supply.layout(), &result.cpus, &free, result.cpus.len() + more, options) {
                taken.extend(&cpus);
                result.cpus = cpus;
            }
        }
        self.repairs(before)
    }

    /// Takes the CPUs from claims that the machine does not have for them any more, and gives them no others.
    /// Returns the claims that have fewer CPUs now, in order of uid.
    pub fn settle_losses(&mut self, supply: &ClaimSupply) -> Vec<CpuRepair> {
        if supply.nodes().is_empty() {
            return Vec::new();
        }
        let before = self.cpus_by_claim();
        self.lose(supply);
        self.repairs(before)
    }

    fn cpus_by_claim(&self) -> Vec<(ClaimUid, CpuSet)> {
        self.claims().map(|claim| (claim.uid.clone(), claim.cpus())).collect()
    }

    fn lose(&mut self, supply: &ClaimSupply) {
        let present = supply.cpus();
        let has_lost =
            |claim: &PreparedClaim| claim.results.iter().any(|result| !result.cpus.is_subset(&present));
        for claim in self.claims.values_mut().filter(|claim| has_lost(claim)).map(Arc::make_mut) {
            let is_recovered = claim.is_recovered();
            for result in &mut claim.results {
                result.cpus = result.cpus.intersection(&present);
                if is_recovered {
                    result.amounts.cpus = result.cpus.len() as u64;
                }
            }
        }
    }

    /// The claims that have other CPUs than before.
    fn repairs(&self, before: Vec<(ClaimUid, CpuSet)>) -> Vec<CpuRepair> {
        let repair = |(uid, had): (ClaimUid, CpuSet)| {
            let claim = self.claims.get(&uid)?;
            let has = claim.cpus();
            let (lost, gained) = (had.difference(&has), has.difference(&had));
            let is_changed = !lost.is_empty() || !gained.is_empty();
            is_changed.then(|| CpuRepair { uid, lost, gained, missing: claim.missing_cpus() })
        };
        before.into_iter().filter_map(repair).collect()
    }
}
