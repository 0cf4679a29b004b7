//! Pods that were bound and pods that ended, in the order of the API's events.
//!
//! Problem: the node admitted each pod beside the pods that were there at that moment. A pod that ended later
//! has moved none of the others. Idea: keep the events in their order and play them on the base, instead of
//! playing what is left of them.
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
    tentative: Vec<TentativePod>,
}

impl PodLog {
    pub(super) fn events(&self) -> impl Iterator<Item = &(String, PodEvent)> {
        self.events.iter()
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
        let bound = self.events.iter().filter_map(|(uid, event)| match event {
            PodEvent::Bound(request) if !self.has_ended(uid) => Some(&**request),
            _ => None,
        });
        bound.chain(self.tentative.iter().map(|pod| &pod.request))
    }

    /// Has the pod ended?
    pub(super) fn has_ended(&self, uid: &str) -> bool {
        self.events.iter().any(|(of, event)| of == uid && !is_bound(event))
    }

    /// Was the pod bound, or has it ended?
    pub(super) fn knows(&self, uid: &str) -> bool {
        self.events.iter().any(|(of, _)| of == uid)
    }

    /// Adds a bound pod; returns whether anything changed.
    pub(super) fn bind(&mut self, uid: &str, request: &PodRequest) -> bool {
        let was_tentative = self.drop_tentative(uid);
        if self.knows(uid) {
            return was_tentative;
        }
        self.events.push((uid.to_owned(), PodEvent::Bound(Box::new(request.clone()))));
        true
    }

    /// Adds the end of a pod; returns whether anything changed.
    pub(super) fn end(&mut self, uid: &str, now: Millis) -> bool {
        let was_tentative = self.drop_tentative(uid);
        if self.has_ended(uid) {
            return was_tentative;
        }
        self.events.push((uid.to_owned(), PodEvent::Ended(now)));
        self.compact();
        true
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

    /// Drops a pod that was not bound after all; returns whether there was one.
    pub(super) fn forget(&mut self, uid: &str) -> bool {
        let before = self.events.len();
        if !self.has_ended(uid) {
            self.events.retain(|(of, _)| of != uid);
        }
        self.drop_tentative(uid) || self.events.len() < before
    }

    /// Drops pods that the base covers from now on.
    pub(super) fn cover(&mut self, covered: &BTreeSet<String>) {
        self.events.retain(|(uid, event)| !is_bound(event) || !covered.contains(uid));
        self.tentative.retain(|pod| !covered.contains(&pod.uid));
        self.compact();
    }

    /// Drops tentative pods whose time is over, and ends that no state can name any more; returns whether
    /// tentative ones were dropped.
    pub(super) fn tick(&mut self, now: Millis, covered: &BTreeSet<String>) -> bool {
        let bound: BTreeSet<String> =
            self.events.iter().filter(|(_, event)| is_bound(event)).map(|(uid, _)| uid.clone()).collect();
        self.events.retain(|(uid, event)| match event {
            PodEvent::Ended(at) => {
                covered.contains(uid) || bound.contains(uid) || now.saturating_sub(*at) < REMEMBERED
            }
            PodEvent::Bound(_) => true,
        });
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
            let later = self.events.get(at + 1..).unwrap_or_default();
            let end = later.iter().position(|(of, event)| of == uid && !is_bound(event));
            let is_alone = |end: usize| later.iter().take(end).all(|(_, event)| !is_bound(event));
            if is_bound(event) && end.is_some_and(is_alone) {
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
