//! The tree of pools of a machine.
//!
//! Problem: "as close together as possible" needs steps between one cache and the whole machine. Idea:
//! sockets, dies and NUMA nodes are above or below one another, whichever contains the other, and last-level
//! caches are below them. A part with the same CPUs as its pool is not added again.
//!
//! - The root is the whole machine; on a machine of one socket that socket is the root.
//! - Of several levels with the same CPUs one pool is kept, named by the first of socket, NUMA node, die,
//!   root, cache; it [stands for](Pool::stands_for) all of them.
//! - If groups cross, nodes have pools; packages, or the dies of a package, that cross them have none.
//! - Names are unique: packages with the same id are also named by their lowest CPU.
//! - A node without memory has no pool: its CPUs stay in the pool above.
//! - The structure is that of the hardware. The CPUs of a pool are those that may be given; a pool without
//!   such CPUs is left out.
//!
//! Memory of a pool is on the nodes of its CPUs, and on the memory-only nodes attached to these. The root has
//! all of them. A memory-only node is attached to one CPU node with memory: the one with the smallest
//! distance from CPU to memory (asymmetric tables are kept), among its HMAT initiators if firmware names any.
//! In a tie it is the one with the fewest attached nodes of the same kind, in ascending order of memory
//! nodes; then the lowest id. GPU memory belongs to its driver and is in no pool.
//!
//! Terminology: ids are positions in post-order, so children come before their parent and a subtree is a
//! range of ids. Cost: built once per topology, O(levels x groups x words of a CPU set).

mod draft;
mod memory;
#[cfg(test)]
pub(super) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::RangeInclusive,
};

pub use self::memory::MemoryNodes;
use self::{draft::Draft, memory::attached_nodes};
use crate::{Inventory, settings::PoolLevel};
use numa_topology::{
    Node,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// The pools, in post-order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolTree {
    pools: Vec<Pool>,
    /// The CPU node that each memory-only node is attached to.
    attached: BTreeMap<NodeId, NodeId>,
    /// Ids by name.
    ids: BTreeMap<String, usize>,
}

/// A part of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Position in post-order.
    pub id: usize,
    /// `root`, `socket #0`, `die #0/1`, `NUMA node #2`, `L3 cache #5 of NUMA node #2`; unique.
    pub name: String,
    /// The group that it is named by.
    pub kind: PoolKind,
    /// Its own level, and others with the same CPUs; a NUMA node that contains packages also stands for one.
    pub stands_for: BTreeSet<PoolLevel>,
    /// Number of its ancestors.
    pub depth: usize,
    /// Its parent; `None` for the root.
    pub parent: Option<usize>,
    /// Its children, ascending.
    pub children: Vec<usize>,
    /// The lowest id in its subtree.
    first: usize,
    /// CPUs that may be given: isolated, reserved and sharable ones.
    pub cpus: CpuSet,
    /// CPUs of `isolcpus=` that are not reserved.
    pub isolated: CpuSet,
    /// CPUs reserved for the system.
    pub reserved: CpuSet,
    /// All other CPUs.
    pub sharable: CpuSet,
    /// Nodes of its hardware CPUs, including those without memory.
    pub cpu_nodes: NodeSet,
    /// Packages of its hardware CPUs.
    pub packages: BTreeSet<i32>,
    /// Its memory.
    pub memory: MemoryNodes,
}

/// The group that a pool is named by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolKind {
    /// The whole machine.
    Root,
    /// A package, by its id.
    Socket(i32),
    /// A die, by the ids of its package and of itself.
    Die(i32, i32),
    /// A NUMA node.
    Numa(NodeId),
    /// A last-level cache, counted over the machine.
    L3(usize),
}

impl PoolTree {
    /// Builds the tree of a machine.
    pub fn new(inventory: &Inventory) -> Self {
        let machine = &inventory.machine;
        let (pools, ids) = (Vec::new(), BTreeMap::new());
        let mut tree = Self { pools, attached: attached_nodes(machine), ids };
        tree.add(draft::draft(machine), 0, inventory);
        tree.name_pools();
        tree
    }

    /// Names all pools, parents before children.
    fn name_pools(&mut self) {
        let mut kinds = BTreeMap::<PoolKind, usize>::new();
        for pool in &self.pools {
            *kinds.entry(pool.kind).or_default() += 1;
        }
        for id in (0..self.pools.len()).rev() {
            let pool = &self.pools[id];
            let above = pool.parent.map(|above| &self.pools[above]);
            let mut name = match (pool.kind, above) {
                (PoolKind::L3(_), Some(above)) => format!("{} of {}", pool.kind, above.name),
                _ => pool.kind.to_string(),
            };
            if kinds.get(&pool.kind).is_some_and(|pools| *pools > 1)
                && let Some(first) = pool.cpus.first()
            {
                name = format!("{name} at CPU {first}");
            }
            // Nested groups of one kind and id.
            while self.ids.contains_key(&name) {
                name.push('\'');
            }
            self.ids.insert(name.clone(), id);
            self.pools[id].name = name;
        }
    }

    /// Id of the pool with this name.
    pub fn id_of(&self, name: &str) -> Option<usize> {
        self.ids.get(name).copied()
    }

