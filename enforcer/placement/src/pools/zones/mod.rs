//! Memory zones, and moves of containers to wider zones when a zone is overcommitted.
//!
//! Problem: containers have promises on zones (sets of nodes), zones overlap, and a new promise may exceed
//! the capacity of the nodes. Idea: the [account](ZoneAccount) decides whether all promises can be kept at
//! once and, if not, which nodes are overcommitted. A container with its promise inside those nodes then gets
//! a wider zone: the nearest ring of further nodes. That repeats until everything fits.
//!
//! Selection: the lowest class first (best-effort and burstable, guaranteed, preserved; strict never), within
//! a class the widest zone first (it is the least local already), and among those the few containers with the
//! smallest sufficient sum of bytes; the youngest in a tie. The new container counts like any other. A zone
//! is widened by memory of its own kinds first, then by DRAM, PMEM, HBM.
//!
//! Nothing is written here: an offer is a calculation, and only the caller that accepts it changes
//! allocations.
//!
//! Differences from the policy that this follows: it moves the smallest first until the sum suffices, so that
//! for 1, 2 and 8 bytes and an excess of 8 it moves 11 bytes, and this module 8; it checks the zones of
//! containers one by one, and misses two full zones that overlap; and a farther ring that is met first stays
//! in its wider zone. The older policy of that family moves all containers out of a pool as soon as a
//! container above it could, in theory, use all of the pool's memory; here no container moves while every
//! promise can be kept.
//!
//! Cost: per attempt one account over the distinct zones (tens, not the number of containers). The promises
//! of others are summed up once per container, whatever the number of pools.

mod choose;
#[cfg(test)]
mod tests;

use std::{cell::OnceCell, cmp::Reverse, collections::BTreeMap};

use self::choose::least_bytes;
use crate::{
    Inventory, MemoryClaim, MemoryPriority, MemoryResource, memory::ZoneAccount, settings::MemoryTypes,
};
use numa_topology::{Node, id::NodeId, set::NodeSet};

/// A promise of a container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise<'a> {
    /// Its zone.
    pub(super) zone: &'a NodeSet,
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Priority for moves.
    pub(super) priority: MemoryPriority,
    /// Position in the order of arrival: later ones are younger.
    pub(super) arrival_seq: u64,
}

/// Promises of all other containers.
#[derive(Debug, Default)]
pub(super) struct OtherPromises<'a> {
    promises: Vec<Promise<'a>>,
    by_zone: OnceCell<BTreeMap<NodeSet, u64>>,
}

impl<'a> OtherPromises<'a> {
    /// Other containers with these promises.
    pub(super) fn new(promises: Vec<Promise<'a>>) -> Self {
        Self { promises, by_zone: OnceCell::new() }
    }

    fn by_zone(&self) -> &BTreeMap<NodeSet, u64> {
        self.by_zone.get_or_init(|| {
            let mut by_zone = BTreeMap::new();
            self.promises.iter().for_each(|promise| add(&mut by_zone, promise.zone, promise.bytes));
            by_zone
        })
    }
}

/// How a new promise can be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ZoneOffer {
    /// Its zone; wider than requested if it was widened itself.
    pub(super) zone: NodeSet,
    /// Others that get a wider zone: their position, and the zone.
    pub(super) moved: Vec<(usize, NodeSet)>,
    /// Bytes promised to these others.
    pub(super) moved_bytes: u64,
}

/// Memory of a machine, and the promises on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct MemoryZones<'a> {
    /// Inventory of the machine.
    pub(super) inventory: &'a Inventory,
    /// Current promises.
    pub(super) account: &'a ZoneAccount,
}

