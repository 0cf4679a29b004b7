//! Attempts of a scheduler to place a pod, with the reservation of the last one.
//!
//! Invariants: the latest call for a pod counts, whichever is computed last. A reservation ends by the next
//! call for its pod, by what becomes of the pod, or by time. Nothing else shows the end of an attempt: the
//! condition `PodScheduled` keeps its first time, and events are folded into series (scheduler.md 2.4 of the
//! specification).

use std::collections::BTreeMap;

use numa_placement::PodRequest;

use crate::cluster::view::Millis;

/// How long an attempt is remembered: longer than any scheduler binds, with 600 s for volumes.
const REMEMBERED: Millis = 1_200_000;

/// The latest attempt for a pod.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Number of the call.
    number: u64,
    pub(super) request: PodRequest,
    reservation: Option<Reservation>,
    begun: Millis,
}

/// A tentative place.
#[derive(Debug)]
struct Reservation {
    node: String,
    until: Millis,
}

/// The latest attempts by uid of the pod.
#[derive(Debug, Default)]
pub(super) struct Attempts(BTreeMap<String, Attempt>);

impl Attempts {
    /// Notes a call, whose pod has no reservation any more.
    pub(super) fn begin(&mut self, uid: &str, number: u64, request: &PodRequest, now: Millis) {
        let attempt = Attempt { number, request: request.clone(), reservation: None, begun: now };
        self.0.insert(uid.to_owned(), attempt);
    }

    /// Was a later call accepted?
    pub(super) fn is_overtaken(&self, uid: &str, number: u64) -> bool {
        self.0.get(uid).is_some_and(|latest| latest.number > number)
    }

    /// Is this the call of the latest attempt?
    pub(super) fn is_latest(&self, uid: &str, number: u64) -> bool {
        self.0.get(uid).is_some_and(|latest| latest.number == number)
    }

    /// Notes a reservation of the latest attempt.
    pub(super) fn reserve(&mut self, uid: &str, node: &str, until: Millis) {
        if let Some(attempt) = self.0.get_mut(uid) {
            attempt.reservation = Some(Reservation { node: node.to_owned(), until });
        }
    }

    /// Pods with an attempt that began before this time.
    pub(super) fn begun_before(&self, time: Millis) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |(_, attempt)| attempt.begun < time).map(|(uid, _)| uid)
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Attempt> {
        self.0.get(uid)
    }

    /// Node of the reservation of a pod.
    pub(super) fn node_of(&self, uid: &str) -> Option<&str> {
        Some(&self.0.get(uid)?.reservation.as_ref()?.node)
    }

    /// Has the pod a reservation on this node that no time ends?
    pub(super) fn is_held(&self, uid: &str, node: &str) -> bool {
        let reservation = self.0.get(uid).and_then(|attempt| attempt.reservation.as_ref());
        reservation.is_some_and(|one| one.node == node && one.until == Millis::MAX)
    }

    /// Ends the reservation of a pod; returns its node.
    pub(super) fn release(&mut self, uid: &str) -> Option<String> {
        self.0.get_mut(uid)?.reservation.take().map(|reservation| reservation.node)
    }

    /// Forgets a pod that needs no attempt any more.
    pub(super) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Pods whose reservation has ended by time; attempts that are too old are forgotten.
    pub(super) fn expired(&mut self, now: Millis) -> Vec<String> {
        self.0.retain(|_, attempt| {
            attempt.reservation.is_some() || now.saturating_sub(attempt.begun) < REMEMBERED
        });
        let is_over = |attempt: &Attempt| attempt.reservation.as_ref().is_some_and(|one| one.until <= now);
        self.0.iter().filter(|(_, attempt)| is_over(attempt)).map(|(uid, _)| uid.clone()).collect()
    }

    pub(super) fn reservations(&self) -> usize {
        self.0.values().filter(|attempt| attempt.reservation.is_some()).count()
    }
}
