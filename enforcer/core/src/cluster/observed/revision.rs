//! What of a node's past is in its published state: the revision, unhealthy devices and refused pods.

use std::collections::BTreeSet;

use super::{ApiPod, NodeInputs, NodePast, RememberedDevices, limits, pods::holders, whole_state};
use crate::cluster::{
    model::StateFault,
    state::{NodeState, RejectedPod, Revision},
};

/// Refused pods that a state keeps.
const MOST_REJECTED: usize = 16;

/// Makes the states of one node, one after another.
///
/// A state with other content gets the next revision; equal content keeps its revision, so a reader and the
/// writer compare revisions alone. The epoch never goes back while the daemon runs, and starts later with the
/// next daemon.
#[derive(Debug, Clone)]
pub struct NodeStateSource {
    devices: RememberedDevices,
    /// The last refused pods, the oldest first.
    rejected: Vec<RejectedPod>,
    /// Pods that hold something and that the API has shown, by uid in the kubelet.
    shown: BTreeSet<String>,
    revision: Revision,
    /// The last one before its limits.
    whole: Option<NodeState>,
    last: Option<NodeState>,
}

impl NodeStateSource {
    /// A source for a daemon with this start, in nanoseconds since 1970.
    pub fn new(started_at_ns: i64) -> Self {
        let revision = Revision { epoch: started_at_ns.max(0), counter: 0 };
        let devices = RememberedDevices::default();
        Self { devices, rejected: Vec::new(), shown: BTreeSet::new(), revision, whole: None, last: None }
    }

    /// Continues after a state of this epoch, which another program has published: the next state is
    /// newer. No effect on a source that is newer already.
    pub fn continue_after(&mut self, epoch: i64) {
        if epoch >= self.revision.epoch {
            self.revision = Revision { epoch: epoch.saturating_add(1), counter: 0 };
            self.whole = None;
        }
    }

    /// The state now. It has the revision of the last one if nothing else differs.
    ///
    /// # Errors
    /// If the machine itself exceeds the limits of a state; nothing can be published then.
    pub fn observe(&mut self, inputs: NodeInputs<'_>) -> Result<&NodeState, StateFault> {
        self.devices.update(inputs.kubelet, inputs.observation, inputs.api.device_capacity.as_ref());
        self.note_rejected(inputs);
        let holders = holders(inputs.observation);
        self.shown.retain(|uid| holders.contains(uid.as_str()));
        let in_api = inputs.api.pods.iter().flatten().map(ApiPod::kubelet_uid);
        self.shown.extend(in_api.filter(|uid| holders.contains(uid)).map(str::to_owned));
        let past = NodePast { devices: &self.devices, rejected: &self.rejected, shown: &self.shown };
        let whole = whole_state(inputs, past);
        let is_equal = self.whole.as_ref() == Some(&whole);
        if let Some(last) = self.last.take_if(|_| is_equal) {
            return Ok(self.last.insert(last));
        }
        let mut state = limits::fitted(whole.clone())?;
        self.whole = Some(whole);
        let started_at = inputs.kubelet.started_at.unwrap_or(0).saturating_mul(1_000_000_000);
        state.revision = self.revision;
        if self.last.as_ref() != Some(&state) {
            self.revision = if started_at > self.revision.epoch {
                Revision { epoch: started_at, counter: 0 }
            } else {
                Revision { counter: self.revision.counter.saturating_add(1), ..self.revision }
            };
            state.revision = self.revision;
        }
        Ok(self.last.insert(state))
    }

    fn note_rejected(&mut self, inputs: NodeInputs<'_>) {
        for pod in inputs.api.pods.iter().flatten() {
            let Some(rejection) = &pod.rejection else { continue };
            if !self.rejected.iter().any(|known| known.uid == pod.uid) {
                let (uid, reason) = (pod.uid.clone(), rejection.reason.clone());
                self.rejected.push(RejectedPod { uid, reason, at: rejection.at.max(0) });
            }
        }
        self.rejected.sort_by(|one, other| (one.at, &one.uid).cmp(&(other.at, &other.uid)));
        let excess = self.rejected.len().saturating_sub(MOST_REJECTED);
        self.rejected.drain(..excess);
    }
}
