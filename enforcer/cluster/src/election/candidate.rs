//! What a candidate does about the lease that it reads, and until when it leads: without time, I/O or HTTP.

use std::time::Duration;

/// Times of an election. The holder ends its term before any other candidate may take the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTiming {
    duration: Duration,
}

impl Default for LeaseTiming {
    /// Those of client-go: 15 s, 10 s, 2 s.
    fn default() -> Self {
        Self::of(Duration::from_secs(15))
    }
}

impl LeaseTiming {
    /// In the proportions of client-go. A lease has whole seconds, and one at least.
    pub const fn of(duration: Duration) -> Self {
        let seconds = if duration.as_secs() == 0 { 1 } else { duration.as_secs() };
        Self { duration: Duration::from_secs(seconds) }
    }

    /// Time without a change of the record after which another candidate may take the lease.
    pub const fn duration(self) -> Duration {
        self.duration
    }

    /// Time after the beginning of the latest renewal that succeeded, at which the term ends.
    pub(super) fn renew_deadline(self) -> Duration {
        self.duration.saturating_mul(2) / 3
    }

    /// Time between two rounds.
    pub(super) fn retry(self) -> Duration {
        self.duration.saturating_mul(2) / 15
    }

    /// Longest wait for one answer: a term survives an answer that does not come.
    pub(super) fn call_limit(self) -> Duration {
        self.renew_deadline() / 2
    }
}

/// What candidates compare of a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// Identity of the holder; empty if it was released.
    pub(super) holder: String,
    /// Zero if the record has none.
    pub(super) duration: Duration,
    pub(super) transitions: i64,
    /// Times as the holder wrote them: compared for equality alone, because clocks differ.
    pub(super) acquired: String,
    pub(super) renewed: String,
}

/// What comes after a look at the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// There is no lease: create it.
    Create,
    /// It is the candidate's own: write the time.
    Renew,
    /// It is free: write the candidate's identity.
    Take,
    /// Another one holds it.
    Wait,
}

/// A time in which the candidate leads; both ends count from the same start of any choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LocalTerm {
    pub(super) since: Duration,
    pub(super) until: Duration,
}

/// One of several that want a lease.
///
/// Invariant: the term ends [`LeaseTiming::renew_deadline`] after the *sending* of the latest write that
/// succeeded. The others wait for the duration of the lease, from when they *saw* that write: later than it
/// was sent, and longer. So clocks need not agree, only run equally fast within a third.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    timing: LeaseTiming,
    /// The record of another one, and when it was last seen to change.
    seen: Option<(LeaseRecord, Duration)>,
    term: Option<LocalTerm>,
}

impl Candidate {
    pub(super) fn new(identity: String, timing: LeaseTiming) -> Self {
        Self { identity, timing, seen: None, term: None }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn timing(&self) -> LeaseTiming {
        self.timing
    }

    /// The term of now.
    pub(super) fn term(&self, now: Duration) -> Option<LocalTerm> {
        self.term.filter(|term| now < term.until)
    }

    /// What to do about the lease; `None` if there is none.
    pub(super) fn look(&mut self, lease: Option<&LeaseRecord>, now: Duration) -> LeaseStep {
        let Some(lease) = lease else {
            // It was deleted: its holder does not know that yet.
            self.term = None;
            return if self.holds_another(now) { LeaseStep::Wait } else { LeaseStep::Create };
        };
        if lease.holder == self.identity {
            self.seen = None;
            return LeaseStep::Renew;
        }
        // Another process may lead from now on.
        self.term = None;
        if self.seen.as_ref().is_none_or(|(seen, _)| seen != lease) {
            self.seen = Some((lease.clone(), now));
        }
        if self.holds_another(now) { LeaseStep::Wait } else { LeaseStep::Take }
    }

    /// Whether the record that was seen counts still.
    fn holds_another(&self, now: Duration) -> bool {
        self.seen.as_ref().is_some_and(|(lease, changed)| {
            let told = if lease.duration.is_zero() { self.timing.duration } else { lease.duration };
            !lease.holder.is_empty() && now < changed.saturating_add(told)
        })
    }

    /// What to write in place of `old`, at a time in words.
    pub(super) fn record(&self, step: LeaseStep, old: Option<&LeaseRecord>, time: String) -> LeaseRecord {
        let old = old.cloned().unwrap_or_default();
        let (acquired, transitions) = match step {
            LeaseStep::Renew | LeaseStep::Wait => (old.acquired, old.transitions),
            LeaseStep::Take => (time.clone(), old.transitions.saturating_add(1)),
            LeaseStep::Create => (time.clone(), 0),
        };
        let (holder, duration) = (self.identity.clone(), self.timing.duration);
        LeaseRecord { holder, duration, transitions, acquired, renewed: time }
    }

    /// Notes that a write succeeded, which was sent then and answered now.
    pub(super) fn note_written(&mut self, sent: Duration, now: Duration) {
        let since = self.term(now).map_or(now, |term| term.since);
        self.term = Some(LocalTerm { since, until: sent.saturating_add(self.timing.renew_deadline()) });
    }

    /// Ends the term: nothing may be done as the leader from now on.
    pub(super) fn end_term(&mut self) {
        self.term = None;
    }
}

impl LeaseRecord {
    /// What the holder of this record writes in its place, so that another one need not wait.
    pub(super) fn released(&self, time: String) -> Self {
        Self {
            holder: String::new(),
            duration: Duration::from_secs(1),
            transitions: self.transitions,
            acquired: time.clone(),
            renewed: time,
        }
    }
}
