//! What the gate reads of a pod beside its request.

use numa_placement::foreign::PLACED_ON;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use crate::cluster::objects::PodScheduling;

/// Name of the scheduling gate.
pub const GATE: &str = "numa-enforcer.io/placement";

/// What keeps a pod without a node from the scheduler, and what a gate has left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodGates {
    /// Positions of the gate of this program in its list of gates.
    pub ours: Vec<usize>,
    /// Whether it has annotations at all.
    pub has_annotations: bool,
    /// Node that it was placed on.
    pub placed: Option<PlacedMark>,
    /// What of its requirements is not computed here.
    pub not_computed: Option<NotComputed>,
}

/// A requirement of a pod that is not computed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, IntoStaticStr)]
pub enum NotComputed {
    /// `podAffinity` or `podAntiAffinity` that is required.
    #[strum(to_string = "its required affinity to other pods")]
    PodAffinity,
    /// `topologySpreadConstraints` with `DoNotSchedule`.
    #[strum(to_string = "its topologySpreadConstraints")]
    TopologySpread,
    /// Ports of the host.
    #[strum(to_string = "its host ports")]
    HostPorts,
    /// Volumes of claims, which may be bound to some nodes.
    #[strum(to_string = "its volumes of claims")]
    Volumes,
    /// Claims of devices (`resourceClaims`).
    #[strum(to_string = "its resourceClaims")]
    DeviceClaims,
    /// An affinity that is larger than what is read.
    #[strum(to_string = "its affinity, which is too large")]
    TooLarge,
}

/// The node of a placed pod, as an annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedMark {
    /// The node.
    pub node: String,
    /// When the pod was placed, in seconds since 1970.
    pub at: i64,
}

impl PlacedMark {
    /// The annotation.
    pub const ANNOTATION: &str = PLACED_ON;

    /// Reads its value; `None` if it is none.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_slice(text.as_bytes()).ok()
    }
}

impl PodGates {
    /// Has it the gate of this program?
    pub const fn has_ours(&self) -> bool {
        !self.ours.is_empty()
    }
}

impl PodScheduling {
    /// The mark of a pod that was placed and has lost the gate. Without the affinity that belongs to it a
    /// scheduler may bind the pod anywhere.
    pub fn placed_on(&self) -> Option<&PlacedMark> {
        let mark = self.gates.placed.as_ref().filter(|_| !self.gates.has_ours())?;
        self.required.name_only(&mark.node).then_some(mark)
    }
}
