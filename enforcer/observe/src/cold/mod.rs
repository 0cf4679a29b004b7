//! Finds pages that a workload has not touched for long: the input of demotion.
//!
//! Problem: a page table only marks that a page was touched, so a detector must look and clear the mark
//! before that. There are three, and none is always available:
//!
//! - [`damon`] samples regions of an address space in the kernel, and tells how often and how long ago they
//!   were touched. Only DAMON sees inside a mapping.
//! - [`referenced`] clears the marks of a whole process (`clear_refs`) and reads how much of each mapping is
//!   marked again (`smaps`): by mapping, where DAMON is not available.
//! - [`generations`] reads the kernel's own ages (MGLRU): how much is cold, but not which pages. It bounds
//!   the other two.
//!
//! Marks of writes (soft-dirty) are no source: pages written once and read often are hot.
//!
//! These detectors write to the kernel's switches for them, and to nothing else. A missing one is a named
//! entry with its reason. All calls block (DAMON answers at the end of its interval), so they belong on a
//! thread of their own.

mod damon;
mod generations;
mod referenced;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use enforcer_core::{
    demotion::{NodeMemory, ProcessRegions},
    parse::{keyed::parse_keyed, meminfo::meminfo, zoneinfo::zone_pages},
    workload::CgroupPath,
};
use numa_topology::{degraded::Degraded, id::NodeId, set::NodeSet};

use self::{damon::Damon, generations::Generational, referenced::ReferencedBits};
use super::{page_size, rooms::room_of};
use enforcer_host::{HostPath, HostRoot, cgroup::CgroupLayout, processes::processes_in};

/// Most processes of one workload that are watched: the largest.
const PROCESSES: usize = 8;
/// Bytes of the smallest process that is worth watching.
const FEWEST_BYTES: u64 = 8 << 20;

/// Detectors for all watched workloads.
pub struct ColdWatch {
    host: HostRoot,
    layout: CgroupLayout,
    /// DAMON, or why it is not available.
    damon: Result<Damon, String>,
    referenced: ReferencedBits,
    generations: Generational,
}

/// Result of a look at a workload.
#[derive(Debug, Clone, Default)]
pub struct ColdLook {
    /// Its largest processes.
    pub watched: Vec<ProcessRegions>,
    /// The detector: `damon` or `referenced`.
    pub source: &'static str,
    /// Bytes on the given nodes that are cold by the kernel's generations.
    pub estimate: Option<u64>,
    /// Processes that could not be watched; the first with its reason.
    pub unwatched: Option<String>,
    /// Bytes that the kernel has promoted, and pages touched on slow memory; cumulative.
    pub promoted: Option<u64>,
}

impl ColdWatch {
    /// Detectors for this host, all switched off.
    pub fn new(host: &HostRoot, layout: &CgroupLayout) -> Self {
        Self {
            host: host.clone(),
            layout: layout.clone(),
            damon: Damon::new(&host.sys),
            referenced: ReferencedBits::default(),
            generations: Generational::new(&host.sys),
        }
    }

    /// Looks for pages of a workload on `nodes` that were idle for `idle`.
    pub fn read_idle(&mut self, cgroup: &CgroupPath, nodes: &NodeSet, idle: Duration) -> ColdLook {
        let mut look = ColdLook { source: "damon", ..ColdLook::default() };
        let now = Instant::now();
        for pid in self.largest(cgroup) {
            let seen = if let Ok(damon) = &mut self.damon {
                damon.read_idle(pid, idle, now)
            } else {
                look.source = "referenced";
                self.referenced.read_idle(self.host.proc.as_path(), pid, now)
            };
            match seen {
                Ok(regions) => look.watched.push(ProcessRegions { pid, regions }),
                Err(reason) if look.unwatched.is_none() => {
                    look.unwatched = Some(format!("process {pid}: {reason}"));
                }
                Err(_) => {}
            }
        }
        look.estimate = self.generations.cold_bytes(cgroup, nodes, idle, now);
        look.promoted = self.promoted(cgroup);
        look
    }

