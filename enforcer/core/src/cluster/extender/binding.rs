//! Bindings that this program sends to the API server.
//!
//! Problem: the reply to a binding may be lost, and the binding may land later. Idea: the place is claimed
//! before the binding is sent, and the claim ends by what the API server shows of the pod, not by the reply.
//!
//! Invariants: a pod has one binding on its way at a time. The caller sends bindings to one node one after
//! another, from [`Extender::begin_bind`] to [`Extender::end_bind`]: so the kubelet, which admits pods in the
//! order of their bindings, gives what is predicted here. While a binding to a node is without a reply, its
//! place in that order is open, and no other pod with CPUs, memory or devices of its own is sent there.

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::PodRequest;
use thiserror::Error;

use super::{AnswerGroup, Extender, PlacementDecision, node::TakenPods};
use crate::cluster::{
    state::{HeldContainer, HeldPod},
    view::{Millis, PredictedPlace, UnknownNode, Verdict, may_concern},
};

/// Time after the end of a pod for which its prediction waits for a state that covers it: a kubelet's refusal
/// is shown by the API first.
const PREDICTED: Millis = 60_000;

/// Time after which a binding without a reply cannot land any more: the API server gives a request 60 s.
const SETTLES: Millis = 120_000;

/// A pod that goes to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodBinding<'a> {
    /// Uid of the pod.
    pub uid: &'a str,
    /// The node.
    pub node: &'a str,
}

/// What to send.
#[derive(Debug, Clone, PartialEq)]
pub struct BindTicket {
    /// Decision for the annotation of the pod; `None` if the node's managers have no say about it.
    pub decision: Option<PlacementDecision>,
}

/// Why nothing is sent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BindRefusal {
    /// Its request is not known; see [`Extender::observe_request`].
    #[error("its request is not known")]
    UnknownPod,
    /// It is bound to the node that was asked for already.
    #[error("it is bound to the node already")]
    Done,
    /// It is bound to another node.
    #[error("it is bound to node {0}")]
    Elsewhere(String),
    /// Another binding of it is on its way.
    #[error("another binding of it is on its way to node {0}")]
    OnItsWay(String),
    /// The node has no place for it; its text is the one for a scheduler.
    #[error("{}", .0.as_text())]
    NoPlace(AnswerGroup),
}

/// Result of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindEnd {
    /// The API server has it.
    Bound,
    /// The API server refused it.
    Refused,
    /// The API server has the pod with another node, or not at all, or without a node when this binding can
    /// no longer land.
    NotThere,
    /// There was no reply: it may have landed, or land later.
    Unknown,
}

/// A claim of which the API server has to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledClaim {
    /// Uid of the pod.
    pub uid: String,
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// The node.
    pub node: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    OnItsWay,
    Bound,
    Unsettled,
}

#[derive(Debug)]
struct Claim {
    node: String,
    state: ClaimState,
    pod: (String, String),
    begun: Millis,
    /// Whether a binding to the node had no reply.
    may_land: bool,
    /// Whether managers of a node may have a say about the pod; the order of others does not matter.
    may_concern: bool,
}

/// Where a claimed pod should be.
#[derive(Debug)]
struct Prediction {
    pod: String,
    node: String,
    place: PredictedPlace,
    /// Uids of the bound pods that held something there: if one of them ends, the place may be another one.
    beside: BTreeSet<String>,
    /// When the pod ended.
    ended: Option<Millis>,
}

/// Outcome of a prediction.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PredictionOutcome {
    /// The pod is where it should be.
    Right,
    /// It is not, and the node may have freed what an ended pod held before.
    Open,
    /// It is not; with the pod's name.
    Wrong(String),
}

/// Claims and predictions by uid of the pod.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_uid: BTreeMap<String, Vec<Claim>>,
    /// Pods with unsettled claims by node, of those that managers may have a say about: the order of bindings
    /// there is open.
    unsettled: BTreeMap<String, BTreeSet<String>>,
    predictions: BTreeMap<String, Prediction>,
}

impl Extender {
    /// Tells the request of a pod of which no call was seen, because this program has started since.
    pub fn observe_request(&mut self, uid: &str, request: &PodRequest, now: Millis) {
        self.attempts.begin(uid, 0, request, now);
    }

