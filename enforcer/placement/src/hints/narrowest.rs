//! Number of nodes that a request needs on an empty machine with too many nodes to try all sets.
//!
//! Idea: take nodes one after another, always the one that covers most of the remaining need. For one
//! resource, and for nodes that are alike, this gives the smallest number. If several resources are on
//! different nodes the result may be too large, but some set of that size always suffices. Cost: O(nodes^2 x
//! resources).

use super::Need;

/// Number of nodes of the narrowest set that has enough of everything; none if all together have too little.
/// `free` is the amount on the nodes of an empty machine.
pub(super) fn narrowest(needs: &[Need]) -> Option<u32> {
    let nodes = needs.iter().map(|need| need.free.len()).max().unwrap_or(0);
    let mut rest: Vec<u64> = needs.iter().map(|need| need.amount).collect();
    let mut left: Vec<usize> = (0..nodes).collect();
    let mut taken = 0;
    while taken == 0 || rest.iter().any(|amount| *amount > 0) {
        let covers = |node: usize| needs.iter().zip(&rest).map(|(need, rest)| share(need, node, *rest)).sum();
        let best = left.iter().enumerate().rev().max_by_key(|(_, node)| -> u128 { covers(**node) })?.0;
        let node = left.remove(best);
        for (need, rest) in needs.iter().zip(&mut rest) {
            *rest = rest.saturating_sub(need.free.get(node).copied().unwrap_or(0));
        }
        taken += 1;
    }
    Some(taken)
}

/// Part of the need that a node covers, in units of 2^-32.
fn share(need: &Need, node: usize, rest: u64) -> u128 {
    let covered = need.free.get(node).copied().unwrap_or(0).min(rest);
    (u128::from(covered) << 32) / u128::from(need.amount.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_there_has_no_width() {
        assert_eq!(narrowest(&[Need { free: vec![1, 2], amount: 4 }]), None);
        assert_eq!(narrowest(&[Need { free: vec![], amount: 1 }]), None);
        assert_eq!(narrowest(&[Need { free: vec![u64::MAX, u64::MAX], amount: u64::MAX }]), Some(1));
    }

    proptest! {
        #[test]
        fn it_is_the_smallest_number_for_one_resource(
            free in proptest::collection::vec(0u64..20, 1..8),
            amount in 1u64..60,
        ) {
            let enough = |mask: u64| {
                (0..free.len()).filter(|node| mask >> node & 1 == 1).map(|node| free[node]).sum::<u64>() >= amount
            };
            let smallest = (1u64..1 << free.len()).filter(|mask| enough(*mask)).map(u64::count_ones).min();
            prop_assert_eq!(narrowest(&[Need { free: free.clone(), amount }]), smallest);
        }

        #[test]
        fn for_several_it_is_attained(
            free in proptest::collection::vec((0u64..20, 0u64..20), 1..8),
            amounts in (1u64..60, 1u64..60),
        ) {
            let enough = |mask: u64| {
                let of = |part: fn(&(u64, u64)) -> u64| {
                    free.iter().enumerate().filter(|(node, _)| mask >> node & 1 == 1).map(|(_, f)| part(f)).sum::<u64>()
                };
                of(|f| f.0) >= amounts.0 && of(|f| f.1) >= amounts.1
            };
            let widths: Vec<u32> = (1u64..1 << free.len()).filter(|mask| enough(*mask)).map(u64::count_ones).collect();
            let needs = [
                Need { free: free.iter().map(|f| f.0).collect(), amount: amounts.0 },
                Need { free: free.iter().map(|f| f.1).collect(), amount: amounts.1 },
            ];
            match narrowest(&needs) {
                Some(width) => prop_assert!(widths.contains(&width)),
                None => prop_assert!(widths.is_empty()),
            }
        }
    }
}
