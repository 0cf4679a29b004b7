//! Memory by zones, and who is moved to a wider zone when one is promised too much.
//!
//! Problem: everybody was promised bytes on a zone (a set of nodes), zones overlap, and a new promise
//! may be more than the nodes hold. Idea: the [account](ZoneAccount) says whether all promises can be
//! kept at once and, where not, which nodes are promised too much together. Somebody who is promised
//! memory there, and nowhere else, then gets a wider zone: the nearest ring of further nodes. That
//! repeats until everything fits.
//!
//! Who: the lowest class first (best-effort and burstable, guaranteed, preserved; strict never),
//! among these the widest zone first (it is the least local already), and of those the few whose
//! bytes together are the least that suffices; the youngest of equals. The new one counts like any
//! other. A zone is widened by memory of the kinds that it has; only then by DRAM, PMEM, HBM.
//!
//! Nothing is written here: an offer is a calculation, and only who takes it changes anything.
//!
//! Better than the policy that this follows: it moves the smallest first until the sum suffices,
//! which for 1, 2 and 8 bytes and an excess of 8 moves 11 bytes, and here 8; it looks at the zones
//! that somebody has, one by one, and so misses two full zones that overlap; and a farther ring that
//! is met first stays in its wider zone. The older one of that family moves everybody out of a pool
//! as soon as somebody above it could, in theory, use all of the pool's memory; here nobody is moved
//! as long as every promise can be kept.
//!
//! Cost: per try one account over the distinct zones (tens, not the number of containers). What the others
//! were promised is summed up once for a container, whatever the number of pools that are asked.

mod choose;
#[cfg(test)]
mod tests;

use std::{cell::OnceCell, cmp::Reverse, collections::BTreeMap};

use self::choose::least_bytes;
use crate::{
    id::NodeId,
    place::{Inventory, MemoryClaim, MemoryPriority, MemoryResource, memory::ZoneAccount},
    policy::placement::MemoryTypes,
    set::NodeSet,
    topology::Node,
};

/// Somebody's promise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise<'a> {
    /// Where.
    pub(super) zone: &'a NodeSet,
    /// How much.
    pub(super) bytes: u64,
    /// How easily it is moved.
    pub(super) priority: MemoryPriority,
    /// Its turn: later ones are younger.
    pub(super) turn: u64,
}

/// What all others were promised.
#[derive(Debug, Default)]
pub(super) struct Others<'a> {
    promises: Vec<Promise<'a>>,
    by_zone: OnceCell<BTreeMap<NodeSet, u64>>,
}

impl<'a> Others<'a> {
    /// Those with these promises.
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
    /// Its zone; wider than asked for, if it was itself widened.
    pub(super) zone: NodeSet,
    /// Others that get a wider zone: their position, and the zone.
    pub(super) moved: Vec<(usize, NodeSet)>,
    /// Bytes promised to these others.
    pub(super) moved_bytes: u64,
}

/// Memory of a machine, and what is promised on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Zones<'a> {
    /// What the machine has.
    pub(super) inventory: &'a Inventory,
    /// What is promised.
    pub(super) account: &'a ZoneAccount,
}

impl Zones<'_> {
    /// How a new promise could be kept; nowhere, for a zone without a node of this machine. `others` are
    /// those that were promised something.
    pub(super) fn offer<'o>(
        &self,
        new: Promise<'_>,
        limit: Option<&NodeSet>,
        others: impl FnOnce() -> &'o Others<'o>,
    ) -> Option<ZoneOffer> {
        if !new.zone.iter().any(|node| self.inventory.node(node).is_some()) {
            return None;
        }
        if self.account.fits(new.zone, MemoryResource::Memory, new.bytes) {
            return Some(ZoneOffer { zone: new.zone.clone(), moved: Vec::new(), moved_bytes: 0 });
        }
        let others = others();
        let everybody: Vec<Promise<'_>> = others.promises.iter().copied().chain([new]).collect();
        let mut after = others.by_zone().clone();
        add(&mut after, new.zone, new.bytes);
        let last = everybody.len() - 1;
        let mut wider = BTreeMap::<usize, NodeSet>::new();
        while let Some((nodes, excess)) = self.overcommitted(&after) {
            let zone_of = |index: usize| wider.get(&index).unwrap_or(everybody[index].zone);
            let may_use = |index| if index == last { limit } else { None };
            let inside = |&index: &usize| {
                let promise = &everybody[index];
                promise.bytes > 0
                    && promise.priority != MemoryPriority::Strict
                    && zone_of(index).is_subset(&nodes)
            };
            let mut candidates: Vec<usize> = (0..everybody.len()).filter(inside).collect();
            candidates.retain(|&index| self.outside(zone_of(index), &nodes, may_use(index)).is_some());
            let tier = |index: usize| (class(everybody[index].priority), Reverse(zone_of(index).len()));
            candidates.sort_by_key(|&index| {
                let promise = &everybody[index];
                (tier(index), promise.priority, Reverse(promise.turn), index)
            });
            let tiers = candidates.chunk_by(|&one, &other| tier(one) == tier(other));
            let sizes = tiers.map(|tier| tier.iter().map(|&index| everybody[index].bytes).collect());
            let chosen = least_bytes(&sizes.collect::<Vec<Vec<u64>>>(), excess)?;
            let chosen = chosen.into_iter().filter_map(|place| candidates.get(place).copied());
            let next = chosen.map(|index| {
                let zone = zone_of(index);
                Some((index, zone.clone(), self.outside(zone, &nodes, may_use(index))?))
            });
            for (index, zone, next) in next.collect::<Option<Vec<_>>>()? {
                let bytes = everybody[index].bytes;
                subtract(&mut after, &zone, bytes);
                add(&mut after, &next, bytes);
                wider.insert(index, next);
            }
        }
        let zone = wider.remove(&last).unwrap_or_else(|| new.zone.clone());
        let moved_bytes = wider.keys().fold(0u64, |sum, &index| sum.saturating_add(everybody[index].bytes));
        Some(ZoneOffer { zone, moved: wider.into_iter().collect(), moved_bytes })
    }

    /// The narrowest nodes that are promised more than they hold, and by how much.
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

    /// The zone and the nodes nearest to it, of these kinds of memory; none when there are no more. Of those
    /// equally near only the ones in a package of the zone, where there are any.
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

    /// The memory nodes of the packages that a zone is in.
    fn of_packages(&self, zone: &NodeSet) -> NodeSet {
        let tree = self.inventory.pools.tree(self.inventory);
        let cpu_nodes = tree.cpu_nodes_near(zone);
        let packages = self.inventory.machine.packages.iter();
        let own = packages.filter(|package| !package.nodes.is_disjoint(&cpu_nodes));
        tree.local_memory(&own.fold(NodeSet::new(), |all, package| all.union(&package.nodes)))
    }

    /// The kinds of memory in a zone.
    pub(super) fn types(&self, zone: &NodeSet) -> MemoryTypes {
        let inside = zone.iter().filter(|node| self.inventory.node(*node).is_some());
        inside.fold(MemoryTypes::default(), |all, node| both(all, self.types_of(node)))
    }

    /// What a node's memory counts as; nothing for that of a GPU.
    fn types_of(&self, node: NodeId) -> MemoryTypes {
        let node = self.inventory.machine.node(node);
        node.and_then(Node::memory_class).map(MemoryTypes::of_class).unwrap_or_default()
    }

    /// The zone widened so far that it leaves these nodes.
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

/// Those who are moved together: nobody of a class before everybody of the one before.
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
