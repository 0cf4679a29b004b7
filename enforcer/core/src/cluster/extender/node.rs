//! One node of the extender: its view, and what decides whether the view may answer.
//!
//! Invariants: a state of another Node of the same name is kept until its Node is seen, because the two come
//! by different watches. A state that cannot be used makes the node unknown: an older one would be wrong. An
//! object that is read once more says nothing about the life of its daemon.

use std::collections::{BTreeMap, VecDeque};

use numa_placement::PodRequest;

use super::{NodeCounts, asking::KnownAnswers};
use crate::cluster::{
    age::{DaemonLeases, DaemonLife},
    objects::{ForeignState, NodeObject, PodObject, StateObject, StateOrigin},
    state::{HeldPod, RejectedPod, Revision},
    view::{Millis, NodeView, StateOutcome},
};

/// Time after a wrong prediction for which no answer is given for a node.
const DISTRUST: Millis = 60_000;

/// Time for which a wrong prediction is remembered.
const REMEMBERED: Millis = 600_000;

/// Wrong predictions in that time from which on pods go to the node one at a time.
const WRONG_OFTEN: usize = 3;

/// Time after which a node is counted as one that stays unknown.
const LONG: Millis = 600_000;

/// A node with its view.
#[derive(Debug, Default)]
pub(super) struct ExtenderNode {
    pub(super) view: NodeView,
    pub(super) object: Option<NodeObject>,
    origin: StateOrigin,
    kubelet_version: String,
    /// Of the newest state that was taken.
    revision: Option<Revision>,
    /// Percent of its workloads' memory that is remote, as its last state says.
    pub(super) remote_percent: u8,
    /// Whether the object with its state is there.
    has_state_object: bool,
    /// Whether it has ever published a state.
    pub(super) has_published: bool,
    /// Number of lists of pods that had begun when its state was taken.
    pub(super) pod_lists: u64,
    /// A state of a Node with this name that was not seen yet.
    early: Option<Box<StateObject>>,
    /// Why the newest state cannot be used.
    fault: Option<String>,
    /// Why its state is older than what it describes, as Node and lease showed at the last look.
    outdated: Option<String>,
    /// Until when a wrong prediction makes it unknown, and why.
    distrusted: Option<(Millis, String)>,
    /// When its last predictions were wrong, the oldest first.
    wrong_at: VecDeque<Millis>,
    /// Since when its state cannot be used, as looks at it have shown.
    unknown_since: Option<Millis>,
    /// Why pods of the node cannot be read, by uid. Until its state covers them, it is unknown.
    unread: BTreeMap<String, String>,
    /// Pods that a scheduler may still bring here, by uid.
    pub(super) nominated: BTreeMap<String, NominatedPod>,
    pub(super) answers: KnownAnswers,
}

/// A pod that a scheduler may still bring to a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NominatedPod {
    pub(super) request: PodRequest,
    pub(super) priority: i32,
}

/// Pods of a state that was taken.
#[derive(Debug, Default)]
pub(super) struct TakenPods {
    pub(super) pods: Vec<HeldPod>,
    pub(super) rejected: Vec<RejectedPod>,
}

impl ExtenderNode {
    /// Takes the Node; returns a state that came before it.
    pub(super) fn observe_node(&mut self, object: NodeObject) -> Option<StateObject> {
        let is_other =
            self.object.as_ref().is_some_and(|known| !known.uid.is_empty() && known.uid != object.uid);
        let is_of_other = self.origin.owner_uid.as_ref().is_some_and(|owner| *owner != object.uid);
        if is_other || (is_of_other && self.revision.is_some()) {
            self.forget_state();
        }
        self.object = Some(object);
        self.early.take().map(|early| *early)
    }

    /// Takes a state; returns its pods if it became the base of the view.
    pub(super) fn observe_state(
        &mut self,
        object: StateObject,
        pod_lists: u64,
        now: Millis,
    ) -> Option<TakenPods> {
        (self.has_published, self.has_state_object) = (true, true);
        let unseen = NodeObject::default();
        let state = match object.of_node(self.object.as_ref().unwrap_or(&unseen)) {
            Ok(state) => state,
            Err(ForeignState::OtherNode { .. }) => {
                self.early = Some(Box::new(object));
                return None;
            }
            Err(fault) => {
                self.fault = Some(fault.to_string());
                self.show_fault();
                return None;
            }
        };
        if self.revision == Some(state.revision) && self.fault.is_none() {
            return None;
        }
        let is_taken = match self.view.observe_state(state, now) {
            StateOutcome::Taken => true,
            StateOutcome::Older(_) if self.revision == Some(state.revision) => false,
            StateOutcome::Older(_) => return None,
            StateOutcome::Refused(_) => {
                self.revision = Some(state.revision);
                return None;
            }
        };
        (self.revision, self.fault, self.outdated, self.pod_lists) =
            (Some(state.revision), None, None, pod_lists);
        self.kubelet_version.clone_from(&state.kubelet.version);
        self.remote_percent = state.measured.map_or(0, |measured| measured.remote_percent);
        self.origin.clone_from(&object.origin);
        self.show_fault();
        is_taken.then(|| TakenPods { pods: state.pods.clone(), rejected: state.rejected.clone() })
    }

    /// Does no object show the node, and no pod hold anything there? Pods may name any node.
    pub(super) fn is_unseen(&self) -> bool {
        let has_object = self.object.is_some() || self.revision.is_some() || self.has_state_object;
        !has_object && self.nominated.is_empty() && self.unread.is_empty() && self.view.is_empty()
    }

