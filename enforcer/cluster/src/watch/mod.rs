//! The pods that are bound to one node, as the API server shows them: a list, and the changes since.
//!
//! Problem: the kubelet's files name pods by uid. Which names, kinds of containers and refusals belong to
//! these, and which uid a static pod has in the API, only the API server knows. The daemon has to follow it
//! on every node of a large cluster, and one object may be as large as the server allows.
//!
//! Idea: one list from the server's cache, then one watch from its version on ([`follow`]). Both answers
//! are cut into their objects while they arrive ([`split`]), and of each object only [`pod`] is kept. kube's
//! own watcher would need its runtime crate and hold whole pods.
//!
//! Invariants: what the receiver has is the newest that the server told. It stays while the server is away.
//! An object beyond the bounds is left out by name, and never ends the watch. No more than [`LARGEST`] bytes
//! of text, [`bound::ACTIVE`] pods that run, [`bound::ENDED`] ended ones and [`bound::REQUESTS`] bytes of
//! what they ask for are held. Waits grow and differ
//! from daemon to daemon, and two requests begin at least [`SPACING`] apart.

mod bound;
mod follow;
mod pod;
mod split;
mod task;

use std::{sync::Arc, time::Duration};

use enforcer_core::cluster::observed::{ApiPod, PodSequence};

pub use self::{follow::WatchLimits, task::watch_pods};
pub(crate) use self::{
    follow::{Collection, GoneObject, ObjectSink, follow, name_in},
    split::Piece,
};

/// Largest object of an answer that is read, in bytes. An object of etcd has 1.5 MiB.
const LARGEST: usize = 2 << 20;
/// Least time between the beginnings of two requests.
const SPACING: Duration = Duration::from_millis(500);

/// What is known of the pods of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum WatchedPods {
    /// The server was asked, and has not answered yet.
    #[default]
    Asked,
    /// The server does not tell.
    Unknown,
    /// The pods.
    Known(Arc<BoundPods>),
}

/// The pods of a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BoundPods {
    /// Pods in ascending order of their uids; of those that have ended, the newest.
    pub pods: Vec<ApiPod>,
    /// Pods that could not be read, and why.
    pub left_out: Vec<String>,
    /// Where in the changes this is.
    pub sequence: PodSequence,
}
