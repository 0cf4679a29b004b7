//! Huge pages that processes use, or have reserved, without a promise: no other container is promised them.
//!
//! Problem: a process that maps huge pages reserves them (`hugetlb_reserve_pages`, mm/hugetlb.c), and they
//! are free until it touches them. The next container would be promised them, and its mapping fails. The
//! kernel counts reserved pages of the whole host only (`resv_hugepages`): the node of each is decided when
//! it is touched. Idea: used pages are subtracted from their node, reserved ones from all nodes together. A
//! node may be promised all its free pages, and all nodes together their free pages less the reserved ones:
//! the kernel grants a mapping by that sum.
//!
//! Unknown pages do not count as free. If a size cannot be read on a node, or a node was not seen, all its
//! pages count as used. If the reserved pages of a size cannot be read, all count as reserved.
//!
//! Limit: a process that has reserved pages may touch them on the node of a promise first. The kernel
//! warrants neither of both a node (`hugetlb_acct_memory`).
//!
//! Pages that a container uses or has reserved of its own promise are not counted twice: its cgroup reports
//! them (`hugetlb.SIZE.numa_stat`, `hugetlb.SIZE.rsvd.current`). If a cgroup does not report them, its
//! promised pages count as its own, over all nodes of the promise together.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    hosted::{Containers, ExternalGrants},
    parse::numa_stat::hugetlb_file,
    sample::{CgroupSample, Sample},
    workload::CgroupPath,
};
use numa_placement::{Allocations, Grant, Holder, MemoryResource};
use numa_topology::{Hugepages, Node, Topology, id::NodeId, set::NodeSet};

/// Bytes of one size by what they are, for promises that count.
#[derive(Default)]
struct Own {
    /// Used pages of promises; all that may be of one if a cgroup does not report them.
    used: BTreeMap<NodeId, u64>,
    /// Reserved and unused pages of promises; all of them if a cgroup does not report them.
    reserved: u64,
}

/// Used pages beyond promises by node; and reserved pages beyond promises, as far as they are free.
pub(super) fn unpromised_grants(
    machine: &Topology,
    sample: &Sample,
    containers: &Containers,
    allocations: &Allocations,
) -> ExternalGrants {
    let total = |node: &Node, size: u64| {
        let of_size = node.hugepages.iter().filter(|pages| pages.size_bytes == size);
        of_size.map(bytes).fold(0, u64::saturating_add)
    };
    let sizes: BTreeSet<u64> = machine
        .nodes
        .iter()
        .flat_map(|node| node.hugepages.iter().map(|pages| pages.size_bytes))
        .chain(sample.nodes.values().flat_map(|seen| seen.hugepages_used.keys().copied()))
        .collect();
    let mut beyond: BTreeMap<NodeId, BTreeMap<MemoryResource, u64>> = BTreeMap::new();
    let (mut reserved_beyond, mut reserved_on) = (BTreeMap::new(), NodeSet::new());
    for size in sizes {
        let used = |node: NodeId| {
            let seen = sample.nodes.get(&node).filter(|seen| !seen.hugepages_unknown.contains(&size));
            // A size without a used page is absent.
            seen.map_or_else(
                || machine.node(node).map_or(0, |node| total(node, size)),
                |seen| seen.hugepages_used.get(&size).copied().unwrap_or(0),
            )
        };
        let own = own(sample, containers, allocations, size, used);
        let own_used = |node: NodeId| own.used.get(&node).copied().unwrap_or(0);
        let reserved = if sample.hugepages_reserved_unknown.contains(&size) {
            u64::MAX
        } else {
            sample.hugepages_reserved.get(&size).copied().unwrap_or(0)
        };
        let reserved = reserved.saturating_sub(own.reserved);
        let (mut free, mut nodes) = (0u64, NodeSet::new());
        for node in &machine.nodes {
            let total = total(node, size);
            let used = used(node.id);
            if total > 0 {
                nodes.insert(node.id);
                free = free.saturating_add(total.saturating_sub(used));
            }
            let taken = used.saturating_sub(own_used(node.id));
            if taken > 0 {
                beyond.entry(node.id).or_default().insert(MemoryResource::Hugepages(size), taken);
            }
        }
        let reserved = reserved.min(free);
        if reserved > 0 {
            reserved_beyond.insert(MemoryResource::Hugepages(size), reserved);
            reserved_on.extend(&nodes);
        }
    }
    let held = |(node, beyond): (NodeId, BTreeMap<MemoryResource, u64>)| {
        (Holder::hugepages(node), Grant::used_by_others(node, &beyond))
    };
    let mut apart: ExternalGrants = beyond.into_iter().map(held).collect();
    if !reserved_beyond.is_empty() {
        let grant = Grant::reserved_by_others(&reserved_on, &reserved_beyond);
        apart.insert(Holder::reserved_hugepages(), grant);
    }
    apart
}

fn bytes(pages: &Hugepages) -> u64 {
    pages.total.saturating_mul(pages.size_bytes)
}

/// Used and reserved pages that belong to promises. `used` are the used pages of a node.
fn own(
    sample: &Sample,
    containers: &Containers,
    allocations: &Allocations,
    size: u64,
    used: impl Fn(NodeId) -> u64,
) -> Own {
    let (kind, file) = (MemoryResource::Hugepages(size), hugetlb_file(size));
    let mut own = Own::default();
    let holders = allocations.iter().filter(|(holder, _)| !holder.is_apart()).map(|(holder, grant)| {
        let seen = cgroup_of(containers, holder).and_then(|cgroup| sample.cgroups.get(&cgroup));
        (grant, seen, seen.and_then(|seen| seen.hugetlb_by_file.get(&file)))
    });
    let (telling, silent): (Vec<_>, Vec<_>) = holders.partition(|(_, _, told)| told.is_some());
    // Pages that no cgroup reports may belong to a promise, once: after those that were reported.
    for (grant, seen, told) in telling.into_iter().chain(silent) {
        let mut unused = 0u64;
        for claim in grant.memory.iter().filter(|claim| claim.resource == kind) {
            let mut left = claim.bytes;
            for node in claim.zone.iter() {
                let all = own.used.entry(node).or_default();
                let used_here = told.map_or_else(
                    || used(node).saturating_sub(*all),
                    |told| told.get(&node).copied().unwrap_or(0),
                );
                let of_claim = used_here.min(left);
                (*all, left) = (all.saturating_add(of_claim), left - of_claim);
            }
            unused = unused.saturating_add(left);
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
fn cgroup_of(containers: &Containers, holder: &Holder) -> Option<CgroupPath> {
    let declared = holder.is_cgroup().then(|| CgroupPath::new(&holder.pod().name));
    declared.or_else(|| containers.cgroup_of(holder).cloned())
}
