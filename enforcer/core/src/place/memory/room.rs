//! What can still be promised on every set of nodes, all at once.
//!
//! Problem: an offer lists every set of nodes with room, and whether others can be moved out of the
//! way is a search for augmenting paths on each of them. Idea: Hall's condition says the same for all
//! sets in one table. The *slack* of a set is what its nodes have less what is promised inside it; on
//! a set can be promised the least slack of any set that holds it. Where promises are broken already,
//! the least slack of all is what they are short of, and that is nobody else's loss.
//!
//! Nodes beside those that are asked about matter as far as zones tie them to these. Two that are in
//! the same zones are both in the set of the least slack or none is, so one bit stands for all of them:
//! any number of memory-only nodes, mostly, is one.
//!
//! Cost: bits x 2^bits simple steps, for at most [`BITS`] bits.

use std::collections::BTreeMap;

use crate::place::hints::{Mask, Table, each_pair, positions};

/// The largest table: sixteen nodes, and four kinds of others that zones tie to them.
const BITS: usize = 20;

/// Amounts in all that the arithmetic is made for; more is not memory of any machine.
const MOST: u128 = 1 << 62;

/// What can be promised in addition on each set of `nodes`, of which each is one node or none. None
/// where the table would be too large, or amounts are. `zones` are those with a promise, and how much.
pub(super) fn of_sets(capacity: &[u64], zones: &[(Mask, u64)], nodes: &[Mask]) -> Option<Table> {
    let amounts = capacity.iter().chain(zones.iter().map(|(_, promised)| promised));
    if amounts.map(|amount| u128::from(*amount)).sum::<u128>() > MOST {
        return None;
    }
    let own = nodes.iter().fold(0, |own, node| own | node);
    let tied = tied(zones, own);
    let bits = bits(capacity, zones, nodes, tied & !own);
    let count = nodes.len() + bits.others;
    if count > BITS {
        return None;
    }
    let mut slack = vec![0i64; 1 << count];
    for (bit, capacity) in &bits.capacity {
        slack[1 << bit] += i64::try_from(*capacity).ok()?;
    }
    for (zone, promised) in zones.iter().filter(|(zone, _)| zone & tied != 0) {
        let set = positions(*zone).filter_map(|node| bits.of_node.get(node).copied().flatten());
        slack[set.fold(0usize, |set, bit| set | 1 << bit)] -= i64::try_from(*promised).ok()?;
    }
    each_pair(&mut slack, |without, with| *with += *without);
    while slack.len() > 1 << nodes.len() {
        let upper = slack.split_off(slack.len() / 2);
        slack.iter_mut().zip(upper).for_each(|(without, with)| *without = (*without).min(with));
    }
    each_pair(&mut slack, |without, with| *without = (*without).min(*with));
    let least = slack[0];
    Some(Table::of_amounts(slack.into_iter().map(|slack| slack.abs_diff(least)).collect()))
}

/// These nodes, and all that zones tie to them, directly or over others.
fn tied(zones: &[(Mask, u64)], nodes: Mask) -> Mask {
    let mut tied = nodes;
    loop {
        let before = tied;
        tied = zones.iter().filter(|(zone, _)| zone & tied != 0).fold(tied, |tied, (zone, _)| tied | zone);
        if tied == before {
            return tied;
        }
    }
}

/// Which bit stands for which nodes.
struct Bits {
    /// By position of the node.
    of_node: Vec<Option<usize>>,
    /// What the nodes of a bit have.
    capacity: BTreeMap<usize, u64>,
    /// Bits for nodes that are not asked about, above the others.
    others: usize,
}

fn bits(capacity: &[u64], zones: &[(Mask, u64)], nodes: &[Mask], others: Mask) -> Bits {
    let mut bits = Bits { of_node: vec![None; capacity.len()], capacity: BTreeMap::new(), others: 0 };
    let mut kinds = BTreeMap::<Vec<usize>, usize>::new();
    let own = nodes.iter().enumerate().flat_map(|(bit, node)| positions(*node).map(move |node| (bit, node)));
    let of_others = positions(others).map(|node| {
        let inside = zones.iter().enumerate().filter(|(_, (zone, _))| zone >> node & 1 == 1);
        let next = nodes.len() + kinds.len();
        (*kinds.entry(inside.map(|(at, _)| at).collect()).or_insert(next), node)
    });
    for (bit, node) in own.chain(of_others) {
        if let Some((of_node, has)) = bits.of_node.get_mut(node).zip(capacity.get(node)) {
            *of_node = Some(bit);
            *bits.capacity.entry(bit).or_insert(0) += has;
        }
    }
    bits.others = kinds.len();
    bits
}
