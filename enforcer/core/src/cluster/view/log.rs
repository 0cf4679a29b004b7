//! Pods that were bound and pods that ended, in the order of the API's events.
//!
//! Problem: the node admitted each pod beside the pods that were there at that moment. A pod that ended later
//! has moved none of the others. Idea: keep the events in their order and play them on the base, instead of
//! playing what is left of them.
//!
//! A pod that this program binds is *claimed* before any event of the API shows it. It comes after all events
//! that were seen, because it is bound later, and takes its place among them when its event is seen.
//!
//! Invariants: an entry of a pod that the base covers is dropped, and so is a pod that came and went before
//! any other came: neither affects what is played. An end is remembered for a while also if nothing is known
//! of its pod, because a state that still names the pod may arrive later. Tentative pods come after all
//! events, because what is not bound yet is bound later.

use std::collections::BTreeSet;

use numa_placement::PodRequest;

use super::Millis;

/// How long the end of a pod is remembered.
const REMEMBERED: Millis = 600_000;

/// An event of one pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PodEvent {
    /// It was bound to the node.
    Bound(Box<PodRequest>),
    /// It ended, at this time.
    Ended(Millis),
}

/// An event of a pod, by uid.
pub(super) type UidEvent = (String, PodEvent);

/// A pod that was chosen for the node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TentativePod {
    pub(super) uid: String,
    pub(super) request: PodRequest,
    pub(super) until: Millis,
}

/// Events in order, and the pods that may come.
#[derive(Debug, Clone, Default)]
pub(super) struct PodLog {
    events: Vec<(String, PodEvent)>,
    /// Claimed pods of which no event was seen, in the order of their bindings.
    claimed: Vec<(String, PodEvent)>,
    tentative: Vec<TentativePod>,
}

/// What an event changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogChange {
    /// Nothing.
    None,
    /// There is one more pod, bound behind all others.
    Last,
    /// The events have another order, or tentative pods are others.
    Order,
}

impl PodLog {
    pub(super) fn events(&self) -> impl Iterator<Item = &(String, PodEvent)> {
        self.events.iter().chain(&self.claimed)
    }

