//! Cold bytes of a workload by node, from the generations of MGLRU (`lru_gen` of debugfs).
//!
//! A generation is as old as the latest walk of the page tables, so new generations must be requested
//! regularly, or everything stays in the youngest. They are half the idle time apart, so the older two of the
//! kernel's four are cold. A cold page may have been touched just after its generation began, so this is an
//! upper bound.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

use enforcer_core::{parse::lru_gen::Generations, workload::CgroupPath};
use numa_topology::set::NodeSet;

use crate::page_size;
use enforcer_host::HostPath;

/// The kernel's ages, and when a generation was last requested.
#[derive(Debug)]
pub(super) struct Generational {
    path: HostPath,
    /// When each workload was first and last aged.
    aged: BTreeMap<CgroupPath, (Instant, Instant)>,
    missing: Option<String>,
}

impl Generational {
    pub(super) fn new(sys: &HostPath) -> Self {
        let path = sys.join("kernel/debug/lru_gen");
        let missing = path.read_text().err().map(|error| error.to_string());
        Self { path, aged: BTreeMap::new(), missing }
    }

    /// Why MGLRU is not available.
    pub(super) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Forgets other cgroups.
    pub(super) fn only(&mut self, cgroups: &BTreeSet<CgroupPath>) {
        self.aged.retain(|cgroup, _| cgroups.contains(cgroup));
    }

    /// Cold bytes on the nodes; `None` if unknown.
    pub(super) fn cold_bytes(
        &mut self,
        cgroup: &CgroupPath,
        nodes: &NodeSet,
        idle: Duration,
        now: Instant,
    ) -> Option<u64> {
        if self.missing.is_some() {
            return None;
        }
        let found = match self.path.read_text() {
            Ok(text) => Generations::within(&text, cgroup),
            Err(error) => {
                self.missing = Some(error.to_string());
                return None;
            }
        };
        // A kernel with MGLRU switched off keeps the file without pages.
        if found.is_empty() {
            return None;
        }
        let (first, last) = self.aged.get(cgroup).copied().unzip();
        if last.is_none_or(|last| now.saturating_duration_since(last) >= idle / 2) {
            for (memcg, node) in found.iter().flat_map(|one| nodes.iter().map(move |node| (one, node))) {
                let Some(youngest) = memcg.youngest(node) else { continue };
                // Anonymous pages too, although there may be no swap.
                let command = format!("+ {} {node} {} 1 1", memcg.memcg, youngest.number);
                if let Err(error) = fs::write(self.path.as_path(), &command) {
                    let reason = format!("writing {command:?} to {}: {error}", self.path.display());
                    self.missing = Some(reason);
                    return None;
                }
            }
            self.aged.insert(cgroup.clone(), (first.unwrap_or(now), now));
        }
        // Until then another program may have made these generations.
        first.filter(|first| now.saturating_duration_since(*first) >= idle)?;
        let pages = found.iter().flat_map(|one| nodes.iter().map(|node| one.cold_pages(node, idle)));
        Some(page_size::of_this_machine().bytes(pages.fold(0, u64::saturating_add)))
    }
}
