//! The `hints` engine: every resource offers sets of NUMA nodes, and the offers are merged into one set for
//! all.
//!
//! Problem: CPUs, memory, huge pages and devices of a container should come from the same nodes,
//! and each of them knows only its own stock. Idea: each resource *offers* the sets of nodes (masks)
//! from which it could serve the request, and marks those as *preferred* that are as narrow as an
//! empty machine would allow. The [merge](merge::merge) finds the best set that all agree on; the
//! policy says whether that is good enough; then each resource assigns from that set.
//!
//! Terminology: a *mask* is a set of nodes by their position in a [`NodeIndex`], so ids may be sparse and
//! above 63. An *offer* is the answer of one resource to a request. Semantics are those of the kubelet's
//! managers (docs/placement.md lists the differences and reasons).

mod accounts;
mod asker;
mod beside;
mod candidates;
pub mod cpu;
mod demand;
pub mod device;
mod engine;
mod give;
mod keep;
pub mod kubelet;
mod listed;
mod local;
pub mod memory;
mod mems;
pub mod merge;
mod narrowest;
mod no_cpus;
mod numa_first_fit;
mod placing;
mod question;
mod refusal;
mod shared;
mod soften;
#[cfg(test)]
mod tests;
mod threshold;
mod tie_break;
mod windows;

pub(crate) use self::numa_first_fit::numa_first_fit;
pub(crate) use self::refusal::left_out;
pub use self::{
    engine::HintsEngine,
    threshold::{Need, Threshold},
    windows::Windows,
};
pub(crate) use crate::nodes::{MAX_ENUMERATED_NODES, NodeDistances, Sums, Table, of_width, positions};
pub use crate::{
    hint::Hint,
    nodes::{HintMasks, Mask, NodeIndex},
};

/// A set of nodes that is suitable for one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaskHint {
    /// The nodes; `None` if any node is suitable.
    pub mask: Option<Mask>,
    /// Whether it is as narrow as an empty machine would allow.
    pub preferred: bool,
    /// Score of the resource for other reasons, 1 to 100; 0 without a score.
    pub score: u8,
}

/// Offer of one resource for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// Every node is suitable.
    NoPreference,
    /// These sets are suitable; with an empty list none is.
    Listed(Vec<MaskHint>),
    /// All sets with enough are suitable. For machines with too many nodes to list masks; equivalent to the
    /// list of all sufficient masks.
    Threshold(Threshold),
}

/// Offers of all resources for a container, by name of the resource (`cpu`, `memory`, `hugepages-2Mi`,
/// `vendor.com/gpu`).
pub type Offers = Vec<(String, Offer)>;