    /// Claims the pod's place on the node.
    ///
    /// # Errors
    /// If nothing may be sent.
    pub fn begin_bind(&mut self, binding: PodBinding<'_>, now: Millis) -> Result<BindTicket, BindRefusal> {
        let begun = self.claim_place(binding, now);
        let group = match &begun {
            Ok(BindTicket { decision: Some(_) }) => Some(AnswerGroup::Passed),
            Ok(BindTicket { decision: None }) => Some(AnswerGroup::NotConcerned),
            Err(BindRefusal::NoPlace(group)) => Some(*group),
            Err(_) => None,
        };
        if let Some(group) = group {
            self.tally.bound.add(group, 1);
        }
        begun
    }

    fn claim_place(&mut self, binding: PodBinding<'_>, now: Millis) -> Result<BindTicket, BindRefusal> {
        let PodBinding { uid, node: name } = binding;
        let claim_that = |state| self.claims.of(uid).iter().find(|claim| claim.state == state);
        // The reply shows that it is bound before the watch does.
        let bound = self.pods.get(uid).map(|known| &known.node);
        if let Some(node) = bound.or_else(|| Some(&claim_that(ClaimState::Bound)?.node)) {
            return Err(if node == name { BindRefusal::Done } else { BindRefusal::Elsewhere(node.clone()) });
        }
        if let Some(claim) = claim_that(ClaimState::OnItsWay) {
            return Err(BindRefusal::OnItsWay(claim.node.clone()));
        }
        let attempt = self.attempts.get(uid).ok_or(BindRefusal::UnknownPod)?;
        if self.claims.are_unsettled_on(name, uid) && may_concern(&attempt.request) {
            return Err(BindRefusal::NoPlace(AnswerGroup::Waiting));
        }
        let request = attempt.request.clone();
        // Its place is claimed now, here or elsewhere.
        let was_on = self.take_back(uid);
        let claimed = self.claim_on(uid, name, &request, now);
        if was_on.is_some_and(|was_on| claimed.is_err() || was_on != name) {
            self.parked.help();
        }
        claimed
    }

    /// Claims the pod's place, if the node has one.
    fn claim_on(
        &mut self,
        uid: &str,
        name: &str,
        request: &PodRequest,
        now: Millis,
    ) -> Result<BindTicket, BindRefusal> {
        let verdict = match self.nodes.get_mut(name) {
            Some(node) => match node.view.commit(uid, request, now) {
                Verdict::Unknown(UnknownNode::NoState)
                    if !node.has_published && self.settings.allows_unknown_nodes =>
                {
                    node.view.claim(uid, request);
                    Verdict::NotConcerned
                }
                verdict => verdict,
            },
            None if self.settings.allows_unknown_nodes => Verdict::NotConcerned,
            None => Verdict::Unknown(UnknownNode::NoState),
        };
        let decision = match verdict {
            Verdict::NotConcerned => None,
            Verdict::Fits(place) => {
                let model = self.nodes.get(name).and_then(|node| node.view.model());
                let revision = model.map(|model| model.revision).unwrap_or_default();
                let decision = PlacementDecision::new(name, revision, &place);
                let view = self.nodes.get(name).map(|node| &node.view);
                let held = view.into_iter().flat_map(|view| view.bound_allocations().iter());
                let beside = held.map(|(holder, _)| holder.pod().uid.clone()).filter(|other| other != uid);
                let prediction = Prediction {
                    pod: request.name.to_string(),
                    node: name.to_owned(),
                    place,
                    beside: beside.collect(),
                    ended: None,
                };
                self.claims.predictions.insert(uid.to_owned(), prediction);
                Some(decision)
            }
            Verdict::Refused(group, _) => return Err(BindRefusal::NoPlace(group.into())),
            Verdict::Unknown(why) => return Err(BindRefusal::NoPlace((&why).into())),
        };
        self.claims.begin(uid, name, request, now);
        Ok(BindTicket { decision })
    }

