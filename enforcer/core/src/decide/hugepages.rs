//! Huge pages that processes use, or have reserved, without a promise: they are promised to nobody else.
//!
//! Problem: a process that maps huge pages reserves them (`hugetlb_reserve_pages`, mm/hugetlb.c), and they
//! are free until it touches them. The next container would be promised them, and its mapping fails. The
//! kernel counts reserved pages of the whole host alone (`resv_hugepages`): from which node each comes is
//! decided when it is touched. Idea: each node is reckoned as if all of them came from there. Where there is
//! one node that is exact; where there are several, less is promised than there is, and never more.
//!
//! What a container uses or has reserved of its own promise is not counted twice: as much as its cgroup tells
//! (`hugetlb.SIZE.numa_stat`, `hugetlb.SIZE.rsvd.current`). Where a cgroup does not tell, as many as it was
//! promised count as its own.

use std::collections::{BTreeMap, BTreeSet};

use super::Inputs;
use crate::{
    id::NodeId,
    parse::numa_stat::hugetlb_file,
    place::{Allocations, Apart, Grant, Holder, MemoryResource},
    sample::CgroupSample,
    topology::Hugepages,
    workload::CgroupPath,
};

/// Bytes of one size by what they are, for promises that count.
#[derive(Default)]
struct Own {
    /// Used of what was promised, or all of that where a cgroup does not tell.
    used: BTreeMap<NodeId, u64>,
    /// Reserved of what was promised and is not used, as far as that is told.
    reserved: u64,
}

/// By node, what is in use there beyond promises, and what is reserved beyond them as far as the node has it
/// free.
pub(super) fn held(inputs: &Inputs<'_>, allocations: &Allocations) -> Apart {
    let sample = inputs.sample;
    let used_sizes = sample.nodes.values().flat_map(|seen| seen.hugepages_used.keys());
    let sizes: BTreeSet<u64> = used_sizes.chain(sample.hugepages_reserved.keys()).copied().collect();
    let mut beyond: BTreeMap<NodeId, BTreeMap<MemoryResource, u64>> = BTreeMap::new();
    for size in sizes {
        let own = own(inputs, allocations, size);
        let used = |node: &NodeId| {
            let seen = sample.nodes.get(node);
            seen.and_then(|seen| seen.hugepages_used.get(&size)).copied().unwrap_or(0)
        };
        let own_used = |node: &NodeId| own.used.get(node).copied().unwrap_or(0);
        // A promise of which no use is seen may be what is reserved.
        let untold = own.used.iter().map(|(node, own)| own.saturating_sub(used(node)));
        let covered = untold.fold(own.reserved, u64::saturating_add);
        let reserved = sample.hugepages_reserved.get(&size).copied().unwrap_or(0).saturating_sub(covered);
        for node in &inputs.inventory.machine.nodes {
            let of_size = node.hugepages.iter().filter(|pages| pages.size_bytes == size);
            let total = of_size.map(bytes).fold(0, u64::saturating_add);
            let used = used(&node.id);
            let free = total.saturating_sub(used);
            let taken = used.saturating_sub(own_used(&node.id)).saturating_add(reserved.min(free));
            if taken > 0 {
                beyond.entry(node.id).or_default().insert(MemoryResource::Hugepages(size), taken);
            }
        }
    }
    let held = |(node, beyond): (NodeId, BTreeMap<MemoryResource, u64>)| {
        (Holder::hugepages(node), Grant::used_by_others(node, &beyond))
    };
    beyond.into_iter().map(held).collect()
}

fn bytes(pages: &Hugepages) -> u64 {
    pages.total.saturating_mul(pages.size_bytes)
}

fn own(inputs: &Inputs<'_>, allocations: &Allocations, size: u64) -> Own {
    let (kind, file) = (MemoryResource::Hugepages(size), hugetlb_file(size));
    let mut own = Own::default();
    for (holder, grant) in allocations.iter().filter(|(holder, _)| !holder.is_apart()) {
        let seen = cgroup_of(inputs, holder).and_then(|cgroup| inputs.sample.cgroups.get(&cgroup));
        let told = seen.and_then(|seen| seen.hugetlb_by_file.get(&file));
        let mut unused = 0u64;
        for claim in grant.memory.iter().filter(|claim| claim.resource == kind) {
            let on_node = |node: &NodeId| told.map(|told| told.get(node).copied().unwrap_or(0));
            let mut used_here = 0u64;
            for node in claim.zone.iter() {
                let used = on_node(&node).map_or(claim.bytes, |used| used.min(claim.bytes));
                let all = own.used.entry(node).or_default();
                *all = all.saturating_add(used);
                used_here = used_here.saturating_add(used);
            }
            unused = unused.saturating_add(claim.bytes.saturating_sub(used_here));
        }
        own.reserved =
            own.reserved.saturating_add(reserved(seen, &file).map_or(unused, |told| told.min(unused)));
    }
    own
}

/// Bytes that a cgroup has reserved and does not use.
fn reserved(seen: Option<&CgroupSample>, file: &str) -> Option<u64> {
    seen?.hugetlb_reserved.get(file).copied()
}

/// The cgroup of a holder.
fn cgroup_of(inputs: &Inputs<'_>, holder: &Holder) -> Option<CgroupPath> {
    let declared = holder.is_cgroup().then(|| CgroupPath::new(&holder.pod().name));
    declared.or_else(|| inputs.containers.cgroup_of(holder).cloned())
}