    /// Notes that the Node is gone; returns whether nothing else is known of it.
    pub(super) fn observe_gone(&mut self) -> bool {
        self.object = None;
        self.is_forgotten()
    }

    /// Notes that the newest state cannot be read.
    pub(super) fn observe_unread_state(&mut self, why: String) {
        (self.has_published, self.has_state_object) = (true, true);
        self.fault = Some(why);
        self.show_fault();
    }

    /// Notes that the object with the state is gone: the daemon writes it again if it lives, and then it
    /// counts whatever its revision is, because the clock of the machine may have gone back. Returns whether
    /// nothing else is known of the node.
    pub(super) fn observe_state_gone(&mut self) -> bool {
        (self.early, self.has_state_object) = (None, false);
        if self.revision.is_some() {
            self.view.observe_deleted();
            self.fault = Some("its object was deleted".to_owned());
            self.show_fault();
        }
        self.is_forgotten()
    }

    /// Drops the state of a node of which no object is left; returns whether nothing is known of it. Pods may
    /// still hold places for a node that takes the name.
    fn is_forgotten(&mut self) -> bool {
        if self.object.is_none() && !self.has_state_object {
            self.forget_state();
        }
        self.is_unseen()
    }

    fn forget_state(&mut self) {
        self.view.observe_replaced();
        self.view.observe_one_at_a_time(false);
        self.wrong_at.clear();
        (self.revision, self.fault, self.distrusted) = (None, None, None);
        self.origin = StateOrigin::default();
    }

    /// Notes a pod of the node that cannot be read.
    pub(super) fn observe_unread(&mut self, uid: &str, why: String) {
        self.unread.insert(uid.to_owned(), why);
        self.show_fault();
    }

    /// Notes that a pod can be read, or is gone; returns whether it could not be read before.
    pub(super) fn forget_unread(&mut self, uid: &str) -> bool {
        let was_unread = self.unread.remove(uid).is_some();
        if was_unread {
            self.show_fault();
        }
        was_unread
    }

    /// Gives no answer for a while: a state shows that predictions were wrong, of this pod and maybe others.
    /// They count as one, because a pod that nothing has shown moves all that came behind it.
    pub(super) fn distrust(&mut self, pod: &str, now: Millis) {
        let why = format!("what it gave to pod {pod} is not what was predicted");
        self.distrusted = Some((now.saturating_add(DISTRUST), why));
        self.wrong_at.push_back(now);
        if self.wrong_at.len() > WRONG_OFTEN {
            self.wrong_at.pop_front();
        }
        self.judge_predictions(now);
        self.show_fault();
    }

    /// Returns whether pods no longer go there one at a time.
    fn judge_predictions(&mut self, now: Millis) -> bool {
        let was_often = self.wrong_at.len() >= WRONG_OFTEN;
        self.wrong_at.retain(|at| now.saturating_sub(*at) < REMEMBERED);
        let is_often = self.wrong_at.len() >= WRONG_OFTEN;
        self.view.observe_one_at_a_time(is_often);
        was_often && !is_often
    }

    /// Nominated pods that come before this one: they hold nothing against pods of higher priority.
    pub(super) fn nominated_before<'a>(
        &'a self,
        pod: &'a PodObject,
    ) -> impl Iterator<Item = (&'a String, &'a NominatedPod)> {
        let nominated = self.nominated.iter();
        nominated.filter(|(uid, other)| **uid != pod.uid && other.priority >= pod.scheduling.priority)
    }

    /// Adds the node to these counts, unless it is known by a state alone.
    pub(super) fn count_in(&self, counts: &mut NodeCounts, now: Millis) {
        if self.object.is_none() {
            return;
        }
        let count = match (self.has_published, self.view.is_exact(now)) {
            (false, _) => &mut counts.unpublished,
            (true, false) => &mut counts.unknown,
            (true, true) => &mut counts.exact,
        };
        *count += 1;
        let is_long = |since: Millis| now.saturating_sub(since) >= LONG;
        counts.long_unknown += usize::from(self.unknown_since.is_some_and(is_long));
    }

    /// Lets time pass; returns whether the node may take pods that it did not take before.
    pub(super) fn tick(&mut self, name: &str, leases: &DaemonLeases<'_>, now: Millis) -> bool {
        self.view.tick(now);
        self.distrusted.take_if(|(until, _)| *until <= now);
        let may_come_together = self.judge_predictions(now);
        self.outdated = None;
        if let Some(node) = self.object.as_ref().filter(|_| self.revision.is_some()) {
            self.outdated = leases.outdated(node, &self.origin, &self.kubelet_version).into_iter().next();
            if self.outdated.is_none() && leases.life(name, &self.origin) == DaemonLife::Alive {
                self.view.observe_life(now);
            }
        }
        self.show_fault();
        let is_unknown = self.has_published && !self.view.is_exact(now);
        let was_unknown = self.unknown_since.is_some();
        self.unknown_since = is_unknown.then(|| self.unknown_since.unwrap_or(now));
        may_come_together || was_unknown && !is_unknown
    }

    fn fault(&self) -> Option<String> {
        let covered = self.view.model().map(|model| &model.covered);
        let is_open = |uid: &String| covered.is_none_or(|covered| !covered.contains(uid));
        let unread = || self.unread.iter().find(|(uid, _)| is_open(uid)).map(|(_, why)| why.clone());
        let distrusted = || self.distrusted.as_ref().map(|(_, why)| why.clone());
        self.fault.clone().or_else(distrusted).or_else(unread)
    }

    fn show_fault(&mut self) {
        self.view.observe_outdated(self.fault().or_else(|| self.outdated.clone()));
    }
}
