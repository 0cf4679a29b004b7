//! What a gate has of the cluster that an extender watches: its decisions, looks at the API server, events.

use enforcer_core::cluster::{
    events::EventReason,
    extender::Extender,
    gate::{GateDecision, GateEnd, GateSettings, LatePod, ReleaseCause, StuckPod},
    objects::PodObject,
    view::Millis,
};
use hyper::Method;

use super::SharedExtender;
use crate::{
    api_error::ApiError,
    connection::{ApiConnection, JSON},
    gate::SharedGate,
    objects::read_pod,
};

impl SharedExtender {
    /// Places gated pods with these settings.
    #[must_use]
    pub fn with_gate(mut self, settings: GateSettings) -> Self {
        self.gate = Some(SharedGate::new(settings));
        self
    }

    /// Its gate, if it has one.
    pub const fn gate(&self) -> Option<&SharedGate> {
        self.gate.as_ref()
    }

    /// Decides about a gated pod; `None` if it is none any more. A pod without a place is told.
    pub(crate) fn decide(&self, gate: &SharedGate, uid: &str) -> Option<(PodObject, GateDecision)> {
        let now = self.now();
        let mut extender = self.lock();
        let mut known = gate.lock();
        let decision = known.decide(uid, &mut extender, now)?;
        let pod = known.gated(uid)?.clone();
        drop(known);
        if let GateDecision::Wait(wait) = &decision
            && let Some(events) = &self.impossible
            && (wait.held_for.is_some() || wait.answer.is_final())
            && events.is_due(&pod, now)
        {
            let names: Vec<&str> = wait.nodes.iter().map(String::as_str).collect();
            let explained = extender.explain_impossible(&pod, &names, &wait.answer, now);
            if let Some(note) = wait.note(explained) {
                events.send(&pod, &note);
            }
        }
        Some((pod, decision))
    }

    /// Takes a pod of the watch.
    pub(crate) fn observe_gated(
        &self,
        gate: &SharedGate,
        pod: &PodObject,
        extender: &mut Extender,
        now: Millis,
    ) {
        gate.observe_pod(pod, extender, now);
        self.count_ended(gate);
    }

    /// Takes a pod as the API server has it, which the watch may show later.
    pub(crate) fn observe_answer(&self, gate: &SharedGate, pod: &PodObject, now: Millis) {
        let mut extender = self.lock();
        gate.lock().observe_answer(pod, &mut extender, now);
        drop(extender);
        self.count_ended(gate);
    }

    /// Counts the patches that pods have shown to have landed.
    fn count_ended(&self, gate: &SharedGate) {
        let ended = gate.lock().take_ended();
        for (pod, decision) in &ended {
            self.note_ended(gate, pod, decision);
        }
    }

    /// Counts a patch that has landed, and tells of it what the owner of the pod should know.
    pub(crate) fn note_ended(&self, gate: &SharedGate, pod: &PodObject, decision: &GateDecision) {
        if let Some(end) = GateEnd::of_landed(decision) {
            gate.note_end(end);
        }
        self.tell_skipped(pod, decision);
    }

    /// Tells that a pod was released without a node although it may need one.
    fn tell_skipped(&self, pod: &PodObject, decision: &GateDecision) {
        if let (Some(events), GateDecision::Release(ReleaseCause::NotComputed(why))) =
            (&self.impossible, decision)
        {
            let note = format!("released without a node of its own: {why} cannot be computed here");
            events.tell(&pod.request.name, &pod.uid, EventReason::NumaPlacementSkipped, &note);
        }
    }

    /// Tells that a placed pod is still not bound.
    pub(crate) fn tell_late(&self, late: &LatePod) {
        let LatePod { name, node, age } = late;
        if let Some(events) = &self.impossible {
            let note = format!(
                "not bound {age} s after it was placed on node {node}, which can no longer be changed; if \
                 the scheduler's events show no way, delete the pod so that its controller makes another one"
            );
            events.tell(name, &name.uid, EventReason::NumaPlacementLate, &note);
        }
    }

    /// Tells that a gated pod stays gated until it, or a rule of the cluster, is changed.
    pub(crate) fn tell_stuck(&self, StuckPod { name, why }: &StuckPod) {
        if let Some(events) = &self.impossible {
            let note = format!("the pod stays gated: {why}");
            events.tell(name, &name.uid, EventReason::NumaPlacementFailed, &note);
        }
    }

    /// The pod as the API server has it; `None` if it is gone or another one has its name.
    pub(crate) async fn look_at(
        &self,
        connection: &ApiConnection,
        pod: &PodObject,
    ) -> Result<Option<PodObject>, ApiError> {
        let path = path_of(pod);
        let answer = match connection.request("get", Method::GET, &path, JSON, b"").await {
            Ok(answer) => answer,
            Err(ApiError::Refused { code: 404, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let broken = |cause| ApiError::Broken { operation: format!("get {path}"), cause };
        let seen = read_pod(&answer.body.to_string()).map_err(broken)?;
        Ok((seen.uid == pod.uid).then(|| self.completed(seen)))
    }

    /// Time of its clock.
    pub(crate) fn clock(&self) -> Millis {
        self.now()
    }
}

/// Path of a pod.
pub(crate) fn path_of(pod: &PodObject) -> String {
    let name = &pod.request.name;
    format!("/api/v1/namespaces/{}/pods/{}", name.namespace, name.name)
}
