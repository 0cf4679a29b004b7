//! Memory accounts of machines with more nodes than a mask names.
//!
//! Problem: a mask names 64 nodes, the kernel supports up to 1,024, and a promise on a node that no mask
//! names would not be counted at all. Idea: the nodes after the 64th are in a separate account, and those
//! after its 64th in another one. A claim with nodes of several accounts counts in each by its forecast, and
//! where that is impossible by the available room.
//!
//! Invariant: if the account says that promises fit, all of them can be kept at once. The opposite holds only
//! within one account: across accounts nothing moves out of the way, so existing room may be denied. Amounts
//! without an arrangement are withheld from every other promise, so that all promises together never exceed
//! the capacity. Memory that cannot move may come from one account alone, so it counts in full in each.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap};

use super::{Mask, MemoryClaim, MemoryResource, ZoneAccount, is_fixed, promises::Promises};
use numa_topology::{id::NodeId, set::NodeSet};

impl ZoneAccount {
    /// The part of a zone that a mask names, and the rest of it with its account.
    pub(super) fn parts_of(&self, zone: &NodeSet) -> (Mask, Option<(&Self, NodeSet)>) {
        let mask = self.nodes.mask(zone);
        let Some(beyond) = self.beyond.as_deref() else { return (mask, None) };
        let further = zone.intersection(&beyond.all);
        (mask, (!further.is_empty()).then_some((beyond, further)))
    }

    /// Enters all claims. Claims over several parts count by forecast if all can be kept that way, else by
    /// the room found for each zone, narrow ones first. Then only the sums of the zones decide, so a promise
    /// that fit when it was checked also fits when it is entered.
    pub(super) fn enter(&mut self, claims: Vec<&MemoryClaim>) {
        if self.beyond.is_none() {
            return self.enter_here(claims);
        }
        let (mut inside, mut across) = (Vec::new(), Vec::new());
        for claim in claims {
            match self.parts_of(&claim.zone) {
                (mask, Some((beyond, further))) if mask != 0 && is_fixed(claim.resource) => {
                    let bytes = |capacity: u64| claim.bytes.min(capacity);
                    let own = bytes(self.capacity_on(mask, claim.resource));
                    let rest = bytes(beyond.capacity(&further, claim.resource));
                    inside.push(Cow::Owned(part(claim, self.nodes.nodes(mask), own)));
                    inside.push(Cow::Owned(part(claim, further, rest)));
                }
                (mask, Some(_)) if mask != 0 => across.push(claim),
                _ => inside.push(Cow::Borrowed(claim)),
            }
        }
        if across.is_empty() {
            return self.enter_parts(&inside);
        }
        let mut plain = self.clone();
        plain.enter_parts(&inside);
        let missing = |account: &Self| -> BTreeMap<MemoryResource, u64> {
            let kinds = account.kinds.keys().map(|kind| {
                let more = account.unkept_in_parts(*kind).saturating_sub(plain.unkept_in_parts(*kind));
                (*kind, more)
            });
            kinds.filter(|(_, bytes)| *bytes > 0).collect()
        };
        let mut forecast = self.clone();
        forecast.enter_as_forecast(inside.clone(), &across);
        let mut unkept = missing(&forecast);
        let mut best = forecast;
        if !unkept.is_empty() {
            let mut found = plain.clone();
            found.enter_as_room_is_found(&across);
            let of_found = missing(&found);
            let sum = |of: &BTreeMap<_, u64>| of.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
            if sum(&of_found) <= sum(&unkept) {
                (best, unkept) = (found, of_found);
            }
        }
        best.unkept = unkept;
        *self = best;
    }

