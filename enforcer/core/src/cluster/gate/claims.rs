//! What bound pods use of their nodes, and what placed ones claim.
//!
//! Problem: a pod shows by an annotation and its affinity that it was placed, and its author can write both.
//! Idea: a claim is worth what a scheduler would make of it. Where the node has no room for all of it beside
//! what counts already, no scheduler binds the pod there, and it counts and holds nothing.
//!
//! Invariants: what is counted for claims of a node is never more than its allocatable amounts; a claim on a
//! node that is not known waits. Waiting claims are looked at before a decision if anything has changed, the
//! oldest pod first.

use std::collections::BTreeMap;

use super::{Gate, PlacedPod};
use crate::cluster::{
    extender::Extender,
    objects::PodObject,
    plan::{Amounts, too_full},
    view::Millis,
};

/// Largest amount that is counted for a pod: sums of this many fit for 16,384 pods of a node.
const LARGEST: u64 = 1 << 50;

/// Amounts that pods use of their nodes.
#[derive(Debug, Default)]
pub(super) struct NodeAmounts {
    /// Sums by node.
    used: BTreeMap<String, Amounts>,
    /// Amounts of each pod, by uid, with its node.
    counted: BTreeMap<String, (String, Amounts)>,
    none: Amounts,
    /// Whether a waiting claim may have room.
    has_changed: bool,
}

/// A placed pod for which nothing is counted.
#[derive(Debug)]
pub(super) struct WaitingClaim {
    pod: PodObject,
    node: String,
    amounts: Amounts,
}

impl NodeAmounts {
    pub(super) const fn new() -> Self {
        Self { used: BTreeMap::new(), counted: BTreeMap::new(), none: Amounts::new(), has_changed: false }
    }

    /// What pods use of a node.
    pub(super) fn used(&self, node: &str) -> &Amounts {
        self.used.get(node).unwrap_or(&self.none)
    }

    /// Uids of the counted pods.
    pub(super) fn uids(&self) -> impl Iterator<Item = &String> {
        self.counted.keys()
    }

    pub(super) fn counts(&self, uid: &str) -> bool {
        self.counted.contains_key(uid)
    }

    fn counts_as(&self, uid: &str, node: &str, amounts: &Amounts) -> bool {
        let is_same = |(of, counted): &(String, Amounts)| {
            let capped = amounts.iter().map(|(resource, amount)| (resource, *amount.min(&LARGEST)));
            of == node && counted.iter().map(|(resource, amount)| (resource, *amount)).eq(capped)
        };
        self.counted.get(uid).is_some_and(is_same)
    }

    pub(super) fn count(&mut self, uid: &str, node: &str, mut amounts: Amounts) {
        if self.counts_as(uid, node, &amounts) {
            return;
        }
        self.uncount(uid);
        let used = self.used.entry(node.to_owned()).or_default();
        for (resource, amount) in &mut amounts {
            *amount = (*amount).min(LARGEST);
            let sum = used.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        self.counted.insert(uid.to_owned(), (node.to_owned(), amounts));
    }

    pub(super) fn uncount(&mut self, uid: &str) {
        let Some((node, amounts)) = self.counted.remove(uid) else { return };
        self.has_changed = true;
        let Some(used) = self.used.get_mut(&node) else { return };
        for (resource, amount) in &amounts {
            if let Some(sum) = used.get_mut(resource) {
                *sum = sum.saturating_sub(*amount);
            }
        }
        used.retain(|_, sum| *sum > 0);
        if used.is_empty() {
            self.used.remove(&node);
        }
    }
}

impl Gate {
    /// Takes a pod that shows that it was placed on a node.
    pub(super) fn claim(
        &mut self,
        pod: &PodObject,
        node: &str,
        at: i64,
        extender: &mut Extender,
        now: Millis,
    ) {
        let uid = &pod.uid;
        let is_told = self.placed.get(uid).is_some_and(|placed| placed.is_told);
        let name = pod.request.name.clone().with_uid(uid.clone());
        // No pod was placed before it was created.
        let at = at.max(pod.arrival.at);
        self.placed.insert(uid.clone(), PlacedPod { name, node: node.to_owned(), at, is_told });
        let amounts = pod.amounts();
        if self.nodes.counts_as(uid, node, &amounts) {
            extender.hold(pod, node, now);
            return;
        }
        if self.nodes.counts(uid) {
            extender.release_hold(uid);
            self.nodes.uncount(uid);
        }
        let claim = WaitingClaim { pod: pod.clone(), node: node.to_owned(), amounts };
        self.claims.insert(uid.clone(), claim);
        self.nodes.has_changed = true;
    }

    /// Notes that Nodes have changed.
    pub const fn note_nodes_changed(&mut self) {
        self.nodes.has_changed = true;
    }

    /// Counts and holds the waiting claims for which their nodes have room now.
    pub(super) fn grant_claims(&mut self, extender: &mut Extender, now: Millis) {
        if !std::mem::take(&mut self.nodes.has_changed) {
            return;
        }
        let claims = self.claims.extract_if(.., |_, claim| has_room(&self.nodes, extender, claim));
        let mut claims: Vec<WaitingClaim> = claims.map(|(_, claim)| claim).collect();
        claims.sort_by(|one, other| one.pod.order().cmp(&other.pod.order()));
        for claim in claims {
            // An older one may have taken the room.
            if has_room(&self.nodes, extender, &claim) {
                extender.hold(&claim.pod, &claim.node, now);
                self.nodes.count(&claim.pod.uid, &claim.node, claim.amounts);
            } else {
                self.claims.insert(claim.pod.uid.clone(), claim);
            }
        }
    }
}

fn has_room(nodes: &NodeAmounts, extender: &Extender, claim: &WaitingClaim) -> bool {
    let WaitingClaim { node, amounts, .. } = claim;
    let known = extender.node_object(node);
    known.is_some_and(|known| too_full(&known.allocatable, nodes.used(node), amounts).is_none())
}
