//! Shared CPUs: which nodes have room for a container that shares, and the cost of exclusive CPUs for such
//! containers.
//!
//! Problem: containers without exclusive CPUs run anywhere in the shared pool, far from their memory. Idea: a
//! node has 1,000 millis of room for each of its shared CPUs, less the promises there. A container goes where
//! its request fits, on as few nodes as possible. A container without a request counts as a tenth of a CPU,
//! so that such containers spread; it fits wherever there is a CPU. Reserved CPUs do not count as room,
//! though containers run there too: a node without other shared CPUs comes last.
//!
//! This is a preference and never causes a rejection: a container that fits nowhere shares the whole pool. A
//! displaced container ([`overflow`](crate::overflow)) still counts in its own scope, so that the scope is
//! not given to others in the meantime.
//!
//! Cost: a pass over the CPUs of each scope to sum up the promises; holders with the same scope share one.

use std::collections::BTreeMap;

use super::{Mask, Need, NodeIndex, Offer, Table, Threshold, narrowest::narrowest, positions};
use crate::{CpuLayout, Grant, SharedCpus, layout::Level};
use numa_topology::{id::NodeId, set::CpuSet};

/// Millis that a container without a request counts for.
const NOMINAL: u64 = 100;

/// Promised shared CPU time by scope without its reserved CPUs, which serve no promise.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedLoad {
    rows: BTreeMap<CpuSet, Promised>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Promised {
    millis: u64,
    /// Millis that containers without a promise count for.
    nominal: u64,
}

impl SharedLoad {
    /// Load of these grants.
    pub(super) fn of<'a>(grants: impl Iterator<Item = &'a Grant>) -> Self {
        let mut load = Self::default();
        grants.filter_map(|grant| grant.shared.as_ref()).for_each(|shared| load.add(shared));
        load
    }

    /// Adds a container.
    pub(super) fn add(&mut self, shared: &SharedCpus) {
        let mut room = shared.scope.difference(&shared.reserved);
        if room.is_empty() {
            room = shared.scope.clone();
        }
        let row = self.rows.entry(room).or_default();
        match shared.milli_cpus {
            0 => row.nominal = row.nominal.saturating_add(NOMINAL),
            millis => row.millis = row.millis.saturating_add(millis),
        }
    }

    /// Load by node: a promise counts on each node in proportion to its CPUs that are not `taken`. So
    /// promises that fit on the nodes of a scope also fit in the scope itself.
    fn by_node(&self, layout: &CpuLayout, taken: &CpuSet, nodes: &[Option<usize>]) -> Vec<Promised> {
        let mut found = vec![Promised::default(); nodes.len()];
        let mut counts = vec![0; layout.count(Level::Node)];
        for (scope, row) in &self.rows {
            let left = scope.difference(taken);
            // If no CPU is left, the promise must still count somewhere.
            let cpus = if left.is_empty() { scope } else { &left };
            count_by_node(layout, cpus, &mut counts);
            let mut before = 0;
            for (node, promised) in nodes.iter().zip(&mut found) {
                let until = before + node.and_then(|node| counts.get(node)).copied().unwrap_or(0);
                if until == before {
                    continue;
                }
                let share = |all: u64| part(all, until, cpus.len()) - part(all, before, cpus.len());
                promised.millis = promised.millis.saturating_add(share(row.millis));
                promised.nominal = promised.nominal.saturating_add(share(row.nominal));
                before = until;
            }
        }
        found
    }
}

/// Number of these CPUs in each group of a node.
fn count_by_node(layout: &CpuLayout, cpus: &CpuSet, counts: &mut [usize]) {
    counts.fill(0);
    // A scope is usually that of one node.
    if let Some(group) = only_node(layout, cpus) {
        counts[group] = cpus.len();
        return;
    }
    for group_index in cpus.iter().filter_map(|cpu| layout.group_index(cpu)) {
        counts[group_index.group(Level::Node)] += 1;
    }
}

/// The group of the node that has all of these CPUs.
fn only_node(layout: &CpuLayout, cpus: &CpuSet) -> Option<usize> {
    let group = layout.group_index(cpus.first()?)?.group(Level::Node);
    cpus.is_subset(layout.members(Level::Node, group)).then_some(group)
}

