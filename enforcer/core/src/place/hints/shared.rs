//! Shared CPUs: which nodes have room for a container that shares, and what happens when exclusive
//! CPUs take that room.
//!
//! Problem: containers without exclusive CPUs run anywhere in the shared pool, far from their memory.
//! Idea: a node has 1,000 millis of room for each of its shared CPUs, less what is promised there; a
//! container goes where its request fits, onto as few nodes as possible. One that is promised nothing
//! counts as a tenth of a CPU, so that such containers spread; it fits wherever there is a CPU.
//!
//! This is a preference, never a reason for a rejection: what fits nowhere shares the whole pool. Whoever
//! is away from home ([`send_away`](crate::place::send_away)) still counts at home, so that it is not
//! given away meanwhile.
//!
//! Cost: O(holders x nodes) set operations of a few words to sum up what is promised.

use super::{
    LISTED, Mask, Need, NodeIndex, Offer, Table, Threshold,
    masks::{self, positions},
    narrowest::narrowest,
};
use crate::{
    id::NodeId,
    place::{CpuLayout, Grant, SharedCpus},
    set::CpuSet,
};

/// Millis that a container counts for that is promised none.
const NOMINAL: u64 = 100;

/// What is promised on shared CPUs, by node.
#[derive(Debug, Clone, Default)]
pub(super) struct Load {
    nodes: Vec<(NodeId, Room)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Room {
    promised: u64,
    /// Of containers that are promised nothing.
    nominal: u64,
}

impl Load {
    /// That of these grants.
    pub(super) fn of<'a>(layout: &CpuLayout, grants: impl Iterator<Item = &'a Grant>) -> Self {
        let mut load = Self { nodes: layout.nodes.iter().map(|(id, _)| (*id, Room::default())).collect() };
        for grant in grants {
            if let Some(shared) = &grant.shared {
                load.add(layout, shared);
            }
        }
        load
    }

    /// Another container: its promise counts on each node of its scope by the CPUs that it has there.
    pub(super) fn add(&mut self, layout: &CpuLayout, shared: &SharedCpus) {
        let all = u64::try_from(shared.scope.len()).unwrap_or(u64::MAX);
        for ((_, room), (_, cpus)) in self.nodes.iter_mut().zip(&layout.nodes) {
            let here = u64::try_from(shared.scope.common(cpus)).unwrap_or(u64::MAX);
            let share = |millis: u64| millis.saturating_mul(here).checked_div(all).unwrap_or(0);
            if shared.milli_cpus == 0 {
                room.nominal = room.nominal.saturating_add(share(NOMINAL));
            } else {
                room.promised = room.promised.saturating_add(share(shared.milli_cpus));
            }
        }
    }

    fn room(&self, node: NodeId) -> Room {
        let at = self.nodes.binary_search_by_key(&node, |(id, _)| *id);
        at.ok().and_then(|at| self.nodes.get(at)).map(|(_, room)| *room).unwrap_or_default()
    }
}

/// The room on shared CPUs, by position of the node.
#[derive(Debug, Clone)]
pub(super) struct SharedStock {
    /// Millis of all CPUs that could be shared, were none of them exclusive.
    capacity: Vec<u64>,
    /// Millis of those that are shared.
    there: Vec<u64>,
    /// Of these, what is not promised.
    free: Vec<u64>,
    /// What is promised or counts as such.
    used: Vec<u64>,
}

impl SharedStock {
    /// The room on these nodes: of `pool`, less the CPUs that are `taken`.
    pub(super) fn new(
        layout: &CpuLayout,
        nodes: &NodeIndex,
        pool: &CpuSet,
        taken: &CpuSet,
        load: &Load,
    ) -> Self {
        let left = pool.difference(taken);
        let mut stock = Self { capacity: vec![], there: vec![], free: vec![], used: vec![] };
        let millis = |cpus: usize| u64::try_from(cpus).unwrap_or(u64::MAX).saturating_mul(1000);
        for id in nodes.ids() {
            let at = layout.nodes.binary_search_by_key(id, |(id, _)| *id).ok();
            let cpus = at.and_then(|at| layout.nodes.get(at)).map(|(_, cpus)| cpus);
            let there = cpus.map_or(0, |cpus| millis(left.common(cpus)));
            let room = load.room(*id);
            stock.capacity.push(cpus.map_or(0, |cpus| millis(pool.common(cpus))));
            stock.free.push(there.saturating_sub(room.promised));
            stock.used.push(room.promised.saturating_add(room.nominal));
            stock.there.push(there);
        }
        stock
    }

    /// Which nodes would do for so many millis; none needed fits wherever there is a CPU.
    pub(super) fn offer(&self, millis: u64) -> Offer {
        let (free, capacity) =
            if millis == 0 { (&self.there, &self.there) } else { (&self.free, &self.capacity) };
        let amount = millis.max(1);
        if free.len() <= LISTED {
            let [free, capacity, used, there] =
                [free, capacity, &self.used, &self.there].map(|amounts| Table::of_sums(amounts));
            let (would_do, does) = (|mask| capacity.at(mask) >= amount, |mask| free.at(mask) >= amount);
            let mut hints = masks::list(self.there.len(), would_do, does);
            for hint in &mut hints {
                let mask = hint.mask.unwrap_or_default();
                hint.score = score(fullness(used.at(mask), there.at(mask)));
            }
            return Offer::Listed(hints);
        }
        match narrowest(&[Need { free: capacity.clone(), amount }]) {
            Some(width) => Offer::Threshold(Threshold {
                needs: vec![Need { free: free.clone(), amount }],
                width,
                must: 0,
            }),
            None => Offer::Listed(Vec::new()),
        }
    }

    /// What is used of a thousandth of what is there.
    pub(super) fn fullness(&self, mask: Mask) -> u64 {
        fullness(sum(&self.used, mask), sum(&self.there, mask))
    }

    /// Is there room for so many millis on these nodes?
    pub(super) fn fits(&self, mask: Mask, millis: u64) -> bool {
        sum(&self.there, mask) > 0 && sum(&self.free, mask) >= millis
    }
}

/// How full nodes are, from 1 (empty) to 100.
fn score(fullness: u64) -> u8 {
    u8::try_from(1 + fullness.min(1000) * 99 / 1000).unwrap_or(100)
}

fn fullness(used: u64, there: u64) -> u64 {
    if let Some(used) = used.checked_mul(1000) {
        return used.checked_div(there).unwrap_or(u64::MAX);
    }
    let share = (u128::from(used) * 1000).checked_div(u128::from(there));
    share.and_then(|share| u64::try_from(share).ok()).unwrap_or(u64::MAX)
}

fn sum(amounts: &[u64], mask: Mask) -> u64 {
    positions(mask).filter_map(|at| amounts.get(at)).fold(0, |sum, amount| sum.saturating_add(*amount))
}
