//! Gives up claims: their files go first, then they leave the ledger on disk and in memory.

use std::sync::Arc;

use enforcer_core::dra::ClaimUid;
use enforcer_runtime::dra::KubeletClaim;
use tokio::time::Instant;

use super::{ClaimDriver, LIMIT, shown};

/// A claim that is being given up, until this is dropped.
struct EndingClaim {
    driver: Arc<ClaimDriver>,
    uid: ClaimUid,
}

impl Drop for EndingClaim {
    fn drop(&mut self) {
        self.driver.state().ending.remove(&self.uid);
    }
}

impl ClaimDriver {
    /// Gives up a claim, which may be unknown.
    ///
    /// # Errors
    /// If that cannot be written.
    pub async fn unprepare(self: &Arc<Self>, claim: KubeletClaim) -> Result<(), String> {
        let answer = self.unprepare_claim(&claim).await;
        self.tally.count_unprepare(answer.is_ok());
        answer
    }

    async fn unprepare_claim(self: &Arc<Self>, claim: &KubeletClaim) -> Result<(), String> {
        let until = Instant::now() + LIMIT;
        // A uid that is none was never prepared.
        let Some(uid) = ClaimUid::parse(&claim.uid) else { return Ok(()) };
        self.state().ending.insert(uid.clone());
        let ending = EndingClaim { driver: Arc::clone(self), uid };
        let given_up = self.decision(Some(until), move |driver| {
            let given_up = driver.give_up(&ending.uid);
            drop(ending);
            given_up
        });
        given_up.await.map_err(|reason| format!("claim {}: {reason}", shown(claim)))?
    }

    fn give_up(&self, uid: &ClaimUid) -> Result<(), String> {
        self.running.give_up(uid);
        let supply = self.newest_supply();
        let mut next = self.state().ledger.clone();
        if next.unprepare(uid).is_none() {
            // The disk may still have it.
            return self.catch_up(&next);
        }
        let repairs = next.settle(&supply);
        let removed = self.store.remove(uid).and_then(|()| self.store.write(&next));
        if let Err(error) = removed {
            self.state().is_unwritten = true;
            return Err(error.to_string());
        }
        self.places.hold_all(&next, &supply);
        {
            let mut state = self.state();
            // The variables of a claim are hints, so old ones do no harm meanwhile.
            state.is_unwritten |= !repairs.is_empty();
            state.ledger = next;
        }
        self.tell();
        Ok(())
    }
}
