//! Machines that nobody owns: [`Topology`] values for tests, as data.
//!
//! A test says what matters to it and gets the rest in the way of an ordinary server:
//!
//! ```
//! use enforcer_core::{id::NodeId, topology::{MemoryKind, synth::Machine}};
//!
//! let machine = Machine::new().sockets(2).cores(4).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build();
//! assert_eq!(machine.cpu_nodes().to_string(), "0-1");
//! assert_eq!(machine.node(NodeId(1)).unwrap().cpus.to_string(), "4-7,12-15");
//! ```
//!
//! CPUs are numbered as most firmware numbers them: the first thread of every core of the whole
//! machine first, then all second threads. Each node is one LLC. Only in tests (feature `testing`);
//! it must never describe a real host.

use super::{Cpu, Hugepages, Llc, MemoryKind, MemoryTier, Node, Package, Topology};
use crate::{
    id::{CpuId, NodeId},
    set::CpuSet,
};

const GIB: u64 = 1 << 30;

/// Builds a [`Topology`]; two threads per core, one node per socket, 16 GiB per node by default.
#[derive(Debug, Clone)]
pub struct Machine {
    sockets: u32,
    nodes_per_socket: u32,
    cores: u32,
    threads: u32,
    memory_bytes: u64,
    hugepages: Vec<Hugepages>,
    ids: Option<Vec<NodeId>>,
    memory_only: Vec<MemoryOnly>,
    distances: Vec<(NodeId, NodeId, u32)>,
    offline: CpuSet,
    isolated: CpuSet,
}

#[derive(Debug, Clone)]
struct MemoryOnly {
    id: NodeId,
    bytes: u64,
    kind: MemoryKind,
    beside: NodeId,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// One socket, one node, four cores of two threads.
    pub fn new() -> Self {
        Self {
            sockets: 1,
            nodes_per_socket: 1,
            cores: 4,
            threads: 2,
            memory_bytes: 16 * GIB,
            hugepages: Vec::new(),
            ids: None,
            memory_only: Vec::new(),
            distances: Vec::new(),
            offline: CpuSet::new(),
            isolated: CpuSet::new(),
        }
    }

    /// Number of packages.
    #[must_use]
    pub fn sockets(mut self, sockets: u32) -> Self {
        self.sockets = sockets;
        self
    }

    /// Nodes with CPUs in each package.
    #[must_use]
    pub fn nodes_per_socket(mut self, nodes: u32) -> Self {
        self.nodes_per_socket = nodes;
        self
    }

    /// Cores in each node.
    #[must_use]
    pub fn cores(mut self, cores: u32) -> Self {
        self.cores = cores;
        self
    }

    /// Threads of each core.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Memory of each node with CPUs, all of it free.
    #[must_use]
    pub fn memory_gib(mut self, gib: u64) -> Self {
        self.memory_bytes = gib * GIB;
        self
    }

    /// Huge pages of one size on each node with CPUs, all of them free.
    #[must_use]
    pub fn hugepages(mut self, size_bytes: u64, count: u64) -> Self {
        self.hugepages.push(Hugepages { size_bytes, total: count, free: count });
        self
    }

    /// Ids of the nodes with CPUs, ascending; 0, 1, 2... without this. Missing ids are left out of
    /// the machine, so give one per node.
    #[must_use]
    pub fn node_ids(mut self, ids: &[u32]) -> Self {
        self.ids = Some(ids.iter().copied().map(NodeId).collect());
        self
    }

    /// A node without CPUs; `beside` is the CPU node it is nearest to (distance 17, 28 to the rest).
    #[must_use]
    pub fn memory_only(mut self, id: NodeId, gib: u64, kind: MemoryKind, beside: NodeId) -> Self {
        self.memory_only.push(MemoryOnly { id, bytes: gib * GIB, kind, beside });
        self
    }