impl MemoryZones<'_> {
    /// How a new promise could be kept; `None` if not, or for a zone without a node of this machine. `others`
    /// are the containers with promises.
    pub(super) fn offer<'o>(
        &self,
        new: Promise<'_>,
        limit: Option<&NodeSet>,
        others: impl FnOnce() -> &'o OtherPromises<'o>,
    ) -> Option<ZoneOffer> {
        if !new.zone.iter().any(|node| self.inventory.node(node).is_some()) {
            return None;
        }
        if self.account.fits(new.zone, MemoryResource::Memory, new.bytes) {
            return Some(ZoneOffer { zone: new.zone.clone(), moved: Vec::new(), moved_bytes: 0 });
        }
        let others = others();
        let promises: Vec<Promise<'_>> = others.promises.iter().copied().chain([new]).collect();
        let mut after = others.by_zone().clone();
        add(&mut after, new.zone, new.bytes);
        let last = promises.len() - 1;
        let mut wider = BTreeMap::<usize, NodeSet>::new();
        while let Some((nodes, excess)) = self.overcommitted(&after) {
            let zone_of = |index: usize| wider.get(&index).unwrap_or(promises[index].zone);
            let may_use = |index| if index == last { limit } else { None };
            let inside = |&index: &usize| {
                let promise = &promises[index];
                promise.bytes > 0
                    && promise.priority != MemoryPriority::Strict
                    && zone_of(index).is_subset(&nodes)
            };
            let mut candidates: Vec<usize> = (0..promises.len()).filter(inside).collect();
            candidates.retain(|&index| self.outside(zone_of(index), &nodes, may_use(index)).is_some());
            let tier = |index: usize| (class(promises[index].priority), Reverse(zone_of(index).len()));
            candidates.sort_by_key(|&index| {
                let promise = &promises[index];
                (tier(index), promise.priority, Reverse(promise.arrival_seq), index)
            });
            let tiers = candidates.chunk_by(|&one, &other| tier(one) == tier(other));
            let sizes = tiers.map(|tier| tier.iter().map(|&index| promises[index].bytes).collect());
            let chosen = least_bytes(&sizes.collect::<Vec<Vec<u64>>>(), excess)?;
            let chosen = chosen.into_iter().filter_map(|place| candidates.get(place).copied());
            let next = chosen.map(|index| {
                let zone = zone_of(index);
                Some((index, zone.clone(), self.outside(zone, &nodes, may_use(index))?))
            });
            for (index, zone, next) in next.collect::<Option<Vec<_>>>()? {
                let bytes = promises[index].bytes;
                subtract(&mut after, &zone, bytes);
                add(&mut after, &next, bytes);
                wider.insert(index, next);
            }
        }
        let zone = wider.remove(&last).unwrap_or_else(|| new.zone.clone());
        let moved_bytes = wider.keys().fold(0u64, |sum, &index| sum.saturating_add(promises[index].bytes));
        Some(ZoneOffer { zone, moved: wider.into_iter().collect(), moved_bytes })
    }

    /// The narrowest overcommitted nodes, and the excess.
    fn overcommitted(&self, promised: &BTreeMap<NodeSet, u64>) -> Option<(NodeSet, u64)> {
        let claims: Vec<MemoryClaim> = promised
            .iter()
            .map(|(zone, bytes)| MemoryClaim {
                resource: MemoryResource::Memory,
                zone: zone.clone(),
                bytes: *bytes,
                by_node: BTreeMap::new(),
            })
            .collect();
        let account = ZoneAccount::of_claims(self.inventory, &claims);
        let first = account.overcommitted(MemoryResource::Memory).into_iter().next()?;
        Some((first.zone, first.usage.saturating_sub(first.capacity).max(1)))
    }

    /// The zone and the nodes nearest to it, of these kinds of memory; `None` if there are no more. Of
    /// equally near ones only those in a package of the zone, if there are any.
    pub(super) fn widened(
        &self,
        zone: &NodeSet,
        types: MemoryTypes,
        limit: Option<&NodeSet>,
    ) -> Option<NodeSet> {
        let nodes = self.inventory.nodes.iter().filter(|node| {
            !zone.contains(node.id)
                && limit.is_none_or(|limit| limit.contains(node.id))
                && node.allocatable(MemoryResource::Memory) > 0
                && meets(self.types_of(node.id), types)
        });
        let near = |node| zone.iter().filter_map(|from| self.inventory.machine.distance(from, node)).min();
        let more: Vec<(u32, NodeId)> =
            nodes.map(|node| (near(node.id).unwrap_or(u32::MAX), node.id)).collect();
        let nearest = more.iter().map(|(distance, _)| *distance).min()?;
        let ring: NodeSet = more.iter().filter(|(at, _)| *at == nearest).map(|(_, node)| *node).collect();
        let beside = ring.intersection(&self.of_packages(zone));
        Some(zone.union(if beside.is_empty() { &ring } else { &beside }))
    }

    /// Memory nodes of the packages of a zone.
    fn of_packages(&self, zone: &NodeSet) -> NodeSet {
        let tree = self.inventory.pools.tree(self.inventory);
        let cpu_nodes = tree.cpu_nodes_near(zone);
        let packages = self.inventory.machine.packages.iter();
        let own = packages.filter(|package| !package.nodes.is_disjoint(&cpu_nodes));
        tree.local_memory(&own.fold(NodeSet::new(), |all, package| all.union(&package.nodes)))
    }

    /// Kinds of memory in a zone.
    pub(super) fn types(&self, zone: &NodeSet) -> MemoryTypes {
        let inside = zone.iter().filter(|node| self.inventory.node(*node).is_some());
        inside.fold(MemoryTypes::default(), |all, node| both(all, self.types_of(node)))
    }

    /// Kind of a node's memory; empty for GPU memory.
    fn types_of(&self, node: NodeId) -> MemoryTypes {
        let node = self.inventory.machine.node(node);
        node.and_then(Node::memory_class).map(MemoryTypes::of_class).unwrap_or_default()
    }

    /// The zone widened until it includes a node outside `nodes`.
    fn outside(&self, zone: &NodeSet, nodes: &NodeSet, limit: Option<&NodeSet>) -> Option<NodeSet> {
        let own = self.types(zone);
        let with_dram = MemoryTypes { dram: true, ..own };
        let with_pmem = MemoryTypes { pmem: true, ..with_dram };
        let kinds = [own, with_dram, with_pmem, MemoryTypes { hbm: true, ..with_pmem }];
        let mut zone = zone.clone();
        while zone.is_subset(nodes) {
            zone = kinds.iter().find_map(|kinds| self.widened(&zone, *kinds, limit))?;
        }
        Some(zone)
    }
}

