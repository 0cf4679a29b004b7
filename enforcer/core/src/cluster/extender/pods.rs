//! What the API server shows of pods.
//!
//! Problem: a state may name a pod that no event has shown yet, or one that was deleted while the watch was
//! down. Taken as gone too early, its CPUs are given twice; kept for ever, they are lost. Idea: a pod of a
//! state is gone if it was seen and then deleted, or if a whole list of pods that began after the state was
//! read does not have it.
//!
//! Invariant: events of one watch come in the order of the bindings, and are played in that order. A list has
//! no order, and lacks what came and went before it was made: a node with listed pods is unknown until its
//! state covers them.

use std::collections::BTreeSet;

use numa_placement::PodName;

use super::{Binder, Extender, node::NominatedPod};
use crate::cluster::{
    objects::{PodObject, PodPhase, is_static_uid},
    view::Millis,
};

/// A pod with a node.
#[derive(Debug)]
pub(super) struct KnownPod {
    pub(super) node: String,
    /// The static pod in the kubelet of which it is the mirror.
    mirror_of: Option<Box<PodName>>,
}

/// A list that is being read.
#[derive(Debug)]
pub(super) struct PodListing {
    number: u64,
    began: Millis,
    /// Uids of its pods, in the API and in the kubelet.
    seen: BTreeSet<String>,
    /// Whether it has a pod of which not even the uid could be read, so that no pod is known to be gone.
    is_partial: bool,
}

impl Extender {
    /// Begins a whole list of pods; the pods up to [`Self::end_pod_list`] are its items.
    pub fn begin_pod_list(&mut self, now: Millis) {
        self.pod_lists += 1;
        self.listing =
            Some(PodListing { number: self.pod_lists, began: now, seen: BTreeSet::new(), is_partial: false });
    }

    /// Takes a pod, as an item of the list that has begun or as an event.
    pub fn observe_pod(&mut self, mut pod: PodObject, now: Millis) {
        // Any pod may have the annotation of a mirror, with the uid of another pod of the API.
        pod.mirror_of.take_if(|uid| !is_static_uid(uid));
        if let Some(listing) = &mut self.listing {
            listing.seen.insert(pod.uid.clone());
            listing.seen.extend(pod.mirror_of.clone());
        }
        let Some(node) = pod.node.clone() else {
            self.nominate(&pod);
            if pod.phase == PodPhase::Ended {
                self.observe_pod_gone(&pod.uid, now);
            }
            return;
        };
        if pod.phase == PodPhase::Ended {
            self.pods.entry(pod.uid.clone()).or_insert_with(|| KnownPod::of(&pod, &node));
            self.end(&pod.uid, now);
            return;
        }
        let is_new = !self.pods.contains_key(&pod.uid);
        let was_expected = self.expect(&pod, &node);
        // Its Node may be shown later, by another watch.
        let known = self.nodes.entry(node).or_default();
        if self.listing.is_some() {
            known.view.observe_listed(pod.kubelet_uid(), &pod.request);
            return;
        }
        let before = known.view.pending();
        known.view.observe_bound(pod.kubelet_uid(), &pod.request);
        let holds_more = known.view.pending() > before && known.view.gives_own(&pod.request);
        if is_new && !was_expected && holds_more {
            self.tally.foreign += 1;
        }
    }

    /// Notes a pod that cannot be read, on this node (empty without one); the uid is empty if not even that
    /// is known.
    pub fn observe_unread_pod(&mut self, uid: &str, node: &str, why: String) {
        if let Some(listing) = &mut self.listing {
            listing.is_partial |= uid.is_empty();
            listing.seen.insert(uid.to_owned());
        }
        if uid.is_empty() || node.is_empty() {
            return;
        }
        self.settle(uid, Some(node));
        let unread = KnownPod { node: node.to_owned(), mirror_of: None };
        self.pods.entry(uid.to_owned()).or_insert(unread);
        // Its Node may be shown later, by another watch.
        self.nodes.entry(node.to_owned()).or_default().observe_unread(uid, why);
    }

    /// Notes that a pod is gone.
    pub fn observe_pod_gone(&mut self, uid: &str, now: Millis) {
        self.end(uid, now);
        self.pods.remove(uid);
    }

