//! The `hints` engine: every resource says which sets of NUMA nodes would do, and the answers are
//! merged into one set for all.
//!
//! Problem: CPUs, memory, huge pages and devices of a container should come from the same nodes,
//! and each of them knows only its own stock. Idea: each resource *offers* the sets of nodes (masks)
//! from which it could serve the request, and marks those as *preferred* that are as narrow as an
//! empty machine would allow. The [merge](merge::merge) finds the best set that all agree on; the
//! policy says whether that is good enough; then each resource assigns from that set.
//!
//! Terminology: a *mask* is a set of nodes by their position in a [`NodeIndex`], so ids may be
//! sparse and above 63. An *offer* is what one resource says. Semantics are those of the kubelet's
//! managers (docs/placement.md says where we differ and why).

mod accounts;
mod beside;
mod candidates;
pub mod cpu;
mod demand;
pub mod device;
mod engine;
mod give;
mod index;
mod keep;
pub mod kubelet;
mod local;
mod masks;
pub mod memory;
mod mems;
pub mod merge;
mod narrowest;
mod numa_first_fit;
mod placing;
mod question;
mod refusal;
mod shared;
mod soften;
mod table;
#[cfg(test)]
mod tests;
mod threshold;
mod windows;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    engine::HintsEngine,
    index::{HintMasks, NodeIndex},
    numa_first_fit::numa_first_fit,
    threshold::{Need, Threshold},
    windows::Windows,
};
pub(in crate::place) use self::{
    masks::{LISTED, positions},
    refusal::left_out,
    table::{Sums, Table, each_pair},
};
use crate::set::NodeSet;

/// A set of nodes by position; bit 0 is the lowest id.
pub type Mask = u64;

/// A set of nodes for a container, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hint {
    /// The nodes; none when any will do.
    pub nodes: Option<NodeSet>,
    /// Is it as narrow as an empty machine would allow?
    pub preferred: bool,
}

/// One set of nodes that would do for one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaskHint {
    /// The nodes; none when any will do.
    pub mask: Option<Mask>,
    /// Is it as narrow as an empty machine would allow?
    pub preferred: bool,
    /// How much the resource likes it for other reasons, 1 to 100; 0 when it has no opinion.
    pub score: u8,
}

/// What one resource says to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// It does not matter where.
    NoPreference,
    /// These would do; an empty list when nothing would.
    Listed(Vec<MaskHint>),
    /// Whatever has enough would do. The form for machines with so many nodes that masks cannot be
    /// listed; says the same as the list of all masks that suffice.
    Threshold(Threshold),
}

/// What every resource of a container says, by name of the resource (`cpu`, `memory`,
/// `hugepages-2Mi`, `vendor.com/gpu`).
pub type Offers = Vec<(String, Offer)>;