const fn meets(one: MemoryTypes, other: MemoryTypes) -> bool {
    one.dram && other.dram || one.pmem && other.pmem || one.hbm && other.hbm
}

const fn both(one: MemoryTypes, other: MemoryTypes) -> MemoryTypes {
    MemoryTypes { dram: one.dram || other.dram, pmem: one.pmem || other.pmem, hbm: one.hbm || other.hbm }
}

/// Classes in order of moving: all containers of a class move before any of the next.
const fn class(priority: MemoryPriority) -> u8 {
    match priority {
        MemoryPriority::BestEffort | MemoryPriority::Burstable => 0,
        MemoryPriority::Guaranteed => 1,
        MemoryPriority::Preserved => 2,
        MemoryPriority::Strict => 3,
    }
}

fn add(promised: &mut BTreeMap<NodeSet, u64>, zone: &NodeSet, bytes: u64) {
    match promised.get_mut(zone) {
        Some(sum) => *sum = sum.saturating_add(bytes),
        None if bytes > 0 => drop(promised.insert(zone.clone(), bytes)),
        None => {}
    }
}

fn subtract(promised: &mut BTreeMap<NodeSet, u64>, zone: &NodeSet, bytes: u64) {
    if let Some(sum) = promised.get_mut(zone) {
        *sum = sum.saturating_sub(bytes);
        if *sum == 0 {
            promised.remove(zone);
        }
    }
}
