//! Memory of machines with more nodes than a mask names.
//!
//! Problem: a mask names 64 nodes, the kernel knows up to 1,024, and a promise on a node that no mask names
//! would be one that nothing is counted against. Idea: the nodes beyond the 64th are in an account of their
//! own, and those beyond its 64th in another. A claim with nodes of several accounts lies in each as it is
//! forecast to lie there.
//!
//! Invariant: where the account says that promises fit, all of them can be kept at once. The opposite holds
//! within one account: across accounts nothing is moved out of the way. Memory that stays where it was taken
//! may be taken from one account alone, so that it counts in full in each.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{Mask, MemoryClaim, MemoryResource, ZoneAccount, is_fixed};
use crate::{id::NodeId, set::NodeSet};

impl ZoneAccount {
    /// What of a zone a mask names, and the rest of it with the account that it is in.
    pub(super) fn parts_of(&self, zone: &NodeSet) -> (Mask, Option<(&Self, NodeSet)>) {
        let mask = self.nodes.mask(zone);
        let Some(beyond) = self.beyond.as_deref() else { return (mask, None) };
        let further = zone.difference(&self.nodes.nodes(mask));
        (mask, (!further.is_empty()).then_some((beyond, further)))
    }

    /// Enters all claims.
    pub(super) fn enter(&mut self, claims: Vec<&MemoryClaim>) {
        let Some(beyond) = self.beyond.as_deref() else { return self.enter_here(claims) };
        let (mut here, mut there, mut across) = (Vec::new(), Vec::new(), Vec::new());
        for claim in claims {
            match self.parts_of(&claim.zone) {
                (_, None) => here.push(claim),
                (0, Some(_)) => there.push(claim),
                (mask, Some((_, further))) => across.push((claim, mask, further)),
            }
        }
        let (mut parts, mut open) = (Vec::new(), Vec::new());
        for (claim, mask, further) in across {
            if is_fixed(claim.resource) {
                let bytes = |capacity: u64| claim.bytes.min(capacity);
                let own = bytes(self.capacity_on(mask, claim.resource));
                let rest = bytes(beyond.capacity(&further, claim.resource));
                parts.push((part(claim, self.nodes.nodes(mask), own), part(claim, further, rest)));
                continue;
            }
            let own = self.nodes.nodes(mask);
            let forecast = |zone: &NodeSet| {
                let inside = claim.by_node.iter().filter(|(node, _)| zone.contains(**node));
                inside.fold(0u64, |all, (_, bytes)| all.saturating_add(*bytes))
            };
            let (own_bytes, rest) = (forecast(&own), forecast(&further));
            if own_bytes.saturating_add(rest) == claim.bytes {
                parts.push((part(claim, own, own_bytes), part(claim, further, rest)));
            } else {
                open.push(claim);
            }
        }
        here.extend(parts.iter().map(|(own, _)| own));
        there.extend(parts.iter().map(|(_, rest)| rest));
        self.enter_here(here);
        if let Some(beyond) = self.beyond.as_deref_mut() {
            beyond.enter(there);
        }
        // Narrow ones first, because they have the least choice.
        open.sort_by_key(|claim| (claim.zone.len(), Reverse(claim.bytes)));
        for claim in open {
            self.promise(&claim.zone, claim.resource, claim.bytes);
        }
    }

    /// Enters another claim; how it lies, as far as there is room.
    pub(super) fn lay(
        &mut self,
        zone: &NodeSet,
        resource: MemoryResource,
        bytes: u64,
    ) -> BTreeMap<NodeId, u64> {
        let (mask, further) = self.parts_of(zone);
        let Some((beyond, further)) = further else { return self.lay_here(mask, resource, bytes) };
        let (room, capacity) = (beyond.free(&further, resource), beyond.capacity(&further, resource));
        let free = self.free_on(mask, resource);
        // What has room nowhere is promised here, where there is a node here.
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

/// What a claim has on some of its nodes.
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
