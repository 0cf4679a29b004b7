//! The memory account: promises on zones, and the room for further ones.
//!
//! Problem: a promise of memory names a zone, a set of nodes that hold it together, and the kernel decides
//! page by page where in the zone it lies. Zones overlap, so neither a sum per node nor a sum per zone shows
//! whether another promise can be kept. Idea: a promise fits if all promises can be kept at once, whatever
//! zones they name; [`promises`] decides that exactly and without enumerating the sets of nodes. Both engines
//! use this account.
//!
//! Huge pages cannot move, so a promise of them fits only if it can be kept in whatever order containers take
//! theirs ([`fixed`]). Huge pages that processes have reserved come from unknown nodes: a node may be
//! promised all that it has, and all promises together leave as much as is reserved.
//!
//! Terminology: a *claim* is a promise of one kind of memory on one zone. The *usage* of a zone is the sum of
//! the claims on zones inside it, its *capacity* what its nodes may give. A *forecast* is how a claim would
//! lie on the nodes of its zone; it is not binding.
//!
//! The account is computed from the grants and stored nowhere. Its masks name the 64 nodes with the lowest
//! ids; further nodes are in a separate account ([`beyond`]), and queries for sets of nodes use both. Cost:
//! O(claims log zones) to build, see [`promises`] for the rest.

mod beyond;
mod fixed;
mod promises;
mod room;
#[cfg(test)]
mod tests;
mod zones;

use std::collections::BTreeMap;

use self::{promises::Promises, zones::ZoneSums};
use super::{
    Allocations, Holder, Inventory, MemoryClaim, MemoryResource, PodRequest,
    nodes::{Mask, NodeIndex, Table},
};
use crate::room::FittingAmount;
use numa_topology::{id::NodeId, set::NodeSet};

/// Promises on zones, by kind of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneAccount {
    /// The nodes with the lowest ids, as many as a mask names.
    nodes: NodeIndex,
    kinds: BTreeMap<MemoryResource, Promises>,
    /// The account of all further nodes.
    beyond: Option<Box<Self>>,
    /// All nodes, including those of `beyond`.
    all: NodeSet,
    /// Amounts of claims over several parts without an arrangement: they are withheld from other promises.
    unkept: BTreeMap<MemoryResource, u64>,
    /// Amounts that will be taken from unknown nodes: all promises together are limited by as much.
    anywhere: BTreeMap<MemoryResource, u64>,
}

/// A set of nodes with more promises than capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overcommit {
    /// The nodes.
    pub zone: NodeSet,
    /// Sum of the promises on zones inside it; for huge pages also what others may take there.
    pub usage: u64,
    /// Its capacity.
    pub capacity: u64,
}

impl ZoneAccount {
    /// The account of all allocations, except those of the excluded holders.
    pub fn new(
        inventory: &Inventory,
        allocations: &Allocations,
        leave_out: impl Fn(&Holder) -> bool,
    ) -> Self {
        let kept = || allocations.iter().filter(|(holder, _)| !leave_out(holder));
        // Memory in use without a promise is not available.
        let used = kept().filter(|(holder, _)| holder.is_apart()).flat_map(|(_, grant)| &grant.memory);
        let mut gone = BTreeMap::<(MemoryResource, NodeId), u64>::new();
        let mut anywhere = BTreeMap::<MemoryResource, u64>::new();
        for claim in used {
            if claim.by_node.is_empty() && claim.bytes > 0 {
                let anywhere = anywhere.entry(claim.resource).or_default();
                *anywhere = anywhere.saturating_add(claim.bytes);
            }
            for (node, bytes) in &claim.by_node {
                let gone = gone.entry((claim.resource, *node)).or_default();
                *gone = gone.saturating_add(*bytes);
            }
        }
        let promised = kept().filter(|(holder, _)| !holder.is_apart()).flat_map(|(_, grant)| &grant.memory);
        Self { anywhere, ..Self::beside(inventory, promised, &gone) }
    }

    /// The account for the container at this position in the pod's list: memory of earlier init containers is
    /// free again, so that a pod takes the peak of its stages and not their sum.
    pub(crate) fn for_container(
        inventory: &Inventory,
        allocations: &Allocations,
        pod: &PodRequest,
        index: usize,
    ) -> Self {
        Self::new(inventory, allocations, |holder| pod.has_ended(holder, index))
    }

