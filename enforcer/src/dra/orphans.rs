//! Gives up claims that nothing needs any more, though the kubelet never said so: its disk was wiped, or it
//! forgot a pod.

use std::{collections::BTreeSet, sync::Arc};

use enforcer_core::dra::{ClaimUid, OrphanEvidence, PreparedClaim};
use tokio::time::timeout;

use super::driver::{ClaimDriver, READ_LIMIT, named};

/// Which claims are in use, as the node knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimsInUse {
    /// Claims that containers name.
    pub by_containers: BTreeSet<ClaimUid>,
    /// Claims that the kubelet holds.
    pub by_kubelet: BTreeSet<ClaimUid>,
}

impl ClaimsInUse {
    fn contains(&self, uid: &ClaimUid) -> bool {
        self.by_containers.contains(uid) || self.by_kubelet.contains(uid)
    }
}

impl ClaimDriver {
    /// Gives up the claims that have been in no use for five minutes and that the API server does not have,
    /// or has with another allocation.
    /// Call it about once a minute with what the node knows now; not while that cannot be asked. It returns
    /// what was given up.
    ///
    /// # Errors
    /// If that cannot be written.
    pub async fn release_orphans(
        self: &Arc<Self>,
        used: &ClaimsInUse,
    ) -> Result<Vec<Arc<PreparedClaim>>, String> {
        let ledger = self.ledger();
        let mut gone = BTreeSet::new();
        let is_asked = |claim: &&PreparedClaim| !claim.is_recovered() && !used.contains(&claim.uid);
        for claim in ledger.claims().filter(is_asked) {
            let is_gone = match timeout(READ_LIMIT, self.source().read(&named(claim))).await {
                Ok(Ok(object)) => !claim.is_allocated_in(&object, (self.name(), ledger.node())),
                Ok(Err(unread)) if unread.is_gone() => true,
                // The others cannot be asked either.
                Ok(Err(_)) | Err(_) => break,
            };
            if is_gone {
                gone.insert(claim.uid.clone());
            }
        }
        let used = used.clone();
        let evidence = move |claim: &PreparedClaim| OrphanEvidence {
            has_container: used.by_containers.contains(&claim.uid),
            is_held_by_kubelet: used.by_kubelet.contains(&claim.uid),
            is_gone_from_api: gone.contains(&claim.uid),
        };
        self.decision(None, move |driver| driver.give_up_orphans(evidence)).await.flatten()
    }

    /// The claims of the ledger that this text of the kubelet names.
    pub(super) fn named_in(&self, text: &str) -> BTreeSet<ClaimUid> {
        let state = self.state();
        let named = state.ledger.claims().filter(|claim| text.contains(claim.uid.as_str()));
        named.map(|claim| claim.uid.clone()).collect()
    }

    /// The decision, and its writes: the state file first, for a file without a claim gives nothing.
    fn give_up_orphans(
        &self,
        evidence: impl Fn(&PreparedClaim) -> OrphanEvidence,
    ) -> Result<Vec<Arc<PreparedClaim>>, String> {
        let supply = self.newest_supply();
        let mut next = self.state().ledger.clone();
        let released = next.release_orphans(self.age().as_secs(), evidence);
        if released.is_empty() {
            // Since when a claim is unused is in the ledger, and not on disk.
            self.state().ledger = next;
            return Ok(released);
        }
        next.settle(&supply);
        if let Err(error) = self.store().write(&next) {
            self.state().is_unwritten = true;
            return Err(error.to_string());
        }
        // Also the files of claims that have got CPUs now; what fails is caught up with.
        let is_unwritten = self.store().tidy(&next).is_err();
        self.places().hold_all(&next, &supply);
        {
            let mut state = self.state();
            state.is_unwritten = is_unwritten;
            state.ledger = next;
        }
        self.tell();
        Ok(released)
    }
}
