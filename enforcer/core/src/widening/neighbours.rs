//! Neighbours that are given another node so that a strict workload has room.
//!
//! Problem: a strict workload runs short, and its node is full of pages of other workloads. Idea: widen
//! neighbours that may be elsewhere, then move what is missing of their pages off the short node
//! ([`super::relief`]). The largest neighbour comes first, so that few are disturbed, and only as many as
//! have the missing bytes together.
//!
//! Invariants: no strict neighbour is widened, none with next to nothing on the short node, and none to a
//! node of the strict workload.
//!
//! Cost: one pass over the guards and a sort, only while a strict workload is short.

use std::cmp::Reverse;

use super::{NodeRoom, choice, guard::Guard};
use numa_topology::{id::NodeId, set::NodeSet};

/// Least bytes on the short nodes for which a neighbour is disturbed.
const LEAST: u64 = 16 << 20;

/// The guards to widen for the one at `strict`, with their wider sets. `missing` is what it needs; `may_step`
/// returns whether a guard may be widened now. Neighbours that can go elsewhere already count, and are not in
/// the list.
pub(super) fn widened(
    guards: &[Guard],
    strict: usize,
    missing: u64,
    may_step: &dyn Fn(&Guard) -> bool,
    room: &dyn Fn(NodeId) -> Option<NodeRoom>,
) -> Vec<(usize, NodeSet)> {
    let Some(crowded) = guards.get(strict).map(|guard| &guard.of.mems) else { return Vec::new() };
    let held = |guard: &Guard| -> u64 {
        let there = guard.of.bytes.iter().filter(|(node, _)| crowded.contains(**node));
        there.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    };
    let mut others: Vec<(u64, usize, &Guard)> = guards
        .iter()
        .enumerate()
        .filter(|(_, guard)| !guard.of.strict && !guard.of.mems.is_disjoint(crowded))
        .map(|(index, guard)| (held(guard), index, guard))
        .filter(|(bytes, ..)| *bytes >= LEAST)
        .collect();
    others.sort_by_key(|(bytes, index, _)| (Reverse(*bytes), *index));
    let (mut left, mut found) = (missing, Vec::new());
    for (bytes, index, guard) in others {
        if left == 0 {
            break;
        }
        let elsewhere = guard.of.mems.difference(crowded);
        let has_room = |node: NodeId| room(node).is_some_and(|room| choice::has_room(&room));
        if !elsewhere.iter().any(has_room) {
            if guard.pending.is_some() || !may_step(guard) {
                continue;
            }
            let outside = |node: NodeId| room(node).filter(|_| !crowded.contains(node));
            let Some(wider) = choice::added(&guard.of.mems, &guard.of.spares, 0, false, &outside) else {
                continue;
            };
            found.push((index, wider));
        }
        left = left.saturating_sub(bytes);
    }
    found
}
