//! Leases of daemons, and when each was last seen to be renewed.
//!
//! Problem: a daemon writes the time of a renewal by the clock of its node. Compared with another clock, the
//! lease of a node whose clock is slow has always expired, and that of one whose clock is fast counts long
//! after its daemon has ended. Idea: as in an election, what counts is the time here since a renewal was
//! seen.
//!
//! Invariant: a renewal that a list shows may be as old as it says, so until the next one both clocks count.

use std::collections::BTreeMap;

use crate::cluster::{objects::LeaseObject, view::Millis};

/// Leases by namespace and node.
#[derive(Debug, Default)]
pub(super) struct KnownLeases(BTreeMap<(String, String), KnownLease>);

#[derive(Debug)]
struct KnownLease {
    /// With the time of its renewal by the clock of the API server.
    object: LeaseObject,
    /// The same by the clock of its node.
    written: Option<i64>,
    seen_at: Millis,
    /// Whether the renewal was told when it was made.
    is_told: bool,
}

impl KnownLeases {
    /// Takes a lease, as an item of a list or as an event.
    pub(super) fn observe(&mut self, lease: LeaseObject, is_listed: bool, now: Millis) {
        let key = (lease.namespace.clone(), lease.node.clone());
        let written = lease.renewed_at;
        match self.0.get_mut(&key) {
            Some(known) if known.written == written => known.object.duration_s = lease.duration_s,
            _ => {
                let known = KnownLease { object: lease, written, seen_at: now, is_told: !is_listed };
                self.0.insert(key, known);
            }
        }
    }

    pub(super) fn forget(&mut self, namespace: &str, node: &str) {
        self.0.remove(&(namespace.to_owned(), node.to_owned()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, renewed by the clock of the API server, which says `server_now`.
    pub(super) fn by_server(&mut self, now: Millis, server_now: i64) -> impl Iterator<Item = &LeaseObject> {
        for known in self.0.values_mut() {
            let age = now.saturating_sub(known.seen_at) / 1_000;
            let seen = server_now.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX));
            known.object.renewed_at =
                known.written.map(|written| if known.is_told { seen } else { seen.min(written) });
        }
        self.0.values().map(|known| &known.object)
    }
}
