//! Which pods without a place become events.
//!
//! Problem: kube-scheduler asks again for a pod without a place whenever anything changes in the cluster,
//! many times a second, and looking for the closest node costs as much as the filter itself. Idea: a pod is
//! explained once a minute, and a few pods in a second, half of them of one namespace; what is left out comes
//! with a later call.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use enforcer_core::cluster::{
    events::{EventObject, EventReason, NodeEvent},
    objects::PodObject,
    view::Millis,
};
use numa_placement::PodName;
use tokio::sync::mpsc::Sender;

use crate::events::EventTally;

/// Time after which a pod is explained again.
const AGAIN: Millis = 60_000;
/// Explanations of all pods.
const ALL: Budget = Budget { burst: 8, refill: 500 };
/// Explanations of pods of one namespace.
const OF_NAMESPACE: Budget = Budget { burst: 4, refill: 1_000 };
/// Most pods that are remembered, and most namespaces.
const PODS: usize = 4_096;

/// How many explanations are given.
struct Budget {
    /// Number at once.
    burst: Millis,
    /// Time in which one more is earned.
    refill: Millis,
}

/// What is left of a budget: when it is whole again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Spent(Millis);

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
    spent: Spent,
    /// By namespace, as long as anything is spent.
    spent_by: BTreeMap<String, Spent>,
}

impl ImpossibleEvents {
    /// Whether this pod is to be explained now.
    pub(super) fn is_due(&self, pod: &PodObject, now: Millis) -> bool {
        let namespace = &pod.request.name.namespace;
        self.told.lock().unwrap_or_else(PoisonError::into_inner).take(namespace, &pod.uid, now)
    }

    /// Sends an explanation to the writer; without room it is dropped and counted.
    pub(super) fn send(&self, pod: &PodObject, note: &str) {
        self.tell(&pod.request.name, &pod.uid, EventReason::NumaPlacementImpossible, note);
    }

    /// Sends an event of a pod to the writer; without room it is dropped and counted.
    pub(super) fn tell(&self, name: &PodName, uid: &str, reason: EventReason, note: &str) {
        let object = EventObject::Pod {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            uid: uid.to_owned(),
        };
        if self.events.try_send(NodeEvent::new(object, reason, note)).is_err() {
            self.tally.drop_events(1);
        }
    }
}

impl Spent {
    fn has_room(self, budget: &Budget, now: Millis) -> bool {
        self.0.saturating_sub(budget.refill * (budget.burst - 1)) <= now
    }

    fn spend(&mut self, budget: &Budget, now: Millis) {
        self.0 = self.0.max(now) + budget.refill;
    }
}

impl ToldPods {
    fn take(&mut self, namespace: &str, uid: &str, now: Millis) -> bool {
        let is_recent = |at: &Millis| now.saturating_sub(*at) < AGAIN;
        let of_namespace = self.spent_by.get(namespace).copied().unwrap_or_default();
        let has_room = self.spent.has_room(&ALL, now) && of_namespace.has_room(&OF_NAMESPACE, now);
        if !has_room || self.at.get(uid).is_some_and(is_recent) {
            return false;
        }
        if self.at.len() >= PODS {
            self.at.retain(|_, at| is_recent(at));
        }
        self.spent_by.retain(|_, spent| spent.0 > now);
        if self.at.len() >= PODS || self.spent_by.len() >= PODS {
            return false;
        }
        self.spent.spend(&ALL, now);
        self.spent_by.entry(namespace.to_owned()).or_default().spend(&OF_NAMESPACE, now);
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
        assert!(told.take("a", "p", 0));
        assert!(!told.take("a", "p", AGAIN - 1));
        assert!(told.take("a", "p", AGAIN));
        let at_once = |told: &mut ToldPods, namespace: &str, now| {
            (0..100).filter(|at| told.take(namespace, &format!("{namespace}{at}"), now)).count()
        };
        assert_eq!(at_once(&mut told, "a", AGAIN), 3, "with the one of p");
        assert_eq!(at_once(&mut told, "b", AGAIN), 4, "half of all are for the others");
        assert_eq!(at_once(&mut told, "c", AGAIN), 0);
        assert_eq!(at_once(&mut told, "c", AGAIN + ALL.refill), 1);
        assert_eq!(at_once(&mut told, "d", AGAIN + ALL.refill), 0);
    }

    #[test]
    fn pods_and_namespaces_are_forgotten_after_their_time() {
        let now = 1_000;
        let at = (0..PODS).map(|at| (format!("p{at}"), now)).collect();
        let mut told = ToldPods { at, ..ToldPods::default() };
        assert!(!told.take("a", "q", now), "there is no room");
        assert!(told.take("a", "q", now + AGAIN));
        assert!(told.take("b", "r", now + 2 * AGAIN));
        assert_eq!((told.at.len(), told.spent_by.len()), (2, 1));
    }
}
