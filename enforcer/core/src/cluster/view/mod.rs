//! One node as a scheduler sees it: the last published state, and the pods that were bound since.
//!
//! Problem: a state is some seconds old, and pods bound in the meantime hold resources that it shows as free.
//! A second pod on the same view would be refused by the node. Idea: replay. The view is the state's model
//! plus the [events](log) of pods since, played by the engine in the order of the API: a bound pod is
//! admitted, an ended one removed. The kubelet admits in that order too, so the replay gives what it will
//! give.
//!
//! Terminology: a *tentative* pod was chosen for the node and may still go elsewhere; it holds its place
//! until it is bound, forgotten or its time is over. A pod is *covered* if the state names its uid.
//!
//! Invariants: no pod is counted twice, because coverage is by uid and never by time. A state that is older
//! than the last one changes nothing. Time is an argument, and equal events give equal views. A pod of the
//! state stays until the API shows its end, also if no pod event has named it.
//!
//! Cost: an event costs one replay: one admission for each pod that the state does not cover. A filter costs
//! one admission.

mod concern;
mod holdings;
mod log;
mod orders;
mod reuse;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{Allocations, PodRequest};
use numa_topology::set::NodeSet;

pub(super) use self::concern::concerns;
pub use self::verdict::{PredictedContainer, PredictedPlace, RefusalGroup, UnknownNode, Verdict};
use self::{
    holdings::{Holdings, NodeReply},
    log::{PodEvent, PodLog},
};
use super::{
    model::{NodeModel, StateFault},
    state::{DecidedBy, NodeState, Revision},
};

/// Time in milliseconds of a clock that only the caller knows.
pub type Millis = u64;

/// Age from which a state is stale, if its daemon does not say that it lives.
const STALE_AFTER: Millis = 180_000;

/// A node with its state and the pods bound since.
#[derive(Debug, Clone, Default)]
pub struct NodeView {
    model: Option<NodeModel>,
    /// Revision of the newest state, refused ones included.
    newest: Option<Revision>,
    /// When the node was last known to live.
    seen_at: Millis,
    log: PodLog,
    /// Why the last state is older than what it describes, if other objects show that.
    outdated: Option<String>,
    /// What pods hold now.
    now: Holdings,
    /// Why the replay of bound pods is not what the node did.
    doubt: Option<UnknownNode>,
    /// Names by uid of bound pods whose order decides what is left, and is not known.
    unordered: BTreeMap<String, String>,
}

/// What became of a published state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateOutcome {
    /// It is the base of the view now.
    Taken,
    /// It is not newer than the last one.
    Older(Revision),
    /// It contradicts itself; the view has no base until another one comes.
    Refused(StateFault),
}

impl NodeView {
    /// Takes a published state.
    pub fn observe_state(&mut self, state: &NodeState, now: Millis) -> StateOutcome {
        if let Some(newest) = self.newest
            && !state.revision.is_after(newest)
        {
            if state.revision == newest && self.model.is_some() {
                self.seen_at = now;
            }
            return StateOutcome::Older(newest);
        }
        self.newest = Some(state.revision);
        let outcome = match NodeModel::new(state) {
            Ok(model) => {
                self.seen_at = now;
                self.outdated = None;
                self.log.cover(&model.covered);
                let log = &self.log;
                self.unordered.retain(|uid, _| !model.covered.contains(uid) && !log.has_ended(uid));
                if self.unordered.len() < 2 {
                    self.unordered.clear();
                }
                self.model = Some(model);
                StateOutcome::Taken
            }
            Err(fault) => {
                self.model = None;
                StateOutcome::Refused(fault)
            }
        };
        self.replay();
        outcome
    }

    /// Notes that the node's daemon lives, as its lease or pod shows: its last state is still true.
    pub fn observe_life(&mut self, now: Millis) {
        self.seen_at = self.seen_at.max(now);
    }

    /// Notes why the last state is older than what it describes, until the next one comes.
    pub fn observe_outdated(&mut self, reason: String) {
        self.outdated = Some(reason);
    }

    /// Notes that a pod is bound to this node; repeated events change nothing.
    pub fn observe_bound(&mut self, uid: &str, request: &PodRequest) {
        // Its own tentative place is in what pods hold now, too.
        let has_tentative = self.log.tentative().next().is_some();
        if self.covers(uid) || !self.log.bind(uid, request) {
            return;
        }
        if has_tentative {
            return self.replay();
        }
        // Behind all other events, so the others need not be played again.
        if let Some(model) = &self.model
            && let Some(doubt) = give(model, &mut self.now, request)
        {
            self.doubt.get_or_insert(doubt);
        }
    }

    /// Notes that a pod has ended or is gone.
    pub fn observe_ended(&mut self, uid: &str, now: Millis) {
        if self.log.end(uid, now) {
            self.replay();
        }
    }

