//! Machines and node sets of vectors, translated to the core's types.

use std::fmt;

use numa_placement::{
    CpuLayout, CpuPlace,
    hints::{Mask, NodeIndex},
};
use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};
use serde::Deserialize;

/// One CPU of a machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VectorCpu {
    id: u32,
    core: u32,
    socket: u32,
    numa: u32,
    l3: u32,
}

/// A list of CPUs that must all be CPUs of the machine.
pub(crate) fn known(cpus: &CpuSet, layout: &CpuLayout) -> Result<CpuSet, String> {
    let strange = cpus.difference(&layout.all());
    if strange.is_empty() { Ok(cpus.clone()) } else { Err(format!("CPUs {strange} are not on the machine")) }
}

/// Location of each CPU.
pub(crate) fn layout(cpus: &[VectorCpu]) -> CpuLayout {
    let place = |cpu: &VectorCpu| CpuPlace {
        id: CpuId(cpu.id),
        core: cpu.core,
        socket: cpu.socket,
        node: NodeId(cpu.numa),
        llc: cpu.l3,
    };
    CpuLayout::new(cpus.iter().map(place).collect())
}

/// A set of nodes as a hint gives it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct VectorNodes(Vec<u32>);

impl VectorNodes {
    /// As a set.
    pub(crate) fn set(&self) -> NodeSet {
        self.0.iter().copied().map(NodeId).collect()
    }
}

/// A hint of a vector.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VectorHint {
    pub(crate) nodes: Option<VectorNodes>,
    pub(crate) preferred: bool,
}

/// A hint, ours or a vector's, in a form that can be compared and read: `0-1+`, `any-`, `none+`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shown {
    nodes: Option<NodeSet>,
    preferred: bool,
}

impl Shown {
    /// Of a mask of ours.
    pub(crate) fn ours(index: &NodeIndex, mask: Option<Mask>, preferred: bool) -> Self {
        Self { nodes: mask.map(|mask| index.nodes(mask)), preferred }
    }
}

impl From<&VectorHint> for Shown {
    fn from(hint: &VectorHint) -> Self {
        Self { nodes: hint.nodes.as_ref().map(VectorNodes::set), preferred: hint.preferred }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nodes {
            None => f.write_str("any")?,
            Some(nodes) if nodes.is_empty() => f.write_str("none")?,
            Some(nodes) => nodes.fmt(f)?,
        }
        f.write_str(if self.preferred { "+" } else { "-" })
    }
}