    /// One direction of one distance; otherwise 10 local, 12 in a package, 21 between packages.
    #[must_use]
    pub fn distance(mut self, from: u32, to: u32, distance: u32) -> Self {
        self.distances.push((NodeId(from), NodeId(to), distance));
        self
    }

    /// CPUs that are present but offline.
    ///
    /// # Panics
    /// When the text is not a CPU list.
    #[must_use]
    pub fn offline(mut self, list: &str) -> Self {
        self.offline = parsed(list);
        self
    }

    /// CPUs of `isolcpus=`.
    ///
    /// # Panics
    /// When the text is not a CPU list.
    #[must_use]
    pub fn isolated(mut self, list: &str) -> Self {
        self.isolated = parsed(list);
        self
    }

    /// The machine.
    pub fn build(self) -> Topology {
        let node_count = self.sockets * self.nodes_per_socket;
        let ids = self.ids.clone().unwrap_or_else(|| (0..node_count).map(NodeId).collect());
        let cpus = self.cpus(&ids);
        let mut nodes: Vec<Node> = ids.iter().map(|&id| self.cpu_node(id, &cpus)).collect();
        nodes.extend(self.memory_only.iter().map(MemoryOnly::node));
        nodes.sort_by_key(|node| node.id);
        let llcs = nodes.iter().filter(|node| !node.cpus.is_empty()).map(llc).collect();
        let packages = (0..self.sockets).map(|socket| package(socket, &cpus)).collect();
        let distances = nodes
            .iter()
            .map(|from| nodes.iter().map(|to| Some(self.distance_between(&ids, from.id, to.id))).collect())
            .collect();
        let memory_tiers = self.tiers(&nodes);
        Topology {
            nodes,
            distances,
            packages,
            cpus,
            llcs,
            memory_tiers,
            offline_cpus: self.offline,
            isolated_cpus: self.isolated,
            nohz_full_cpus: CpuSet::new(),
            devices: Vec::new(),
        }
    }

    fn cpus(&self, ids: &[NodeId]) -> Vec<Cpu> {
        let all_cores = self.sockets * self.nodes_per_socket * self.cores;
        (0..all_cores * self.threads)
            .map(CpuId)
            .filter(|&id| !self.offline.contains(id))
            .map(|id| {
                let core = id.0 % all_cores;
                let node = core / self.cores;
                let package = number(node / self.nodes_per_socket);
                Cpu {
                    id,
                    node: ids.get(node as usize).copied(),
                    package: Some(package),
                    die: Some(0),
                    cluster: None,
                    core: Some(number(core % (self.cores * self.nodes_per_socket))),
                    siblings: (0..self.threads)
                        .map(|thread| CpuId(thread * all_cores + core))
                        .filter(|&sibling| !self.offline.contains(sibling))
                        .collect(),
                }
            })
            .collect()
    }

    fn cpu_node(&self, id: NodeId, cpus: &[Cpu]) -> Node {
        Node {
            id,
            cpus: cpus.iter().filter(|cpu| cpu.node == Some(id)).map(|cpu| cpu.id).collect(),
            mem_total_bytes: Some(self.memory_bytes),
            mem_free_bytes: Some(self.memory_bytes),
            hugepages: self.hugepages.clone(),
            kind: if self.memory_bytes == 0 { MemoryKind::None } else { MemoryKind::Dram },
            kind_evidence: vec!["synthetic machine".to_owned()],
            normal_memory: Some(self.memory_bytes > 0),
            hmat: None,
            closest_cpu_node: None,
        }
    }

    fn distance_between(&self, ids: &[NodeId], from: NodeId, to: NodeId) -> u32 {
        if let Some(&(.., distance)) = self.distances.iter().rev().find(|d| d.0 == from && d.1 == to) {
            return distance;
        }
        let socket = |id| {
            let index = ids.iter().position(|&known| known == id)?;
            u32::try_from(index).ok()?.checked_div(self.nodes_per_socket)
        };
        match (socket(from), socket(to)) {
            _ if from == to => 10,
            (Some(a), Some(b)) if a == b => 12,
            (Some(_), Some(_)) => 21,
            _ if self.beside(from) == Some(to) || self.beside(to) == Some(from) => 17,
            _ => 28,
        }
    }

