//! A node for each gated pod, where the scheduler cannot be configured.
//!
//! Problem: a managed cluster takes neither an extender nor another configuration of its scheduler, and the
//! scheduler counts sums. Idea: a pod comes with a scheduling gate. This chooses its node as an
//! [extender](super::extender) does, requires that node by its name in one [patch](PodPatch) that also
//! removes the gate, and any scheduler can only bind the pod there.
//!
//! Terminology: a *gated* pod has the gate [`GATE`]. A *placed* pod has lost it, has its node by the
//! annotation [`PlacedMark::ANNOTATION`] and its affinity, and is not bound yet. A *released* pod has lost it
//! without a node.
//!
//! Invariants: a placed pod holds its place, in the view and in the sums of its node, until the API shows it
//! bound, ended or gone; no time ends that. What is placed is found again in the pods themselves, so a new
//! process knows it from a list, and believes it as far as the node has room ([`claims`]). A patch without
//! a reply may land as long as the pod has the version that the patch names: until then the pod keeps its
//! node. An event that is older than a patch that landed changes nothing.
//!
//! Cost: a decision asks every node once; answers about CPUs, memory and devices are remembered by the
//! extender.

mod attempts;
mod claims;
mod decision;
mod fields;
mod patch;
mod stuck;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use numa_placement::PodName;

use self::{
    claims::{NodeAmounts, WaitingClaim},
    stuck::{KnownUnread, Refusals},
};
pub use self::{
    decision::{GateDecision, GateEnd, GateWait, ReleaseCause},
    fields::{GATE, NotComputed, PlacedMark, PodGates},
    patch::{PatchOperation, PodPatch},
    stuck::{StuckPod, UnreadPod},
};
use super::{
    extender::Extender,
    objects::{PodObject, PodPhase},
    view::Millis,
};

/// Time after which a patch without a reply cannot land any more: the API server gives a request 60 s.
const SETTLES: Millis = 120_000;

/// Fate of pods with requirements that are not computed here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UncomputedPods {
    /// They are released without a node: the scheduler computes them, and knows no NUMA nodes.
    #[default]
    Release,
    /// They stay gated.
    Hold,
    /// They get a node as if they had no such requirement.
    Place,
}

/// Settings of the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateSettings {
    /// Fate of pods that are not computed whole.
    pub uncomputed: UncomputedPods,
    /// Seconds after which a placed pod that is not bound is late.
    pub late_after: i64,
}

/// A gated pod.
#[derive(Debug)]
struct GatedPod {
    pod: PodObject,
    /// Whether a decision was made about this version of it.
    is_tried: bool,
    /// Decision of the patch that is on its way.
    sent: Option<GateDecision>,
    /// A patch without a reply.
    unclear: Option<UnclearPatch>,
    failures: u32,
    refusals: Refusals,
    /// Before this time nothing is tried.
    not_before: Millis,
}

/// A patch that had no reply, and may land.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UnclearPatch {
    decision: GateDecision,
    /// Version of the pod that it changes.
    version: u64,
    sent: Millis,
}

/// A placed pod.
#[derive(Debug)]
struct PlacedPod {
    name: PodName,
    node: String,
    /// When it was placed, in seconds since 1970.
    at: i64,
    is_told: bool,
}

/// A placed pod that is late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatePod {
    /// Its namespace and name, with its uid.
    pub name: PodName,
    /// Its node.
    pub node: String,
    /// Seconds since it was placed.
    pub age: i64,
}

/// Numbers of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GateCounts {
    /// Gated ones.
    pub gated: usize,
    /// Placed ones that are not bound.
    pub placed: usize,
    /// Of these, late ones.
    pub late: usize,
    /// Gated ones that cannot be read; they are not among the above.
    pub unread: usize,
    /// Gated pods with a change that the API server has refused several times.
    pub refused: usize,
    /// Age of the oldest gated one that is read, in seconds.
    pub oldest: i64,
}

/// Gated and placed pods, and what pods use of their nodes.
#[derive(Debug)]
pub struct Gate {
    settings: GateSettings,
    gated: BTreeMap<String, GatedPod>,
    placed: BTreeMap<String, PlacedPod>,
    /// Versions by uid that pods got by patches, until an event shows them.
    landed: BTreeMap<String, u64>,
    nodes: NodeAmounts,
    /// Placed pods by uid for which nothing is counted, because their nodes have no room for them.
    claims: BTreeMap<String, WaitingClaim>,
    unread: BTreeMap<String, KnownUnread>,
    /// Pods that have lost the gate by a patch before its reply came.
    ended: Vec<(PodObject, GateDecision)>,
    listing: Option<BTreeSet<String>>,
    /// Number of the last decision.
    calls: u64,
}

impl Gate {
    /// A gate that knows no pods.
    pub const fn new(settings: GateSettings) -> Self {
        Self {
            settings,
            gated: BTreeMap::new(),
            placed: BTreeMap::new(),
            landed: BTreeMap::new(),
            nodes: NodeAmounts::new(),
            claims: BTreeMap::new(),
            unread: BTreeMap::new(),
            ended: Vec::new(),
            listing: None,
            calls: 0,
        }
    }

