//! Places that are held until the API shows what became of their pods, for a [gate](crate::cluster::gate).
//!
//! Invariant: such a place ends by what the API shows of its pod, by a later call for it, or by an order to
//! release it; never by time.

use super::{Extender, choice::NodeOffer};
use crate::cluster::{
    objects::{NodeObject, PodObject},
    view::Millis,
};

impl Extender {
    /// The Nodes, in ascending order of name.
    pub fn node_objects(&self) -> impl Iterator<Item = &NodeObject> {
        let mut nodes: Vec<&NodeObject> =
            self.nodes.values().filter_map(|node| node.object.as_ref()).collect();
        nodes.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        nodes.into_iter()
    }

    /// The Node with this name.
    pub fn node_object(&self, name: &str) -> Option<&NodeObject> {
        self.nodes.get(name)?.object.as_ref()
    }

    /// Does a manager of a node that the pod may use allocate resources to it?
    pub fn has_say(&mut self, pod: &PodObject, now: Millis) -> bool {
        let required = &pod.scheduling.required;
        let allowed = self.node_objects().filter(|node| required.allow(&node.name, &node.labels));
        let names: Vec<String> = allowed.map(|node| node.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let said = self.ask_all(pod, &names, now);
        said.iter().any(|said| !matches!(self.settings.offer(said), NodeOffer::Free(_)))
    }

    /// The node where a pod without a node holds a place.
    pub fn held_on(&self, uid: &str) -> Option<&str> {
        self.attempts.node_of(uid)
    }

    /// Holds a place for a pod that can go to this node alone.
    pub fn hold(&mut self, pod: &PodObject, node: &str, now: Millis) {
        if self.pods.contains_key(&pod.uid) || self.attempts.is_held(&pod.uid, node) {
            return;
        }
        self.release(&pod.uid);
        self.attempts.begin(&pod.uid, 0, &pod.request, now);
        // Its Node may be shown later, by another watch.
        let known = self.nodes.entry(node.to_owned()).or_default();
        known.view.reserve(&pod.uid, &pod.request, Millis::MAX);
        self.attempts.reserve(&pod.uid, node, Millis::MAX);
    }

    /// Gives up the place that a pod without a node holds.
    pub fn release_hold(&mut self, uid: &str) {
        self.release(uid);
    }
}
