//! Compares shares with their definition: every choice of nodes and of subsets, one by one.

use proptest::prelude::*;

use crate::hints::cpu::shares::{Share, find, find_within};

/// All combinations of `width` of `of`, lexicographically.
fn combinations(of: &[usize], width: usize) -> Vec<Vec<usize>> {
    match (width, of) {
        (0, _) => vec![Vec::new()],
        (_, []) => Vec::new(),
        (_, [first, rest @ ..]) => {
            let with = combinations(rest, width - 1).into_iter();
            let with = with.map(|mut tail| {
                tail.insert(0, *first);
                tail
            });
            with.chain(combinations(rest, width)).collect()
        }
    }
}

/// Free CPUs after the remainder was divided in rounds; none if it cannot be.
fn after_rounds(
    mut left: Vec<usize>,
    subset: &[usize],
    mut groups: usize,
    size: usize,
) -> Option<Vec<usize>> {
    while groups > 0 {
        let before = groups;
        for node in subset {
            if groups > 0 && left[*node] >= size {
                left[*node] -= size;
                groups -= 1;
            }
        }
        if groups == before {
            return None;
        }
    }
    Some(left)
}

fn squares(left: &[usize]) -> usize {
    left.iter().map(|left| left * left).sum()
}

fn by_definition(free: &[usize], groups: usize, size: usize, width: usize) -> Option<Vec<Share>> {
    let all: Vec<usize> = (0..free.len()).collect();
    let (even, remainder) = (groups / width, groups % width);
    let mut best: Option<(usize, Vec<usize>, Vec<usize>)> = None;
    for nodes in combinations(&all, width) {
        if nodes.iter().any(|node| free[*node] < even * size) {
            continue;
        }
        let mut left = free.to_vec();
        for node in &nodes {
            left[*node] -= even * size;
        }
        let roomy: Vec<usize> = nodes.iter().copied().filter(|node| left[*node] >= size).collect();
        let mut consider = |left: Vec<usize>| {
            let squares = squares(&left);
            if best.as_ref().is_none_or(|(known, ..)| squares < *known) {
                best = Some((squares, left, nodes.clone()));
            }
        };
        if remainder == 0 {
            consider(left);
            continue;
        }
        for subset in (1..=roomy.len()).rev().flat_map(|width| combinations(&roomy, width)) {
            if let Some(left) = after_rounds(left.clone(), &subset, remainder, size) {
                consider(left);
            }
        }
    }
    let (_, left, nodes) = best?;
    let share = |node: usize| {
        let extra = || (free[node] - left[node]) / size - even;
        if nodes.contains(&node) { Share { even, extra: extra() } } else { Share::default() }
    };
    Some(all.into_iter().map(share).collect())
}

fn total(shares: &[Share]) -> usize {
    shares.iter().map(|share| share.even + share.extra).sum()
}

#[test]
fn a_remainder_that_is_no_whole_group_on_a_subset_ends_with_another_one() {
    // 22 CPUs in cores of two threads from four nodes, of which one has a whole number of cores.
    let shares = find(&[7, 8, 7, 7], 11, 2, 1).unwrap();
    assert_eq!(total(&shares), 11);
    assert_eq!(Some(shares), by_definition(&[7, 8, 7, 7], 11, 2, 4));
}

#[test]
fn the_best_scored_set_of_five_nodes_is_used() {
    let free = [4, 9, 9, 5, 9];
    let used: Vec<bool> = find(&free, 24, 1, 1).unwrap().iter().map(|share| share.even > 0).collect();
    assert_eq!(used, [false, true, true, false, true]);
}

#[test]
fn many_nodes_are_no_trouble() {
    for nodes in [13, 16, 32, 64, 65, 1024] {
        for (spread, groups) in [(1, 7 * nodes / 2 + 3), (13, 5 * nodes + nodes / 2), (97, nodes / 2 + 1)] {
            let free: Vec<usize> = (0..nodes).map(|node| 10 + node * 31 % spread).collect();
            for at_least in [1, nodes / 2, nodes, usize::MAX] {
                let shares = find(&free, groups, 1, at_least).unwrap();
                assert_eq!(total(&shares), groups, "{nodes} nodes");
                let mut even: Vec<usize> =
                    shares.iter().map(|share| share.even).filter(|even| *even > 0).collect();
                even.dedup();
                assert_eq!(even.len(), 1, "{nodes} nodes");
                assert!(shares.iter().zip(&free).all(|(share, free)| share.even + share.extra <= *free));
            }
        }
    }
    assert_eq!(find(&[], 1, 1, 1), None);
    assert_eq!(find(&[1, 1], 3, 1, 1), None);
    assert_eq!(find(&[1, 1], usize::MAX, 1, 1), None);
}

proptest! {
    #[test]
    fn shares_are_those_of_the_definition(
        free in proptest::collection::vec(1usize..14, 1..7),
        groups in 1usize..40,
        size in 1usize..4,
        at_least in 1usize..8,
    ) {
        let most = groups.min(free.len());
        let first = at_least.min(most);
        let expected =
            (first..=most).chain((1..first).rev()).find_map(|width| by_definition(&free, groups, size, width));
        prop_assert_eq!(find(&free, groups, size, at_least), expected);
    }

    #[test]
    fn up_to_twelve_nodes_the_bound_is_not_reached(
        free in proptest::collection::vec(1usize..40, 9..13),
        groups in 9usize..60,
        at_least in 1usize..12,
    ) {
        prop_assert_eq!(find(&free, groups, 1, at_least), find_within(usize::MAX, &free, groups, 1, at_least));
    }
}
