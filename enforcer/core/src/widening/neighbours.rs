//! Which neighbours are given another node so that one that is declared to stay has room.
//!
//! Problem: a strict workload runs short, and the node that it stays on is full of others' pages. Idea: those
//! others, who may be elsewhere, are widened; then what they have on the short node is moved
//! ([`super::relief`]), as much as is missing. The largest first, so that few are disturbed, and no more of
//! them than have what is missing together.
//!
//! Never: a strict one; one with next to nothing there; a node of the strict one's own.
//!
//! Cost: one pass over the guards and a sort, only while a strict one is short.

use std::cmp::Reverse;

use super::{NodeRoom, choice, guard::Guard};
use crate::{id::NodeId, set::NodeSet};

/// Below so many bytes on the short nodes nobody is disturbed.
const LEAST: u64 = 16 << 20;

/// Who of `guards` is to be widened for the one at `strict`, to what. `missing` is what it needs, `may_step`
/// says whether one may be widened now. Those that can go elsewhere as they are count, and are not in the
/// list.
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
