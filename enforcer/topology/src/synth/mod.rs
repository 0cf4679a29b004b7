//! Synthetic machines: [`Topology`] values made from a few numbers.
//!
//! For `plan --synthetic`, which tries a placement on a machine that does not exist ([`Machine`] parses such
//! a [line](mod@line)), and for tests: a test states what matters and gets the rest of an ordinary server.
//!
//! ```
//! use numa_topology::{MemoryKind, id::NodeId, synth::Machine};
//!
//! let machine = Machine::new().sockets(2).cores(4);
//! let machine = machine.memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build();
//! assert_eq!(machine.cpu_nodes().to_string(), "0-1");
//! assert_eq!(machine.node(NodeId(1)).unwrap().cpus.to_string(), "4-7,12-15");
//! ```
//!
//! CPUs are numbered as most firmware does: the first thread of every core of the machine, then all second
//! threads. Synthetic machines never describe a real host.

pub mod line;

use std::collections::BTreeMap;

use super::{CoreType, Cpu, CpuKind, Hugepages, Llc, MemoryKind, MemoryTier, Node, Package, Topology};
use crate::{
    id::{CpuId, NodeId},
    set::CpuSet,
};

const GIB: u64 = 1 << 30;

/// Builds a [`Topology`]; two threads per core, one node per socket, 16 GiB per node by default.
#[derive(Debug, Clone)]
pub struct Machine {
    sockets: u32,
    dies: u32,
    nodes_per_socket: u32,
    llcs: u32,
    cores: u32,
    threads: u32,
    memory_bytes: u64,
    hugepages: Vec<Hugepages>,
    ids: Option<Vec<NodeId>>,
    memory_only: Vec<MemoryOnly>,
    distances: BTreeMap<(NodeId, NodeId), u32>,
    offline: CpuSet,
    isolated: CpuSet,
    efficiency: CpuSet,
    fast: CpuSet,
}

#[derive(Debug, Clone)]
struct MemoryOnly {
    id: NodeId,
    bytes: u64,
    kind: MemoryKind,
    beside: NodeId,
}

