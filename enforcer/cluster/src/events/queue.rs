//! Writes of events that wait for their next try.
//!
//! Invariants: a newer write of a series replaces one that failed, which would lower its count. A write
//! that failed waits, and with it the others of its namespace; writes of other namespaces come first. One
//! namespace holds at most [`MOST_OF_NAMESPACE`] places.

use std::time::Duration;

use enforcer_core::cluster::events::EventCall;
use tokio::time::Instant;

use super::{EventRetries, namespace_of};
use crate::backoff::Backoff;

/// Most writes that wait.
const MOST_PENDING: usize = 64;
/// Most writes of a namespace that wait once one of them has failed.
const MOST_OF_NAMESPACE: usize = 16;

/// A write and its next try.
#[derive(Debug)]
pub(super) struct PendingCall {
    pub(super) call: EventCall,
    /// Tries that failed.
    pub(super) tries: u32,
    backoff: Backoff,
    due: Instant,
}

/// Writes in the order in which they came.
#[derive(Debug)]
pub(super) struct EventQueue {
    retries: EventRetries,
    pending: Vec<PendingCall>,
    /// No write is due before this, because the server was away or asked for time.
    not_before: Option<Instant>,
}

impl EventQueue {
    pub(super) const fn new(retries: EventRetries) -> Self {
        Self { retries, pending: Vec::new(), not_before: None }
    }

    pub(super) const fn has_room(&self) -> bool {
        self.pending.len() < MOST_PENDING
    }

    /// Adds a write, in the place of one of its series that failed.
    pub(super) fn push(&mut self, mut call: EventCall, now: Instant) {
        let is_older = |one: &&mut PendingCall| one.tries > 0 && one.call.serial == call.serial;
        if let Some(older) = self.pending.iter_mut().find(is_older) {
            call.told = call.told.min(older.call.told);
            older.call = call;
            return;
        }
        let namespace = namespace_of(&call.event.object);
        let failing = self.pending.iter().filter(|one| one.tries > 0 && one.is_in(namespace));
        let due = failing.map(|one| one.due).max().map_or(now, |due| due.max(now));
        let backoff = Backoff::new(self.retries.backoff);
        self.pending.push(PendingCall { call, tries: 0, backoff, due });
    }

    /// The write to try now: of those that are due, one that has failed least often.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<PendingCall> {
        if self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        let due = self.pending.iter().enumerate().filter(|(_, one)| one.due <= now);
        let (index, _) = due.min_by_key(|(_, one)| (one.tries, one.due))?;
        Some(self.pending.remove(index))
    }

    /// When the next write is due. `None` without any.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = self.pending.iter().map(|one| one.due).min()?;
        Some(self.not_before.map_or(due, |at| at.max(due)))
    }

    /// Lets a write that failed wait, at least for `asked`, and with it its namespace, or all if
    /// `is_of_server`. The write that gets no other try: after the last one, or without a place.
    pub(super) fn put_back(
        &mut self,
        mut failed: PendingCall,
        now: Instant,
        asked: Duration,
        is_of_server: bool,
        is_last: bool,
    ) -> Option<EventCall> {
        let due = now + failed.backoff.next_wait().max(asked);
        if is_of_server {
            self.not_before = Some(due);
        }
        let namespace = namespace_of(&failed.call.event.object).to_owned();
        let mut others = 0;
        for one in self.pending.iter_mut().filter(|one| one.is_in(&namespace)) {
            one.due = one.due.max(due);
            others += 1;
        }
        if let Some(newer) = self.pending.iter_mut().find(|one| one.call.serial == failed.call.serial) {
            newer.call.told = newer.call.told.min(failed.call.told);
            return None;
        }
        if is_last || others >= MOST_OF_NAMESPACE || !self.has_room() {
            return Some(failed.call);
        }
        failed.due = due;
        self.pending.push(failed);
        None
    }
}

impl PendingCall {
    fn is_in(&self, namespace: &str) -> bool {
        namespace_of(&self.call.event.object) == namespace
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::cluster::events::{EventObject, EventReason, NodeEvent};

    use super::*;

    fn call(namespace: &str, serial: u64, count: u32) -> EventCall {
        let [namespace, name, uid] = [namespace, "web", "u"].map(str::to_owned);
        let event =
            NodeEvent::new(EventObject::Pod { namespace, name, uid }, EventReason::NumaMisaligned, "");
        EventCall { serial, event, first_ns: 0, count, told: count - 1, last_ns: 0 }
    }

    fn serial(pending: Option<PendingCall>) -> Option<u64> {
        pending.map(|one| one.call.serial)
    }

    const SECOND: Duration = Duration::from_secs(1);

    fn fail(queue: &mut EventQueue, now: Instant, is_of_server: bool) -> Option<EventCall> {
        let mut failed = queue.take_due(now)?;
        failed.tries += 1;
        queue.put_back(failed, now, Duration::ZERO, is_of_server, false)
    }

    #[test]
    fn failed_write_waits_with_its_namespace_and_no_other() {
        let (mut queue, now) = (EventQueue::new(EventRetries::default()), Instant::now());
        queue.push(call("slow", 1, 1), now);
        queue.push(call("slow", 2, 1), now);
        queue.push(call("shop", 3, 1), now);
        assert_eq!(fail(&mut queue, now, false), None);
        queue.push(call("slow", 4, 1), now);
        assert_eq!(serial(queue.take_due(now)), Some(3));
        assert_eq!(serial(queue.take_due(now)), None);
        assert_eq!(queue.next_due(), Some(now + SECOND));
        let order: Vec<_> = (0..3).filter_map(|_| serial(queue.take_due(now + SECOND))).collect();
        assert_eq!(order, [2, 4, 1], "one that has not failed comes first");
    }

    #[test]
    fn server_that_is_away_is_asked_by_no_write() {
        let (mut queue, now) = (EventQueue::new(EventRetries::default()), Instant::now());
        queue.push(call("shop", 1, 1), now);
        queue.push(call("home", 2, 1), now);
        assert_eq!(fail(&mut queue, now, true), None);
        assert_eq!(serial(queue.take_due(now)), None);
        assert_eq!(serial(queue.take_due(now + SECOND)), Some(2));
    }

    #[test]
    fn newest_write_of_a_series_stands_for_all() {
        let (mut queue, now) = (EventQueue::new(EventRetries::default()), Instant::now());
        queue.push(call("shop", 1, 1), now);
        queue.push(call("shop", 1, 2), now);
        assert_eq!(fail(&mut queue, now, false), None, "the second tells of both");
        assert_eq!(fail(&mut queue, now + SECOND, false), None);
        queue.push(call("shop", 1, 3), now + SECOND);
        let newest = queue.take_due(now + SECOND * 3).unwrap();
        assert_eq!((newest.call.count, newest.call.told), (3, 0));
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn namespace_that_fails_leaves_places_to_others() {
        let (mut queue, now) = (EventQueue::new(EventRetries::default()), Instant::now());
        (0..17).for_each(|serial| queue.push(call("slow", serial, 1), now));
        assert_eq!(fail(&mut queue, now, false).map(|call| call.serial), Some(0), "16 others wait");
        assert_eq!(fail(&mut queue, now + SECOND, false), None);
    }
}
