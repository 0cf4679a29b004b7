//! What the extender has done, for scrapes and for the log.
//!
//! Invariants: what the extender counts is taken once, added to the totals here, and named in the log. A lock
//! is held for adding alone.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use enforcer_cluster::{EventTally, extender::SharedExtender};
use enforcer_core::cluster::extender::{AnswerCounts, ExtenderTally};
use enforcer_report::metrics::{GateReport, SchedulerReport, VerbCalls, WatchedCollection};
use numa_topology::degraded::Degraded;
use tokio::{
    sync::watch::{self, Receiver},
    time::Instant,
};

use super::{Readiness, service::Unanswered};
use crate::version;

/// Time after a call for which this extender is the one that kube-scheduler asks. Another replica sees the
/// pods of that one come without a call.
const ASKED: Duration = Duration::from_mins(10);
/// Names of what is watched, in the order of the faults.
const COLLECTIONS: [&str; 4] = ["nodes", "states", "pods", "leases"];

/// A verb of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Filter,
    Prioritize,
    Bind,
}

/// What is counted, and where the rest of a scrape is looked up.
pub(super) struct Figures {
    pub(super) shared: Arc<SharedExtender>,
    pub(super) readiness: Arc<Readiness>,
    /// Why the API server tells of no changes, of nodes, states, pods and leases.
    faults: [Receiver<Option<Degraded>>; 4],
    events: EventFigures,
    /// What else cannot be done: elect, wake the scheduler.
    beside: Vec<Receiver<Option<Degraded>>>,
    /// Why certificates of now cannot be used.
    certificates: Receiver<Option<Degraded>>,
    totals: Mutex<Totals>,
}

/// Results of events.
pub(super) struct EventFigures {
    pub(super) tally: Arc<EventTally>,
    /// Why the API server takes none.
    pub(super) unwritten: Receiver<Option<Degraded>>,
}

/// Counts since the start.
#[derive(Default)]
struct Totals {
    calls: [VerbCalls; 3],
    /// When the last one was answered.
    last_call: Option<Instant>,
    filtered: AnswerCounts,
    bound: AnswerCounts,
    foreign: u64,
    as_predicted: u64,
    unchecked: u64,
    mispredicted: u64,
}

impl Figures {
    pub(super) fn new(
        shared: Arc<SharedExtender>,
        readiness: Arc<Readiness>,
        faults: [Receiver<Option<Degraded>>; 4],
        events: EventFigures,
        beside: Vec<Receiver<Option<Degraded>>>,
    ) -> Self {
        let certificates = watch::Sender::new(None).subscribe();
        Self { shared, readiness, faults, events, beside, certificates, totals: Mutex::default() }
    }

    /// Reports as well why certificates of now cannot be used.
    pub(super) fn with_certificates(self, certificates: Receiver<Option<Degraded>>) -> Self {
        Self { certificates, ..self }
    }

    /// Counts an answered call.
    pub(super) fn note_answer(&self, verb: Verb, took: Duration) {
        let mut totals = self.totals();
        totals.last_call = Some(Instant::now());
        if let Some(calls) = totals.calls.get_mut(verb as usize) {
            calls.answered.note(took);
        }
    }

    /// Counts a call without an answer.
    pub(super) fn note_unanswered(&self, verb: Verb, why: &Unanswered) {
        let mut totals = self.totals();
        let Some(calls) = totals.calls.get_mut(verb as usize) else { return };
        let count = match why {
            Unanswered::NotReady(_) | Unanswered::Follows(_) => &mut calls.not_ready,
            Unanswered::Faulty(_) | Unanswered::Unread(_) | Unanswered::TooSlow => &mut calls.faulty,
            Unanswered::TooMany => &mut calls.too_many,
        };
        *count = count.saturating_add(1);
    }

    /// Why the API server tells of no changes, by collection.
    pub(super) fn faults(&self) -> [Option<Degraded>; 4] {
        self.faults.each_ref().map(|fault| fault.borrow().clone())
    }