    fn beside(&self, id: NodeId) -> Option<NodeId> {
        self.memory_only.iter().find(|node| node.id == id).map(|node| node.beside)
    }

    fn tiers(&self, nodes: &[Node]) -> Vec<MemoryTier> {
        let tier = |id, slow| MemoryTier {
            id,
            nodes: nodes.iter().filter(|n| self.beside(n.id).is_some() == slow).map(|n| n.id).collect(),
        };
        [tier(4, false), tier(22, true)].into_iter().filter(|tier| !tier.nodes.is_empty()).collect()
    }
}

impl MemoryOnly {
    fn node(&self) -> Node {
        Node {
            id: self.id,
            cpus: CpuSet::new(),
            mem_total_bytes: Some(self.bytes),
            mem_free_bytes: Some(self.bytes),
            hugepages: Vec::new(),
            kind: self.kind,
            kind_evidence: vec!["synthetic machine".to_owned()],
            normal_memory: Some(true),
            hmat: None,
            closest_cpu_node: Some(self.beside),
        }
    }
}

fn llc(node: &Node) -> Llc {
    Llc { level: 3, size_bytes: Some(32 << 20), cpus: node.cpus.clone() }
}

fn package(socket: u32, cpus: &[Cpu]) -> Package {
    let members = || cpus.iter().filter(move |cpu| cpu.package == Some(number(socket)));
    Package {
        id: number(socket),
        cpus: members().map(|cpu| cpu.id).collect(),
        nodes: members().filter_map(|cpu| cpu.node).collect(),
    }
}

fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn parsed(list: &str) -> CpuSet {
    list.parse().unwrap_or_else(|error| panic!("CPU list {list:?}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_first_threads_before_second_ones() {
        let machine = Machine::new().sockets(2).cores(2).threads(2).build();
        assert_eq!(machine.node(NodeId(0)).unwrap().cpus.to_string(), "0-1,4-5");
        assert_eq!(machine.node(NodeId(1)).unwrap().cpus.to_string(), "2-3,6-7");
        assert_eq!(machine.cpus[0].siblings.to_string(), "0,4");
        assert_eq!(machine.packages[1].nodes.to_string(), "1");
    }

    #[test]
    fn distances_follow_packages_unless_told_otherwise() {
        let machine = Machine::new().sockets(2).nodes_per_socket(2).distance(0, 3, 31).build();
        let distance = |a, b| machine.distance(NodeId(a), NodeId(b)).unwrap();
        assert_eq!([distance(0, 0), distance(0, 1), distance(0, 2)], [10, 12, 21]);
        assert_eq!([distance(0, 3), distance(3, 0)], [31, 21]);
    }

    #[test]
    fn keeps_sparse_ids_and_sorts_memory_only_nodes_among_them() {
        let machine = Machine::new()
            .sockets(2)
            .node_ids(&[0, 72])
            .memory_only(NodeId(8), 64, MemoryKind::Cxl, NodeId(72))
            .build();
        assert_eq!(machine.nodes.iter().map(|n| n.id.0).collect::<Vec<_>>(), [0, 8, 72]);
        assert_eq!(machine.cpu_nodes().to_string(), "0,72");
        assert_eq!(machine.distance(NodeId(8), NodeId(72)), Some(17));
        assert_eq!(machine.memory_tiers[1].nodes.to_string(), "8");
    }

    #[test]
    fn leaves_offline_cpus_out_of_nodes_and_siblings() {
        let machine = Machine::new().cores(2).offline("0").isolated("3").build();
        assert_eq!(machine.nodes[0].cpus.to_string(), "1-3");
        assert_eq!(machine.cpus.iter().find(|c| c.id.0 == 2).unwrap().siblings.to_string(), "2");
        assert_eq!(machine.isolated_cpus.to_string(), "3");
    }
}
