//! Pods that the API and the states of a node have shown since the last exact state.
//!
//! A pod that came and ended between two states is in neither. What it held may have sent another pod
//! elsewhere, so a prediction that does not know of it says nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use numa_placement::PodRequest;

use super::uid_in_kubelet;
use crate::cluster::{
    model::NodeModel,
    observed::{NodeInApi, PodSequence},
    state::NodeState,
    view::concerns,
};

/// Most pods that are remembered.
const MOST_SHOWN: usize = 4_096;

/// A pod as the API has shown it.
#[derive(Debug, Clone)]
pub(super) struct ShownPod {
    pub(super) uid: String,
    pub(super) kubelet_uid: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) request: Option<Arc<PodRequest>>,
    /// It had ended in the first state already.
    had_ended: bool,
    presence: Presence,
    was_refused: bool,
}

/// What the API showed last of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Active,
    Ended,
    /// It no longer has it.
    Gone,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct ShownPods {
    /// By uid in the kubelet.
    pods: BTreeMap<String, ShownPod>,
    /// Uids in the kubelet of pods that states have shown.
    held: BTreeSet<String>,
    /// The first moment and the last one.
    sequence: (PodSequence, PodSequence),
    /// Whether there were pods of which nothing is remembered.
    is_blind: bool,
}

impl ShownPod {
    /// Is this its uid, in the API or in the kubelet?
    pub(super) fn is_called(&self, uid: &str) -> bool {
        self.uid == uid || self.kubelet_uid == uid
    }

    /// Namespace and name.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

impl ShownPods {
    /// The pod with this uid, in the API or in the kubelet.
    pub(super) fn get(&self, uid: &str) -> Option<&ShownPod> {
        self.pods.get(uid).or_else(|| self.pods.values().find(|pod| pod.uid == uid))
    }

    /// The pods of a state and those of the API at the same time.
    pub(super) fn new(state: &NodeState, api: &NodeInApi) -> Self {
        let mut shown = Self { sequence: (api.sequence, api.sequence), ..Self::default() };
        shown.note(state, api);
        for pod in shown.pods.values_mut() {
            pod.had_ended = pod.presence != Presence::Active;
        }
        shown
    }

    /// Notes the pods of a later state and those of the API at the same time.
    pub(super) fn note(&mut self, state: &NodeState, api: &NodeInApi) {
        self.sequence.1 = api.sequence;
        self.held.extend(state.pods.iter().map(|pod| uid_in_kubelet(pod).to_owned()));
        for pod in self.pods.values_mut() {
            pod.presence = Presence::Gone;
        }
        for pod in api.pods.iter().flatten() {
            let known = self.pods.entry(pod.kubelet_uid().to_owned()).or_insert_with(|| ShownPod {
                uid: pod.uid.clone(),
                kubelet_uid: pod.kubelet_uid().to_owned(),
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                request: None,
                had_ended: false,
                presence: Presence::Active,
                was_refused: false,
            });
            known.presence = if pod.is_finished { Presence::Ended } else { Presence::Active };
            known.was_refused |= pod.rejection.is_some();
            if let Some(request) = &pod.request {
                known.request = Some(Arc::clone(request));
            }
        }
        let is_full = self.pods.len() > MOST_SHOWN || self.held.len() > MOST_SHOWN;
        self.is_blind |= is_full || api.pods.is_none() || !api.left_out.is_empty();
    }

    /// May any pod have held something after the first state that it no longer holds in the next one?
    pub(super) fn has_missed(&self, model: &NodeModel, first: &NodeState, next: &NodeState) -> bool {
        let is_in = |state: &NodeState, uid: &str| state.pods.iter().any(|pod| uid_in_kubelet(pod) == uid);
        let is_missing = |uid: &str| !is_in(first, uid) && !is_in(next, uid);
        let may_have_held = |pod: &ShownPod| {
            let concerns = pod.request.as_deref().is_none_or(|request| concerns(model, request));
            pod.presence != Presence::Active && !pod.had_ended && !pod.was_refused && concerns
        };
        let refused = |uid: &str| self.pods.get(uid).is_some_and(|pod| pod.was_refused);
        self.is_blind
            || self.has_gap()
            || self.held.iter().any(|uid| is_missing(uid) && !refused(uid))
            || self.pods.iter().any(|(uid, pod)| is_missing(uid) && may_have_held(pod))
    }

    /// Have more pods left the API than were seen there?
    fn has_gap(&self) -> bool {
        let (first, last) = self.sequence;
        let left = self.pods.values().filter(|pod| pod.presence == Presence::Gone).count() as u64;
        first.list != last.list || last.gone.saturating_sub(first.gone) > left
    }
}
