//! Claims that nothing needs any more, though the kubelet never said so.
//!
//! Invariant: a claim is released only if it has no container in this boot, the kubelet does not hold it, the
//! API server does not have it with this allocation, and all of that was so for five minutes. A recovered
//! claim has no name by which the API server could be asked: there the node alone counts.

use std::sync::Arc;

use serde_json::Value;

use super::{ClaimLedger, ClaimUid, PreparedClaim, PreparedResult};

/// Time for which a claim has to look unneeded, in seconds.
const ORPHAN_SECONDS: u64 = 300;

/// What is known about the use of a claim; what could not be asked counts as use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrphanEvidence {
    /// Whether a container with it exists.
    pub has_container: bool,
    /// Whether the kubelet holds it.
    pub is_held_by_kubelet: bool,
    /// Whether the API server has no claim of its uid, or has it with no allocation or with another one.
    pub is_gone_from_api: bool,
}

impl PreparedClaim {
    /// Whether this object still has the allocation that was prepared: the same devices of the driver in its
    /// pool, by request and share. A claim may be allocated anew under the same uid.
    pub fn is_allocated_in(&self, object: &Value, (driver, pool): (&str, &str)) -> bool {
        let results = object.pointer("/status/allocation/devices/results").and_then(Value::as_array);
        let text = |result: &Value, key: &str| result.get(key).and_then(Value::as_str).map(str::to_owned);
        let own = results.into_iter().flatten().filter(|one| text(one, "driver").as_deref() == Some(driver));
        let found = own.map(|one| {
            let is_in_pool = text(one, "pool").as_deref() == Some(pool);
            is_in_pool.then(|| (text(one, "request"), text(one, "device"), text(one, "shareID")))
        });
        let prepared = self.results.iter().map(|PreparedResult { result, .. }| {
            Some((Some(result.request.clone()), Some(result.device.to_string()), result.share_id.clone()))
        });
        found.eq(prepared)
    }
}

impl ClaimLedger {
    /// Releases claims that have been unneeded for long enough. `now` is in seconds of a clock that starts at
    /// boot and never jumps.
    pub fn release_orphans(
        &mut self,
        now: u64,
        evidence: impl Fn(&PreparedClaim) -> OrphanEvidence,
    ) -> Vec<Arc<PreparedClaim>> {
        let boot = &self.boot_id;
        let is_unneeded = |claim: &&PreparedClaim| {
            let found = evidence(claim);
            let has_ended = claim.boot_id != *boot || !found.has_container;
            // Its name may not be known, so the API server is not asked.
            let is_gone = found.is_gone_from_api || claim.is_recovered();
            has_ended && !found.is_held_by_kubelet && is_gone
        };
        let unneeded: Vec<ClaimUid> =
            self.claims().filter(is_unneeded).map(|claim| claim.uid.clone()).collect();
        self.orphans.retain(|uid, _| unneeded.contains(uid));
        for uid in unneeded {
            self.orphans.entry(uid).or_insert(now);
        }
        let due = |(uid, since): (&ClaimUid, &u64)| {
            (now.saturating_sub(*since) >= ORPHAN_SECONDS).then(|| uid.clone())
        };
        let due: Vec<ClaimUid> = self.orphans.iter().filter_map(due).collect();
        due.iter().filter_map(|uid| self.unprepare(uid)).collect()
    }
}
