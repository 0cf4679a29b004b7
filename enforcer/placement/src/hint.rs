//! The set of nodes that the engine `hints` chose, as a grant shows it.

use numa_topology::set::NodeSet;

/// A set of nodes for a container, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Hint {
    /// The nodes; `None` if any node is suitable.
    pub nodes: Option<NodeSet>,
    /// Whether it is as narrow as an empty machine would allow.
    pub preferred: bool,
}