    /// Notes what became of a binding.
    pub fn end_bind(&mut self, binding: PodBinding<'_>, end: BindEnd) {
        let PodBinding { uid, node } = binding;
        match end {
            BindEnd::Bound => {
                if self.claims.has_unsettled_on(node) {
                    self.parked.help();
                }
                self.claims.set(uid, node, ClaimState::Bound);
            }
            BindEnd::Unknown => self.claims.set(uid, node, ClaimState::Unsettled),
            // An earlier binding to the node without a reply may still land.
            BindEnd::Refused if self.claims.may_land(uid, node) => {
                self.claims.set(uid, node, ClaimState::Unsettled);
            }
            BindEnd::Refused | BindEnd::NotThere => {
                self.parked.help();
                let is_there = self.pods.get(uid).is_some_and(|known| known.node == node);
                if self.claims.end(uid, node) && !is_there {
                    self.give_up(uid, node);
                }
            }
        }
    }

    /// Claims of pods that must have settled by now: the caller asks the API server, and tells
    /// [`BindEnd::NotThere`] if it shows the pod without this node.
    pub fn unsettled(&self, now: Millis) -> Vec<UnsettledClaim> {
        let all = self.claims.by_uid.iter();
        let all = all.flat_map(|(uid, claims)| claims.iter().map(move |claim| (uid, claim)));
        let due = all.filter(|(_, claim)| {
            claim.state != ClaimState::OnItsWay && now.saturating_sub(claim.begun) >= SETTLES
        });
        due.map(|(uid, claim)| UnsettledClaim {
            uid: uid.clone(),
            namespace: claim.pod.0.clone(),
            name: claim.pod.1.clone(),
            node: claim.node.clone(),
        })
        .collect()
    }

    /// Takes back a place that was claimed.
    fn give_up(&mut self, uid: &str, node: &str) {
        self.claims.forget_prediction(uid);
        if let Some(node) = self.nodes.get_mut(node) {
            node.view.forget(uid);
        }
    }

    /// Ends all claims of a pod which is on this node, or on none; returns whether the node had one.
    pub(super) fn settle(&mut self, uid: &str, node: Option<&str>) -> bool {
        let claimed = self.claims.settle(uid);
        for other in claimed.iter().filter(|claimed| Some(claimed.as_str()) != node) {
            if let Some(other) = self.nodes.get_mut(other) {
                other.view.forget(uid);
                self.parked.help();
            }
        }
        claimed.iter().any(|claimed| Some(claimed.as_str()) == node)
    }
}

impl Claims {
    pub(super) fn len(&self) -> usize {
        self.by_uid.values().map(Vec::len).sum()
    }

    /// Does the pod have a claim?
    pub(super) fn has(&self, uid: &str) -> bool {
        !self.of(uid).is_empty()
    }

    /// Pods with claims that began before this time.
    pub(super) fn begun_before(&self, time: Millis) -> impl Iterator<Item = &String> {
        let is_old = move |claims: &Vec<Claim>| claims.iter().all(|claim| claim.begun < time);
        self.by_uid.iter().filter(move |(_, claims)| is_old(claims)).map(|(uid, _)| uid)
    }

    /// What the state of a node shows of claimed pods that it covers, by uid.
    pub(super) fn covered(&self, node: &str, taken: &TakenPods) -> Vec<(String, PredictionOutcome)> {
        let predicted = |uid: &String| {
            let prediction = self.predictions.get(uid).filter(|prediction| prediction.node == node)?;
            Some((uid.clone(), prediction))
        };
        let held = taken.pods.iter().filter_map(|pod| Some((predicted(&pod.uid)?, Some(pod))));
        let rejected = taken.rejected.iter().filter(|pod| pod.is_by_managers());
        let rejected = rejected.filter_map(|pod| Some((predicted(&pod.uid)?, None)));
        let is_there = |uid: &String| {
            taken.pods.iter().any(|pod| pod.uid == *uid || pod.mirror_of.as_ref() == Some(uid))
        };
        let outcome = |((uid, prediction), pod): ((String, &Prediction), Option<&HeldPod>)| {
            let outcome = match pod {
                Some(pod) if prediction.is_of(pod) => PredictionOutcome::Right,
                _ if !prediction.beside.iter().all(is_there) => PredictionOutcome::Open,
                _ => PredictionOutcome::Wrong(prediction.pod.clone()),
            };
            (uid, outcome)
        };
        held.chain(rejected).map(outcome).collect()
    }

    /// Number of claims whose binding had no reply.
    pub(super) fn unsettled_claims(&self) -> usize {
        self.unsettled.values().map(BTreeSet::len).sum()
    }

