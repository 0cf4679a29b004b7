//! Resize of a pod in place: which of its amounts its node goes by.
//!
//! The specification has the wish. The status has what the node has allocated (`allocatedResources`, behind a
//! gate of the kubelet) and what the containers have (`resources`), and conditions tell how far the node is
//! (Kubernetes: `pkg/kubelet/allocation`, KEP 1287). A kubelet with the static CPU policy refuses to resize a
//! Guaranteed pod, so a wish that will never come true may stand there for the life of the pod.

use serde::Deserialize;

/// Progress of a resize, as conditions of the pod tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResizeProgress {
    /// None is known.
    Unknown,
    /// The node will not do it.
    Infeasible,
    /// The node has allocated the wish, and the containers do not have it yet.
    Allocated,
}

/// A condition of a pod.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    last_transition_time: Option<String>,
}

impl PodCondition {
    /// The condition of this type that holds.
    pub(crate) fn that_holds<'a>(conditions: &'a [Self], kind: &str) -> Option<&'a Self> {
        conditions.iter().find(|one| one.kind == kind && one.status == "True")
    }

    /// When it came to hold, as text.
    pub(crate) fn since(&self) -> Option<&str> {
        self.last_transition_time.as_deref()
    }
}

impl ResizeProgress {
    /// As these conditions tell it.
    pub(crate) fn of(conditions: &[PodCondition]) -> Self {
        let that_holds = |kind| PodCondition::that_holds(conditions, kind);
        match (that_holds("PodResizePending"), that_holds("PodResizeInProgress")) {
            (Some(pending), _) if pending.reason == "Infeasible" => Self::Infeasible,
            (None, Some(_)) => Self::Allocated,
            _ => Self::Unknown,
        }
    }

    /// The amount that the node goes by, of what it has allocated and what the container has, if the status
    /// tells these. Without what is allocated it is what the container has, unless the node says otherwise.
    pub(crate) fn on_node(self, wish: u64, allocated: Option<u64>, actual: Option<u64>) -> u64 {
        match (allocated, self) {
            (Some(allocated), _) => allocated,
            (None, Self::Allocated) => wish,
            (None, Self::Unknown | Self::Infeasible) => actual.unwrap_or(wish),
        }
    }

    /// The amount that a scheduler counts (`k8s.io/component-helpers/resource`, `determineContainerReqs`).
    pub(crate) fn of_scheduler(self, wish: u64, allocated: Option<u64>, actual: Option<u64>) -> u64 {
        let held = allocated.max(actual);
        if self == Self::Infeasible { held.unwrap_or(wish) } else { wish.max(held.unwrap_or(0)) }
    }
}
