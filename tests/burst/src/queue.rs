//! kube-scheduler's queue of pods (`pkg/scheduler/backend/queue`).
//!
//! A pod without a node waits until an event may help it, and then out its backoff; with nothing else to do,
//! the scheduler takes pods out of their backoff at once (`SchedulerPopFromBackoffQ`, since 1.33). A pod
//! whose attempt ended with an error waits in any case.

use std::collections::{BTreeSet, VecDeque};

use crate::{Micros, SECOND};

/// Pods that wait for a node, by number.
#[derive(Debug)]
pub struct SchedulingQueue {
    active: VecDeque<usize>,
    /// Pods that an event may have helped, by the end of their backoff.
    backoff: BTreeSet<(Micros, usize)>,
    /// Pods whose attempt ended with an error, in the same way.
    errors: BTreeSet<(Micros, usize)>,
    /// Pods that no event has helped yet, and the end of their backoff.
    unschedulable: Vec<(Micros, usize)>,
    longest: Micros,
}

impl SchedulingQueue {
    /// An empty queue with this longest backoff (`podMaxBackoffSeconds`).
    pub const fn new(longest: Micros) -> Self {
        Self {
            active: VecDeque::new(),
            backoff: BTreeSet::new(),
            errors: BTreeSet::new(),
            unschedulable: Vec::new(),
            longest,
        }
    }

    /// Adds a new pod.
    pub fn push(&mut self, pod: usize) {
        self.active.push_back(pod);
    }

    fn backoff(&self, attempts: u32) -> Micros {
        let doubled = SECOND << attempts.saturating_sub(1).min(16);
        doubled.min(self.longest)
    }

    /// The next pod to try.
    pub fn pop(&mut self, now: Micros) -> Option<usize> {
        for waiting in [&mut self.backoff, &mut self.errors] {
            while let Some((_, pod)) = waiting.first().copied().filter(|(until, _)| *until <= now) {
                waiting.pop_first();
                self.active.push_back(pod);
            }
        }
        self.active.pop_front().or_else(|| self.backoff.pop_first().map(|(_, pod)| pod))
    }

    /// Puts back a pod that has no place, after so many attempts.
    pub fn reject(&mut self, pod: usize, attempts: u32, now: Micros) {
        self.unschedulable.push((now + self.backoff(attempts), pod));
    }

    /// Puts back a pod whose attempt ended with an error.
    pub fn fail(&mut self, pod: usize, attempts: u32, now: Micros) {
        self.errors.insert((now + self.backoff(attempts), pod));
    }

    /// Notes an event that may help pods without a place.
    pub fn wake(&mut self, now: Micros) {
        for (until, pod) in std::mem::take(&mut self.unschedulable) {
            if until <= now {
                self.active.push_back(pod);
            } else {
                self.backoff.insert((until, pod));
            }
        }
    }

    /// When there is a pod to try: now, later, or only after an event.
    pub fn next_due(&self, now: Micros) -> Option<Micros> {
        if !self.active.is_empty() || !self.backoff.is_empty() {
            return Some(now);
        }
        self.errors.first().map(|(until, _)| (*until).max(now))
    }

    /// Number of pods that no event has helped yet.
    pub const fn unschedulable(&self) -> usize {
        self.unschedulable.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_without_a_place_waits_for_an_event_and_not_for_its_backoff() {
        let mut queue = SchedulingQueue::new(10 * SECOND);
        queue.push(1);
        assert_eq!(queue.pop(0), Some(1));
        queue.reject(1, 1, 0);
        assert_eq!((queue.pop(60 * SECOND), queue.next_due(0), queue.unschedulable()), (None, None, 1));
        queue.wake(0);
        assert_eq!(queue.next_due(0), Some(0));
        assert_eq!(queue.pop(0), Some(1), "nothing else is to be tried");
        queue.reject(1, 2, 0);
        queue.push(2);
        queue.wake(0);
        assert_eq!((queue.pop(0), queue.pop(0)), (Some(2), Some(1)), "in its backoff it is behind others");
    }

    #[test]
    fn pod_with_an_error_waits_for_a_backoff_that_doubles_up_to_its_limit() {
        let mut queue = SchedulingQueue::new(10 * SECOND);
        for (attempts, seconds) in [(1, 1), (2, 2), (4, 8), (5, 10), (60, 10)] {
            queue.fail(7, attempts, 0);
            assert_eq!(queue.next_due(0), Some(seconds * SECOND));
            assert_eq!(queue.pop(seconds * SECOND - 1), None);
            assert_eq!(queue.pop(seconds * SECOND), Some(7));
        }
    }
}
