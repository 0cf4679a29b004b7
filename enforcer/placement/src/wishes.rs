//! Wishes of a configuration entry for a container, besides amounts.
//!
//! Wishes are defaults: an annotation for the same setting takes precedence, if it would be valid without the
//! entry. Settings that annotations cannot override (amounts, allowed nodes) go into the request itself.

use super::{PodRequest, TopologyHint};
use crate::settings::{DeclaredClass, Engine, MemoryTypes, TopologyPolicy};

/// Wishes for a container; the default has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wishes {
    /// Name of the entry; `None` without an entry.
    pub rule: Option<String>,
    /// Position of the entry in the configuration.
    pub position: usize,
    /// Engine.
    pub engine: Option<Engine>,
    /// Policy of the engine `hints`.
    pub policy: Option<TopologyPolicy>,
    /// Kinds of memory.
    pub memory_types: Option<MemoryTypes>,
    /// Use of its CPUs.
    pub class: Option<DeclaredClass>,
    /// Locations of the devices that it should be near.
    pub beside: Vec<TopologyHint>,
}

impl Wishes {
    /// Should its CPUs be exclusive?
    pub fn alone(&self) -> Option<bool> {
        self.class.map(|class| matches!(class, DeclaredClass::Exclusive | DeclaredClass::Isolated))
    }
}

impl PodRequest {
    /// The first wish of its containers, by the order of the configuration, for settings that a pod has only
    /// once.
    pub fn wished<T>(&self, of: impl Fn(&Wishes) -> Option<T>) -> Option<T> {
        let wishes = self.containers.iter().map(|container| &container.wishes);
        let wished = wishes.filter_map(|wishes| Some((wishes.position, of(wishes)?)));
        wished.min_by_key(|(position, _)| *position).map(|(_, wish)| wish)
    }
}
