//! The serde form of values that are text: what `Display` writes and `FromStr` reads.

use numa_topology::text::quoted;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    CgroupPath,
    settings::{CgroupGlob, CpuAmount, CpuChoice, HumanDuration},
};

impl Serialize for CgroupPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CgroupPath {
    /// Normalizes as [`CgroupPath::new`] does: a path in a file cannot leave its hierarchy either.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|path| Self::new(&path))
    }
}

/// Serializes as `Display` writes, and reads quoted text; `$expected` is the error for other values.
macro_rules! as_quoted_text {
    ($($type:ty: $expected:literal,)+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                quoted::read(deserializer, $expected)
            }
        }
    )+};
}

as_quoted_text! {
    CpuChoice: "CPUs in quotes, as in \"cpuset:0-3\"",
    CpuAmount: "an amount of CPUs or CPUs in quotes, as in \"750m\" or \"cpuset:0-3\"",
    HumanDuration: "a length of time in quotes, as in \"5s\"",
    CgroupGlob: "a glob over cgroup paths in quotes, as in \"/system.slice/**\"",
}