/// Location of a node, as far as its distances depend on it.
#[derive(Clone, Copy)]
enum Place {
    Die { socket: u32, die: u32 },
    Beside(NodeId),
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
            dies: 1,
            nodes_per_socket: 1,
            llcs: 1,
            cores: 4,
            threads: 2,
            memory_bytes: 16 * GIB,
            hugepages: Vec::new(),
            ids: None,
            memory_only: Vec::new(),
            distances: BTreeMap::new(),
            offline: CpuSet::new(),
            isolated: CpuSet::new(),
            efficiency: CpuSet::new(),
            fast: CpuSet::new(),
        }
    }

    /// Number of packages.
    #[must_use]
    pub fn sockets(mut self, sockets: u32) -> Self {
        self.sockets = sockets;
        self
    }

    /// Dies of each package; its nodes are divided among them.
    #[must_use]
    pub fn dies(mut self, dies: u32) -> Self {
        self.dies = dies;
        self
    }

    /// Nodes with CPUs in each package.
    #[must_use]
    pub fn nodes_per_socket(mut self, nodes: u32) -> Self {
        self.nodes_per_socket = nodes;
        self
    }

    /// Last-level caches of each node; its cores are divided among them.
    #[must_use]
    pub fn llcs(mut self, caches: u32) -> Self {
        self.llcs = caches;
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
    pub fn memory_gib(self, gib: u64) -> Self {
        self.memory(gib.saturating_mul(GIB))
    }

    /// The same in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Huge pages of one size on each node with CPUs, all of them free.
    #[must_use]
    pub fn hugepages(mut self, size_bytes: u64, count: u64) -> Self {
        self.hugepages.push(Hugepages { size_bytes, total: count, free: count });
        self
    }

    /// Ids of the nodes with CPUs, ascending; 0, 1, 2... by default. The machine has as many CPU nodes as
    /// there are ids, so give one per node.
    #[must_use]
    pub fn node_ids(mut self, ids: &[u32]) -> Self {
        self.ids = Some(ids.iter().copied().map(NodeId).collect());
        self
    }

    /// Adds a memory-only node; `beside` is its nearest CPU node (distance 17, 28 to the rest).
    #[must_use]
    pub fn memory_only(mut self, id: NodeId, gib: u64, kind: MemoryKind, beside: NodeId) -> Self {
        self.memory_only.push(MemoryOnly { id, bytes: gib.saturating_mul(GIB), kind, beside });
        self
    }

    /// Adds a memory-only node for every CPU node, numbered after all existing nodes.
    #[must_use]
    pub fn memory_beside_each(mut self, bytes: u64, kind: MemoryKind) -> Self {
        let ids = self.cpu_node_ids();
        let used = ids.iter().chain(self.memory_only.iter().map(|node| &node.id));
        let next = used.map(|id| id.0.saturating_add(1)).max().unwrap_or(0);
        let beside = (next..).zip(ids);
        self.memory_only.extend(beside.map(|(id, beside)| MemoryOnly {
            id: NodeId(id),
            bytes,
            kind,
            beside,
        }));
        self
    }

    /// Sets the distance in one direction. Defaults: 10 local, 11 in a die of a multi-die package, 12 in a
    /// package, 21 between packages.
    #[must_use]
    pub fn distance(mut self, from: u32, to: u32, distance: u32) -> Self {
        self.distances.insert((NodeId(from), NodeId(to)), distance);
        self
    }

    /// CPUs that are present but offline.
    #[must_use]
    pub fn offline_cpus(mut self, cpus: CpuSet) -> Self {
        self.offline = cpus;
        self
    }

    /// CPUs of `isolcpus=`.
    #[must_use]
    pub fn isolated_cpus(mut self, cpus: CpuSet) -> Self {
        self.isolated = cpus;
        self
    }

    /// CPUs of efficiency cores; if there are any, the others are performance cores.
    #[must_use]
    pub(crate) fn efficiency_cpus(mut self, cpus: CpuSet) -> Self {
        self.efficiency = cpus;
        self
    }

    /// CPUs with a base frequency of 3 GHz; if there are any, the others have 2 GHz.
    #[must_use]
    pub(crate) fn fast_cpus(mut self, cpus: CpuSet) -> Self {
        self.fast = cpus;
        self
    }

    /// Number of CPUs if all were online.
    pub fn cpu_count(&self) -> u64 {
        let of_node = u64::from(self.cores).saturating_mul(u64::from(self.threads));
        u64::from(self.cpu_node_count()).saturating_mul(of_node)
    }

    /// Number of its nodes, with and without CPUs.
    pub fn node_count(&self) -> u64 {
        u64::from(self.cpu_node_count()).saturating_add(self.memory_only.len() as u64)
    }

    fn cpu_node_count(&self) -> u32 {
        self.sockets.saturating_mul(self.nodes_per_socket)
    }

    fn cpu_node_ids(&self) -> Vec<NodeId> {
        self.ids.clone().unwrap_or_else(|| (0..self.cpu_node_count()).map(NodeId).collect())
    }

    /// Builds the machine.
    pub fn build(self) -> Topology {
        let ids = self.cpu_node_ids();
        let cpus = self.cpus(&ids);
        let mut of_node = BTreeMap::<NodeId, CpuSet>::new();
        for cpu in &cpus {
            if let Some(node) = cpu.node {
                of_node.entry(node).or_default().insert(cpu.id);
            }
        }
        let mut nodes: Vec<Node> =
            ids.iter().map(|id| self.cpu_node(*id, of_node.remove(id).unwrap_or_default())).collect();
        nodes.extend(self.memory_only.iter().map(MemoryOnly::node));
        nodes.sort_by_key(|node| node.id);
        let llcs = self.caches(&cpus);
        let cpu_kinds = self.kinds(&cpus);
        let packages = (0..self.sockets).map(|socket| package(socket, &cpus)).collect();
        let distances = self.distance_matrix(&ids, &nodes);
        let memory_tiers = self.tiers(&nodes);
        Topology {
            nodes,
            distances,
            packages,
            cpus,
            llcs,
            cpu_kinds,
            memory_tiers,
            offline_cpus: self.offline,
            isolated_cpus: self.isolated,
            nohz_full_cpus: CpuSet::new(),
            devices: Vec::new(),
        }
    }

    fn all_cores(&self) -> u32 {
        self.cpu_node_count().saturating_mul(self.cores)
    }

    fn cpus(&self, ids: &[NodeId]) -> Vec<Cpu> {
        let all_cores = self.all_cores();
        (0..all_cores.saturating_mul(self.threads))
            .map(CpuId)
            .filter(|&id| !self.offline.contains(id))
            .map(|id| {
                let core = id.0 % all_cores;
                let node = core / self.cores;
                Cpu {
                    id,
                    node: ids.get(node as usize).copied(),
                    package: Some(number(node / self.nodes_per_socket)),
                    die: Some(number(self.die(node))),
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

    /// Die of a node within its package, by the node's position on the machine.
    fn die(&self, node: u32) -> u32 {
        let in_socket = u64::from(node % self.nodes_per_socket);
        let die = in_socket * u64::from(self.dies) / u64::from(self.nodes_per_socket);
        u32::try_from(die).unwrap_or(0)
    }

    /// Consecutive cores of a node share a cache.
    fn caches(&self, cpus: &[Cpu]) -> Vec<Llc> {
        let mut groups = BTreeMap::<u64, CpuSet>::new();
        for cpu in cpus {
            let core = u64::from(cpu.id.0 % self.all_cores());
            let (node, core) = (core / u64::from(self.cores), core % u64::from(self.cores));
            let group = core * u64::from(self.llcs) / u64::from(self.cores);
            groups.entry(node * u64::from(self.llcs) + group).or_default().insert(cpu.id);
        }
        groups.into_values().map(|cpus| Llc { level: 3, size_bytes: Some(32 << 20), cpus }).collect()
    }

    fn kinds(&self, cpus: &[Cpu]) -> Vec<CpuKind> {
        let mut kinds = BTreeMap::<_, CpuSet>::new();
        for cpu in cpus {
            let key = (self.efficiency.contains(cpu.id), self.fast.contains(cpu.id));
            kinds.entry(key).or_default().insert(cpu.id);
        }
        let kind = |((efficiency, fast), cpus): ((bool, bool), CpuSet)| CpuKind {
            cpus,
            core_type: (!self.efficiency.is_empty()).then_some(if efficiency {
                CoreType::Efficiency
            } else {
                CoreType::Performance
            }),
            base_frequency_khz: (!self.fast.is_empty()).then_some(if fast { 3_000_000 } else { 2_000_000 }),
            ..CpuKind::default()
        };
        let mut kinds: Vec<CpuKind> = kinds.into_iter().map(kind).filter(CpuKind::is_known).collect();
        kinds.sort_by_key(|kind| kind.cpus.first());
        kinds
    }

    fn cpu_node(&self, id: NodeId, cpus: CpuSet) -> Node {
        Node {
            id,
            cpus,
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

    fn distance_matrix(&self, ids: &[NodeId], nodes: &[Node]) -> Vec<Vec<Option<u32>>> {
        let cpu_places = (0..).zip(ids).filter_map(|(position, id)| {
            let socket = u32::checked_div(position, self.nodes_per_socket)?;
            Some((*id, Place::Die { socket, die: self.die(position) }))
        });
        let memory_places = self.memory_only.iter().map(|node| (node.id, Place::Beside(node.beside)));
        let places: BTreeMap<NodeId, Place> = cpu_places.chain(memory_places).collect();
        let between = |from: NodeId, to: NodeId| {
            self.distances.get(&(from, to)).copied().unwrap_or_else(|| self.usual_distance(&places, from, to))
        };
        nodes.iter().map(|from| nodes.iter().map(|to| Some(between(from.id, to.id))).collect()).collect()
    }

    fn usual_distance(&self, places: &BTreeMap<NodeId, Place>, from: NodeId, to: NodeId) -> u32 {
        if from == to {
            return 10;
        }
        match (places.get(&from), places.get(&to)) {
            (Some(Place::Die { socket, die }), Some(Place::Die { socket: to_socket, die: to_die })) => {
                match (socket == to_socket, die == to_die) {
                    (true, true) if self.dies > 1 => 11,
                    (true, _) => 12,
                    (false, _) => 21,
                }
            }
            (Some(Place::Beside(near)), _) if *near == to => 17,
            (_, Some(Place::Beside(near))) if *near == from => 17,
            _ => 28,
        }
    }

    fn tiers(&self, nodes: &[Node]) -> Vec<MemoryTier> {
        let slow = |node: &Node| node.cpus.is_empty() && node.kind != MemoryKind::Hbm;
        let memory_only = |id| self.memory_only.iter().any(|node| node.id == id);
        let tier = |id, of_slow: bool| MemoryTier {
            id,
            nodes: nodes
                .iter()
                .filter(|node| (memory_only(node.id) && slow(node)) == of_slow)
                .map(|node| node.id)
                .collect(),
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

#[cfg(any(test, feature = "testing"))]
impl Machine {
    /// CPUs that are present but offline, as a list.
    ///
    /// # Panics
    /// When the text is not a CPU list.
    #[must_use]
    pub fn offline(self, list: &str) -> Self {
        self.offline_cpus(parsed(list))
    }

    /// CPUs of efficiency cores, as a list.
    ///
    /// # Panics
    /// When the text is not a CPU list.
    #[must_use]
    pub fn efficiency(self, list: &str) -> Self {
        self.efficiency_cpus(parsed(list))
    }

    /// CPUs of `isolcpus=`, as a list.
    ///
    /// # Panics
    /// When the text is not a CPU list.
    #[must_use]
    pub fn isolated(self, list: &str) -> Self {
        self.isolated_cpus(parsed(list))
    }
}

#[cfg(any(test, feature = "testing"))]
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