    /// The same, why it takes no events, and what else is missing; always as many.
    pub(super) fn all_faults(&self) -> Vec<Option<Degraded>> {
        let beside = [&self.events.unwritten, &self.certificates].into_iter().chain(&self.beside);
        self.faults().into_iter().chain(beside.map(|fault| fault.borrow().clone())).collect()
    }

    /// Adds what has happened since the last look, and names in the log what a person should know.
    pub(super) fn look(&self) {
        let tally = self.shared.lock().take_tally();
        let ExtenderTally { foreign, mispredicted, .. } = self.totals().add(tally, Instant::now());
        if foreign > 0 {
            tracing::warn!("{foreign} pods with CPUs, memory or devices of their own came without a call");
        }
        for pod in mispredicted {
            tracing::warn!("pod {pod} is not where it was predicted to be; its node is unknown for 60 s");
        }
    }

    /// All figures as they are now.
    pub(super) fn report(&self) -> SchedulerReport {
        self.look();
        let nodes = self.shared.node_counts();
        let extender = self.shared.lock();
        let (reservations, claims) = (extender.reservations(), extender.claims());
        let unsettled_claims = extender.unsettled_claims();
        drop(extender);
        let mut collections = COLLECTIONS.map(|name| (name, WatchedCollection::default()));
        let watched = self.faults().into_iter().zip(self.shared.change_ages());
        for ((_, collection), (fault, changed)) in collections.iter_mut().zip(watched) {
            *collection = WatchedCollection { is_degraded: fault.is_some(), changed };
        }
        let totals = self.totals();
        SchedulerReport {
            version: version::VERSION,
            commit: version::COMMIT,
            ready: self.readiness.obstacle().is_none(),
            leads: self.readiness.follows().is_none(),
            calls: totals.calls.clone(),
            filtered: totals.filtered,
            bound: totals.bound,
            bind_ends: self.shared.bind_ends().collect(),
            reservations,
            claims,
            unsettled_claims,
            foreign: totals.foreign,
            predictions: [
                ("right", totals.as_predicted),
                ("wrong", totals.mispredicted),
                ("unchecked", totals.unchecked),
            ],
            nodes,
            collections,
            gate: self.gate(),
            certificates_unusable: self.certificates.borrow().is_some(),
            events: [("written", &self.events.tally.written), ("dropped", &self.events.tally.dropped)]
                .map(|(result, number)| (result, number.load(Ordering::Relaxed))),
        }
    }

    fn gate(&self) -> Option<GateReport> {
        let gate = self.shared.gate()?;
        Some(GateReport {
            is_active: gate.is_active(),
            pods: gate.counts(),
            ends: gate.ends().collect(),
            late: gate.late(),
        })
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Totals {
    /// Adds what has happened; returns what of it counts.
    fn add(&mut self, mut tally: ExtenderTally, now: Instant) -> ExtenderTally {
        let is_asked = self.last_call.is_some_and(|last| now.saturating_duration_since(last) < ASKED);
        tally.foreign = if is_asked { tally.foreign } else { 0 };
        self.filtered.add_all(&tally.filtered);
        self.bound.add_all(&tally.bound);
        self.foreign += tally.foreign;
        self.as_predicted += tally.as_predicted;
        self.unchecked += tally.unchecked;
        self.mispredicted += tally.mispredicted.len() as u64;
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_that_is_not_asked_counts_no_pods_of_the_other_one() {
        let (mut totals, now) = (Totals::default(), Instant::now());
        let tally = ExtenderTally { foreign: 3, as_predicted: 1, ..ExtenderTally::default() };
        assert_eq!(totals.add(tally.clone(), now).foreign, 0, "no call was ever answered");
        totals.last_call = Some(now);
        assert_eq!(totals.add(tally.clone(), now).foreign, 3);
        assert_eq!(totals.add(tally.clone(), now + ASKED).foreign, 0);
        assert_eq!((totals.foreign, totals.as_predicted), (3, 3));
    }
}
