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

impl Serialize for CpuChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quoted::read(deserializer, "CPUs in quotes, as in \"cpuset:0-3\"")
    }
}

impl Serialize for CpuAmount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuAmount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quoted::read(deserializer, "an amount of CPUs or CPUs in quotes, as in \"750m\" or \"cpuset:0-3\"")
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quoted::read(deserializer, "a length of time in quotes, as in \"5s\"")
    }
}

impl Serialize for CgroupGlob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CgroupGlob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quoted::read(deserializer, "a glob over cgroup paths in quotes, as in \"/system.slice/**\"")
    }
}
