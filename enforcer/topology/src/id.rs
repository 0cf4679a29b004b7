//! Typed ids, as the kernel numbers things.
//!
//! Ids may be sparse (nodes 0, 33, 72) and above 63; a CPU number is never a node number. No code may assume
//! that ids are contiguous or start at 0.

use std::fmt;

/// A number that can be a member of an [`crate::set::IdSet`].
pub trait Id: Copy + Ord + fmt::Debug {
    /// The greatest id that any kernel has; parsers refuse greater ones.
    const GREATEST: u32;
    /// The id with this kernel number.
    fn from_number(number: u32) -> Self;
    /// The kernel's number of this id.
    fn number(self) -> u32;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $greatest:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        #[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
        pub struct $name(pub u32);

        impl Id for $name {
            const GREATEST: u32 = $greatest;
            fn from_number(number: u32) -> Self {
                Self(number)
            }
            fn number(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// A logical CPU: the N of `/sys/devices/system/cpu/cpuN`.
    // `NR_CPUS` is 8,192 at most (x86, powerpc).
    CpuId, 8_191
}
id! {
    /// A NUMA node: the N of `/sys/devices/system/node/nodeN`.
    // `NODES_SHIFT` is 10 at most.
    NodeId, 1_023
}
