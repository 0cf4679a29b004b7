//! How many processes of a workload have pages of a piece of shared memory.
//!
//! Problem: `numa_maps` gives the number of processes that map a page, but not their workloads. Shared memory
//! that a process of another workload maps belongs to that workload as well, and a move would work against
//! its placement. Idea: count the workload's own mappers, file by file. A page with no more mappers than that
//! has none of another workload.
//!
//! Limit: a page that fewer of the own processes map than have pages of the file could be mapped by others
//! instead. Cost: one more reading of `numa_maps` and `maps` for each process, once for a step that comes to
//! shared memory with several mappers; memory for [`MOST_FILES`] files.

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::set::NodeSet;

use super::extent::{FileId, read_extents};
use enforcer_host::HostPath;

/// Shared files of one workload; others stay where they are.
const MOST_FILES: usize = 1 << 16;

/// Number of the own processes with pages of each file of shared memory on the nodes of a step.
#[derive(Debug, Default)]
pub(super) struct OwnMappers {
    by_file: BTreeMap<FileId, u64>,
}

impl OwnMappers {
    /// Counts these processes. One that has ended, or whose maps cannot be read, maps nothing.
    pub(super) fn count(proc: &HostPath, processes: &[u32], nodes: &NodeSet) -> Self {
        let mut by_file = BTreeMap::new();
        for pid in processes {
            let extents = read_extents(&proc.join(pid.to_string()), nodes).unwrap_or_default();
            let files: BTreeSet<FileId> = extents.iter().filter_map(|extent| extent.file).collect();
            for file in files {
                if by_file.len() < MOST_FILES || by_file.contains_key(&file) {
                    *by_file.entry(file).or_default() += 1;
                }
            }
        }
        Self { by_file }
    }

    /// Whether only these processes map a page of this file with this number of mappers.
    pub(super) fn are_all(&self, file: FileId, mappers: u64) -> bool {
        self.by_file.get(&file).is_some_and(|own| mappers <= *own)
    }
}
