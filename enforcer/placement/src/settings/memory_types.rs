//! Kinds of memory in requests: `["dram", "pmem"]`.

use thiserror::Error;

use numa_topology::MemoryClass;

/// A set of memory kinds; at least one in a configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "Vec<MemoryType>", into = "Vec<MemoryType>")
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(with = "Vec<MemoryType>", extend("minItems" = 1)))]
pub struct MemoryTypes {
    /// Ordinary memory.
    pub dram: bool,
    /// Persistent memory, CXL memory, and memory-only nodes that are not known to be fast.
    pub pmem: bool,
    /// High-bandwidth memory.
    pub hbm: bool,
}

impl MemoryTypes {
    /// The kind that memory of this class belongs to.
    pub(crate) const fn of_class(class: MemoryClass) -> Self {
        Self {
            dram: matches!(class, MemoryClass::Dram),
            pmem: matches!(class, MemoryClass::Slow),
            hbm: matches!(class, MemoryClass::HighBandwidth),
        }
    }
}

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum MemoryType {
    /// Ordinary memory.
    Dram,
    /// Persistent memory, CXL memory, and memory-only nodes that are not known to be fast.
    Pmem,
    /// High-bandwidth memory.
    Hbm,
}

/// An empty list of memory kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("one of dram, pmem and hbm is expected at least")]
pub struct NoMemoryType;

impl TryFrom<Vec<MemoryType>> for MemoryTypes {
    type Error = NoMemoryType;

    fn try_from(list: Vec<MemoryType>) -> Result<Self, NoMemoryType> {
        let of = |kind| list.contains(&kind);
        let types = Self { dram: of(MemoryType::Dram), pmem: of(MemoryType::Pmem), hbm: of(MemoryType::Hbm) };
        if types == Self::default() { Err(NoMemoryType) } else { Ok(types) }
    }
}

impl From<MemoryTypes> for Vec<MemoryType> {
    fn from(types: MemoryTypes) -> Self {
        let all =
            [(types.dram, MemoryType::Dram), (types.pmem, MemoryType::Pmem), (types.hbm, MemoryType::Hbm)];
        all.into_iter().filter(|(wanted, _)| *wanted).map(|(_, kind)| kind).collect()
    }
}
