//! What a gate has of the cluster that an extender watches: its decisions, looks at the API server, events.

use enforcer_core::cluster::{
    events::EventReason,
    gate::{GateDecision, GateSettings, LatePod, ReleaseCause},
    objects::PodObject,
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
            let explained = extender.explain_impossible(&pod, &wait.nodes, &wait.answer, now);
            if let Some(note) = wait.note(explained) {
                events.send(&pod, &note);
            }
        }
        Some((pod, decision))
    }

    /// Tells that a pod was released without a node although it may need one.
    pub(crate) fn tell_skipped(&self, pod: &PodObject, decision: &GateDecision) {
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
    pub(crate) fn clock(&self) -> enforcer_core::cluster::view::Millis {
        self.now()
    }
}

/// Path of a pod.
pub(crate) fn path_of(pod: &PodObject) -> String {
    let name = &pod.request.name;
    format!("/api/v1/namespaces/{}/pods/{}", name.namespace, name.name)
}
