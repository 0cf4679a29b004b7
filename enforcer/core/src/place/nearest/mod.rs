//! Placement of a cgroup on one node, as the daemon corrects it.
//!
//! [`Placement`] is the trait that every engine implements. An engine sees the machine, what is
//! already given away, and one request; it answers with an assignment or says what is short. It must
//! not change anything, and must give the same answer to the same question.

mod allocations;
mod cpus;
mod fit;

use std::collections::BTreeMap;

use thiserror::Error;

pub use self::{allocations::Allocations, fit::NearestFit};
use crate::{
    id::NodeId,
    model::WorkloadModel,
    set::{CpuSet, NodeSet},
    topology::Topology,
    workload::CgroupPath,
};

/// What one workload asks for, and what bounds the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Request<'a> {
    /// Who asks.
    pub workload: &'a CgroupPath,
    /// Number of CPUs, at least 1.
    pub cpus: u32,
    /// Bytes of memory, where declared.
    pub memory_bytes: Option<u64>,
    /// What it looks like now.
    pub now: Option<&'a WorkloadModel>,
    /// Nodes that may be chosen; all when absent.
    pub nodes: Option<&'a NodeSet>,
    /// What the cgroup above allows; everything when absent.
    pub bounds: Option<Bounds>,
    /// Bytes that the workload could have on each node, what it already has there included; a node
    /// for which that is not known is missing, and judged by its size alone.
    pub available_bytes: BTreeMap<NodeId, u64>,
}

/// What a cgroup passes on to those below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The cgroup.
    pub cgroup: CgroupPath,
    /// Its effective CPUs; not known when absent.
    pub cpus: Option<CpuSet>,
    /// Its effective memory nodes; not known when absent.
    pub mems: Option<NodeSet>,
}

/// Where a workload should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its memory nodes.
    pub mems: NodeSet,
    /// Memory that was asked for, counted against the nodes.
    pub memory_bytes: u64,
    /// Why here.
    pub reason: String,
}

/// Why there is no place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// No single node is large enough.
    #[error("no node has room for {asked}: the closest is node {closest}, where {short}{fits}")]
    TooLarge {
        /// What was asked for.
        asked: String,
        /// The node that comes closest.
        closest: NodeId,
        /// Which resource is short there, and by how much.
        short: String,
        /// What would fit, in words that end the sentence.
        fits: String,
    },
    /// Nodes with CPUs and memory exist, but none that this workload may use.
    #[error("no node that it may use has both CPUs and memory: {why}")]
    NotAllowed {
        /// Which bound leaves no node.
        why: String,
    },
    /// The machine has no node with CPUs and memory.
    #[error("the machine has no node with both CPUs and memory")]
    NoNode,
}

/// A placement engine.
pub trait Placement {
    /// Its name in configuration and reasons.
    fn name(&self) -> &'static str;

    /// What the workload has now, if that is a valid answer to the request: nothing that is valid is
    /// moved.
    fn keep(
        &self,
        machine: &Topology,
        allocations: &Allocations,
        request: &Request<'_>,
    ) -> Option<Assignment>;

    /// Where the workload should be.
    fn place(
        &self,
        machine: &Topology,
        allocations: &Allocations,
        request: &Request<'_>,
    ) -> Result<Assignment, PlacementError>;
}

#[cfg(test)]
mod tests;
