//! Places of memory, and the pages that move.
//!
//! Which pages move: a write of `cpuset.mems` walks the page tables of each process and takes every page that
//! it finds there along, of files as well, however many processes map it (`cpuset_migrate_mm`,
//! kernel/cgroup/cpuset.c, calls `do_migrate_pages` with `MPOL_MF_MOVE_ALL`; so does migratepages(8) as
//! root). `move_pages(2)` finds pages in the same way and leaves page cache that several processes map.
//! Unmapped pages are in no page table and stay, of tmpfs as well. `file_mapped` of `memory.numa_stat` counts
//! mapped pages, shared memory among them (`NR_FILE_MAPPED`).
//!
//! So each has one definition: *bytes that follow* ([`movable_bytes`]) are anonymous and mapped ones; *room
//! to request* ([`room_bytes`]) is the same amount, or with unknown mappings all that could be mapped. The
//! daemon begins a move for the part that it surely can move ([`own_bytes`]), and then requests room for all.
//!
//! Limits: the kernel does not report the share of shared memory in the mapped pages, nor the number of
//! processes that map them. Page cache and shared pages are charged to the cgroup that touched them first, so
//! a workload that reads another's pages does not show them here; and a process moved between cgroups leaves
//! its charge behind (Documentation/admin-guide/cgroup-v2.rst, memory ownership).

use std::collections::BTreeMap;

use super::rates::ratio;
use crate::sample::NodeBytes;
use numa_topology::{Locality, id::NodeId, set::NodeSet};

/// Bytes of a node's memory that a workload can access itself: anonymous and page cache.
pub fn accessed_bytes(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(bytes.file)
}

/// Bytes that follow a write of `cpuset.mems`: anonymous ones, and mapped file pages. If mappings are
/// unknown, all shared memory is taken to be mapped, and nothing else.
pub fn movable_bytes(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(mapped_bytes(bytes).unwrap_or(bytes.shmem.unwrap_or(0)))
}

/// Bytes that may come along, for which a node needs room. If mappings are unknown, all file pages may be
/// mapped.
pub fn room_bytes(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(mapped_bytes(bytes).unwrap_or(bytes.file))
}

/// Bytes that a move is begun for: anonymous ones and shared memory, as far as it can be mapped. Page cache
/// of programs and libraries stays if several processes map it, and comes anew where it is read again.
pub fn own_bytes(bytes: &NodeBytes) -> u64 {
    let shared = bytes.shmem.unwrap_or(0);
    bytes.anon.saturating_add(mapped_bytes(bytes).map_or(shared, |mapped| mapped.min(shared)))
}

/// Bytes in use that reclaim cannot give back: anonymous ones and all of tmpfs, mapped or not.
pub fn kept_bytes(bytes: &NodeBytes) -> u64 {
    bytes.anon.saturating_add(bytes.shmem.unwrap_or(0))
}

/// Bytes of files that do not follow, because no process maps them.
pub fn staying_bytes(bytes: &NodeBytes) -> u64 {
    accessed_bytes(bytes).saturating_sub(movable_bytes(bytes))
}

/// Of these, the least amount of tmpfs.
pub fn staying_shmem_bytes(bytes: &NodeBytes) -> u64 {
    mapped_bytes(bytes).map_or(0, |mapped| bytes.shmem.unwrap_or(0).saturating_sub(mapped))
}

/// Page cache of files, which comes anew where it is read again. Shared memory that is not reported apart
/// counts with it.
pub fn page_cache_bytes(bytes: &NodeBytes) -> u64 {
    bytes.file.saturating_sub(bytes.shmem.unwrap_or(0))
}

/// Bytes of mapped file pages; the counters of one node are not of one moment.
fn mapped_bytes(bytes: &NodeBytes) -> Option<u64> {
    bytes.file_mapped.map(|mapped| mapped.min(bytes.file))
}

/// Accessible bytes over all nodes.
pub(super) fn total(bytes: &BTreeMap<NodeId, NodeBytes>) -> u64 {
    bytes.values().fold(0, |sum, bytes| sum.saturating_add(accessed_bytes(bytes)))
}

/// Share of the ordinary memory that is local to none of the CPU nodes; `None` without such memory or without
/// known CPUs. Memory on GPUs is neither near nor far, and does not count.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_processes_map_follow_and_those_of_files_that_none_maps_stay() {
        let bytes =
            |anon, file, shmem, file_mapped| NodeBytes { anon, file, shmem, file_mapped, kernel: None };
        for (of, follows, room, own, stays, tmpfs) in [
            // Nothing but anonymous memory.
            (bytes(10, 0, Some(0), Some(0)), 10, 10, 10, 0, 0),
            // Files of tmpfs that no process maps, and the same mapped, whole and in part.
            (bytes(10, 60, Some(60), Some(0)), 10, 10, 10, 60, 60),
            (bytes(10, 60, Some(60), Some(60)), 70, 70, 70, 0, 0),
            (bytes(10, 60, Some(60), Some(20)), 30, 30, 30, 40, 40),
            // Page cache that no process maps, and the same mapped.
            (bytes(10, 60, Some(0), Some(0)), 10, 10, 10, 60, 0),
            (bytes(10, 60, Some(0), Some(50)), 60, 60, 10, 10, 0),
            // Mappings of both are not reported: as much as all of it may be mapped.
            (bytes(10, 60, Some(20), Some(30)), 40, 40, 30, 30, 0),
            // Mappings are unknown.
            (bytes(10, 60, Some(20), None), 30, 70, 30, 40, 0),
            (bytes(10, 60, None, None), 10, 70, 10, 60, 0),
            // Counters of different moments.
            (bytes(10, 60, Some(0), Some(90)), 70, 70, 10, 0, 0),
        ] {
            let found = (movable_bytes(&of), room_bytes(&of), own_bytes(&of), staying_bytes(&of));
            assert_eq!(found, (follows, room, own, stays), "{of:?}");
            assert_eq!(staying_shmem_bytes(&of), tmpfs, "{of:?}");
        }
    }
}
