//! What a plan is made from: rooms and those who may move between them.
//!
//! The planner knows no cgroups, grants or samples, only these; whoever asks it has turned the one into the
//! other (`crate::rebalance::gather`). Everything that bounds a move is here as an amount.
//!
//! Must never count what is not known as there: a node whose free memory is not known takes nobody in.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    id::NodeId,
    set::{CpuSet, NodeSet},
    topology::{Locality, Topology},
    workload::{CgroupPath, QosClass},
};

/// The host.
#[derive(Debug, Clone)]
pub struct Host<'a> {
    /// Distances.
    pub machine: &'a Topology,
    /// Which memory is local to which CPUs.
    pub locality: Locality,
    /// By node, memory-only ones included.
    pub rooms: BTreeMap<NodeId, Room>,
    /// Nodes that were short of memory when they were looked at before.
    pub short: NodeSet,
}

/// What one node has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// CPUs that may be handed out and that nobody has for itself.
    pub free: CpuSet,
    /// CPUs that cgroups are pinned to which are not placed by the daemon: never given to a workload alone.
    pub pinned: CpuSet,
    /// Thousandths of a CPU that those who share use there, who are not movers.
    pub others_milli: u64,
    /// Bytes of memory.
    pub total_bytes: Option<u64>,
    /// Bytes that could be had: free ones, and page cache that the kernel drops when asked.
    pub available_bytes: Option<u64>,
    /// Bytes that are promised to nobody; no promises are counted where it is absent.
    pub unpromised_bytes: Option<u64>,
    /// Bytes of last-level cache of one CPU's complex.
    pub cache_bytes: Option<u64>,
}

/// Somebody who may be moved, or stands in the way of those who may.
#[derive(Debug, Clone, PartialEq)]
pub struct Mover {
    /// Who.
    pub cgroup: CgroupPath,
    /// `QoS` class; that of a declared workload is the highest.
    pub qos: QosClass,
    /// Its CPUs.
    pub cpus: CpusHeld,
    /// Share of its run time by node, summing to 1.
    pub run: BTreeMap<NodeId, f64>,
    /// CPU time per second, in CPUs.
    pub used: f64,
    /// Its memory.
    pub bytes: BTreeMap<NodeId, Held>,
    /// Bytes that it was promised, by node.
    pub promised: BTreeMap<NodeId, u64>,
    /// Measured share of remote accesses, where there are enough observations to believe it.
    pub remote: Option<f64>,
    /// Nodes beside its devices; none where it has none.
    pub devices: NodeSet,
    /// Nodes on which it may settle.
    pub may_settle: NodeSet,
    /// What is wrong with it, judged with hysteresis.
    pub ails: BTreeSet<Ailment>,
    /// Why it may not be moved now, if that is so.
    pub held_back: Option<String>,
}

/// What is wrong with a workload itself; what is wrong with a node is seen from the rooms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ailment {
    /// Too many of its accesses are remote.
    Remote,
    /// None of its devices is beside its CPUs.
    FarFromDevices,
}

/// Memory of one workload on one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes that can be moved: anonymous ones.
    pub movable: u64,
    /// Bytes that stay: page cache does not follow its readers.
    pub fixed: u64,
}

/// How a workload has its CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpusHeld {
    /// For itself: as a whole or not at all.
    Alone(CpuSet),
    /// Together with others, on these nodes, in thousandths of a CPU.
    Together {
        /// Where.
        nodes: NodeSet,
        /// How much: what was promised or what it uses, whichever is more.
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
    /// Its bytes on nodes that are not local to one; those that can be moved from there.
    pub(super) fn away(&self, host: &Host<'_>, node: NodeId) -> BTreeMap<NodeId, u64> {
        let far =
            self.bytes.iter().filter(|(at, held)| held.movable > 0 && host.locality.is_far_from(**at, node));
        far.map(|(at, held)| (*at, held.movable)).collect()
    }
}

impl Host<'_> {
    /// Is memory on a node local to the CPUs of another, or a GPU's?
    pub(super) fn is_local(&self, memory: NodeId, cpus: NodeId) -> bool {
        !self.locality.is_far_from(memory, cpus)
    }

    /// What an access from one node to another's memory takes beyond a local one, in local ones.
    pub(super) fn penalty(&self, cpus: NodeId, memory: NodeId) -> f64 {
        if self.is_local(memory, cpus) {
            return 0.0;
        }
        // A distance that is not told is that of the next socket on most machines.
        let distance = self.machine.distance(cpus, memory).unwrap_or(20);
        f64::from(distance.saturating_sub(10).max(1)) / 10.0
    }
}
