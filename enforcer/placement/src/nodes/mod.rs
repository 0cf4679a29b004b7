//! Sets of nodes as masks: the arithmetic that both engines and the account of memory count with.
//!
//! A *mask* is a set of nodes by their position in a [`NodeIndex`], so that ids may be sparse and above 63.
//! Nothing here knows a resource, a pod or an engine.

mod distances;
mod index;
mod masks;
mod table;

pub(crate) use distances::NodeDistances;
pub use index::{HintMasks, NodeIndex};
pub(crate) use masks::{MAX_ENUMERATED_NODES, by_width, of_width, positions};
pub(crate) use table::{Sums, Table, each_pair};

/// A set of nodes by position; bit 0 is the lowest id.
pub type Mask = u64;
