//! Precomputed state of the engine for a machine: its tree of pools and its groups of CPUs.
//!
//! Problem: both take milliseconds on a large machine, and every pod needs them. Idea: they are computed for
//! the first pod and kept beside the [`Inventory`]. An inventory is replaced when the machine or the settings
//! change, and never modified.
//!
//! Invariant: computed from the inventory alone, so equal inventories stay equal whether this was computed or
//! not.
//! computed for them.

use std::sync::{Arc, OnceLock};

use super::{cpus::CpuGroups, tree::PoolTree};
use crate::Inventory;

/// State computed so far for one inventory.
#[derive(Debug, Clone, Default)]
pub struct MachinePools {
    tree: OnceLock<Arc<PoolTree>>,
    groups: OnceLock<Arc<CpuGroups>>,
}

impl PartialEq for MachinePools {
    /// Derived from the inventory, so it is ignored in comparisons.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl MachinePools {
    /// The tree of pools of the inventory that contains this value.
    pub(super) fn tree<'a>(&'a self, inventory: &Inventory) -> &'a PoolTree {
        self.tree.get_or_init(|| Arc::new(PoolTree::new(inventory)))
    }

    /// The groups of its CPUs.
    pub(super) fn groups<'a>(&'a self, inventory: &Inventory) -> &'a CpuGroups {
        self.groups.get_or_init(|| Arc::new(CpuGroups::of(inventory)))
    }
}