    /// All pools, in ascending order of id.
    pub fn pools(&self) -> &[Pool] {
        &self.pools
    }

    /// The pool with this id.
    ///
    /// # Panics
    /// If the id is not of this tree.
    pub fn pool(&self, id: usize) -> &Pool {
        &self.pools[id]
    }

    /// The root pool.
    pub fn root(&self) -> &Pool {
        self.pool(self.pools.len() - 1)
    }

    /// Ids of a pool and all below it.
    pub fn subtree(&self, id: usize) -> RangeInclusive<usize> {
        self.pool(id).first..=id
    }

    /// Ids of the ancestors, from the parent to the root.
    pub fn ancestors(&self, id: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.pool(id).parent, |above| self.pool(*above).parent)
    }

    /// These CPU nodes and the memory-only nodes attached to them.
    pub fn local_memory(&self, cpu_nodes: &NodeSet) -> NodeSet {
        let attached = self.attached.iter().filter(|(_, host)| cpu_nodes.contains(**host));
        let mut local = cpu_nodes.clone();
        local.extend(&attached.map(|(node, _)| *node).collect());
        local
    }

    /// The CPU nodes among these nodes, and those that the memory-only ones are attached to.
    pub(crate) fn cpu_nodes_near(&self, nodes: &NodeSet) -> NodeSet {
        nodes.iter().map(|node| self.attached.get(&node).copied().unwrap_or(node)).collect()
    }

    /// These nodes; a node in no pool is replaced by the CPU node that it is attached to.
    pub(crate) fn nodes_in_pools(&self, nodes: &NodeSet) -> NodeSet {
        let root = self.root();
        let known = |node: NodeId| root.cpu_nodes.contains(node) || root.memory.all().contains(node);
        let place = |node| if known(node) { Some(node) } else { self.attached.get(&node).copied() };
        nodes.iter().map(|node| place(node).unwrap_or(node)).collect()
    }

    /// The level, or the next coarser one that this machine has.
    pub(crate) fn existing_level(&self, wanted: PoolLevel) -> PoolLevel {
        let levels = self.pools.iter().flat_map(|pool| &pool.stands_for);
        levels.copied().filter(|level| *level <= wanted).max().unwrap_or(PoolLevel::System)
    }

    /// Adds a draft below its ancestors; returns its id, or `None` if it has no CPU to give.
    fn add(&mut self, draft: Draft, depth: usize, inventory: &Inventory) -> Option<usize> {
        let cpus = draft.cpus.intersection(&inventory.allowed_cpus);
        if cpus.is_empty() && depth > 0 {
            return None;
        }
        let first = self.pools.len();
        let below = draft.children.into_iter().map(|child| self.add(child, depth + 1, inventory));
        let children: Vec<usize> = below.collect::<Vec<_>>().into_iter().flatten().collect();
        let id = self.pools.len();
        for child in &children {
            self.pools[*child].parent = Some(id);
        }
        let machine = &inventory.machine;
        let cpu_nodes = machine.nodes_of(&draft.cpus);
        let reserved = cpus.intersection(&inventory.reserved_cpus);
        let isolated = cpus.intersection(&inventory.isolated_cpus).difference(&reserved);
        let local = |node: &&Node| {
            depth == 0 || cpu_nodes.contains(self.attached.get(&node.id).copied().unwrap_or(node.id))
        };
        let packages = machine.packages.iter().filter(|package| !package.cpus.is_disjoint(&draft.cpus));
        self.pools.push(Pool {
            id,
            name: String::new(),
            kind: draft.kind,
            stands_for: draft.stands_for,
            depth,
            parent: None,
            children,
            first,
            sharable: cpus.difference(&reserved).difference(&isolated),
            cpus,
            isolated,
            reserved,
            packages: packages.map(|package| package.id).collect(),
            memory: MemoryNodes::of(machine.nodes.iter().filter(local)),
            cpu_nodes,
        });
        Some(id)
    }
}

impl Pool {
    /// Does it have this level, or stand for it?
    pub fn is_of(&self, level: PoolLevel) -> bool {
        self.stands_for.contains(&level)
    }
}

impl PoolKind {
    fn level(self) -> PoolLevel {
        match self {
            Self::Root => PoolLevel::System,
            Self::Socket(_) => PoolLevel::Package,
            Self::Die(..) => PoolLevel::Die,
            Self::Numa(_) => PoolLevel::Numa,
            Self::L3(_) => PoolLevel::L3Cache,
        }
    }

    /// Order of precedence between names for the same CPUs, lowest first.
    fn precedence(self) -> u8 {
        match self {
            Self::Socket(_) => 0,
            Self::Numa(_) => 1,
            Self::Die(..) => 2,
            Self::Root => 3,
            Self::L3(_) => 4,
        }
    }
}

impl fmt::Display for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root"),
            Self::Socket(package) => write!(f, "socket #{package}"),
            Self::Die(package, die) => write!(f, "die #{package}/{die}"),
            Self::Numa(node) => write!(f, "NUMA node #{node}"),
            Self::L3(cache) => write!(f, "L3 cache #{cache}"),
        }
    }
}