    /// Events of pods that the base covers or that were bound since: what others have is not changed by any
    /// other end, and ends are remembered for long.
    pub(super) fn played_on<'a>(&'a self, covered: &BTreeSet<String>) -> Vec<&'a UidEvent> {
        let started: BTreeSet<&str> =
            self.events().filter(|(_, event)| is_bound(event)).map(|(uid, _)| uid.as_str()).collect();
        let holds = |uid: &String| started.contains(uid.as_str()) || covered.contains(uid);
        self.events().filter(|(uid, event)| is_bound(event) || holds(uid)).collect()
    }

    /// Is nothing remembered?
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.claimed.is_empty() && self.tentative.is_empty()
    }

    /// Bound pods of which an event was seen.
    pub(super) fn seen(&self) -> impl Iterator<Item = &PodRequest> {
        self.events.iter().filter_map(|(_, event)| match event {
            PodEvent::Bound(request) => Some(&**request),
            PodEvent::Ended(_) => None,
        })
    }

    pub(super) fn tentative(&self) -> impl Iterator<Item = &TentativePod> {
        self.tentative.iter()
    }

    /// Number of pods that are bound, or may come, and have not ended.
    pub(super) fn pending(&self) -> usize {
        self.waiting().count()
    }

    /// Pods that are bound, or may come, and have not ended, in that order.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &PodRequest> {
        self.bound().chain(self.tentative.iter().map(|pod| &pod.request))
    }

    /// The same without those whose place no time takes back: they hold it until a scheduler asks again.
    pub(super) fn on_their_way(&self) -> impl Iterator<Item = &PodRequest> {
        let tentative = self.tentative.iter().filter(|pod| pod.until < Millis::MAX);
        self.bound().chain(tentative.map(|pod| &pod.request))
    }

    /// Pods that are bound and have not ended, in that order.
    pub(super) fn bound(&self) -> impl Iterator<Item = &PodRequest> {
        self.events().filter_map(|(uid, event)| match event {
            PodEvent::Bound(request) if !self.has_ended(uid) => Some(&**request),
            _ => None,
        })
    }

    /// Has the pod ended?
    pub(super) fn has_ended(&self, uid: &str) -> bool {
        self.events().any(|(of, event)| of == uid && !is_bound(event))
    }

    /// Is the binding of the pod among the events?
    pub(super) fn has_start(&self, uid: &str) -> bool {
        self.events().any(|(of, event)| of == uid && is_bound(event))
    }

    /// Was the pod bound or claimed, or has it ended?
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.events().any(|(of, _)| of == uid)
    }

    /// Adds a bound pod.
    pub(super) fn bind(&mut self, uid: &str, request: &PodRequest) -> LogChange {
        let was_tentative = self.drop_tentative(uid);
        if let Some(at) = self.claimed.iter().position(|(of, _)| of == uid) {
            let entry = self.claimed.remove(at);
            self.events.push(entry);
            // The first one has been behind all events before.
            return if at > 0 || was_tentative { LogChange::Order } else { LogChange::None };
        }
        if self.knows(uid) {
            return if was_tentative { LogChange::Order } else { LogChange::None };
        }
        self.events.push((uid.to_owned(), PodEvent::Bound(Box::new(request.clone()))));
        if self.claimed.is_empty() { LogChange::Last } else { LogChange::Order }
    }

    /// Makes room for one more pod of this kind, of which at most so many are kept.
    pub(super) fn drop_oldest(&mut self, is_kind: impl Fn(&PodRequest) -> bool, most: usize) {
        let is_it =
            |(_, event): &(String, PodEvent)| matches!(event, PodEvent::Bound(request) if is_kind(request));
        if self.events.iter().filter(|entry| is_it(entry)).count() >= most
            && let Some(oldest) = self.events.iter().position(is_it)
        {
            self.events.remove(oldest);
        }
    }

    /// Adds a pod whose binding is sent now.
    pub(super) fn claim(&mut self, uid: &str, request: &PodRequest) -> LogChange {
        let was_tentative = self.drop_tentative(uid);
        if self.knows(uid) {
            return if was_tentative { LogChange::Order } else { LogChange::None };
        }
        self.claimed.push((uid.to_owned(), PodEvent::Bound(Box::new(request.clone()))));
        LogChange::Last
    }

    /// Adds the end of a pod; returns whether anything changed.
    pub(super) fn end(&mut self, uid: &str, now: Millis) -> bool {
        let was_tentative = self.drop_tentative(uid);
        if self.has_ended(uid) {
            return was_tentative;
        }
        if let Some(at) = self.claimed.iter().position(|(of, _)| of == uid) {
            let entry = self.claimed.remove(at);
            self.events.push(entry);
        }
        self.events.push((uid.to_owned(), PodEvent::Ended(now)));
        self.compact();
        true
    }

    /// Drops the end of a pod; returns whether there was one.
    pub(super) fn revoke_end(&mut self, uid: &str) -> bool {
        let before = self.events.len();
        self.events.retain(|(of, event)| of != uid || is_bound(event));
        self.events.len() < before
    }

    /// Adds a tentative pod, or gives it a new end. A bound or ended one stays what it is.
    pub(super) fn reserve(&mut self, uid: &str, request: &PodRequest, until: Millis) -> bool {
        if self.knows(uid) {
            return false;
        }
        self.drop_tentative(uid);
        self.tentative.push(TentativePod { uid: uid.to_owned(), request: request.clone(), until });
        true
    }

    /// Drops a tentative pod; returns whether there was one.
    pub(super) fn release(&mut self, uid: &str) -> bool {
        self.drop_tentative(uid)
    }

    /// Drops a pod that was not bound after all; returns whether there was one.
    pub(super) fn forget(&mut self, uid: &str) -> bool {
        let before = self.events().count();
        if !self.has_ended(uid) {
            self.events.retain(|(of, _)| of != uid);
            self.claimed.retain(|(of, _)| of != uid);
        }
        self.drop_tentative(uid) || self.events().count() < before
    }

    /// Drops pods that the base covers from now on, and those that hold nothing by its rules.
    pub(super) fn cover(&mut self, covered: &BTreeSet<String>, holds: impl Fn(&PodRequest) -> bool) {
        self.events.retain(|(uid, event)| match event {
            PodEvent::Bound(request) => !covered.contains(uid) && holds(request),
            PodEvent::Ended(_) => true,
        });
        self.claimed.retain(|(uid, _)| !covered.contains(uid));
        self.tentative.retain(|pod| !covered.contains(&pod.uid));
        self.compact();
    }

    /// Drops tentative pods whose time is over, and ends that no state can name any more; returns whether
    /// tentative ones were dropped.
    pub(super) fn tick(&mut self, now: Millis, covered: &BTreeSet<String>) -> bool {
        let is_old = |event: &PodEvent| match event {
            PodEvent::Ended(at) => now.saturating_sub(*at) >= REMEMBERED,
            PodEvent::Bound(_) => false,
        };
        if self.events.iter().any(|(_, event)| is_old(event)) {
            let bound: BTreeSet<String> =
                self.events.iter().filter(|(_, event)| is_bound(event)).map(|(uid, _)| uid.clone()).collect();
            self.events.retain(|(uid, event)| !is_old(event) || covered.contains(uid) || bound.contains(uid));
        }
        let before = self.tentative.len();
        self.tentative.retain(|pod| pod.until > now);
        self.tentative.len() < before
    }

    fn drop_tentative(&mut self, uid: &str) -> bool {
        let before = self.tentative.len();
        self.tentative.retain(|pod| pod.uid != uid);
        self.tentative.len() < before
    }

    /// Drops the start of each pod that ended before another one was bound.
    fn compact(&mut self) {
        let mut at = 0;
        while let Some((uid, event)) = self.events.get(at) {
            if !is_bound(event) {
                at += 1;
                continue;
            }
            let later = self.events.get(at + 1..).unwrap_or_default();
            let end = later.iter().position(|(of, event)| of == uid && !is_bound(event));
            let is_alone = |end: usize| later.iter().take(end).all(|(_, event)| !is_bound(event));
            if end.is_some_and(is_alone) {
                self.events.remove(at);
                // A pod before it may be alone now.
                at = 0;
            } else {
                at += 1;
            }
        }
    }
}

const fn is_bound(event: &PodEvent) -> bool {
    matches!(event, PodEvent::Bound(_))
}
