//! Patches of gated pods: on their way, landed, lost, or refused.
//!
//! Invariant: each patch that landed ends once, by its reply or by the pod that shows it, whichever is first.

use super::{Gate, GateDecision, GatedPod, PlacedPod, UnclearPatch};
use crate::cluster::{extender::Extender, objects::PodObject, view::Millis};

/// Waits after failed patches of a pod: the first, and the longest.
pub(super) const BACKOFF: (Millis, Millis) = (1_000, 60_000);

impl Gate {
    /// Notes that a patch of a pod is sent.
    pub fn note_sent(&mut self, uid: &str, decision: &GateDecision) {
        if let Some(gated) = self.gated.get_mut(uid) {
            gated.sent = Some(decision.clone());
        }
    }

    /// Notes that the patch of a pod has landed, by which it has this version (0 if that is not known).
    /// Returns whether nothing has shown that before.
    pub fn note_landed(&mut self, uid: &str, decision: &GateDecision, version: u64, at: i64) -> bool {
        let Some(GatedPod { pod, .. }) = self.gated.remove(uid) else { return false };
        if version > 0 {
            self.landed.insert(uid.to_owned(), version);
        }
        if let GateDecision::Place { node } = decision {
            let name = pod.request.name.clone().with_uid(uid);
            self.placed.insert(uid.to_owned(), PlacedPod { name, node: node.clone(), at, is_told: false });
        }
        true
    }

    /// Pods that have shown by themselves that a patch landed, and its decision.
    pub fn take_ended(&mut self) -> Vec<(PodObject, GateDecision)> {
        std::mem::take(&mut self.ended)
    }

    /// Notes that a patch had no reply.
    pub fn note_unclear(&mut self, uid: &str, decision: &GateDecision, now: Millis) {
        self.put_off(uid, BACKOFF, now);
        if let Some(gated) = self.gated.get_mut(uid) {
            let version = gated.pod.arrival.version;
            gated.unclear = Some(UnclearPatch { decision: decision.clone(), version, sent: now });
        }
    }

    /// Takes a pod as the API server has it, which the watch may show later.
    pub fn observe_answer(&mut self, pod: &PodObject, extender: &mut Extender, now: Millis) -> bool {
        let was_gated = self.gated.contains_key(&pod.uid);
        let may_help = self.observe_pod(pod, extender, now);
        if was_gated && !self.gated.contains_key(&pod.uid) && pod.arrival.version > 0 {
            self.landed.insert(pod.uid.clone(), pod.arrival.version);
        }
        may_help
    }

    /// Takes a pod that has lost the gate.
    pub(super) fn lose_gate(&mut self, pod: &PodObject) {
        let Some(GatedPod { pod: known, sent, unclear, .. }) = self.gated.remove(&pod.uid) else { return };
        let decision = sent.or(unclear.map(|unclear| unclear.decision));
        if let Some(decision) = decision.filter(|decision| decision.is_shown_by(pod)) {
            self.ended.push((known, decision));
        }
    }

    /// Tries a pod no sooner than after a wait, which grows with each failure.
    pub(super) fn put_off(&mut self, uid: &str, (first, longest): (Millis, Millis), now: Millis) {
        let Some(gated) = self.gated.get_mut(uid) else { return };
        let wait = first.saturating_mul(1 << gated.failures.min(9)).min(longest);
        gated.failures = gated.failures.saturating_add(1);
        gated.not_before = now.saturating_add(wait);
        (gated.is_tried, gated.sent) = (false, None);
    }
}
