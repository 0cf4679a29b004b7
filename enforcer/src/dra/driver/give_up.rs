//! Gives up claims: their files go first, then they leave the ledger in memory and on disk.
//!
//! A full disk keeps no claim: the kubelet asks only when no container of it runs, and its pod would never
//! end. What the disk still has is caught up with; a daemon that starts before that finds a claim that
//! nothing needs, and gives it up as an orphan.

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
    /// If earlier decisions are not written in time.
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
            driver.give_up(&ending.uid);
            drop(ending);
        });
        given_up.await.map_err(|reason| format!("claim {}: {reason}", shown(claim)))
    }

    fn give_up(&self, uid: &ClaimUid) {
        self.running.give_up(uid);
        let mut next = self.ledger();
        let unwritten = if next.unprepare(uid).is_some() {
            let removed = self.store.remove(uid);
            let is_repaired = self.settle_and_hold(&mut next);
            let written = removed.and_then(|()| self.store.write(&next));
            {
                let mut state = self.state();
                // The variables of a claim are hints, so old ones do no harm meanwhile.
                state.is_unwritten |= is_repaired || written.is_err();
                state.ledger = next;
            }
            self.tell();
            written.err().map(|error| error.to_string())
        } else {
            // The disk may still have it.
            self.catch_up(&next).err()
        };
        if let Some(error) = unwritten {
            tracing::warn!("claim {uid} is given up, and its files are not up to date: {error}");
        }
    }
}
