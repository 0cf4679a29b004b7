//! Calls that prepare claims, each until it is answered: giving a claim up ends those of it.
//!
//! Problem: a call may wait for long, and the kubelet gives the claim up meanwhile, because its pod is gone.
//! A call that goes on would take CPUs that nothing ever gives back. Invariant: a claim that is given up ends
//! all calls that began before; with the lock of decisions held, none of them decides afterwards.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use enforcer_core::dra::ClaimUid;
use tokio::sync::watch;

/// All running calls, by claim.
#[derive(Debug, Default)]
pub(super) struct RunningCalls(Mutex<BTreeMap<ClaimUid, watch::Sender<bool>>>);

/// One running call.
#[derive(Debug)]
pub(super) struct RunningCall<'a> {
    all: &'a RunningCalls,
    uid: ClaimUid,
    is_given_up: watch::Receiver<bool>,
}

/// Whether the claim of a call was given up, for a decision that outlives the call.
#[derive(Debug)]
pub(super) struct CallEnd(watch::Receiver<bool>);

impl CallEnd {
    /// Whether it was.
    pub(super) fn is_given_up(&self) -> bool {
        *self.0.borrow()
    }
}

impl RunningCalls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ClaimUid, watch::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call, until the value is dropped.
    pub(super) fn begin(&self, uid: &ClaimUid) -> RunningCall<'_> {
        let mut running = self.lock();
        let of_claim = running.entry(uid.clone()).or_insert_with(|| watch::Sender::new(false));
        RunningCall { all: self, uid: uid.clone(), is_given_up: of_claim.subscribe() }
    }

    /// Ends the calls of this claim that run.
    pub(super) fn give_up(&self, uid: &ClaimUid) {
        let ended = self.lock().remove(uid);
        if let Some(calls) = ended {
            calls.send_replace(true);
        }
    }
}

impl RunningCall<'_> {
    /// Whether its claim was given up.
    pub(super) fn is_given_up(&self) -> bool {
        *self.is_given_up.borrow()
    }

    /// The same for later.
    pub(super) fn end(&self) -> CallEnd {
        CallEnd(self.is_given_up.clone())
    }

    /// Waits until its claim is given up.
    pub(super) async fn given_up(&self) {
        let mut is_given_up = self.is_given_up.clone();
        // The sender is there until the claim is given up, or this call ends.
        let _ended = is_given_up.wait_for(|is_given_up| *is_given_up).await;
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        let mut running = self.all.lock();
        // After it was given up, an entry of the claim is of later calls.
        let is_own = !self.is_given_up();
        let is_last = running.get(&self.uid).is_some_and(|calls| calls.receiver_count() == 1);
        if is_own && is_last {
            running.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_ends_calls_that_began_before_and_nothing_is_kept() {
        let calls = RunningCalls::default();
        let [a, b] = ["a", "b"].map(|uid| ClaimUid::parse(uid).unwrap());
        let (first, second, other) = (calls.begin(&a), calls.begin(&a), calls.begin(&b));
        calls.give_up(&a);
        let later = calls.begin(&a);
        assert_eq!(
            [&first, &second, &other, &later].map(RunningCall::is_given_up),
            [true, true, false, false]
        );
        drop((first, second));
        calls.give_up(&a);
        assert!(later.is_given_up(), "an ended call takes no later one away");
        drop((later, other, calls.begin(&a)));
        assert!(calls.lock().is_empty());
        calls.give_up(&a);
    }
}
