//! What has to hold so that a lease says that its state is true.
//!
//! Problem: readers believe a state as long as the lease beside it is renewed. A daemon that can renew its
//! lease may be unable to read its node, or to write what it has read.
//!
//! Invariants: [`LeaseConditions::check`] passes only if this daemon has written a state, has looked at
//! its node within [`LONGEST_LOOK`], no newer state has waited longer than [`LONGEST_WAIT`], and the
//! server did not refuse the last one.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Longest time since the last complete look at the node: six of the observer's intervals.
const LONGEST_LOOK: Duration = Duration::from_secs(30);
/// Longest time that a newer state waits to be written.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Shared by the observer of a node, its publisher and the renewal of its lease.
#[derive(Debug)]
pub struct LeaseConditions(Mutex<Conditions>);

#[derive(Debug)]
struct Conditions {
    looked_at: Instant,
    /// The server has had a state of this daemon.
    has_written: bool,
    /// Since when a newer state waits.
    waits_since: Option<Instant>,
    /// Why the server refused the last one.
    refusal: Option<String>,
}

/// Why a lease is not renewed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unrenewable {
    /// The daemon has only started.
    NotYet,
    /// For this reason.
    Fault(String),
}

impl Default for LeaseConditions {
    fn default() -> Self {
        Self(Mutex::new(Conditions {
            looked_at: Instant::now(),
            has_written: false,
            waits_since: None,
            refusal: None,
        }))
    }
}

impl LeaseConditions {
    /// Notes that the node was read as a whole, and its state handed over.
    pub fn note_look(&self) {
        self.conditions().looked_at = Instant::now();
    }

    pub(super) fn note_waiting(&self, since: Option<Instant>) {
        self.conditions().waits_since = since;
    }

    pub(super) fn note_written(&self) {
        let mut now = self.conditions();
        (now.has_written, now.refusal) = (true, None);
    }

    pub(super) fn note_refused(&self, reason: String) {
        self.conditions().refusal = Some(reason);
    }

    /// Whether the lease may be renewed at this time.
    pub(super) fn check(&self, now: Instant) -> Result<(), Unrenewable> {
        let Conditions { looked_at, has_written, waits_since, refusal } = &*self.conditions();
        let fault = |reason| Err(Unrenewable::Fault(reason));
        if let Some(refusal) = refusal {
            return fault(format!("not renewed, because the last state was refused: {refusal}"));
        }
        let unread = now.saturating_duration_since(*looked_at);
        if unread > LONGEST_LOOK {
            let seconds = unread.as_secs();
            return fault(format!("not renewed, because the node was last read {seconds} s ago"));
        }
        let waited = waits_since.map(|since| now.saturating_duration_since(since)).unwrap_or_default();
        if waited > LONGEST_WAIT {
            let seconds = waited.as_secs();
            return fault(format!("not renewed, because a newer state has waited for {seconds} s"));
        }
        if *has_written { Ok(()) } else { Err(Unrenewable::NotYet) }
    }

    fn conditions(&self) -> MutexGuard<'_, Conditions> {
        // Each field is whole after every update.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_is_renewed_only_while_its_state_is_true() {
        let conditions = LeaseConditions::default();
        let start = Instant::now();
        let after = |seconds| conditions.check(start + Duration::from_secs(seconds));
        let reason = |checked: Result<(), Unrenewable>| match checked {
            Err(Unrenewable::Fault(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert_eq!(after(0), Err(Unrenewable::NotYet), "the state there is that of an earlier daemon");
        conditions.note_written();
        assert_eq!(after(29), Ok(()));
        assert!(reason(after(40)).contains("last read"), "{:?}", after(40));
        conditions.note_waiting(start.checked_sub(Duration::from_secs(25)));
        assert_eq!(after(1), Ok(()));
        assert!(reason(after(7)).contains("has waited for"), "{:?}", after(7));
        conditions.note_waiting(None);
        conditions.note_refused("422".into());
        assert!(reason(after(1)).ends_with("refused: 422"), "{:?}", after(1));
        conditions.note_written();
        assert_eq!(after(1), Ok(()));
    }
}
