//! Promises of memory that cannot move: huge pages.
//!
//! Problem: the kernel takes a container's huge pages from any of its nodes, and they stay there. A promise
//! over several nodes may be taken entirely from one, before another container has taken its promise there.
//! Idea: no arrangement is assumed. A promise on a set of nodes can be kept if enough remains after every
//! other promise has taken as much from these nodes as it can.
//!
//! Invariant: promises that fit here can be kept in whatever order containers take their pages. Cost:
//! O(zones^2).

use crate::nodes::{Mask, positions};

/// Promises on zones, and the capacity of the nodes.
pub(super) struct Fixed<'a> {
    /// By position of the node.
    capacity: &'a [u64],
    /// By zone: its nodes, its promise, and what remains when all others have taken as much as they can.
    zones: Vec<(Mask, u64, u64)>,
}

impl<'a> Fixed<'a> {
    /// Promises on distinct zones of nodes with this capacity.
    pub(super) fn new(capacity: &'a [u64], promised: impl Iterator<Item = (Mask, u64)>) -> Self {
        let zones = promised.filter(|(_, bytes)| *bytes > 0).map(|(nodes, bytes)| (nodes, bytes, 0));
        let mut fixed = Self { capacity, zones: zones.collect() };
        let slack =
            |(nodes, ..): &(Mask, u64, u64)| fixed.capacity(*nodes).saturating_sub(fixed.taken(*nodes));
        let slacks: Vec<u64> = fixed.zones.iter().map(slack).collect();
        for (zone, slack) in fixed.zones.iter_mut().zip(slacks) {
            zone.2 = slack;
        }
        fixed
    }

    fn capacity(&self, nodes: Mask) -> u64 {
        sum(self.capacity, nodes)
    }

    /// Maximum that promises take from these nodes. Promises inside them are taken there.
    pub(super) fn taken(&self, nodes: Mask) -> u64 {
        let most = |(zone, bytes, _): &(Mask, u64, u64)| {
            if zone & !nodes == 0 { *bytes } else { (*bytes).min(self.capacity(zone & nodes)) }
        };
        self.zones.iter().map(most).fold(0, u64::saturating_add)
    }

    /// Amount that can be promised on these nodes in addition, without risk to other promises.
    pub(super) fn free(&self, nodes: Mask) -> u64 {
        let own = self.capacity(nodes).saturating_sub(self.taken(nodes));
        let touched = self.zones.iter().filter(|(zone, ..)| zone & nodes != 0);
        // A promise takes no more from the nodes of a zone than the capacity of their common nodes.
        let bound = touched.filter(|(zone, _, slack)| self.capacity(zone & nodes) > *slack);
        bound.map(|(.., slack)| *slack).fold(own, u64::min)
    }

    /// Sum of the free amounts of each of these nodes alone.
    pub(super) fn free_on_each(&self, nodes: Mask) -> u64 {
        positions(nodes).map(|node| self.free(1 << node)).fold(0, u64::saturating_add)
    }

    /// Zones with a promise that cannot be kept in every case.
    pub(super) fn overcommitted(&self) -> Vec<Mask> {
        let short = |(nodes, ..): &&(Mask, u64, u64)| self.taken(*nodes) > self.capacity(*nodes);
        self.zones.iter().filter(short).map(|(nodes, ..)| *nodes).collect()
    }
}

/// Sum of the amounts at the positions of these nodes.
pub(super) fn sum(amounts: &[u64], nodes: Mask) -> u64 {
    let amounts = positions(nodes).filter_map(|node| amounts.get(node));
    amounts.fold(0, |sum, amount| sum.saturating_add(*amount))
}

#[cfg(test)]
mod tests;
