//! Writes a grant, and widens the zones of containers that make room.

use super::{PoolsPlacing, wanted::ContainerWish};
use crate::{
    Allocations, Grant, Holder, MemoryClaim, MemoryResource, memory::ZoneAccount, pools::memory::MemoryOffer,
};
use numa_topology::set::NodeSet;

impl PoolsPlacing<'_> {
    /// Writes the grant, and widens the zones of containers that make room.
    pub(super) fn give(
        &mut self,
        wanted: &ContainerWish<'_>,
        mut grant: Grant,
        offer: &MemoryOffer,
        allocations: &mut Allocations,
    ) {
        if !offer.zone.moved.is_empty() {
            let holders: Vec<Holder> = {
                let others = self.others(wanted.index, allocations);
                let all: Vec<&Holder> = others.map(|(holder, _)| holder).collect();
                offer.zone.moved.iter().filter_map(|(at, _)| all.get(*at).map(|h| (*h).clone())).collect()
            };
            let leave =
                |holder: &Holder| self.pod.has_ended(holder, wanted.index) || holders.contains(holder);
            self.account = ZoneAccount::new(self.inventory, allocations, leave);
            for (holder, (_, zone)) in holders.into_iter().zip(&offer.zone.moved) {
                self.widen(holder, zone, allocations);
            }
        }
        let wishes = &wanted.memory;
        let amounts = std::iter::once((MemoryResource::Memory, wishes.bytes))
            .chain(wishes.hugepages.iter().map(|(size, bytes)| (MemoryResource::Hugepages(*size), *bytes)));
        let zone = &offer.zone.zone;
        let claims: Vec<MemoryClaim> = amounts
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(resource, bytes)| self.account.promise(zone, resource, bytes))
            .collect();
        grant.memory = claims;
        self.supply.add(&grant);
        allocations.give(Holder::new(self.pod.name.clone(), wanted.container.name.clone()), grant);
    }

    fn widen(&mut self, holder: Holder, zone: &NodeSet, allocations: &mut Allocations) {
        let Some(mut grant) = allocations.get(&holder).cloned() else { return };
        for claim in &mut grant.memory {
            *claim = match claim.resource {
                MemoryResource::Memory => self.account.promise(zone, claim.resource, claim.bytes),
                MemoryResource::Hugepages(_) => {
                    self.account.promise(&claim.zone, claim.resource, claim.bytes)
                }
            };
        }
        grant.mems.extend(zone);
        if let Some(cold_start) = &mut grant.cold_start {
            cold_start.mems.extend(zone);
        }
        allocations.give(holder, grant);
    }
}
