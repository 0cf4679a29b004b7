//! Promises of memory that cannot move: huge pages.
//!
//! Problem: the kernel takes a container's huge pages from any of its nodes, and they stay there. A promise
//! over several nodes may be taken entirely from one, before another container has taken its promise there.
//! Idea: no arrangement is assumed. A promise on a set of nodes can be kept if enough remains after every
//! other promise has taken as much from these nodes as it can.
//!
//! Invariant: promises that fit here can be kept in whatever order containers take their pages. Cost:
//! O(zones^2).

use super::promises::Promises;
use crate::nodes::{Mask, positions};

/// Promises on zones, and the capacity of the nodes.
pub(super) struct Fixed<'a> {
    promises: &'a Promises,
    /// By zone: its nodes, its promise, and what remains when all others have taken as much as they can.
    zones: Vec<(Mask, u64, u64)>,
}

impl<'a> Fixed<'a> {
    pub(super) fn of(promises: &'a Promises) -> Self {
        let zones: Vec<(Mask, u64)> = promises.promised().filter(|(_, bytes)| *bytes > 0).collect();
        let mut fixed =
            Self { promises, zones: zones.iter().map(|(nodes, bytes)| (*nodes, *bytes, 0)).collect() };
        let slack: Vec<u64> = zones
            .iter()
            .map(|(nodes, _)| promises.capacity(*nodes).saturating_sub(fixed.taken(*nodes)))
            .collect();
        for (zone, slack) in fixed.zones.iter_mut().zip(slack) {
            zone.2 = slack;
        }
        fixed
    }

    /// Maximum that promises take from these nodes. Promises inside them are taken there.
    pub(super) fn taken(&self, nodes: Mask) -> u64 {
        let most = |(zone, bytes, _): &(Mask, u64, u64)| {
            if zone & !nodes == 0 { *bytes } else { (*bytes).min(self.promises.capacity(zone & nodes)) }
        };
        self.zones.iter().map(most).fold(0, u64::saturating_add)
    }

    /// Amount that can be promised on these nodes in addition, without risk to other promises.
    pub(super) fn free(&self, nodes: Mask) -> u64 {
        let own = self.promises.capacity(nodes).saturating_sub(self.taken(nodes));
        let touched = self.zones.iter().filter(|(zone, ..)| zone & nodes != 0);
        // A promise takes no more from the nodes of a zone than the capacity of their common nodes.
        let bound = touched.filter(|(zone, _, slack)| self.promises.capacity(zone & nodes) > *slack);
        bound.map(|(.., slack)| *slack).fold(own, u64::min)
    }

    /// Sum of the free amounts of each of these nodes alone.
    pub(super) fn free_on_each(&self, nodes: Mask) -> u64 {
        positions(nodes).map(|node| self.free(1 << node)).fold(0, u64::saturating_add)
    }

    /// Zones with a promise that cannot be kept in every case.
    pub(super) fn overcommitted(&self) -> Vec<Mask> {
        let short = |(nodes, ..): &&(Mask, u64, u64)| self.taken(*nodes) > self.promises.capacity(*nodes);
        self.zones.iter().filter(short).map(|(nodes, ..)| *nodes).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn promises(capacity: &[u64], claims: &[(Mask, u64)]) -> Promises {
        let mut promises = Promises::new(capacity.to_vec()).fixed();
        for (nodes, bytes) in claims {
            let zone = promises.zone(*nodes);
            promises.note(zone, *bytes);
        }
        promises
    }

    #[test]
    fn what_an_earlier_container_may_take_first_is_not_promised() {
        for (claims, nodes, free) in [
            (&[][..], 0b01, 5),
            (&[(0b11, 6)], 0b01, 0),
            (&[(0b11, 6)], 0b10, 0),
            (&[(0b11, 6)], 0b11, 4),
            (&[(0b11, 2)], 0b01, 3),
            (&[(0b01, 4)], 0b10, 5),
            // It could first take what was promised on node 0.
            (&[(0b01, 4)], 0b11, 1),
            (&[(0b01, 4), (0b10, 5)], 0b11, 0),
            (&[(0b01, 9)], 0b01, 0),
        ] {
            let promises = promises(&[5, 5], claims);
            assert_eq!(promises.free(nodes), free, "{claims:?} {nodes:b}");
            let sets = promises.free_on_sets(&[1, 2]);
            assert_eq!(sets.at(nodes), free, "{claims:?} {nodes:b}");
        }
        assert_eq!(promises(&[5, 5], &[(0b11, 6), (0b01, 4)]).overcommitted(), [0b01]);
        assert!(promises(&[5, 5], &[(0b11, 6), (0b11, 4)]).overcommitted().is_empty());
    }

    proptest! {
        #[test]
        fn what_fits_can_be_had_in_whatever_order_it_is_taken(
            capacity in prop::collection::vec(0u64..20, 1..5),
            asked in prop::collection::vec((1u64..16, 1u64..25), 0..8),
            picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 200),
        ) {
            let all: Mask = (1 << capacity.len()) - 1;
            let mut claims: Vec<(Mask, u64)> = Vec::new();
            for (nodes, bytes) in asked {
                let nodes = nodes & all;
                if nodes != 0 && promises(&capacity, &claims).fits(nodes, bytes) {
                    claims.push((nodes, bytes));
                    prop_assert!(promises(&capacity, &claims).overcommitted().is_empty());
                }
            }
            let mut left = capacity;
            let mut missing = claims;
            for (holder, node) in picks {
                missing.retain(|(_, bytes)| *bytes > 0);
                if missing.is_empty() {
                    break;
                }
                let at = holder.index(missing.len());
                let (nodes, bytes) = &mut missing[at];
                let able: Vec<usize> = positions(*nodes).filter(|node| left[*node] > 0).collect();
                prop_assert!(!able.is_empty(), "nothing is left for {bytes} on {nodes:b}");
                left[able[node.index(able.len())]] -= 1;
                *bytes -= 1;
            }
        }
    }
}
