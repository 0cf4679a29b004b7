//! Input of the planner: the nodes' room and the workloads that may move.
//!
//! The planner knows no cgroups, grants or samples, only these types; `crate::rebalance::gather` fills them.
//! Everything that bounds a move is an amount here.
//!
//! Invariant: an unknown amount never counts as available. No workload moves to a node of unknown free
//! memory.

use std::collections::{BTreeMap, BTreeSet};

use crate::workload::{CgroupPath, QosClass};
use numa_topology::{
    Locality, Topology,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// The host.
#[derive(Debug, Clone)]
pub struct HostState<'a> {
    /// Distances.
    pub machine: &'a Topology,
    /// Which memory is local to which CPUs.
    pub locality: Locality,
    /// Room by node, memory-only nodes included.
    pub rooms: BTreeMap<NodeId, FreeResources>,
    /// Nodes that were short of memory at the last plan.
    pub short: NodeSet,
}

/// Free resources of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FreeResources {
    /// CPUs that may be handed out and that no workload has exclusively.
    pub free: CpuSet,
    /// CPUs that cgroups are pinned to which the daemon does not place; never given out exclusively.
    pub pinned: CpuSet,
    /// Thousandths of a CPU that sharing workloads use there, without the movers.
    pub others_milli: u64,
    /// Memory of the node in bytes.
    pub total_bytes: Option<u64>,
    /// Available bytes: free memory, and page cache that the kernel can drop.
    pub available_bytes: Option<u64>,
    /// Bytes that are not promised to a workload; absent if promises are not counted.
    pub unpromised_bytes: Option<u64>,
    /// Bytes of last-level cache of one CPU's complex.
    pub cache_bytes: Option<u64>,
}

/// A workload that may be moved, or occupies the place of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Mover {
    /// Cgroup of the workload.
    pub cgroup: CgroupPath,
    /// `QoS` class; a declared workload has the highest.
    pub qos: QosClass,
    /// Its CPUs.
    pub cpus: CpusHeld,
    /// Share of its run time by node, summing to 1.
    pub run: BTreeMap<NodeId, f64>,
    /// CPU time per second, in CPUs.
    pub used: f64,
    /// Its memory.
    pub bytes: BTreeMap<NodeId, NodeShare>,
    /// Bytes that it was promised, by node.
    pub promised: BTreeMap<NodeId, u64>,
    /// Measured share of remote accesses; absent with too few observations.
    pub remote: Option<f64>,
    /// Nodes near its devices; empty without devices.
    pub devices: NodeSet,
    /// Nodes on which the workload may settle.
    pub may_settle: NodeSet,
    /// Faults of its place, judged with hysteresis.
    pub ails: BTreeSet<Ailment>,
    /// Reason why it may not be moved now.
    pub held_back: Option<String>,
}

/// A fault of a workload's place. Faults of a node are visible in its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ailment {
    /// Too many of its accesses are remote.
    Remote,
    /// None of its devices is near its CPUs.
    FarFromDevices,
}

/// Memory of one workload on one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeShare {
    /// Bytes that can be moved: anonymous memory, and of files what processes map.
    pub movable: u64,
    /// Bytes that stay: files that no process maps.
    pub fixed: u64,
}

/// How a workload has its CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpusHeld {
    /// Exclusively: they move as a whole or not at all.
    Alone(CpuSet),
    /// Shared with other workloads.
    Together {
        /// Nodes of the shared CPUs.
        nodes: NodeSet,
        /// Thousandths of a CPU: the larger of its promise and its use.
        milli: u64,
    },
}

impl CpusHeld {
    /// Nodes of these CPUs.
    pub(super) fn nodes(&self, machine: &Topology) -> NodeSet {
        match self {
            Self::Alone(cpus) => machine.nodes_of(cpus),
            Self::Together { nodes, .. } => nodes.clone(),
        }
    }
}

impl Mover {
    /// Its movable bytes by node, on nodes that are not local to `node`.
    pub(super) fn away(&self, host: &HostState<'_>, node: NodeId) -> BTreeMap<NodeId, u64> {
        let far =
            self.bytes.iter().filter(|(at, held)| held.movable > 0 && host.locality.is_far_from(**at, node));
        far.map(|(at, held)| (*at, held.movable)).collect()
    }
}

impl HostState<'_> {
    /// Returns true if the memory of a node is local to the CPUs of another, or is memory of a GPU.
    pub(super) fn is_local(&self, memory: NodeId, cpus: NodeId) -> bool {
        !self.locality.is_far_from(memory, cpus)
    }

    /// Extra cost of an access to another node's memory, in local accesses.
    pub(super) fn penalty(&self, cpus: NodeId, memory: NodeId) -> f64 {
        if self.is_local(memory, cpus) {
            return 0.0;
        }
        // A distance that the firmware does not report is taken as that of the next socket on most machines.
        let distance = self.machine.distance(cpus, memory).unwrap_or(20);
        f64::from(distance.saturating_sub(10).max(1)) / 10.0
    }
}
