//! First fit over sets of nodes sorted by width: the merge of the older NUMA Manager.
//!
//! Problem: lists are sorted by width, their combinations are tried in that order (the last list changes
//! fastest), and the first combination of sets with a common node wins. The number of combinations is the
//! product of all lengths. Idea: a choice for the first lists can be completed exactly if its intersection
//! contains a node that every later list has in some set. So each list's set is found in turn, without
//! backtracking.
//!
//! Unlike the [merge](super::merge), the answer depends on the order of the lists. Cost: O(masks x log
//! masks) for the sorting.

use super::{Mask, NodeIndex};

/// The common nodes of the first combination that has any; none if there is no such combination. Without any
/// list that is all nodes; sets of equal width keep their order.
pub(crate) fn numa_first_fit(nodes: &NodeIndex, lists: &[Vec<Mask>]) -> Option<Mask> {
    // Nodes that all lists from this one on have in some set.
    let mut reachable = vec![nodes.all(); lists.len() + 1];
    for (position, list) in lists.iter().enumerate().rev() {
        reachable[position] = reachable[position + 1] & list.iter().fold(0, |seen, mask| seen | mask);
    }
    let found = lists.iter().zip(&reachable[1..]).try_fold(nodes.all(), |common, (list, later)| {
        // `min_by_key` returns the first of equal ones.
        let fits = list.iter().filter(|mask| common & **mask & later != 0);
        fits.min_by_key(|mask| mask.count_ones()).map(|mask| common & mask)
    });
    found.filter(|mask| *mask != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use numa_topology::set::NodeSet;

    fn nodes(number: u32) -> NodeIndex {
        NodeIndex::new(&(0..number).map(numa_topology::id::NodeId).collect::<NodeSet>())
    }

    /// The procedure in the proposal: sort, walk, first common set.
    fn by_walking(nodes: &NodeIndex, lists: &[Vec<Mask>]) -> Option<Mask> {
        let mut combinations = vec![nodes.all()];
        for list in lists {
            let mut list = list.clone();
            list.sort_by_key(|mask| mask.count_ones());
            combinations =
                combinations.iter().flat_map(|common| list.iter().map(move |mask| common & mask)).collect();
        }
        combinations.into_iter().find(|common| *common != 0)
    }

    #[test]
    fn the_first_common_set_in_order_of_width_wins() {
        for (lists, found) in [
            (vec![], Some(0b1111)),
            (vec![vec![]], None),
            (vec![vec![0b0011, 0b0100], vec![0b0110]], Some(0b0100)),
            (vec![vec![0b0001], vec![0b0010]], None),
            // Not the best for all: the first list's narrowest set decides.
            (vec![vec![0b0010, 0b1100], vec![0b0110, 0b1100]], Some(0b0010)),
            // The narrowest set of the first list has no completion.
            (vec![vec![0b0001, 0b0110], vec![0b1010], vec![0b0011]], Some(0b0010)),
            // A node that the machine does not have.
            (vec![vec![0b1_0000]], None),
        ] {
            assert_eq!(numa_first_fit(&nodes(4), &lists), found, "{lists:?}");
        }
    }

    #[test]
    fn many_long_lists_without_a_common_node_are_no_trouble() {
        let mut lists = vec![(1..1 << 15).collect::<Vec<Mask>>(); 12];
        lists.push(vec![1 << 15]);
        assert_eq!(numa_first_fit(&nodes(16), &lists), None);
    }

    proptest! {
        #[test]
        fn it_is_what_walking_all_combinations_finds(
            lists in prop::collection::vec(prop::collection::vec(0..64_u64, 0..5), 0..5)
        ) {
            let nodes = nodes(5);
            prop_assert_eq!(numa_first_fit(&nodes, &lists), by_walking(&nodes, &lists));
        }
    }
}
