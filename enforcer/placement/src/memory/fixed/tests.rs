//! Promises of memory that cannot move, against every order in which containers may take it.

use proptest::prelude::*;

use super::super::promises::Promises;
use crate::nodes::{Mask, positions};

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
