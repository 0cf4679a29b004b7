//! Why a pod has no place.
//!
//! The names are those that people know from their clusters (kubelet, pkg/kubelet/cm/admission), the
//! text always says what was short where, and what would have fitted.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    MemoryResource,
    room::{Room, is_in_bytes, would_fit},
};
use crate::{
    set::NodeSet,
    words::{self, SizeUnit},
};

/// A pod that was not admitted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct Rejection {
    /// Kind of reason.
    pub reason: Reason,
    /// Container that could not be placed; the whole pod when absent.
    pub container: Option<String>,
    /// What is wrong, in one sentence without the figures below.
    pub problem: String,
    /// What was short, most important first.
    pub shortages: Vec<Shortage>,
    /// What would have fitted, where something would.
    pub fits: Option<String>,
    /// In a box, as small as an error should be.
    pub(super) wording: Box<Wording>,
}

/// What the text of a rejection needs beside its figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wording {
    /// What took what is short: by resource and nodes, see [`super::taken`].
    pub(super) taken: Vec<(String, NodeSet, String)>,
    /// The unit in which the sizes of each resource are written.
    pub(super) units: Units,
    /// What would have fitted of each resource, as told in [`Rejection::fits`].
    pub(super) rooms: Box<[Room]>,
    /// Nodes of which it is not known how much memory they have.
    pub(super) unsized_nodes: NodeSet,
    /// Is it of a workload outside pods? The names of reasons are words of clusters, and are not told of it.
    pub(super) is_outside_pods: bool,
}

/// Kinds of rejections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Reason {
    /// The resources are there, but not together.
    TopologyAffinityError,
    /// Whole cores were asked for and cannot be had.
    #[serde(rename = "SMTAlignmentError")]
    SmtAlignmentError,
    /// Anything else.
    UnexpectedAdmissionError,
}

/// A resource of which there is not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Its name: `cpu`, `memory`, `hugepages-2Mi`, `vendor.com/device`.
    pub resource: String,
    /// Nodes that were looked at.
    pub nodes: NodeSet,
    /// How much was asked for, in CPUs, bytes or devices.
    pub wanted: u64,
    /// How much could be had on these nodes together.
    pub available: u64,
}

impl Rejection {
    /// A rejection without figures yet.
    pub fn new(reason: Reason, problem: impl Into<String>) -> Self {
        let (container, shortages, fits, wording) = (None, Vec::new(), None, Box::default());
        Self { reason, container, problem: problem.into(), shortages, fits, wording }
    }

    /// With what was short, and what would have fitted.
    #[must_use]
    pub(super) fn short_of(mut self, shortages: Vec<Shortage>, rooms: &[Room]) -> Self {
        let units = units_of(&shortages, rooms);
        self.fits = would_fit(rooms, &units);
        self.shortages = shortages;
        self.wording.units = units;
        self.wording.rooms = rooms.into();
        self
    }

    /// The same, told that nobody knows how much memory these nodes have: then nothing of them was counted.
    #[must_use]
    pub(super) fn without_sizes_of(mut self, nodes: NodeSet) -> Self {
        let memory = MemoryResource::Memory.to_string();
        let known = |room: &Room| room.clone();
        let unknown = |room: &Room| room.clone().without_sizes_of(&nodes, &memory);
        let told = |of: &dyn Fn(&Room) -> Room| {
            let rooms: Vec<Room> = self.wording.rooms.iter().map(of).collect();
            would_fit(&rooms, &self.wording.units)
        };
        if let (Some(fits), Some(before), Some(now)) = (&self.fits, told(&known), told(&unknown)) {
            self.fits = Some(fits.replace(&before, &now));
        }
        self.wording.unsized_nodes = nodes;
        self
    }

    /// The same, of a workload outside pods.
    #[must_use]
    pub(super) fn outside_pods(mut self) -> Self {
        self.container = None;
        self.wording.is_outside_pods = true;
        self
    }

    /// The same, of one container.
    #[must_use]
    pub fn of(mut self, container: &str) -> Self {
        self.container.get_or_insert_with(|| container.to_owned());
        self
    }
}

impl Shortage {
    /// `14 of 16 cpu on nodes 0-1`.
    pub(super) fn text(&self, units: &Units, unsized_nodes: &NodeSet) -> String {
        // An amount too small for the unit of the largest is told in its own.
        let own =
            |unit: SizeUnit| if unit.rounds_away(self.wanted) { SizeUnit::of(self.wanted) } else { unit };
        let unit = units.get(&self.resource).map(own);
        let amount = |value: u64| unit.map_or_else(|| value.to_string(), |unit| unit.show(value));
        let (wanted, mut available) = (amount(self.wanted), amount(self.available));
        let memory = self.resource == MemoryResource::Memory.to_string();
        if memory && !self.nodes.is_empty() && self.nodes.is_subset(unsized_nodes) {
            "unknown".clone_into(&mut available);
        }
        let resource = crate::workload::printable(&self.resource);
        format!("{available} of {wanted} {resource} on {}", words::nodes(&self.nodes))
    }
}

/// Units by resource; none of what is not in bytes. Of few resources, and as small as an error should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Units(Box<[(String, SizeUnit)]>);

impl Units {
    /// That of a resource.
    pub(super) fn get(&self, resource: &str) -> Option<SizeUnit> {
        self.0.iter().find(|(name, _)| name == resource).map(|(_, unit)| *unit)
    }

    /// These, and others of what is not among them.
    pub(super) fn or(self, others: Self) -> Self {
        Self(self.0.into_iter().chain(others.0).collect())
    }
}

/// The unit of the largest size that is told of each resource.
pub(super) fn units_of(shortages: &[Shortage], rooms: &[Room]) -> Units {
    let of_shortage = |short: &Shortage| (short.resource.clone(), short.wanted.max(short.available));
    let told = shortages.iter().map(of_shortage).chain(rooms.iter().map(Room::largest));
    let mut largest: BTreeMap<String, u64> = BTreeMap::new();
    for (resource, bytes) in told.filter(|(resource, _)| is_in_bytes(resource)) {
        let before = largest.entry(resource).or_default();
        *before = bytes.max(*before);
    }
    Units(largest.into_iter().map(|(resource, bytes)| (resource, SizeUnit::of(bytes))).collect())
}

impl Reason {
    /// As clusters show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TopologyAffinityError => "TopologyAffinityError",
            Self::SmtAlignmentError => "SMTAlignmentError",
            Self::UnexpectedAdmissionError => "UnexpectedAdmissionError",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.wording.is_outside_pods {
            write!(f, "{}: ", self.reason.as_str())?;
        }
        if let Some(container) = &self.container {
            write!(f, "container {}: ", crate::workload::printable(container))?;
        }
        f.write_str(&self.problem)?;
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