    /// The node's answer to a pod.
    pub fn filter(&self, pod: &PodRequest, now: Millis) -> Verdict {
        let Some(model) = &self.model else {
            let is_certain = !concern::may_concern(pod);
            return if is_certain { Verdict::NotConcerned } else { Verdict::Unknown(UnknownNode::NoState) };
        };
        if !concern::concerns(model, pod) {
            return Verdict::NotConcerned;
        }
        if now.saturating_sub(self.seen_at) > STALE_AFTER {
            return Verdict::Unknown(UnknownNode::Stale);
        }
        if let Some(reason) = &self.outdated {
            return Verdict::Unknown(UnknownNode::Outdated(reason.clone()));
        }
        if let Some(source) = model.inexact.first() {
            return Verdict::Unknown(UnknownNode::Inexact(source.clone()));
        }
        if let Some(doubt) = &self.doubt {
            return Verdict::Unknown(doubt.clone());
        }
        if !self.unordered.is_empty() {
            let names: Vec<&str> = self.unordered.values().map(String::as_str).collect();
            return Verdict::Unknown(UnknownNode::Unordered(names.join(", ")));
        }
        let mut trial = self.now.clone();
        // A pod is never in its own way: its former attempt is over.
        trial.remove(&pod.name);
        match trial.admit(model, pod) {
            NodeReply::Admitted(None) => Verdict::NotConcerned,
            NodeReply::Admitted(Some(place)) => self.beside_pending(model, pod, place),
            NodeReply::Refused(rejection) => Verdict::Refused(RefusalGroup::of(&rejection), rejection),
            NodeReply::Unknown(why) => Verdict::Unknown(why),
        }
    }

    /// The answer to a pod that fits behind all others. A kubelet admits pods in the order of their bindings;
    /// a runtime creates containers as their images arrive, so each order of the pods that the state does not
    /// cover must leave a place for all.
    fn beside_pending(&self, model: &NodeModel, pod: &PodRequest, place: PredictedPlace) -> Verdict {
        if model.decided_by == DecidedBy::Kubelet {
            return Verdict::Fits(place);
        }
        let pending: Vec<&PodRequest> =
            self.log.waiting().filter(|pending| pending.name != pod.name).collect();
        if pending.is_empty() {
            return Verdict::Fits(place);
        }
        let mut covered = Holdings::new(model.allocations.clone());
        for (uid, event) in self.log.events() {
            if matches!(event, PodEvent::Ended(_)) {
                covered.remove_uid(model, uid);
            }
        }
        orders::verdict_of_arrivals(model, covered.allocations(), &pending, (pod, place))
    }

    /// Holds a place for a pod that was chosen for this node, until it is committed, forgotten, or `until`.
    /// It replaces a former place of the same pod.
    pub fn reserve(&mut self, uid: &str, request: &PodRequest, until: Millis) {
        if !self.covers(uid) && self.log.reserve(uid, request, until) {
            self.replay();
        }
    }

    /// Commits a pod if the node still admits it; the answer is that of [`Self::filter`].
    pub fn commit(&mut self, uid: &str, request: &PodRequest, now: Millis) -> Verdict {
        let verdict = self.filter(request, now);
        if matches!(verdict, Verdict::Fits(_)) {
            self.observe_bound(uid, request);
        }
        verdict
    }

    /// Gives up the place of a pod that goes elsewhere. A pod of the state stays.
    pub fn forget(&mut self, uid: &str) {
        if self.log.forget(uid) {
            self.replay();
        }
    }

    /// Gives up tentative places whose time is over.
    pub fn tick(&mut self, now: Millis) {
        let none = BTreeSet::new();
        let covered = self.model.as_ref().map_or(&none, |model| &model.covered);
        if self.log.tick(now, covered) {
            self.replay();
        }
    }

    /// Number of pods that the state does not cover.
    pub fn pending(&self) -> usize {
        self.log.pending()
    }

    /// The model of the last state.
    pub const fn model(&self) -> Option<&NodeModel> {
        self.model.as_ref()
    }

    /// What pods hold now, pending ones included.
    pub const fn allocations(&self) -> &Allocations {
        self.now.allocations()
    }

    /// Number of CPUs on these NUMA nodes that a pod could still have exclusively.
    pub fn free_cpus_on(&self, nodes: &NodeSet) -> usize {
        let Some(model) = &self.model else { return 0 };
        let inventory = &model.inventory;
        let given = self.allocations().exclusive_cpus().union(&inventory.reserved_cpus);
        inventory.machine.cpus_of(nodes).difference(&given).len()
    }

    fn covers(&self, uid: &str) -> bool {
        self.model.as_ref().is_some_and(|model| model.covered.contains(uid))
    }

    /// Makes the allocations anew: the state's, then the events in their order, then tentative pods.
    fn replay(&mut self) {
        self.doubt = None;
        let Some(model) = &self.model else {
            self.now = Holdings::default();
            return;
        };
        (self.now, self.doubt) = self.play_events(model);
        for pod in self.log.tentative() {
            give(model, &mut self.now, &pod.request);
        }
    }

    /// What pods hold after all events, and the first reason why that is in doubt.
    fn play_events(&self, model: &NodeModel) -> (Holdings, Option<UnknownNode>) {
        let (mut now, mut doubt) = (Holdings::new(model.allocations.clone()), None);
        for (uid, event) in self.log.events() {
            match event {
                PodEvent::Bound(request) => {
                    let is_misfit = |found: &UnknownNode| matches!(found, UnknownNode::Misfit(_));
                    let found = give(model, &mut now, request);
                    // A pod that has ended may have been refused.
                    doubt = doubt.or(found.filter(|found| !(is_misfit(found) && self.log.has_ended(uid))));
                }
                PodEvent::Ended(_) => now.remove_uid(model, uid),
            }
        }
        (now, doubt)
    }
}

/// Admits a pod if the node's managers have a say about it; returns why that may not be what the node did.
fn give(model: &NodeModel, held: &mut Holdings, pod: &PodRequest) -> Option<UnknownNode> {
    match held.admit(model, pod) {
        NodeReply::Admitted(_) => None,
        NodeReply::Refused(_) => Some(UnknownNode::Misfit(pod.name.to_string())),
        NodeReply::Unknown(why) => Some(why),
    }
}
