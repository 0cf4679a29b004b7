//! Where the memory is.
//!
//! Limits: page cache and shared pages are charged to the cgroup that touched them first, so a
//! workload that reads another's pages does not show them here; and a process moved between cgroups
//! leaves its charge behind (Documentation/admin-guide/cgroup-v2.rst, memory ownership).

use std::collections::BTreeMap;

use super::rates::ratio;
use crate::{id::NodeId, sample::NodeBytes, set::NodeSet, topology::Locality};

/// The bytes of a node's memory that a workload can access itself: anonymous and page cache.
pub fn accessed_bytes(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(bytes.file)
}

/// Of these the bytes that a new set of memory nodes takes along: anonymous ones and shared memory.
pub fn movable_bytes(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(bytes.shmem.unwrap_or(0))
}

/// Of these the bytes that do not follow, because they come anew where they are read again: page cache of
/// files. Shared memory that is not told apart counts with it.
pub fn page_cache_bytes(bytes: &NodeBytes) -> u64 {
    bytes.file.saturating_sub(bytes.shmem.unwrap_or(0))
}

/// What it can access, over all nodes.
pub(super) fn total(bytes: &BTreeMap<NodeId, NodeBytes>) -> u64 {
    bytes.values().fold(0, |sum, bytes| sum.saturating_add(accessed_bytes(bytes)))
}

/// Share of the ordinary memory that is local to none of the CPU nodes; none where there is no such memory
/// or no CPU is known. Memory on GPUs is neither near nor far, and counts for nothing here.
pub(super) fn remote_share(
    locality: &Locality,
    bytes: &BTreeMap<NodeId, NodeBytes>,
    cpu_nodes: &NodeSet,
) -> Option<f64> {
    if cpu_nodes.is_empty() {
        return None;
    }
    let ordinary = bytes.iter().filter(|(node, _)| !locality.is_gpu(**node));
    let (remote, all) = ordinary.fold((0u64, 0u64), |(remote, all), (node, bytes)| {
        let bytes = accessed_bytes(bytes);
        let far = if locality.is_far(*node, cpu_nodes) { bytes } else { 0 };
        (remote.saturating_add(far), all.saturating_add(bytes))
    });
    ratio(remote, all)
}
