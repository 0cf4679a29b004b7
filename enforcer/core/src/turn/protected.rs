//! Workloads with memory nodes that the daemon guards between two turns ([`crate::widening`]).

use std::collections::BTreeMap;

use crate::workload::CgroupPath;
use numa_topology::{id::NodeId, set::NodeSet};

/// Memory nodes that were added to workloads that ran short, and must stay for now.
pub type Widened = BTreeMap<CgroupPath, NodeSet>;

/// A workload with memory nodes that the daemon guards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedWorkload {
    /// Its cgroup.
    pub cgroup: CgroupPath,
    /// Kernel id of the cgroup: a recreated cgroup has another one.
    pub cgroup_id: Option<u64>,
    /// Nodes that it was granted.
    pub home: NodeSet,
    /// Ordinary memory nodes of its cpuset, including requested ones. It may allocate on them, and they are
    /// written together with added ones.
    pub mems: NodeSet,
    /// Nodes of GPU memory in its cpuset: written with the others, but no room for it.
    pub kept: NodeSet,
    /// Nodes of the CPUs that it runs on.
    pub cpu_nodes: NodeSet,
    /// Nodes that may be added, in order of preference.
    pub spares: Vec<FallbackNode>,
    /// True if it is never widened.
    pub strict: bool,
    /// Ancestor cgroups that the daemon may widen, from the top down, with their nodes.
    pub above: Vec<(CgroupPath, NodeSet)>,
    /// Reason in words why it cannot have further nodes; absent without one.
    pub bound: Option<String>,
    /// Bytes on each node at the last measurement; a node with an unknown amount is absent.
    pub bytes: BTreeMap<NodeId, u64>,
}

/// A node that may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FallbackNode {
    pub(crate) node: NodeId,
    /// 0 is the workload's own tier; groups with higher numbers come later.
    pub(crate) group: u32,
    /// Distance from the workload's CPUs.
    pub(crate) distance: u32,
}

impl FallbackNode {
    /// The node.
    pub fn nodes(&self) -> NodeSet {
        [self.node].into_iter().collect()
    }

    /// Id of the node.
    pub fn node(&self) -> NodeId {
        self.node
    }
}