/// Part of `amount` for the first CPUs of all.
fn part(amount: u64, first: usize, all: usize) -> u64 {
    let part = u128::from(amount) * first as u128 / all.max(1) as u128;
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Room on shared CPUs, by position of the node.
#[derive(Debug, Clone)]
pub(super) struct SharedStock {
    /// Millis of all CPUs that could be shared if none were exclusive.
    capacity: Vec<u64>,
    /// Millis of the CPUs that are shared.
    there: Vec<u64>,
    /// Millis that are not promised.
    free: Vec<u64>,
    /// Millis that are promised or count as promised.
    used: Vec<u64>,
    /// Promises by the nodes of their scope.
    homes: Vec<(Mask, Promised)>,
    /// Whether sets of the nodes are listed.
    is_listed: bool,
}

/// Cost of a set of nodes for others: first the displaced promises, then its current use.
pub(super) type Burden = (u64, u64);

impl SharedStock {
    /// Room on these nodes: of `pool` without the CPUs that are `taken`.
    pub(super) fn new(
        layout: &CpuLayout,
        nodes: &NodeIndex,
        pool: &CpuSet,
        taken: &CpuSet,
        load: &SharedLoad,
    ) -> Self {
        let left = pool.difference(taken);
        let is_listed = nodes.is_listed();
        let mut stock =
            Self { capacity: vec![], there: vec![], free: vec![], used: vec![], homes: vec![], is_listed };
        let millis = |cpus: usize| u64::try_from(cpus).unwrap_or(u64::MAX).saturating_mul(1000);
        let at = |id: &NodeId| layout.nodes.binary_search_by_key(id, |(id, _)| *id).ok();
        let groups: Vec<Option<usize>> = nodes.ids().iter().map(at).collect();
        for (group, promised) in groups.iter().zip(load.by_node(layout, taken, &groups)) {
            let cpus = group.map(|group| layout.members(Level::Node, group));
            let there = cpus.map_or(0, |cpus| millis(left.common(cpus)));
            stock.capacity.push(cpus.map_or(0, |cpus| millis(pool.common(cpus))));
            stock.free.push(there.saturating_sub(promised.millis));
            stock.used.push(promised.millis.saturating_add(promised.nominal));
            stock.there.push(there);
        }
        let mut positions = vec![None; layout.count(Level::Node)];
        for (at, group) in groups.iter().enumerate() {
            if let Some(position) = group.and_then(|group| positions.get_mut(group)) {
                *position = Some(at);
            }
        }
        let of_scope = |scope: &CpuSet| {
            if let Some(group) = only_node(layout, scope) {
                return positions[group].map_or(0, |at: usize| 1 << at);
            }
            let on = scope.iter().filter_map(|cpu| layout.group_index(cpu));
            let on = on.filter_map(|group_index| positions[group_index.group(Level::Node)]);
            on.fold(0, |mask: Mask, at: usize| mask | 1 << at)
        };
        stock.homes = load.rows.iter().map(|(scope, promised)| (of_scope(scope), *promised)).collect();
        stock
    }

    /// Offer of the nodes for these millis; 0 millis fit wherever there is a CPU.
    pub(super) fn offer(&self, millis: u64) -> Offer {
        let (free, capacity) =
            if millis == 0 { (&self.there, &self.there) } else { (&self.free, &self.capacity) };
        let amount = millis.max(1);
        if self.is_listed {
            let [free, capacity, used, there] =
                [free, capacity, &self.used, &self.there].map(|amounts| Table::of_sums(amounts));
            let (would_do, does) = (|mask| capacity.at(mask) >= amount, |mask| free.at(mask) >= amount);
            let mut hints = crate::hints::listed::list(self.there.len(), would_do, does);
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

    /// Cost for others if a container gets this many exclusive CPUs of these nodes, or shares theirs.
    pub(super) fn burden(&self, mask: Mask, exclusive: usize, shares: bool) -> Burden {
        let fullness = if shares { self.fullness(mask) } else { 0 };
        (self.displaced(mask, exclusive), fullness)
    }

    /// Millis of promises in scopes on these nodes without room beside this many more exclusive CPUs.
    fn displaced(&self, mask: Mask, exclusive: usize) -> u64 {
        if exclusive == 0 {
            return 0;
        }
        let inside = self.homes.iter().filter(|(home, _)| *home != 0 && home & !mask == 0);
        let (millis, nominal) = inside.fold((0u64, 0u64), |(millis, nominal), (_, home)| {
            (millis.saturating_add(home.millis), nominal.saturating_add(home.nominal))
        });
        let gone = u64::try_from(exclusive).unwrap_or(u64::MAX).saturating_mul(1000);
        let left = sum(&self.there, mask).saturating_sub(gone);
        let nominal = if left == 0 { nominal } else { 0 };
        millis.saturating_sub(left).saturating_add(nominal)
    }

    /// Used thousandths of the shared CPUs.
    fn fullness(&self, mask: Mask) -> u64 {
        fullness(sum(&self.used, mask), sum(&self.there, mask))
    }

    /// Is there room for these millis on these nodes?
    pub(super) fn fits(&self, mask: Mask, millis: u64) -> bool {
        sum(&self.there, mask) > 0 && sum(&self.free, mask) >= millis
    }
}

/// Use of nodes, from 1 (empty) to 100.
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