    /// Bytes on these of the nodes that are cold by the kernel's generations, right after a look.
    pub fn estimate(&mut self, cgroup: &CgroupPath, nodes: &NodeSet, idle: Duration) -> Option<u64> {
        self.generations.cold_bytes(cgroup, nodes, idle, Instant::now())
    }

    /// The directory of an unused kdamond of our set; the error says why there is none.
    pub fn spare_kdamond(&mut self) -> Result<HostPath, String> {
        self.damon.as_mut().map_err(|reason| reason.clone())?.spare()
    }

    /// Stops watching other cgroups.
    pub fn only(&mut self, cgroups: &BTreeSet<CgroupPath>) {
        let kept: BTreeSet<u32> = cgroups.iter().flat_map(|cgroup| self.largest(cgroup)).collect();
        if let Ok(damon) = &mut self.damon {
            damon.only(&kept);
        }
        self.referenced.only(&kept);
        self.generations.only(cgroups);
    }

    /// Memory of these nodes now.
    pub fn rooms(&self, nodes: &NodeSet) -> BTreeMap<NodeId, NodeMemory> {
        // Unreadable watermarks count as none.
        let zones = self.host.proc.join("zoneinfo").read_text().ok().and_then(|text| zone_pages(&text).ok());
        let zones = zones.unwrap_or_default();
        let room = |node: NodeId| {
            let path = self.host.sys.join(format!("devices/system/node/node{node}/meminfo"));
            let sizes = meminfo(&path.read_text().ok()?).ok()?;
            let zones = zones.get(&node).copied().unwrap_or_default();
            let room = room_of(&sizes, &zones, page_size::of_this_machine())?;
            Some((node, NodeMemory { total: sizes.total_bytes?, available: room.available() }))
        };
        nodes.iter().filter_map(room).collect()
    }

    /// Missing detectors.
    pub fn degraded(&self) -> Vec<Degraded> {
        let damon = self.damon.as_ref().err().map(|reason| {
            let effect =
                "cold memory is told mapping by mapping: one hot page keeps its whole mapping where it is";
            Degraded::new("damon", reason, effect)
        });
        let generations = self.generations.missing().map(|reason| {
            Degraded::new("lru-gen", reason, "no second source bounds how much memory is taken for cold")
        });
        damon.into_iter().chain(generations).collect()
    }

    /// The largest processes of a workload.
    fn largest(&self, cgroup: &CgroupPath) -> Vec<u32> {
        let Ok(pids) = processes_in(self.layout.cpuset.dir(cgroup).as_path()) else { return Vec::new() };
        let mut sizes: Vec<(u64, u32)> =
            pids.into_iter().filter_map(|pid| Some((self.resident(pid)?, pid))).collect();
        let page = page_size::of_this_machine();
        sizes.retain(|(pages, _)| page.bytes(*pages) >= FEWEST_BYTES);
        sizes.sort_unstable_by_key(|(pages, pid)| (std::cmp::Reverse(*pages), *pid));
        sizes.truncate(PROCESSES);
        sizes.into_iter().map(|(_, pid)| pid).collect()
    }

    /// The second number of `/proc/PID/statm`: resident pages.
    fn resident(&self, pid: u32) -> Option<u64> {
        let text = self.host.proc.join(format!("{pid}/statm")).read_text().ok()?;
        text.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// `pgpromote_success` of `memory.stat`, in bytes; kernels before 6.12 count it for the host only.
    fn promoted(&self, cgroup: &CgroupPath) -> Option<u64> {
        let memory = self.layout.memory.as_ref().filter(|root| root.v2)?;
        let counters = parse_keyed(&memory.dir(cgroup).join("memory.stat").read_text().ok()?).ok()?;
        Some(page_size::of_this_machine().bytes(*counters.get("pgpromote_success")?))
    }
}

/// Removes what a killed daemon of ours left switched on.
pub fn sweep(host: &HostRoot) {
    damon::sweep(&host.sys);
}
