//! What the engine knows of a machine, whatever runs on it: its tree of pools, and the CPUs that belong
//! together.
//!
//! Problem: both take milliseconds on a large machine, and every pod needs them. Idea: they are computed when
//! the first pod asks, and kept beside the [`Inventory`] that they are made of. An inventory is replaced when
//! the machine or the settings change, and never edited.
//!
//! Invariants: computed from the inventory alone, so two equal inventories are equal whether or not this was
//! computed for them.

use std::sync::{Arc, OnceLock};

use super::{cpus::CpuGroups, tree::PoolTree};
use crate::place::Inventory;

/// What was computed of one inventory, if anything was.
#[derive(Debug, Clone, Default)]
pub struct MachinePools {
    tree: OnceLock<Arc<PoolTree>>,
    groups: OnceLock<Arc<CpuGroups>>,
}

impl PartialEq for MachinePools {
    /// Nothing is in it that is not in the inventory.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl MachinePools {
    /// The tree of pools of this inventory, which holds this value.
    pub(super) fn tree<'a>(&'a self, inventory: &Inventory) -> &'a PoolTree {
        self.tree.get_or_init(|| Arc::new(PoolTree::new(inventory)))
    }

    /// Which CPUs of it belong together.
    pub(super) fn groups<'a>(&'a self, inventory: &Inventory) -> &'a CpuGroups {
        self.groups.get_or_init(|| Arc::new(CpuGroups::of(inventory)))
    }
}
