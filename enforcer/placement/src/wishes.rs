//! Wishes of a configuration entry for a container, besides amounts.
//!
//! Wishes are defaults: an annotation for the same setting takes precedence, if it would be valid without the
//! entry. Settings that annotations cannot override (amounts, allowed nodes) go into the request itself.

use crate::settings::{DeclaredClass, HintsOptions, MemoryTypes, PlacementEngine, TopologyPolicy};
use numa_topology::set::{CpuSet, NodeSet};

/// Wishes for a container; the default has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wishes {
    /// Name of the entry; `None` without an entry.
    pub rule: Option<String>,
    /// Position of the entry in the configuration.
    pub position: usize,
    /// Engine.
    pub engine: Option<PlacementEngine>,
    /// Policy of the engine `hints`.
    pub policy: Option<TopologyPolicy>,
    /// Options of the engine `hints`.
    pub options: HintsOptions,
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

/// Location of something that a container uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyHint {
    /// Source of the hint: `mount:PATH`, `device:PATH`, `pod-resources:RESOURCE`.
    pub provider: String,
    /// CPUs near it; empty if unknown.
    pub cpus: CpuSet,
    /// Nodes near it; empty if unknown.
    pub nodes: NodeSet,
    /// Packages near it; empty if unknown.
    pub packages: Vec<i32>,
}
