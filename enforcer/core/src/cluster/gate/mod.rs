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
//! process knows it from a list. A patch that had no reply may land as long as the pod has the version that
//! the patch names: until then the pod keeps its node. An event that is older than a patch that landed
//! changes nothing.
//!
//! Cost: a decision asks every node once; answers about CPUs, memory and devices are remembered by the
//! extender.

mod decision;
mod fields;
mod patch;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use numa_placement::PodName;

pub use self::{
    decision::{GateDecision, GateEnd, GateWait, ReleaseCause},
    fields::{GATE, NotComputed, PlacedMark, PodGates},
    patch::{PatchOperation, PodPatch},
};
use super::{
    extender::Extender,
    objects::{PodObject, PodPhase},
    plan::Amounts,
    view::Millis,
};

/// Waits after failed patches of a pod: the first, and the longest.
const BACKOFF: (Millis, Millis) = (1_000, 60_000);
/// Time after which a patch without a reply cannot land any more: the API server gives a request 60 s.
const SETTLES: Millis = 120_000;

/// What becomes of pods with requirements that are not computed here.
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
    /// What becomes of pods that are not computed whole.
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
    /// A patch without a reply.
    unclear: Option<UnclearPatch>,
    failures: u32,
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
}

/// Gated and placed pods, and what pods use of their nodes.
#[derive(Debug)]
pub struct Gate {
    settings: GateSettings,
    gated: BTreeMap<String, GatedPod>,
    placed: BTreeMap<String, PlacedPod>,
    /// Versions by uid that pods got by patches, until an event shows them.
    landed: BTreeMap<String, u64>,
    /// Amounts by node, and by uid with the node.
    used: BTreeMap<String, Amounts>,
    counted: BTreeMap<String, (String, Amounts)>,
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
            used: BTreeMap::new(),
            counted: BTreeMap::new(),
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
        let known = self.gated.keys().chain(self.placed.keys()).chain(self.counted.keys());
        let known = known.chain(self.landed.keys());
        let gone: BTreeSet<String> = known.filter(|uid| !seen.contains(*uid)).cloned().collect();
        for uid in &gone {
            self.observe_gone(uid);
        }
    }

    /// Notes a pod that cannot be read: it is not gone.
    pub fn observe_unread(&mut self, uid: &str) {
        if let Some(listing) = &mut self.listing {
            listing.insert(uid.to_owned());
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
        if pod.phase == PodPhase::Ended {
            self.observe_gone(uid);
            return true;
        }
        if let Some(node) = &pod.node {
            self.gated.remove(uid);
            let was_placed = self.placed.remove(uid).is_some();
            self.count(uid, node, pod.amounts());
            return was_placed;
        }
        if pod.scheduling.gates.has_ours() {
            self.placed.remove(uid);
            self.put_gated(pod);
            return true;
        }
        self.gated.remove(uid);
        if let Some(PlacedMark { node, at }) = pod.scheduling.placed_on() {
            let (node, at) = (node.clone(), *at);
            self.hold(pod, &node, at, extender, now);
            return false;
        }
        // Another program has removed the gate, or the affinity.
        let held = self.placed.remove(uid).is_some() || self.counted.contains_key(uid);
        if held {
            extender.release_hold(uid);
        }
        self.uncount(uid);
        held
    }

    /// Notes that a pod is gone.
    pub fn observe_gone(&mut self, uid: &str) {
        self.gated.remove(uid);
        self.placed.remove(uid);
        self.landed.remove(uid);
        self.uncount(uid);
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

    /// Notes that the patch of a pod has landed, by which it has this version (0 if that is not known).
    pub fn note_landed(&mut self, uid: &str, decision: &GateDecision, version: u64, at: i64) {
        let Some(GatedPod { pod, .. }) = self.gated.remove(uid) else { return };
        if version > 0 {
            self.landed.insert(uid.to_owned(), version);
        }
        if let GateDecision::Place { node } = decision {
            let name = pod.request.name.clone().with_uid(uid);
            self.placed.insert(uid.to_owned(), PlacedPod { name, node: node.clone(), at, is_told: false });
        }
    }

    /// Notes that a patch had no reply.
    pub fn note_unclear(&mut self, uid: &str, decision: &GateDecision, now: Millis) {
        self.put_off(uid, now);
        if let Some(gated) = self.gated.get_mut(uid) {
            let version = gated.pod.arrival.version;
            gated.unclear = Some(UnclearPatch { decision: decision.clone(), version, sent: now });
        }
    }

    /// Notes that the API server has refused a patch: no earlier one is on its way.
    pub fn note_refused(&mut self, uid: &str, extender: &mut Extender, now: Millis) {
        self.put_off(uid, now);
        if self.gated.get(uid).is_some_and(|gated| gated.unclear.is_none()) {
            extender.release_hold(uid);
            self.uncount(uid);
        }
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
        GateCounts {
            gated: self.gated.len(),
            placed: self.placed.len(),
            late: self.placed.values().filter(is_late).count(),
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
                (known.pod, known.is_tried) = (pod.clone(), false);
            }
            None => {
                let gated =
                    GatedPod { pod: pod.clone(), is_tried: false, unclear: None, failures: 0, not_before: 0 };
                self.gated.insert(pod.uid.clone(), gated);
            }
        }
    }

    /// Holds the place of a placed pod.
    fn hold(&mut self, pod: &PodObject, node: &str, at: i64, extender: &mut Extender, now: Millis) {
        extender.hold(pod, node, now);
        self.count(&pod.uid, node, pod.amounts());
        let is_told = self.placed.get(&pod.uid).is_some_and(|placed| placed.is_told);
        let name = pod.request.name.clone().with_uid(pod.uid.clone());
        self.placed.insert(pod.uid.clone(), PlacedPod { name, node: node.to_owned(), at, is_told });
    }

    fn put_off(&mut self, uid: &str, now: Millis) {
        let Some(gated) = self.gated.get_mut(uid) else { return };
        let wait = BACKOFF.0.saturating_mul(1 << gated.failures.min(6)).min(BACKOFF.1);
        gated.failures = gated.failures.saturating_add(1);
        gated.not_before = now.saturating_add(wait);
        gated.is_tried = false;
    }

    fn count(&mut self, uid: &str, node: &str, amounts: Amounts) {
        if self.counted.get(uid).is_some_and(|known| known.0 == node && known.1 == amounts) {
            return;
        }
        self.uncount(uid);
        let used = self.used.entry(node.to_owned()).or_default();
        for (resource, amount) in &amounts {
            let sum = used.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        self.counted.insert(uid.to_owned(), (node.to_owned(), amounts));
    }

    fn uncount(&mut self, uid: &str) {
        let Some((node, amounts)) = self.counted.remove(uid) else { return };
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
