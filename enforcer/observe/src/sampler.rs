//! Merges all sources into one [`Sample`].
//!
//! Sampling never fails: a missing value is absent from the sample, and its source is named in `degraded`.
//! `sources` names the source of each kind of value. Equal faults of many cgroups make one entry. The caller
//! passes the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::BorrowedFd,
};

use enforcer_core::{
    page_size::PageSize,
    sample::{CgroupSample, Count as _, NodeBytes, SAMPLE_SCHEMA_VERSION, Sample, TaskSample},
    vma::{self, Vma},
    workload::{CgroupPath, Workload},
};
use numa_topology::{
    Topology,
    degraded::{Degraded, DegradedTally},
    id::NodeId,
    set::NodeSet,
};

#[cfg(feature = "bpf")]
use super::kernel_side::KernelSources;
use super::{
    cgroup::CgroupReader,
    hugepages::HugepagesInUse,
    index::Index,
    node::{Watermarks, read_nodes},
    numa_maps::read_numa_maps,
    options::SamplerOptions,
    page_size,
    policies::{MemoryDistances, read_mappings},
    pressure_tap::PressureTap,
    procfs::read_tasks,
    settings::read_settings,
};
use enforcer_host::{HostRoot, cgroup::CgroupLayout};

const UNCOUNTED: &str = "run time per node, placements and hinting faults are not counted";

/// Most processes with a read of memory policies in one sample.
const MAX_POLICIES: usize = 64;

/// Takes samples of one host.
pub struct Sampler {
    host: HostRoot,
    layout: CgroupLayout,
    nodes: Vec<NodeId>,
    /// Whether memory can be remote: CPUs are on several nodes.
    spans_nodes: bool,
    options: SamplerOptions,
    page: PageSize,
    distances: MemoryDistances,
    #[cfg(feature = "bpf")]
    kernel: Option<KernelSources>,
    /// Sources missing since the start.
    standing: Vec<Degraded>,
    /// Cgroups to read the partition state of.
    partitions: BTreeSet<CgroupPath>,
    watermarks: Watermarks,
}

impl Sampler {
    /// Prepares the sources that the options allow.
    pub fn new(host: &HostRoot, layout: CgroupLayout, topology: &Topology, options: SamplerOptions) -> Self {
        let mut standing = Vec::new();
        if host.captured && options.bpf && options.counters {
            standing.push(Degraded::new("bpf", "a captured tree has no kernel", UNCOUNTED));
        }
        let usable = options.bpf && !host.captured;
        #[cfg(feature = "bpf")]
        let kernel = usable.then(|| KernelSources::start(host, &layout, topology, &options));
        #[cfg(not(feature = "bpf"))]
        if usable {
            standing.push(Degraded::new("bpf", "not built in", UNCOUNTED));
        }
        Self {
            host: host.clone(),
            layout,
            nodes: topology.nodes.iter().map(|node| node.id).collect(),
            spans_nodes: topology.cpu_nodes().len() > 1,
            options,
            page: page_size::of(host),
            distances: MemoryDistances::new(topology),
            #[cfg(feature = "bpf")]
            kernel,
            standing,
            partitions: BTreeSet::new(),
            watermarks: Watermarks::default(),
        }
    }

    /// Takes a newer topology: nodes and CPUs come and go.
    pub fn follow(&mut self, topology: &Topology) {
        self.nodes = topology.nodes.iter().map(|node| node.id).collect();
        self.distances = MemoryDistances::new(topology);
        #[cfg(feature = "bpf")]
        if let Some(kernel) = &mut self.kernel {
            kernel.follow(&topology.node_of_cpu());
        }
    }

    /// From the next sample on, counts runs outside of these nodes as misplaced.
    pub fn aim(&mut self, aims: &BTreeMap<CgroupPath, NodeSet>) {
        #[cfg(feature = "bpf")]
        if let Some(kernel) = &mut self.kernel {
            kernel.aim(aims);
        }
        #[cfg(not(feature = "bpf"))]
        let _ = aims;
    }