    /// Ends a list of pods: what it does not have is gone.
    pub fn end_pod_list(&mut self, now: Millis) {
        let Some(listing) = self.listing.take() else { return };
        let PodListing { number, began, seen, is_partial } = listing;
        let unseen = |uid: &&String| !is_partial && !seen.contains(*uid);
        let waiting = self.attempts.begun_before(began).chain(self.claims.begun_before(began));
        let known = self.pods.keys().chain(self.nominations.keys());
        let gone: BTreeSet<String> = waiting.chain(known).filter(unseen).cloned().collect();
        for uid in gone {
            self.observe_pod_gone(&uid, now);
        }
        // The API server may not have the mirror of a static pod yet.
        for node in self.nodes.values_mut().filter(|node| node.pod_lists < number) {
            let covered = node.view.model().into_iter().flat_map(|model| &model.covered);
            let gone: Vec<String> =
                covered.filter(unseen).filter(|uid| !is_static_uid(uid)).cloned().collect();
            for uid in gone {
                node.view.observe_ended(&uid, now);
            }
        }
    }

    /// Settles what was expected of a pod that is bound to this node; returns whether it was expected there.
    fn expect(&mut self, pod: &PodObject, node: &str) -> bool {
        let uid = &pod.uid;
        let is_new = self.pods.insert(uid.clone(), KnownPod::of(pod, node)).is_none();
        if let Some(known) = self.nodes.get_mut(node) {
            if known.forget_unread(uid) {
                self.parked.help();
            }
            if is_new {
                // Only a list can have shown it as gone, and that was older than the state with it.
                known.view.observe_present(pod.kubelet_uid());
            }
        }
        let was_claimed = self.settle(uid, Some(node));
        let was_asked = self.settings.binder == Binder::Scheduler && self.attempts.get(uid).is_some();
        let reserved = self.attempts.release(uid);
        if let Some(other) = reserved.as_ref().filter(|reserved| *reserved != node)
            && let Some(other) = self.nodes.get_mut(other)
        {
            other.view.release(uid);
        }
        self.attempts.forget(uid);
        self.unnominate(uid);
        // Without a reservation it went where no manager has a say, or no state is known.
        was_claimed || reserved.as_deref().map_or(was_asked, |reserved| reserved == node)
    }

    /// Ends whatever a pod holds.
    fn end(&mut self, uid: &str, now: Millis) {
        let (node, mirror_of) = match self.pods.get(uid) {
            Some(known) => (Some(known.node.clone()), known.mirror_of.clone()),
            None => (None, None),
        };
        self.release(uid);
        self.attempts.forget(uid);
        self.unnominate(uid);
        self.claims.end_prediction(uid, now);
        self.settle(uid, node.as_deref());
        let node = node.and_then(|name| self.nodes.get_mut(&name));
        if let Some(node) = node {
            let before = node.view.version();
            node.forget_unread(uid);
            node.view.observe_ended(uid, now);
            // Any pod may have the annotations of a mirror, with the uid of another one's static pod.
            if let Some(static_pod) = mirror_of.filter(|pod| !node.view.has_under_other_name(pod)) {
                node.view.observe_ended(&static_pod.uid, now);
            }
            if node.view.version() != before {
                self.parked.help();
            }
        }
    }

    /// Notes for which node a scheduler means a pod without one.
    fn nominate(&mut self, pod: &PodObject) {
        self.unnominate(&pod.uid);
        let Some(name) = &pod.scheduling.nominated_node else { return };
        let nominated = NominatedPod { request: pod.request.clone(), priority: pod.scheduling.priority };
        self.nodes.entry(name.clone()).or_default().nominated.insert(pod.uid.clone(), nominated);
        self.nominations.insert(pod.uid.clone(), name.clone());
    }

    fn unnominate(&mut self, uid: &str) {
        if let Some(name) = self.nominations.remove(uid)
            && let Some(node) = self.nodes.get_mut(&name)
        {
            node.nominated.remove(uid);
        }
    }
}

impl KnownPod {
    fn of(pod: &PodObject, node: &str) -> Self {
        let mirror_of = pod.mirror_of.clone();
        let mirror_of = mirror_of.map(|uid| Box::new(PodName { uid, ..pod.request.name.clone() }));
        Self { node: node.to_owned(), mirror_of }
    }
}
