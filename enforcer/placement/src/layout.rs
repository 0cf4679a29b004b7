//! Location of each CPU: core, socket, NUMA node, last-level cache, in dense tables.
//!
//! Placement queries these thousands of times per container; a scan of the topology for each query would
//! dominate. Ids of cores, sockets and caches are positions in the tables, unique on the whole machine,
//! because the kernel's `core_id` is only unique in its package. Built once per topology and never modified.
//!
//! Invariant: groups may differ in size: siblings may be offline, cores may be hybrid.

use numa_topology::{
    Topology,
    id::{CpuId, Id, NodeId},
    set::CpuSet,
};

/// Location of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuPlace {
    /// Id of the CPU.
    pub id: CpuId,
    /// Its core, unique on the machine; numbered in the order of the lowest thread.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
    /// Its node.
    pub node: NodeId,
    /// Its last-level cache.
    pub llc: u32,
}

/// Layout of all CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuLayout {
    /// Every online CPU that belongs to a node, ascending.
    pub cpus: Vec<CpuPlace>,
    /// Cores by ascending id, with their CPUs.
    pub cores: Vec<(u32, CpuSet)>,
    /// Sockets by ascending id, with their CPUs.
    pub sockets: Vec<(u32, CpuSet)>,
    /// Nodes with CPUs by ascending id, with their CPUs.
    pub nodes: Vec<(NodeId, CpuSet)>,
    /// Last-level caches by ascending id, with their CPUs.
    pub llcs: Vec<(u32, CpuSet)>,
    /// By CPU id: positions of its groups in the tables above.
    seats: Vec<Option<CpuGroupIndex>>,
    all: CpuSet,
    threads_per_core: usize,
}

/// Level of a group of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// A physical core.
    Core,
    /// A last-level cache.
    Cache,
    /// A NUMA node.
    Node,
    /// A socket.
    Socket,
}

/// Positions of a CPU's groups, by [`Level`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuGroupIndex([usize; Level::COUNT]);

impl Level {
    /// Number of levels.
    pub(crate) const COUNT: usize = 4;
    /// All levels, in numeric order.
    pub(crate) const ALL: [Self; Self::COUNT] = [Self::Core, Self::Cache, Self::Node, Self::Socket];
}

impl CpuGroupIndex {
    /// Position of its group at this level.
    pub(crate) const fn group(&self, level: Level) -> usize {
        self.0[level as usize]
    }
}

impl CpuLayout {
    /// A layout from the location of each CPU, in any order; of several locations of one CPU the first
    /// counts.
    pub fn new(mut cpus: Vec<CpuPlace>) -> Self {
        cpus.retain(|cpu| cpu.id.0 <= CpuId::GREATEST);
        cpus.sort_by_key(|cpu| cpu.id);
        cpus.dedup_by_key(|cpu| cpu.id);
        let mut layout = Self {
            cores: grouped(&cpus, |cpu| cpu.core),
            sockets: grouped(&cpus, |cpu| cpu.socket),
            nodes: grouped(&cpus, |cpu| cpu.node),
            llcs: grouped(&cpus, |cpu| cpu.llc),
            seats: Vec::new(),
            all: cpus.iter().map(|cpu| cpu.id).collect(),
            threads_per_core: 1,
            cpus,
        };
        let mut seats = vec![None; layout.cpus.last().map_or(0, |last| last.id.0 as usize + 1)];
        for level in Level::ALL {
            for group in 0..layout.count(level) {
                for cpu in layout.members(level, group).iter() {
                    seats[cpu.0 as usize].get_or_insert_with(CpuGroupIndex::default).0[level as usize] =
                        group;
                }
            }
        }
        layout.seats = seats;
        layout.threads_per_core = layout.cores.iter().map(|(_, cpus)| cpus.len()).max().unwrap_or(1);
        layout
    }

    /// The layout of a machine. CPUs without a known node are left out; CPUs without a known socket or cache
    /// share it with the others of their node.
    pub fn of(machine: &Topology) -> Self {
        let places = machine.cpus.iter().filter_map(|cpu| {
            let node = cpu.node?;
            let core = cpu.siblings.first().map_or(cpu.id.0, |first| first.0.min(cpu.id.0));
            let own = |found: Option<usize>, unknown: usize| {
                u32::try_from(found.unwrap_or(unknown + node.0 as usize)).unwrap_or(u32::MAX)
            };
            let package = machine.packages.iter().position(|package| package.cpus.contains(cpu.id));
            let llc = machine.llcs.iter().position(|llc| llc.cpus.contains(cpu.id));
            Some(CpuPlace {
                id: cpu.id,
                core,
                socket: own(package, machine.packages.len()),
                node,
                llc: own(llc, machine.llcs.len()),
            })
        });
        Self::new(places.collect())
    }

    /// All CPUs of the layout.
    pub fn all(&self) -> CpuSet {
        self.all.clone()
    }

    /// The given CPUs that are in the layout.
    pub(crate) fn known(&self, cpus: &CpuSet) -> CpuSet {
        self.all.intersection(cpus)
    }

    /// Location of a CPU.
    pub fn place(&self, cpu: CpuId) -> Option<&CpuPlace> {
        let at = self.cpus.binary_search_by_key(&cpu, |place| place.id).ok()?;
        self.cpus.get(at)
    }

    /// Threads per core: the maximum of all cores, at least 1.
    pub(crate) fn threads_per_core(&self) -> usize {
        self.threads_per_core.max(1)
    }

    /// Positions of a CPU's groups.
    pub(crate) fn group_index(&self, cpu: CpuId) -> Option<&CpuGroupIndex> {
        self.seats.get(cpu.0 as usize)?.as_ref()
    }

    /// Number of groups at a level.
    pub(crate) fn count(&self, level: Level) -> usize {
        match level {
            Level::Core => self.cores.len(),
            Level::Cache => self.llcs.len(),
            Level::Node => self.nodes.len(),
            Level::Socket => self.sockets.len(),
        }
    }

    /// CPUs of a group.
    pub(crate) fn members(&self, level: Level, group: usize) -> &CpuSet {
        match level {
            Level::Core => &self.cores[group].1,
            Level::Cache => &self.llcs[group].1,
            Level::Node => &self.nodes[group].1,
            Level::Socket => &self.sockets[group].1,
        }
    }

    /// CPUs of all groups at a level that contain one of these CPUs.
    pub(crate) fn closure(&self, level: Level, cpus: &CpuSet) -> CpuSet {
        let mut all = CpuSet::new();
        for group_index in cpus.iter().filter_map(|cpu| self.group_index(cpu)) {
            all.extend(self.members(level, group_index.group(level)));
        }
        all
    }

    /// CPUs of a node; `None` if it has no CPUs.
    pub(crate) fn node_cpus(&self, node: NodeId) -> Option<&CpuSet> {
        let at = self.nodes.binary_search_by_key(&node, |(id, _)| *id).ok()?;
        self.nodes.get(at).map(|(_, cpus)| cpus)
    }
}

fn grouped<K: Ord + Copy>(cpus: &[CpuPlace], key: impl Fn(&CpuPlace) -> K) -> Vec<(K, CpuSet)> {
    let mut groups = std::collections::BTreeMap::<K, CpuSet>::new();
    for cpu in cpus {
        groups.entry(key(cpu)).or_default().insert(cpu.id);
    }
    groups.into_iter().collect()
}
