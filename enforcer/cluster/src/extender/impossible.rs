//! Which pods without a place become events.
//!
//! Problem: kube-scheduler asks again for a pod without a place whenever anything changes in the cluster,
//! many times a second, and looking for the closest node costs as much as the filter itself. Idea: a pod is
//! explained once a minute, and a few pods in a second; what is left out comes with a later call.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use enforcer_core::cluster::{
    events::{EventObject, EventReason, NodeEvent},
    objects::PodObject,
    view::Millis,
};
use tokio::sync::mpsc::Sender;

use crate::events::EventTally;

/// Time after which a pod is explained again.
const AGAIN: Millis = 60_000;
/// Explanations at once.
const BURST: Millis = 8;
/// Time in which one more explanation is earned.
const REFILL: Millis = 500;
/// Most pods that are remembered.
const PODS: usize = 4_096;

/// The way of such events to their writer.
pub(super) struct ImpossibleEvents {
    pub(super) events: Sender<NodeEvent>,
    pub(super) tally: Arc<EventTally>,
    pub(super) told: Mutex<ToldPods>,
}

/// When pods were explained.
#[derive(Debug, Default)]
pub(super) struct ToldPods {
    at: BTreeMap<String, Millis>,
    /// When all explanations of a burst are there again.
    full_at: Millis,
}

impl ImpossibleEvents {
    /// Whether this pod is to be explained now.
    pub(super) fn is_due(&self, uid: &str, now: Millis) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).take(uid, now)
    }

    /// Sends an explanation to the writer; without room it is dropped and counted.
    pub(super) fn send(&self, pod: &PodObject, note: &str) {
        let name = &pod.request.name;
        let object = EventObject::Pod {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            uid: pod.uid.clone(),
        };
        let event = NodeEvent::new(object, EventReason::NumaPlacementImpossible, note);
        if self.events.try_send(event).is_err() {
            self.tally.drop_events(1);
        }
    }
}

impl ToldPods {
    fn take(&mut self, uid: &str, now: Millis) -> bool {
        let is_recent = |at: &Millis| now.saturating_sub(*at) < AGAIN;
        if self.at.get(uid).is_some_and(is_recent) || self.full_at.saturating_sub(REFILL * (BURST - 1)) > now
        {
            return false;
        }
        if self.at.len() >= PODS {
            self.at.retain(|_, at| is_recent(at));
        }
        if self.at.len() >= PODS {
            return false;
        }
        self.full_at = self.full_at.max(now) + REFILL;
        self.at.insert(uid.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_is_explained_once_a_minute_and_all_pods_a_few_times_a_second() {
        let mut told = ToldPods::default();
        assert!(told.take("p", 0));
        assert!(!told.take("p", AGAIN - 1));
        assert!(told.take("p", AGAIN));
        let at_once = (0..100).filter(|at| told.take(&format!("q{at}"), AGAIN)).count();
        assert_eq!(at_once, 7, "with the one of p");
        assert!(told.take("r", AGAIN + REFILL));
        assert!(!told.take("s", AGAIN + REFILL));
    }

    #[test]
    fn pods_are_forgotten_after_their_minute() {
        let now = 1_000;
        let at = (0..PODS).map(|at| (format!("p{at}"), now)).collect();
        let mut told = ToldPods { at, full_at: 0 };
        assert!(!told.take("q", now), "there is no room");
        assert!(told.take("q", now + AGAIN));
        assert_eq!(told.at.len(), 1);
    }
}
