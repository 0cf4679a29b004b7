//! Events of a node and its pods, as `kubectl describe` shows them.
//!
//! Problem: a pod's owner looks at the pod, not at the log of a daemon. But a node with a fault has it in
//! every turn, and all nodes share one API server. Idea: what a turn or a state has that the one before did
//! not becomes a [`NodeEvent`]; [`EventLog`] joins repetitions into a series and bounds the writes.
//!
//! Invariants: a note is one line without deceptive characters and within the limit of the API, because parts
//! of it come from containers. The kubelet's own events (`TopologyAffinityError`) are not repeated, unless it
//! is known what was short.

mod log;
mod state;
#[cfg(test)]
mod tests;

use numa_topology::text::printable_within;
use strum::IntoStaticStr;

pub use self::{
    log::{EventCall, EventLimits, EventLog, NotedEvent},
    state::{KubeletFacts, StateEvents, StateFacts},
};

/// Longest note in bytes, as the API server accepts it.
const MAX_NOTE: usize = 1_024;

/// What happened, in the words of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
pub enum EventReason {
    /// A workload is not where its CPUs or its memory should be.
    NumaMisaligned,
    /// The daemon moved a workload.
    NumaCorrected,
    /// The daemon added a memory node to a workload, because its own were nearly full.
    NumaMemoryWidened,
    /// The daemon has no place for a workload, or may not move it; or the kubelet has none for a pod.
    NumaPlacementRefused,
    /// No node of the cluster has a place for a pod.
    NumaPlacementImpossible,
    /// A gated pod was released without a node, because its requirements are not computed whole.
    NumaPlacementSkipped,
    /// A pod that was placed by its gate is still not bound.
    NumaPlacementLate,
    /// A gated pod cannot be read, or the API server refuses its change each time.
    NumaPlacementFailed,
    /// The node did with a pod something else than its published state predicted.
    NumaPredictionWrong,
    /// The node's kubelet runs with other settings than before.
    KubeletConfigurationChanged,
    /// The node's decisions cannot be predicted from its published state.
    NumaStateInexact,
}

impl EventReason {
    /// The action that was taken, in the words of the API.
    pub const fn action(self) -> &'static str {
        match self {
            Self::NumaMisaligned => "Observing",
            Self::NumaCorrected => "Moving",
            Self::NumaMemoryWidened => "Widening",
            Self::NumaPlacementRefused => "Placing",
            Self::NumaPlacementImpossible
            | Self::NumaPlacementSkipped
            | Self::NumaPlacementLate
            | Self::NumaPlacementFailed => "Scheduling",
            Self::NumaPredictionWrong => "Predicting",
            Self::KubeletConfigurationChanged | Self::NumaStateInexact => "Publishing",
        }
    }

    /// Whether it is of type `Warning`; else it is `Normal`.
    pub const fn is_warning(self) -> bool {
        match self {
            Self::NumaMisaligned
            | Self::NumaMemoryWidened
            | Self::NumaPlacementRefused
            | Self::NumaPlacementImpossible
            | Self::NumaPlacementSkipped
            | Self::NumaPlacementLate
            | Self::NumaPlacementFailed
            | Self::NumaPredictionWrong
            | Self::NumaStateInexact => true,
            Self::NumaCorrected | Self::KubeletConfigurationChanged => false,
        }
    }
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventObject {
    /// The node of the daemon; its events are in the namespace `default`.
    Node {
        /// Its name.
        name: String,
        /// Its uid: a node that takes the same name later has another one.
        uid: String,
    },
    /// A claim for devices of the node.
    Claim {
        /// Its namespace, which is also that of the event.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// A pod of the node.
    Pod {
        /// Its namespace, which is also that of the event.
        namespace: String,
        /// Its name.
        name: String,
        /// Its uid in the API.
        uid: String,
    },
}

/// Something that happened once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEvent {
    /// What it is about.
    pub object: EventObject,
    /// What happened.
    pub reason: EventReason,
    /// The details, for people.
    pub note: String,
}

impl NodeEvent {
    /// An event; the note is made fit for the API.
    pub fn new(object: EventObject, reason: EventReason, note: &str) -> Self {
        let mut note = printable_within(note, MAX_NOTE);
        while note.len() > MAX_NOTE {
            note.pop();
        }
        Self { object, reason, note }
    }
}
