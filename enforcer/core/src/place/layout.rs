//! Where each CPU is: core, socket, NUMA node, last-level cache, in dense tables.
//!
//! Placement asks these questions thousands of times per container; a scan of the topology for each
//! would dominate. The ids of cores, sockets and caches here are positions in the tables, unique on
//! the whole machine, because the kernel's `core_id` is unique in its package only. Built once per
//! topology, never edited.

use crate::{
    id::{CpuId, NodeId},
    set::CpuSet,
    topology::Topology,
};

/// Where one CPU is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuPlace {
    /// Which CPU.
    pub id: CpuId,
    /// Its core, unique on the machine; its lowest numbered thread decides the order.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
    /// Its node.
    pub node: NodeId,
    /// Its last-level cache.
    pub llc: u32,
}

/// The tables.
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
}

impl CpuLayout {
    /// From the place of each CPU, in any order.
    pub fn new(mut cpus: Vec<CpuPlace>) -> Self {
        cpus.sort_by_key(|cpu| cpu.id);
        Self {
            cores: grouped(&cpus, |cpu| cpu.core),
            sockets: grouped(&cpus, |cpu| cpu.socket),
            nodes: grouped(&cpus, |cpu| cpu.node),
            llcs: grouped(&cpus, |cpu| cpu.llc),
            cpus,
        }
    }

    /// From a machine. A CPU whose node is not known is left out; one whose socket or cache is not
    /// known shares it with the others of its node.
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

    /// CPUs in the table.
    pub fn all(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// Where a CPU is.
    pub fn place(&self, cpu: CpuId) -> Option<&CpuPlace> {
        let at = self.cpus.binary_search_by_key(&cpu, |place| place.id).ok()?;
        self.cpus.get(at)
    }

    /// Threads of each core: the greatest number that any core has, at least 1.
    pub fn threads_per_core(&self) -> usize {
        self.cores.iter().map(|(_, cpus)| cpus.len()).max().unwrap_or(1)
    }
}

fn grouped<K: Ord + Copy>(cpus: &[CpuPlace], key: impl Fn(&CpuPlace) -> K) -> Vec<(K, CpuSet)> {
    let mut groups = std::collections::BTreeMap::<K, CpuSet>::new();
    for cpu in cpus {
        groups.entry(key(cpu)).or_default().insert(cpu.id);
    }
    groups.into_iter().collect()
}
