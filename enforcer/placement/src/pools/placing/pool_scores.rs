//! All pools for a container: the figures for ranking them, and the memory that each offers.
//!
//! Memory offers are calculations: nothing moves here.

use crate::engine_name::POOLS;
use std::{cell::OnceCell, collections::BTreeMap};

use super::{
    PoolsPlacing,
    wanted::{ContainerWish, picked_hints},
};
use crate::{
    Allocations, CpuClass, Holder, MemoryPriority, MemoryResource,
    pools::{
        affinity::{self, AffinitySubject},
        classify::{CpuDemand, CpuLimit},
        cpus,
        memory::MemoryOffer,
        rank::{LevelFit, PoolOrder, PoolScore},
        topology_hints,
        tree::Pool,
        zones::{MemoryZones, OtherPromises, Promise},
    },
    settings::{CpuPriority, PoolLevel},
};
use numa_topology::set::NodeSet;

impl PoolsPlacing<'_> {
    /// All pools that may be tried, with their memory offers; the `count` best ones come first, in order.
    pub(super) fn pool_scores(
        &self,
        wanted: &ContainerWish<'_>,
        order: &PoolOrder<'_>,
        sorted: usize,
        allocations: &Allocations,
    ) -> (Vec<PoolScore>, BTreeMap<usize, MemoryOffer>) {
        let affinity = self.affinity(wanted, allocations);
        let root_only = matches!(wanted.demand.class, CpuClass::Reserved | CpuClass::Preserved);
        let pools: Vec<&Pool> =
            if root_only { vec![self.tree.root()] } else { self.tree.pools().iter().collect() };
        let zones = MemoryZones { inventory: self.inventory, account: &self.account };
        let promised = OnceCell::new();
        let others = || {
            let promises = || self.others(wanted.index, allocations).map(|(_, promise)| promise).collect();
            promised.get_or_init(|| OtherPromises::new(promises()))
        };
        let level = match wanted.demand.limit {
            CpuLimit::Unlimited(level) => Some(self.tree.existing_level(level)),
            _ => None,
        };
        let mut offers = BTreeMap::new();
        let mut pool_scores: Vec<PoolScore> = Vec::with_capacity(pools.len());
        for pool in pools {
            // A pool inside another one with the same memory has the same offer.
            let same = pool.children.iter().find(|child| self.tree.pool(**child).memory == pool.memory);
            let offer = match same.filter(|_| !wanted.preferences.pick_by_hints && !root_only) {
                Some(child) => offers.get(child).cloned(),
                None => self.memory_offer(wanted, zones, pool, others),
            };
            pool_scores.push(PoolScore {
                pool: pool.id,
                depth: pool.depth,
                shared: match wanted.demand.full {
                    0 => self.supply.shared(pool.id),
                    _ => self.supply.sliceable(pool.id),
                },
                isolated: i64::try_from(self.supply.isolated(pool.id)).unwrap_or(i64::MAX),
                reserved: self.supply.reserved(pool.id),
                affinity: affinity.get(pool.id).copied().unwrap_or(0),
                hints: topology_hints::score(self.tree, pool, &wanted.hints),
                level: level.map_or_else(LevelFit::default, |level| self.level(level, pool)),
                priority_fits: self.priority_fits(&wanted.demand, pool),
                colocated: self.supply.colocated(pool.id, wanted.demand.class),
                memory: wanted.memory.standing(zones, pool, offer.as_ref()),
            });
            self.judge_by_parts(wanted, pool, &mut pool_scores);
            if let Some(offer) = offer {
                offers.insert(pool.id, offer);
            }
        }
        order.sort_best(&mut pool_scores, sorted);
        let had = self.pod.previous.get(&wanted.container.name).and_then(|had| self.supply.pool_of(had));
        if let Some(old) = had.and_then(|id| pool_scores.iter().position(|standing| standing.pool == id)) {
            // The order of all others stays, as far as it is sorted.
            pool_scores[..=old].rotate_right(1);
        }
        (pool_scores, offers)
    }

    /// A pool gets no advantage from the ordinary memory of several parts if no part has room for the
    /// container: it would be farther from most of it. The last entry is the pool's, those of its parts are
    /// before it.
    fn judge_by_parts(&self, wanted: &ContainerWish<'_>, pool: &Pool, pool_scores: &mut [PoolScore]) {
        let demand = &wanted.demand;
        let needed = demand.full.saturating_mul(1000).saturating_add(demand.fraction_milli);
        let needed = i64::try_from(needed).unwrap_or(i64::MAX);
        let Some((own, before)) = pool_scores.split_last_mut() else { return };
        // If all pools are asked, each is at its id; a root that is asked alone has no parts before it.
        let part = |child: &usize| before.get(*child).filter(|part| part.pool == *child);
        let mut parts = pool.children.iter().filter_map(part).peekable();
        let has_parts = parts.peek().is_some();
        let fits = parts.any(|part| part.memory.mostly_ordinary && self.supply.shared(part.pool) >= needed);
        own.memory.mostly_ordinary &= !has_parts || fits;
    }

    fn memory_offer<'o>(
        &self,
        wanted: &ContainerWish<'_>,
        zones: MemoryZones<'_>,
        pool: &Pool,
        others: impl FnOnce() -> &'o OtherPromises<'o>,
    ) -> Option<MemoryOffer> {
        let place = self.memory_near_hints(wanted, zones);
        wanted.memory.offer(zones, self.tree, pool, place.as_ref(), others)
    }

    /// Promises of other holders. Those of other engines cannot be moved.
    pub(super) fn others<'s>(
        &'s self,
        index: usize,
        allocations: &'s Allocations,
    ) -> impl Iterator<Item = (&'s Holder, Promise<'s>)> + 's {
        let kept =
            allocations.with_arrival_seqs().filter(move |(holder, ..)| !self.pod.has_ended(holder, index));
        kept.filter_map(move |(holder, arrival_seq, grant)| {
            let claim = grant.memory.iter().find(|claim| claim.resource == MemoryResource::Memory)?;
            let ours = grant.engine == POOLS;
            let priority = if ours { grant.memory_priority } else { MemoryPriority::Strict };
            Some((holder, Promise { zone: &claim.zone, bytes: claim.bytes, priority, arrival_seq }))
        })
    }

    /// By `pick-resources-by-hints`: the memory near its hints, if that has all of the kinds that it wants.
    fn memory_near_hints(&self, wanted: &ContainerWish<'_>, zones: MemoryZones<'_>) -> Option<NodeSet> {
        if !wanted.preferences.pick_by_hints {
            return None;
        }
        let nodes = picked_hints(&wanted.hints).fold(NodeSet::new(), |all, hint| all.union(&hint.nodes));
        let local = self.tree.local_memory(&nodes);
        let memory = self.tree.root().memory.of_types(wanted.memory.types).intersection(&local);
        (!nodes.is_empty() && zones.types(&memory) == wanted.memory.types).then_some(memory)
    }

    fn affinity(&self, wanted: &ContainerWish<'_>, allocations: &Allocations) -> Vec<i64> {
        let mut drawn = vec![0i64; self.tree.pools().len()];
        let pod = self.pod;
        let own = AffinitySubject {
            pod: &pod.name,
            container: &wanted.container.name,
            qos: Some(pod.qos),
            labels: &pod.labels,
        };
        for (holder, grant) in allocations.iter() {
            if wanted.rules.is_empty() && grant.affinity.is_empty() || pod.has_ended(holder, wanted.index) {
                continue;
            }
            let Some(id) = self.supply.pool_of(grant) else { continue };
            let (pod, container) = (holder.pod(), holder.name());
            let other = AffinitySubject { pod, container, qos: grant.qos, labels: &grant.labels };
            let draws = affinity::attraction((&own, &wanted.rules), (&other, &grant.affinity));
            drawn[id] = drawn[id].saturating_add(draws);
        }
        affinity::score(self.tree, &drawn)
    }

    /// Compares a pool with a level that this machine has.
    fn level(&self, level: PoolLevel, pool: &Pool) -> LevelFit {
        if self.tree.ancestors(pool.id).any(|above| self.tree.pool(above).is_of(level)) {
            LevelFit::Deeper
        } else if pool.is_of(level) {
            LevelFit::Exact
        } else {
            LevelFit::Shallower
        }
    }

    fn priority_fits(&self, demand: &CpuDemand, pool: &Pool) -> bool {
        let Some(groups) = self.groups.filter(|_| demand.priority != CpuPriority::None) else {
            return true;
        };
        let free = pool.sharable.difference(self.supply.taken());
        let full = usize::try_from(demand.full).unwrap_or(usize::MAX);
        cpus::best_for(groups, &free, demand.priority) >= full
    }
}
