//! Soft memory promises that no longer fit after a Guaranteed pod got its promise.
//!
//! Problem: memory of other classes is promised near their CPUs as a preference. The kubelet does not count
//! it, so it must not cause the rejection of a pod that the kubelet would admit. Idea: holders of soft
//! promises on overcommitted nodes get all memory nodes, the least important and the smallest first. One that
//! still does not fit keeps its nodes and loses the promise of ordinary memory. Promises of huge pages cannot
//! be dropped: their pages are in use or missing.

use crate::{
    Allocations, Grant, Holder, Inventory, MemoryClaim, MemoryResource, PodName, Rejection, RejectionProblem,
    RejectionReason, Shortage,
    memory::{Overcommit, ZoneAccount},
};
use numa_topology::set::NodeSet;

use super::accounts::is_soft;

/// Makes room for this pod until every promise can be kept.
pub(super) fn widen_soft(
    inventory: &Inventory,
    allocations: &mut Allocations,
    pod: &PodName,
) -> Result<(), Rejection> {
    let everywhere = inventory.machine.ordinary_memory_nodes();
    let mut candidates: Vec<(Holder, u64)> = allocations
        .iter()
        .filter(|(_, grant)| is_soft(grant))
        .map(|(holder, grant)| (holder.clone(), grant.memory.iter().map(|claim| claim.bytes).sum()))
        .collect();
    let priority = |holder: &Holder| allocations.get(holder).map(|grant| grant.memory_priority);
    candidates.sort_by_cached_key(|(holder, bytes)| (priority(holder), *bytes, holder.clone()));
    let mut over = overcommitted(inventory, allocations);
    for widen in [true, false] {
        for (holder, _) in &candidates {
            if over.is_empty() {
                return Ok(());
            }
            let Some(grant) = allocations.get(holder) else { continue };
            let inside = |claim: &MemoryClaim| {
                over.iter()
                    .any(|(resource, over)| *resource == claim.resource && claim.zone.is_subset(&over.zone))
            };
            // A holder with more nodes may use huge pages there too.
            let stays = |claim: &MemoryClaim| widen && claim.resource != MemoryResource::Memory;
            if grant.memory.iter().any(inside) && !grant.memory.iter().any(stays) {
                let grant = if widen { widened(grant, &everywhere) } else { unpromised(grant) };
                allocations.give(holder.clone(), grant);
                over = overcommitted(inventory, allocations);
            }
        }
    }
    match over.into_iter().next() {
        None => Ok(()),
        Some((resource, over)) => {
            let without = ZoneAccount::new(inventory, allocations, |holder| holder.pod() == pod);
            let room = without.room(&over.zone, resource);
            let shortage = Shortage {
                resource: resource.to_string(),
                nodes: over.zone,
                wanted: over.usage,
                available: over.capacity,
            };
            let problem = RejectionProblem::HeldByOthers;
            Err(Rejection::new(RejectionReason::UnexpectedAdmissionError, problem)
                .short_of(vec![shortage], &[room]))
        }
    }
}

fn overcommitted(inventory: &Inventory, allocations: &Allocations) -> Vec<(MemoryResource, Overcommit)> {
    let account = ZoneAccount::new(inventory, allocations, |_| false);
    let resources: std::collections::BTreeSet<MemoryResource> =
        allocations.iter().flat_map(|(_, grant)| &grant.memory).map(|claim| claim.resource).collect();
    let of = |resource| account.overcommitted(resource).into_iter().map(move |over| (resource, over));
    resources.into_iter().flat_map(of).collect()
}

fn widened(grant: &Grant, everywhere: &NodeSet) -> Grant {
    let mut grant = grant.clone();
    for claim in &mut grant.memory {
        claim.zone = everywhere.clone();
    }
    let reason = "all memory nodes, because a Guaranteed pod needed the nearer ones".to_owned();
    Grant { mems: everywhere.clone(), reason, ..grant }
}

fn unpromised(grant: &Grant) -> Grant {
    let mut grant = grant.clone();
    grant.memory.retain(|claim| claim.resource != MemoryResource::Memory);
    grant
}
