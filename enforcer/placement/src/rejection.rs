//! Rejections: why a pod has no place.
//!
//! Reasons have the kubelet's names (pkg/kubelet/cm/admission). The text always states what was short, where,
//! and what would have fitted.

mod cpu_error;
mod problem;
mod reason;

use std::{collections::BTreeMap, fmt};

use thiserror::Error;

pub use self::{
    cpu_error::CpuError,
    problem::{MemoryProblem, RejectionProblem, ResizeProblem},
    reason::RejectionReason,
};
use super::{
    MemoryResource,
    room::{FittingAmount, is_in_bytes, would_fit},
};
use crate::{
    size_units::SizeUnits,
    words::{self, SizeUnit},
};
use numa_topology::set::NodeSet;

/// A pod that was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub struct Rejection {
    /// Kind of the reason.
    pub reason: RejectionReason,
    /// Container that could not be placed; `None` for the whole pod.
    pub container: Option<String>,
    /// The problem, without the figures below. Boxed to keep the error small.
    pub problem: Box<RejectionProblem>,
    /// Shortages, most important first.
    pub shortages: Vec<Shortage>,
    /// What would have fitted, if anything.
    pub fits: Option<String>,
    /// Boxed to keep the error small.
    pub wording: Box<Wording>,
}

/// Details for the text of a rejection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wording {
    /// Holders of what is short, by resource and nodes, see [`super::taken`].
    pub taken: Vec<(String, NodeSet, String)>,
    /// Units of the sizes of each resource.
    pub units: SizeUnits,
    /// Room of each resource, as in [`Rejection::fits`].
    pub rooms: Box<[FittingAmount]>,
    /// Nodes with memory that was not counted, each with the reason, in words.
    pub left_out: Option<String>,
    /// Nodes with memory of unknown size.
    pub unsized_nodes: NodeSet,
    /// Whether it is about a workload outside pods. The reason names are Kubernetes terms and are not shown
    /// for it.
    pub is_outside_pods: bool,
}

/// A resource that is short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Its name: `cpu`, `memory`, `hugepages-2Mi`, `vendor.com/device`.
    pub resource: String,
    /// Nodes that were considered.
    pub nodes: NodeSet,
    /// Requested amount in CPUs, bytes or devices.
    pub wanted: u64,
    /// Available amount on these nodes together.
    pub available: u64,
}

impl Rejection {
    /// A rejection without figures.
    pub fn new(reason: RejectionReason, problem: RejectionProblem) -> Self {
        let (container, shortages, fits, wording) = (None, Vec::new(), None, Box::default());
        Self { reason, container, problem: Box::new(problem), shortages, fits, wording }
    }

    /// Adds shortages, and what would have fitted.
    #[must_use]
    pub fn short_of(mut self, shortages: Vec<Shortage>, rooms: &[FittingAmount]) -> Self {
        let units = units_of(&shortages, rooms);
        self.fits = would_fit(rooms, &units);
        self.shortages = shortages;
        self.wording.units = units;
        self.wording.rooms = rooms.into();
        self
    }

    /// Adds which memory was not counted, and why.
    #[must_use]
    pub(crate) fn leaving_out(mut self, left_out: Option<String>) -> Self {
        self.wording.left_out = left_out;
        self
    }

    /// Adds that the size of these nodes is unknown: none of their memory was counted.
    #[must_use]
    pub(crate) fn without_sizes_of(mut self, nodes: NodeSet) -> Self {
        let memory = MemoryResource::Memory.to_string();
        let known = |room: &FittingAmount| room.clone();
        let unknown = |room: &FittingAmount| room.clone().without_sizes_of(&nodes, &memory);
        let told = |of: &dyn Fn(&FittingAmount) -> FittingAmount| {
            let rooms: Vec<FittingAmount> = self.wording.rooms.iter().map(of).collect();
            would_fit(&rooms, &self.wording.units)
        };
        if let (Some(fits), Some(before), Some(now)) = (&self.fits, told(&known), told(&unknown)) {
            self.fits = Some(fits.replace(&before, &now));
        }
        self.wording.unsized_nodes = nodes;
        self
    }

    /// Marks it as about a workload outside pods.
    #[must_use]
    pub fn outside_pods(mut self) -> Self {
        self.container = None;
        self.wording.is_outside_pods = true;
        self
    }

    /// Sets the container.
    #[must_use]
    pub fn of(mut self, container: &str) -> Self {
        self.container.get_or_insert_with(|| container.to_owned());
        self
    }
}

impl Shortage {
    /// `14 of 16 cpu on nodes 0-1`.
    pub fn text(&self, units: &SizeUnits, unsized_nodes: &NodeSet) -> String {
        // An amount too small for the common unit has its own unit.
        let own =
            |unit: SizeUnit| if unit.rounds_away(self.wanted) { SizeUnit::of(self.wanted) } else { unit };
        let unit = units.get(&self.resource).map(own);
        let amount = |value: u64| unit.map_or_else(|| value.to_string(), |unit| unit.show(value));
        let (wanted, mut available) = (amount(self.wanted), amount(self.available));
        let memory = self.resource == MemoryResource::Memory.to_string();
        if memory && !self.nodes.is_empty() && self.nodes.is_subset(unsized_nodes) {
            "unknown".clone_into(&mut available);
        }
        let resource = numa_topology::text::printable(&self.resource);
        format!("{available} of {wanted} {resource} on {}", words::nodes(&self.nodes))
    }
}

/// Unit of the largest size of each resource in the text.
pub fn units_of(shortages: &[Shortage], rooms: &[FittingAmount]) -> SizeUnits {
    let of_shortage = |short: &Shortage| (short.resource.clone(), short.wanted.max(short.available));
    let told = shortages.iter().map(of_shortage).chain(rooms.iter().map(FittingAmount::largest));
    let mut largest: BTreeMap<String, u64> = BTreeMap::new();
    for (resource, bytes) in told.filter(|(resource, _)| is_in_bytes(resource)) {
        let before = largest.entry(resource).or_default();
        *before = bytes.max(*before);
    }
    largest.into_iter().map(|(resource, bytes)| (resource, SizeUnit::of(bytes))).collect()
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.wording.is_outside_pods {
            write!(f, "{}: ", self.reason.as_str())?;
        }
        if let Some(container) = &self.container {
            write!(f, "container {}: ", numa_topology::text::printable(container))?;
        }
        self.problem.fmt(f)?;
        if let Some(left_out) = &self.wording.left_out {
            write!(f, " ({left_out})")?;
        }
        for (index, shortage) in self.shortages.iter().enumerate() {
            write!(
                f,
                "{}{}",
                if index == 0 { ": " } else { ", " },
                shortage.text(&self.wording.units, &self.wording.unsized_nodes)
            )?;
            let told = self
                .wording
                .taken
                .iter()
                .find(|(what, on, _)| (what, on) == (&shortage.resource, &shortage.nodes));
            if let Some((.., told)) = told {
                write!(f, " ({told})")?;
            }
        }
        match &self.fits {
            Some(fits) => write!(f, "; {fits}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