    /// Begins a whole list of pods.
    pub fn begin_list(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// Ends a list of pods: what it does not have is gone.
    pub fn end_list(&mut self) {
        let Some(seen) = self.listing.take() else { return };
        let known = self.gated.keys().chain(self.placed.keys()).chain(self.nodes.uids());
        let known = known.chain(self.landed.keys()).chain(self.unread.keys());
        let gone: BTreeSet<String> = known.filter(|uid| !seen.contains(*uid)).cloned().collect();
        for uid in &gone {
            self.observe_gone(uid);
        }
    }

    /// Takes a pod, as an item of a list, as an event, or as an answer of the API server. Returns whether
    /// another pod may have a place for it.
    pub fn observe_pod(&mut self, pod: &PodObject, extender: &mut Extender, now: Millis) -> bool {
        let uid = &pod.uid;
        if let Some(listing) = &mut self.listing {
            listing.insert(uid.clone());
        }
        if self.landed.get(uid).is_some_and(|landed| pod.arrival.version < *landed) {
            return false;
        }
        self.landed.remove(uid);
        self.unread.remove(uid);
        if pod.phase == PodPhase::Ended {
            self.observe_gone(uid);
            return true;
        }
        if let Some(node) = &pod.node {
            self.lose_gate(pod);
            self.claims.remove(uid);
            let was_placed = self.placed.remove(uid).is_some();
            self.nodes.count(uid, node, pod.amounts());
            return was_placed;
        }
        if pod.scheduling.gates.has_ours() {
            self.placed.remove(uid);
            self.claims.remove(uid);
            self.put_gated(pod);
            return true;
        }
        self.lose_gate(pod);
        if let Some(PlacedMark { node, at }) = pod.scheduling.placed_on() {
            let (node, at) = (node.clone(), *at);
            self.claim(pod, &node, at, extender, now);
            return false;
        }
        // Another program has removed the gate, or the affinity.
        self.claims.remove(uid);
        let held = self.placed.remove(uid).is_some() || self.nodes.counts(uid);
        if held {
            extender.release_hold(uid);
        }
        self.nodes.uncount(uid);
        held
    }

    /// Notes that a pod is gone.
    pub fn observe_gone(&mut self, uid: &str) {
        self.gated.remove(uid);
        self.placed.remove(uid);
        self.landed.remove(uid);
        self.unread.remove(uid);
        self.claims.remove(uid);
        self.nodes.uncount(uid);
    }

    /// Uids of the gated pods to decide about now, first those of the highest priority, then the oldest:
    /// all of them after a change, else those without a decision.
    pub fn queue(&self, after_change: bool, now: Millis) -> Vec<String> {
        let due = |gated: &&GatedPod| gated.not_before <= now && (after_change || !gated.is_tried);
        let mut due: Vec<&GatedPod> = self.gated.values().filter(due).collect();
        due.sort_by_key(|gated| (Reverse(gated.pod.scheduling.priority), gated.pod.order()));
        due.into_iter().map(|gated| gated.pod.uid.clone()).collect()
    }

    /// When the next pod after a failure is due; `None` if none waits for that.
    pub fn next_due(&self, now: Millis) -> Option<Millis> {
        self.gated.values().map(|gated| gated.not_before).filter(|due| *due > now).min()
    }

    /// A gated pod.
    pub fn gated(&self, uid: &str) -> Option<&PodObject> {
        Some(&self.gated.get(uid)?.pod)
    }

    /// Placed pods that are late and have not been told yet, at a time in seconds since 1970.
    pub fn take_late(&mut self, at: i64) -> Vec<LatePod> {
        let late_after = self.settings.late_after;
        let is_late = |placed: &PlacedPod| at.saturating_sub(placed.at) >= late_after;
        let late = self.placed.values_mut().filter(|placed| !placed.is_told && is_late(placed));
        late.map(|placed| {
            placed.is_told = true;
            let (name, node) = (placed.name.clone(), placed.node.clone());
            LatePod { name, node, age: at.saturating_sub(placed.at) }
        })
        .collect()
    }

    /// Numbers of pods at a time in seconds since 1970.
    pub fn counts(&self, at: i64) -> GateCounts {
        let is_late = |placed: &&PlacedPod| at.saturating_sub(placed.at) >= self.settings.late_after;
        let age = |gated: &GatedPod| at.saturating_sub(gated.pod.arrival.at);
        GateCounts {
            gated: self.gated.len(),
            placed: self.placed.len(),
            late: self.placed.values().filter(is_late).count(),
            unread: self.unread.len(),
            refused: self.gated.values().filter(|gated| gated.refusals.are_many()).count(),
            oldest: self.gated.values().map(age).max().unwrap_or(0).max(0),
        }
    }

    /// Takes a gated pod; a patch of an older version of it cannot land any more.
    fn put_gated(&mut self, pod: &PodObject) {
        let version = pod.arrival.version;
        let known = self.gated.get_mut(&pod.uid);
        match known {
            Some(known) if version > 0 && known.pod.arrival.version >= version => {}
            Some(known) => {
                known.unclear.take_if(|unclear| unclear.version != version);
                known.sent = None;
                (known.pod, known.is_tried) = (pod.clone(), false);
            }
            None => {
                let gated = GatedPod {
                    pod: pod.clone(),
                    is_tried: false,
                    sent: None,
                    unclear: None,
                    failures: 0,
                    refusals: Refusals::default(),
                    not_before: 0,
                };
                self.gated.insert(pod.uid.clone(), gated);
            }
        }
    }
}