    /// Enters claims that are each in one part.
    fn enter_parts(&mut self, claims: &[Cow<'_, MemoryClaim>]) {
        let is_here = |claim: &&MemoryClaim| self.nodes.mask(&claim.zone) != 0;
        let (here, there): (Vec<_>, Vec<_>) = claims.iter().map(AsRef::as_ref).partition(is_here);
        self.enter_here(here);
        if let Some(beyond) = self.beyond.as_deref_mut() {
            beyond.enter(there);
        }
    }

    /// Enters claims, each of `across` in every part by its forecast there.
    fn enter_as_forecast(&mut self, mut inside: Vec<Cow<'_, MemoryClaim>>, across: &[&MemoryClaim]) {
        let mut open = Vec::new();
        for claim in across {
            let (mask, further) = self.parts_of(&claim.zone);
            let own = self.nodes.nodes(mask);
            let further = further.map(|(_, further)| further).unwrap_or_default();
            let forecast = |zone: &NodeSet| {
                let lies = claim.by_node.iter().filter(|(node, _)| zone.contains(**node));
                lies.fold(0u64, |all, (_, bytes)| all.saturating_add(*bytes))
            };
            let (own_bytes, rest) = (forecast(&own), forecast(&further));
            if own_bytes.saturating_add(rest) == claim.bytes {
                inside.push(Cow::Owned(part(claim, own, own_bytes)));
                inside.push(Cow::Owned(part(claim, further, rest)));
            } else {
                open.push(*claim);
            }
        }
        self.enter_parts(&inside);
        self.enter_as_room_is_found(&open);
    }

    /// Enters claims over several parts, those of one zone combined.
    fn enter_as_room_is_found(&mut self, across: &[&MemoryClaim]) {
        let mut sums = BTreeMap::<(&NodeSet, MemoryResource), u64>::new();
        for claim in across {
            let sum = sums.entry((&claim.zone, claim.resource)).or_default();
            *sum = sum.saturating_add(claim.bytes);
        }
        // Narrow ones first, because they have the fewest alternatives.
        let mut sums: Vec<_> = sums.into_iter().collect();
        sums.sort_by_key(|((zone, _), bytes)| (zone.len(), Reverse(*bytes)));
        for ((zone, resource), bytes) in sums {
            self.lay(zone, resource, bytes);
        }
    }

    /// Amount of claims over several parts without an arrangement.
    pub(super) fn unkept(&self, resource: MemoryResource) -> u64 {
        self.unkept.get(&resource).copied().unwrap_or(0)
    }

    /// Amount that the arrangements of all parts do not serve.
    fn unkept_in_parts(&self, resource: MemoryResource) -> u64 {
        let here = if is_fixed(resource) { 0 } else { self.of(resource).map_or(0, Promises::unkept) };
        let there = self.beyond.as_deref().map_or(0, |beyond| beyond.unkept_in_parts(resource));
        here.saturating_add(there)
    }

    /// Enters another claim; returns its forecast, as far as there is room.
    pub(super) fn lay(
        &mut self,
        zone: &NodeSet,
        resource: MemoryResource,
        bytes: u64,
    ) -> BTreeMap<NodeId, u64> {
        let laid = self.lay_in_parts(zone, resource, bytes);
        let missing = bytes.saturating_sub(laid.values().fold(0u64, |all, bytes| all.saturating_add(*bytes)));
        let is_there = self.beyond.is_some() && !self.all.is_disjoint(zone);
        if missing > 0 && is_there && !is_fixed(resource) {
            let unkept = self.unkept.entry(resource).or_default();
            *unkept = unkept.saturating_add(missing);
        }
        laid
    }

    fn lay_in_parts(
        &mut self,
        zone: &NodeSet,
        resource: MemoryResource,
        bytes: u64,
    ) -> BTreeMap<NodeId, u64> {
        let (mask, further) = self.parts_of(zone);
        let Some((beyond, further)) = further else { return self.lay_here(mask, resource, bytes) };
        let (room, capacity) = (beyond.free(&further, resource), beyond.capacity(&further, resource));
        let free = self.free_here(mask, resource);
        // An amount without room anywhere is promised here, if this part has a node.
        let own = if mask == 0 { 0 } else { free.min(bytes).max(bytes.saturating_sub(room)) };
        let (here, there) = if is_fixed(resource) && mask != 0 {
            (bytes.min(self.capacity_on(mask, resource)), bytes.min(capacity))
        } else {
            (own, bytes - own)
        };
        let mut laid = up_to(own, self.lay_here(mask, resource, here));
        if let Some(beyond) = self.beyond.as_deref_mut() {
            laid.extend(up_to(bytes - own, beyond.lay(&further, resource, there)));
        }
        laid
    }
}

/// The part of a claim on some of its nodes.
fn part(claim: &MemoryClaim, zone: NodeSet, bytes: u64) -> MemoryClaim {
    let by_node = claim.by_node.iter().filter(|(node, _)| zone.contains(**node));
    let by_node = by_node.map(|(node, bytes)| (*node, *bytes)).collect();
    MemoryClaim { resource: claim.resource, zone, bytes, by_node }
}

/// The first of these amounts, up to a sum.
fn up_to(mut most: u64, by_node: BTreeMap<NodeId, u64>) -> BTreeMap<NodeId, u64> {
    let cut = by_node.into_iter().map(|(node, bytes)| {
        let bytes = bytes.min(most);
        most -= bytes;
        (node, bytes)
    });
    cut.filter(|(_, bytes)| *bytes > 0).collect()
}