    /// Notes the end of a pod: a state that covers it may still come.
    pub(super) fn end_prediction(&mut self, uid: &str, now: Millis) {
        if let Some(prediction) = self.predictions.get_mut(uid) {
            prediction.ended.get_or_insert(now);
        }
    }

    /// Drops predictions about pods that have ended some time ago.
    pub(super) fn tick(&mut self, now: Millis) {
        let is_open = |at: Millis| now.saturating_sub(at) < PREDICTED;
        self.predictions.retain(|_, prediction| prediction.ended.is_none_or(is_open));
    }

    pub(super) fn forget_prediction(&mut self, uid: &str) {
        self.predictions.remove(uid);
    }

    /// Is it open in which order other pods than this one are bound to the node?
    pub(super) fn are_unsettled_on(&self, node: &str, uid: &str) -> bool {
        self.unsettled.get(node).is_some_and(|pods| pods.iter().any(|other| other != uid))
    }

    /// Had a binding of any pod to this node no reply?
    fn has_unsettled_on(&self, node: &str) -> bool {
        self.unsettled.contains_key(node)
    }

    /// Had a binding of the pod to this node no reply?
    fn may_land(&self, uid: &str, node: &str) -> bool {
        self.of(uid).iter().any(|claim| claim.node == node && claim.may_land)
    }

    fn of(&self, uid: &str) -> &[Claim] {
        self.by_uid.get(uid).map_or(&[], Vec::as_slice)
    }

    fn begin(&mut self, uid: &str, node: &str, request: &PodRequest, begun: Millis) {
        let may_land = self.may_land(uid, node);
        let claims = self.by_uid.entry(uid.to_owned()).or_default();
        claims.retain(|claim| claim.node != node);
        let pod = (request.name.namespace.clone(), request.name.name.clone());
        let (node_name, state, may_concern) = (node.to_owned(), ClaimState::OnItsWay, may_concern(request));
        claims.push(Claim { node: node_name, state, pod, begun, may_land, may_concern });
        self.note_unsettled(uid, node);
    }

    fn set(&mut self, uid: &str, node: &str, state: ClaimState) {
        let claims = self.by_uid.get_mut(uid).into_iter().flatten();
        for claim in claims.filter(|claim| claim.node == node) {
            claim.state = state;
            claim.may_land |= state == ClaimState::Unsettled;
        }
        self.note_unsettled(uid, node);
    }

    /// Ends the claim on this node; returns whether there was one.
    fn end(&mut self, uid: &str, node: &str) -> bool {
        let Some(claims) = self.by_uid.get_mut(uid) else { return false };
        let before = claims.len();
        claims.retain(|claim| claim.node != node);
        let was_there = claims.len() < before;
        if claims.is_empty() {
            self.by_uid.remove(uid);
        }
        self.note_unsettled(uid, node);
        was_there
    }

    /// Ends all claims; returns their nodes.
    fn settle(&mut self, uid: &str) -> Vec<String> {
        let nodes: Vec<String> =
            self.by_uid.remove(uid).into_iter().flatten().map(|claim| claim.node).collect();
        for node in &nodes {
            self.note_unsettled(uid, node);
        }
        nodes
    }

    fn note_unsettled(&mut self, uid: &str, node: &str) {
        let is_unsettled =
            |claim: &Claim| claim.node == node && claim.state == ClaimState::Unsettled && claim.may_concern;
        if self.of(uid).iter().any(is_unsettled) {
            self.unsettled.entry(node.to_owned()).or_default().insert(uid.to_owned());
        } else if let Some(pods) = self.unsettled.get_mut(node) {
            pods.remove(uid);
            if pods.is_empty() {
                self.unsettled.remove(node);
            }
        }
    }
}

impl Prediction {
    /// Does a state show the pod at this place, as far as it shows its containers? Memory of an init
    /// container may have been freed.
    fn is_of(&self, pod: &HeldPod) -> bool {
        let held = |name: &str| pod.containers.iter().find(|held| held.name == name);
        let is_right = |expected: &crate::cluster::view::PredictedContainer, held: &HeldContainer| {
            let mut nodes = held.memory.iter().map(|memory| &memory.nodes);
            held.cpus == expected.cpus && nodes.all(|nodes| nodes.is_subset(&expected.mems))
        };
        self.place.containers.iter().all(|one| held(&one.name).is_none_or(|held| is_right(one, held)))
    }
}
