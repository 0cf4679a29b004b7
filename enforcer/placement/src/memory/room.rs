//! Room for promises on every set of nodes, in one table.
//!
//! Problem: an offer lists every set of nodes with room, and whether other promises can move out of the way
//! takes a search for augmenting paths on each set. Idea: Hall's condition gives the same answer for all sets
//! in one table. The *slack* of a set is the capacity of its nodes minus the promises inside it; the room on
//! a set is the least slack of any superset. If promises are broken already, the least slack of all is their
//! shortage, and it does not reduce the room of others.
//!
//! Other nodes matter as far as zones tie them to the requested ones. If two of them are in the same zones,
//! the set with the least slack contains both or none, so one bit stands for all of them: usually any number
//! of memory-only nodes is one bit.
//!
//! Cost: bits x 2^bits simple steps, for at most [`BITS`] bits.

use std::collections::BTreeMap;

use crate::nodes::{Mask, Table, each_pair, positions};

/// The largest table: sixteen nodes, and four classes of other nodes that zones tie to them.
const BITS: usize = 20;

/// Maximum total amount for the arithmetic; no machine has more memory.
const MOST: u128 = 1 << 62;

/// Additional room on each set of `nodes`, of which each is one node or none. `None` if the table or the
/// amounts would be too large. `zones` are the zones with their promises.
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

/// Assignment of bits to nodes.
struct Bits {
    /// By position of the node.
    of_node: Vec<Option<usize>>,
    /// Capacity of the nodes of a bit.
    capacity: BTreeMap<usize, u64>,
    /// Bits for nodes that were not requested, above the others.
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