    /// From the next sample on, reads the partition state of these cgroups.
    pub fn look_at_partitions(&mut self, cgroups: BTreeSet<CgroupPath>) {
        self.partitions = cgroups;
    }

    /// Drains events of the kernel side between two samples. Returns whether there were any.
    pub fn drain(&mut self) -> bool {
        #[cfg(feature = "bpf")]
        let drained = self.kernel.as_mut().is_some_and(KernelSources::drain);
        #[cfg(not(feature = "bpf"))]
        let drained = false;
        drained
    }

    /// Readable when the event buffers fill up.
    pub fn filling_fd(&self) -> Option<BorrowedFd<'_>> {
        #[cfg(feature = "bpf")]
        let filling = self.kernel.as_ref().and_then(KernelSources::filling_fd);
        #[cfg(not(feature = "bpf"))]
        let filling = None;
        filling
    }

    /// Memory pressure events for a thread that reacts at once; silent without a source.
    pub fn tap(&self) -> PressureTap {
        #[cfg(feature = "bpf")]
        let tap = self.kernel.as_ref().and_then(KernelSources::tap).unwrap_or_default();
        #[cfg(not(feature = "bpf"))]
        let tap = PressureTap::default();
        tap
    }

    /// Takes a sample of the workloads at `monotonic_ns`.
    pub fn sample(&mut self, workloads: &[Workload], monotonic_ns: u64) -> Sample {
        let mut degraded = DegradedTally::default();
        for entry in &self.standing {
            degraded.push(entry.clone());
        }
        #[cfg(feature = "bpf")]
        for entry in self.kernel.iter().flat_map(KernelSources::missing) {
            degraded.push(entry.clone());
        }
        let watermarks = self.watermarks.low(&self.host, self.page, monotonic_ns, &mut degraded);
        let mut sample = Sample {
            schema_version: SAMPLE_SCHEMA_VERSION,
            monotonic_ns,
            page: self.page,
            settings: read_settings(&self.host, &mut degraded),
            cpuset_v1: !self.layout.cpuset.v2,
            cgroup_mounts: self.layout.mounts(&self.host),
            nodes: read_nodes(&self.host, &self.nodes, watermarks, &mut degraded),
            ..Sample::default()
        };
        let index = Index::new(&self.host, &self.layout, workloads);
        let hugepages = HugepagesInUse::read(&self.host.sys);
        for (node, seen) in &mut sample.nodes {
            hugepages.note(&self.host.sys, *node, seen, &mut degraded);
        }
        sample.hugepages_reserved = hugepages.reserved();
        sample.hugepages_reserved_unknown = hugepages.reserved_unknown(&mut degraded);
        let garbled = self.cgroups(&index, &hugepages, &mut sample, &mut degraded);
        self.tasks(&index, &mut sample, &mut degraded);
        count_tasks(&mut sample);
        #[cfg(feature = "bpf")]
        if let Some(kernel) = &mut self.kernel {
            kernel.count(&index, &mut sample, &mut degraded);
        }
        self.numa_maps(&index, &garbled, &mut sample, &mut degraded);
        self.policies(&mut sample, &mut degraded);
        self.ancestors(&mut sample, &mut degraded);
        if self.spans_nodes && self.options.counters && !self.host.captured {
            sample.settings.silent_faults().into_iter().for_each(|entry| degraded.push(entry));
        }
        sample.degraded = degraded.into_entries();
        sample
    }

    /// Reads the cgroups' files. Returns the cgroups with an unreadable file of memory by node.
    fn cgroups(
        &self,
        index: &Index,
        hugepages: &HugepagesInUse,
        sample: &mut Sample,
        degraded: &mut DegradedTally,
    ) -> BTreeSet<CgroupPath> {
        let mut reader = CgroupReader::new(&self.layout, self.page).with_hugepages(hugepages.files());
        for (path, &below) in &index.cgroups {
            if let Some(cgroup) = reader.read(path, below, degraded) {
                let id = index.owners.get(path).copied();
                sample.cgroups.insert(path.clone(), CgroupSample { id, ..cgroup });
            }
        }
        if !reader.has_hugepage_files() {
            hugepages.untold().into_iter().for_each(|entry| degraded.push(entry));
        }
        let version = |v2: bool| if v2 { "v2" } else { "v1" };
        source(sample, "cpuset", format!("cgroup {}", version(self.layout.cpuset.v2)));
        if let Some(memory) = &self.layout.memory {
            source(sample, "memory", format!("cgroup {} memory.numa_stat", version(memory.v2)));
        }
        reader.into_garbled()
    }

    /// Adds the cpusets of the workloads' ancestors, which bound the workloads' own. Comes last: ancestors
    /// are no workloads, and only their cpusets are read.
    fn ancestors(&self, sample: &mut Sample, degraded: &mut DegradedTally) {
        let mut ancestors = BTreeSet::new();
        for path in sample.cgroups.keys() {
            for path in path.ancestors() {
                if sample.cgroups.contains_key(&path) || !ancestors.insert(path) {
                    break;
                }
            }
        }
        let reader = CgroupReader::new(&self.layout, self.page);
        for path in ancestors {
            if let Some(cpuset) = reader.read_cpuset(&path, degraded) {
                sample.cgroups.insert(path, cpuset);
            }
        }
        for path in &self.partitions {
            if let Some(cgroup) = sample.cgroups.get_mut(path) {
                reader.read_partition(path, cgroup, degraded);
            }
        }
    }

    fn tasks(&self, index: &Index, sample: &mut Sample, degraded: &mut DegradedTally) {
        #[cfg(feature = "bpf")]
        if let Some(kernel) = &self.kernel
            && let Some((tasks, from)) = kernel.tasks(&self.host, &self.layout, index, degraded)
        {
            sample.tasks = tasks;
            source(sample, "tasks", from);
            return;
        }
        let members = index.members(&self.host, &self.layout, |_| true, degraded);
        sample.tasks = read_tasks(&self.host, &members, degraded);
        source(sample, "tasks", "procfs");
    }

    /// Reads the memory policies of processes with far memory.
    fn policies(&self, sample: &mut Sample, degraded: &mut DegradedTally) {
        if !self.spans_nodes || self.host.captured {
            return;
        }
        let far = self.distances.far_processes(sample);
        if far.is_empty() {
            return;
        }
        #[cfg(feature = "bpf")]
        let missing = self.kernel.as_ref().map_or(Some("no eBPF"), KernelSources::no_mappings);
        #[cfg(not(feature = "bpf"))]
        let missing = Some("not built in");
        if let Some(reason) = missing.filter(|_| self.options.numa_maps == 0) {
            let effect = "whether processes bind their far memory themselves is not known; `sample.numa_maps` would tell";
            degraded.push(Degraded::new("mapping-iterator", reason, effect));
            return;
        }
        let lists = missing.is_none();
        source(sample, "memory policies", if lists { "bpf iterator" } else { "numa_maps" });
        if let Some(more) = far.len().checked_sub(MAX_POLICIES).filter(|more| *more > 0) {
            let reason = format!("{more} processes more than the {MAX_POLICIES} that are asked");
            degraded.push(Degraded::new(
                "memory policies",
                reason,
                "whether they bind their memory is not known",
            ));
        }
        for pid in far.into_iter().take(MAX_POLICIES) {
            match self.mappings(pid, lists) {
                Ok(mappings) => {
                    sample.policies_by_process.insert(pid, vma::extents(&mappings));
                }
                // A process that has ended is no loss.
                Err(_) if !self.host.proc.join(pid.to_string()).is_dir() => {}
                Err(error) => {
                    degraded.add("memory policies", pid, error, "whether it binds its memory is not known");
                }
            }
        }
    }

    fn mappings(&self, pid: u32, lists: bool) -> Result<Vec<Vma>, String> {
        #[cfg(feature = "bpf")]
        if let Some(kernel) = self.kernel.as_ref().filter(|_| lists) {
            return kernel.mappings(pid);
        }
        #[cfg(not(feature = "bpf"))]
        let _ = lists;
        read_mappings(&self.host, pid).map_err(|error| error.to_string())
    }

    /// Reads where the processes' memory is, for workloads without such a count. The fault of `garbled` ones
    /// is reported already.
    fn numa_maps(
        &self,
        index: &Index,
        garbled: &BTreeSet<CgroupPath>,
        sample: &mut Sample,
        degraded: &mut DegradedTally,
    ) {
        let is_unknown =
            |path: &CgroupPath, cgroup: &CgroupSample| !path.is_root() && cgroup.memory_by_node.is_none();
        let unknown: BTreeSet<CgroupPath> = sample
            .cgroups
            .iter()
            .filter(|(path, cgroup)| is_unknown(path, cgroup))
            .map(|(path, _)| path.clone())
            .collect();
        if self.options.numa_maps == 0 {
            let mut missing = unknown.difference(garbled);
            if let Some(first) = missing.next() {
                degraded.push(without_numa_stat(first, 1 + missing.count()));
            }
            return;
        }
        let wanted = |task: &&TaskSample| {
            index.processes.contains(&task.pid)
                || task.cgroup.as_ref().is_some_and(|path| unknown.contains(path))
        };
        let processes: BTreeMap<u32, Option<CgroupPath>> =
            sample.tasks.iter().filter(wanted).map(|task| (task.pid, task.cgroup.clone())).collect();
        if let Some(more) = processes.len().checked_sub(self.options.numa_maps).filter(|more| *more > 0) {
            let reason =
                format!("{more} processes more than the {} that may be asked", self.options.numa_maps);
            degraded.push(Degraded::new("numa_maps", reason, "where their memory is, is not known"));
        }
        // A sum without one of the processes would be wrong.
        let mut incomplete: BTreeSet<CgroupPath> = BTreeSet::new();
        let mut sums: BTreeMap<CgroupPath, BTreeMap<NodeId, NodeBytes>> = BTreeMap::new();
        for (at, (pid, cgroup)) in processes.into_iter().enumerate() {
            let by_node = (at < self.options.numa_maps)
                .then(|| read_numa_maps(self.host.proc.as_path(), pid, self.host.captured))
                .and_then(|maps| {
                    maps.map_err(|error| {
                        degraded.add("numa_maps", pid, error, "where its memory is, is not known");
                    })
                    .ok()
                });
            match (by_node, cgroup) {
                (Some(maps), _) if index.processes.contains(&pid) => {
                    sample.memory_by_process.insert(pid, maps.by_node);
                }
                (Some(maps), Some(path)) => sums.entry(path).or_default().add(&maps.by_node),
                (None, Some(path)) => {
                    incomplete.insert(path);
                }
                (_, None) => {}
            }
        }
        for (path, by_node) in sums {
            if let Some(cgroup) = sample.cgroups.get_mut(&path).filter(|_| !incomplete.contains(&path)) {
                cgroup.memory_by_node = Some(by_node);
            }
        }
        source(sample, "memory without numa_stat", "numa_maps");
    }
}

/// Cgroups of which the kernel does not count memory by node.
fn without_numa_stat(first: &CgroupPath, count: usize) -> Degraded {
    let reason = format!(
        "no memory.numa_stat in {count} of the cgroups: the memory controller is not enabled for them, or the kernel \
         is older than 5.10; the first is {first}"
    );
    Degraded::new("memory.numa_stat", reason, "where their memory is, is not known")
}

fn source(sample: &mut Sample, kind: &str, from: impl Into<String>) {
    sample.sources.insert(kind.to_owned(), from.into());
}

fn count_tasks(sample: &mut Sample) {
    let mut counts: BTreeMap<&CgroupPath, u64> = BTreeMap::new();
    for path in sample.tasks.iter().filter_map(|task| task.cgroup.as_ref()) {
        *counts.entry(path).or_default() += 1;
    }
    for (path, cgroup) in &mut sample.cgroups {
        cgroup.tasks = Some(counts.get(path).copied().unwrap_or(0));
    }
}

#[cfg(test)]
mod tests;
