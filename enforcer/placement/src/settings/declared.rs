//! How a declared workload uses its CPUs.

/// Declared use of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum DeclaredClass {
    /// CPUs of its own.
    Exclusive,
    /// CPUs shared with others.
    Shared,
    /// CPUs of its own, from `isolcpus=` if there are enough; only for the engine `pools`.
    Isolated,
    /// CPUs reserved for the system; only for the engine `pools`.
    Reserved,
}