    /// The account of these claims.
    pub fn of_claims<'a>(inventory: &Inventory, claims: impl IntoIterator<Item = &'a MemoryClaim>) -> Self {
        Self::beside(inventory, claims, &BTreeMap::new())
    }

    /// The account of these claims with the given bytes of ordinary memory left on each node, at most the
    /// capacity.
    pub fn of_what_is_left<'a>(
        inventory: &Inventory,
        claims: impl IntoIterator<Item = &'a MemoryClaim>,
        left: impl Fn(NodeId) -> u64,
    ) -> Self {
        let memory = MemoryResource::Memory;
        let gone = inventory.nodes.iter().map(|node| {
            let gone = node.allocatable(memory).saturating_sub(left(node.id));
            ((memory, node.id), gone)
        });
        Self::beside(inventory, claims, &gone.collect())
    }

    /// The account of these claims with reduced capacity of the nodes.
    fn beside<'a>(
        inventory: &Inventory,
        claims: impl IntoIterator<Item = &'a MemoryClaim>,
        gone: &BTreeMap<(MemoryResource, NodeId), u64>,
    ) -> Self {
        let nodes = inventory.nodes.iter().map(|node| node.id).collect();
        let mut account = Self::empty(inventory, &nodes, gone, NodeIndex::LARGEST);
        account.enter(claims.into_iter().collect());
        account
    }

    /// An account without promises; `most` nodes are in one mask.
    fn empty(
        inventory: &Inventory,
        nodes: &NodeSet,
        gone: &BTreeMap<(MemoryResource, NodeId), u64>,
        most: usize,
    ) -> Self {
        let further: NodeSet = nodes.iter().skip(most).collect();
        let beyond = (!further.is_empty()).then(|| Box::new(Self::empty(inventory, &further, gone, most)));
        let all = nodes.clone();
        let nodes = NodeIndex::new(&nodes.iter().take(most).collect());
        let supplies: Vec<_> = nodes.ids().iter().map(|id| inventory.node(*id)).collect();
        let resources = supplies.iter().flatten().flat_map(|node| node.allocatable.keys());
        let mut kinds: BTreeMap<_, _> = resources.map(|resource| (*resource, Promises::default())).collect();
        for (resource, promises) in &mut kinds {
            let left = |node: &super::NodeSupply| {
                let gone = gone.get(&(*resource, node.id)).copied().unwrap_or(0);
                node.allocatable(*resource).saturating_sub(gone)
            };
            let capacity = supplies.iter().map(|node| node.map_or(0, left));
            let new = Promises::new(capacity.collect());
            *promises = if is_fixed(*resource) { new.fixed() } else { new };
        }
        Self { nodes, kinds, beyond, all, unkept: BTreeMap::new(), anywhere: BTreeMap::new() }
    }

    /// Enters the parts of claims on the nodes of the masks.
    fn enter_here<'a>(&mut self, claims: impl IntoIterator<Item = &'a MemoryClaim>) {
        let mut kinds: Vec<_> =
            self.kinds.iter_mut().map(|(kind, all)| (*kind, all, ZoneSums::new())).collect();
        for claim in claims.into_iter().filter(|claim| claim.bytes > 0) {
            let zone = self.nodes.mask(&claim.zone);
            let kind = kinds.iter_mut().find(|(kind, ..)| *kind == claim.resource);
            let Some((.., zones)) = kind.filter(|_| zone != 0) else { continue };
            let forecast = claim.by_node.iter();
            let forecast = forecast.filter_map(|(node, bytes)| Some((self.nodes.position(*node)?, *bytes)));
            zones.add(zone, claim.bytes, forecast);
        }
        for (_, promises, zones) in kinds {
            zones.enter(promises);
        }
    }

    /// Room for memory on these nodes, for the text of a rejection.
    pub fn room(&self, nodes: &NodeSet, resource: MemoryResource) -> FittingAmount {
        FittingAmount::new(&resource.to_string(), nodes, |nodes| self.free(nodes, resource))
    }

    /// Amount that can be promised on a zone in addition.
    pub fn free(&self, zone: &NodeSet, resource: MemoryResource) -> u64 {
        let (mask, further) = self.parts_of(zone);
        let here = self.free_here(mask, resource);
        let free = match further {
            None => here,
            Some((beyond, zone)) if mask == 0 => beyond.free(&zone, resource),
            // It may be taken from the nodes of one part alone.
            Some((beyond, zone)) if is_fixed(resource) => here.min(beyond.free(&zone, resource)),
            Some((beyond, zone)) => here.saturating_add(beyond.free(&zone, resource)),
        };
        free.saturating_sub(self.unkept(resource)).min(self.free_at_all(resource))
    }

    /// Maximum that can be promised in addition on any nodes.
    fn free_at_all(&self, resource: MemoryResource) -> u64 {
        let Some(anywhere) = self.anywhere.get(&resource) else { return u64::MAX };
        let promised = self.usage(&self.all, resource).saturating_add(*anywhere);
        self.capacity(&self.all, resource).saturating_sub(promised)
    }

    /// Can this be promised on a zone in addition?
    pub fn fits(&self, zone: &NodeSet, resource: MemoryResource, bytes: u64) -> bool {
        match self.parts_of(zone) {
            _ if bytes > self.free_at_all(resource) => false,
            (mask, None) => self.fits_on(mask, resource, bytes),
            (0, Some((beyond, zone))) if self.unkept(resource) == 0 => beyond.fits(&zone, resource, bytes),
            _ => bytes == 0 || self.free(zone, resource) >= bytes,
        }
    }

    /// Capacity of the nodes of a zone.
    pub fn capacity(&self, zone: &NodeSet, resource: MemoryResource) -> u64 {
        let (mask, further) = self.parts_of(zone);
        let there = further.map_or(0, |(beyond, zone)| beyond.capacity(&zone, resource));
        self.capacity_on(mask, resource).saturating_add(there)
    }

    /// Sum of the promises on zones inside this one.
    pub fn usage(&self, zone: &NodeSet, resource: MemoryResource) -> u64 {
        let (mask, further) = self.parts_of(zone);
        let there = further.map_or(0, |(beyond, zone)| beyond.usage(&zone, resource));
        self.of(resource).map_or(0, |promises| promises.usage(mask)).saturating_add(there)
    }

    /// Amount that one arrangement of all claims leaves on a zone: it adds up over nodes, and never exceeds
    /// the free amount.
    pub fn left(&self, zone: &NodeSet, resource: MemoryResource) -> u64 {
        let (mask, further) = self.parts_of(zone);
        let there = further.map_or(0, |(beyond, zone)| beyond.left(&zone, resource));
        self.left_on(mask, resource).saturating_add(there).min(self.free_at_all(resource))
    }

    /// Forecast of a claim on a zone: on the lowest nodes first, as far as others leave room. The sum is
    /// `bytes`; the excess is forecast on the lowest node.
    pub fn split(&self, zone: &NodeSet, resource: MemoryResource, bytes: u64) -> BTreeMap<NodeId, u64> {
        self.clone_of(resource).promise(zone, resource, bytes).by_node
    }

    /// Enters another claim, whether it fits or not.
    pub fn promise(&mut self, zone: &NodeSet, resource: MemoryResource, bytes: u64) -> MemoryClaim {
        let mut by_node = self.lay(zone, resource, bytes);
        let laid = by_node.values().fold(0u64, |all, bytes| all.saturating_add(*bytes));
        if let Some(lowest) = zone.first().filter(|_| bytes > laid) {
            *by_node.entry(lowest).or_insert(0) += bytes - laid;
        }
        MemoryClaim { resource, zone: zone.clone(), bytes, by_node }
    }

    /// Enters a claim on the nodes of a mask; returns its forecast, as far as there is room.
    fn lay_here(&mut self, zone: Mask, resource: MemoryResource, bytes: u64) -> BTreeMap<NodeId, u64> {
        let mut by_node = BTreeMap::new();
        let mut rest = bytes;
        if let Some(promises) = self.kinds.get_mut(&resource).filter(|_| zone != 0 && bytes > 0) {
            let zone = promises.zone(zone);
            promises.note(zone, bytes);
            for (node, laid) in promises.serve_rest(zone) {
                let laid = laid.min(rest);
                rest -= laid;
                if let Some(id) = self.nodes.ids().get(node) {
                    *by_node.entry(*id).or_insert(0u64) += laid;
                }
            }
        }
        by_node
    }

    /// Every zone with more claims inside it than capacity, narrow ones first. If no single zone is too small
    /// but several together are, the nodes that they share. Empty exactly if all promises can be kept.
    pub(crate) fn overcommitted(&self, resource: MemoryResource) -> Vec<Overcommit> {
        let of = |promises: &Promises| -> Vec<Overcommit> {
            let over = |mask: &Mask| Overcommit {
                zone: self.nodes.nodes(*mask),
                usage: promises.taken(*mask),
                capacity: promises.capacity(*mask),
            };
            promises.overcommitted().iter().map(over).collect()
        };
        let mut all = self.of(resource).map(of).unwrap_or_default();
        if let Some(beyond) = &self.beyond {
            all.extend(beyond.overcommitted(resource));
            all.sort_by_key(|over| over.zone.len());
        }
        all
    }

    /// Positions of nodes in masks of this account.
    pub(super) const fn nodes(&self) -> &NodeIndex {
        &self.nodes
    }

    /// [`Self::fits`] for a mask of this account.
    pub(super) fn fits_on(&self, zone: Mask, resource: MemoryResource, bytes: u64) -> bool {
        let bytes = if bytes == 0 { 0 } else { bytes.saturating_add(self.unkept(resource)) };
        bytes == 0
            || bytes <= self.free_at_all(resource)
                && self.of(resource).is_some_and(|promises| promises.fits(zone, bytes))
    }

    /// [`Self::free`] for a mask of this account.
    pub(super) fn free_on(&self, zone: Mask, resource: MemoryResource) -> u64 {
        self.free_here(zone, resource).saturating_sub(self.unkept(resource)).min(self.free_at_all(resource))
    }

    /// [`Self::free_on`] without withholding amounts for claims without an arrangement.
    fn free_here(&self, zone: Mask, resource: MemoryResource) -> u64 {
        self.of(resource).map_or(0, |promises| promises.free(zone))
    }

    /// [`Self::capacity`] for a mask of this account.
    pub(super) fn capacity_on(&self, zone: Mask, resource: MemoryResource) -> u64 {
        self.of(resource).map_or(0, |promises| promises.capacity(zone))
    }

    /// Amount that one arrangement of all claims leaves: it adds up over nodes, and never exceeds the free
    /// amount.
    pub(super) fn left_on(&self, zone: Mask, resource: MemoryResource) -> u64 {
        let left = self.of(resource).map_or(0, |promises| promises.left(zone));
        left.min(self.free_at_all(resource))
    }

    /// The [free](Self::free) amount on every set of these nodes, each a mask of this account with one node
    /// or none, at most [`MAX_ENUMERATED_NODES`](crate::nodes::MAX_ENUMERATED_NODES) of them. If the table
    /// would be too large, the amounts that one arrangement of all claims leaves.
    pub(super) fn free_on_sets(&self, nodes: &[Mask], resource: MemoryResource) -> Table {
        let free =
            self.of(resource).map_or_else(|| Table::of_sums(&[]), |promises| promises.free_on_sets(nodes));
        free.at_most(self.free_at_all(resource))
    }

    /// Zones with claims of any kind, each at least once.
    pub(super) fn claimed_zones(&self) -> impl Iterator<Item = Mask> {
        self.kinds.values().flat_map(Promises::zones)
    }

    fn of(&self, resource: MemoryResource) -> Option<&Promises> {
        self.kinds.get(&resource)
    }

    /// The account with only one kind of memory.
    fn clone_of(&self, resource: MemoryResource) -> Self {
        let kinds = self.of(resource).map(|promises| (resource, promises.clone()));
        let beyond = self.beyond.as_ref().map(|beyond| Box::new(beyond.clone_of(resource)));
        Self {
            nodes: self.nodes.clone(),
            kinds: kinds.into_iter().collect(),
            beyond,
            all: self.all.clone(),
            unkept: self.unkept.clone(),
            anywhere: self.anywhere.clone(),
        }
    }
}

/// Does memory of this kind stay where it was allocated?
const fn is_fixed(resource: MemoryResource) -> bool {
    matches!(resource, MemoryResource::Hugepages(_))
}
