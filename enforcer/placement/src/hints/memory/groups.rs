//! The kubelet's rule: a node holds promises of single nodes or of one group, never both.

use crate::{hints::Mask, memory::ZoneAccount};

/// Zones in use, under that rule.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    zones: Vec<Mask>,
}

impl Groups {
    /// Zones with a claim.
    pub(super) fn of(account: &ZoneAccount) -> Self {
        let mut zones: Vec<Mask> = account.claimed_zones().collect();
        zones.sort_unstable();
        zones.dedup();
        Self { zones }
    }

    /// May memory be promised on these nodes? On one node if it belongs to no group; on several if they are a
    /// group already or none of them is in use.
    pub(super) fn allow(&self, nodes: Mask) -> bool {
        self.zones.iter().all(|zone| zone & nodes == 0 || *zone == nodes)
    }

    /// Are there no promises that involve these nodes?
    pub(super) fn unused(&self, nodes: Mask) -> bool {
        self.zones.iter().all(|zone| zone & nodes == 0)
    }

    /// Groups of several nodes.
    pub(super) fn several(&self) -> impl Iterator<Item = Mask> {
        self.zones.iter().copied().filter(|zone| zone.count_ones() > 1)
    }
}
