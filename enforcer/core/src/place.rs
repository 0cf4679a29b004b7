//! Placement: which CPUs and which memory a workload should have.
//!
//! [`Placement`] is the trait that every engine implements. An engine sees the machine, what is
//! already given away, and one request; it answers with an assignment or says what is short. It must
//! not change anything, and must give the same answer to the same question.

use thiserror::Error;

use crate::{
    id::NodeId,
    model::WorkloadModel,
    set::{CpuSet, NodeSet},
    topology::Topology,
    workload::CgroupPath,
};

/// What is given away already.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Allocations {
    /// Placed workloads.
    pub placed: Vec<(CgroupPath, Assignment)>,
}

/// What one workload asks for.
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
}

/// Where a workload should be.
#[derive(Debug, Clone, PartialEq)]
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
    #[error(
        "no node has {cpus} CPUs and {memory_bytes} bytes of memory; the closest is node {closest}: {short}"
    )]
    TooLarge {
        /// Asked.
        cpus: u32,
        /// Asked.
        memory_bytes: u64,
        /// The node that comes closest.
        closest: NodeId,
        /// What it is short of.
        short: String,
    },
    /// The machine has no node with CPUs and memory.
    #[error("the machine has no node with both CPUs and memory")]
    NoNode,
}

/// A placement engine.
pub trait Placement {
    /// Its name in configuration and reasons.
    fn name(&self) -> &'static str;

    /// Where the workload should be.
    fn place(
        &self,
        machine: &Topology,
        allocations: &Allocations,
        request: &Request<'_>,
    ) -> Result<Assignment, PlacementError>;
}
