//! Names of devices, capacities and claims.
//!
//! Invariants: the name of a device comes from the kernel's numbers and is never given to another device. It
//! carries the driver's prefix, because Kubernetes 1.36 looks devices of node allocatable mappings up without
//! their driver. Capacities are compared as raw text by the scheduler, so each has one spelling. A uid is
//! safe as a part of file names and environment variables.

use std::{fmt, sync::Arc};

use numa_topology::{
    id::{Id, NodeId},
    quantity,
};

use super::DRIVER;
use crate::cluster::exported::quantity::of_bytes;

/// A device that the driver publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceName {
    /// A NUMA node: `ne-numa0`.
    Node(NodeId),
    /// A core, by its lowest CPU: `ne-core4`.
    Core(u32),
}

/// A capacity of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimCapacity {
    /// CPUs for exclusive use.
    Cpu,
    /// Thousandths of the shared CPUs.
    MilliCpu,
    /// Bytes of ordinary memory.
    Memory,
    /// Bytes of huge pages of this size.
    Hugepages(u64),
}

/// Uid of a claim: letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimUid(Arc<str>);

const NODE_PREFIX: &str = "ne-numa";
const CORE_PREFIX: &str = "ne-core";
/// Longest uid; those of Kubernetes have 36 characters.
const MAX_UID: usize = 64;

impl DeviceName {
    /// The device of this name; none if no device can have it.
    pub fn parse(name: &str) -> Option<Self> {
        let number = |digits: &str, greatest: u32| {
            let number = digits.parse::<u32>().ok().filter(|number| *number <= greatest)?;
            (number.to_string() == digits).then_some(number)
        };
        if let Some(digits) = name.strip_prefix(NODE_PREFIX) {
            return number(digits, NodeId::GREATEST).map(|id| Self::Node(NodeId(id)));
        }
        number(name.strip_prefix(CORE_PREFIX)?, numa_topology::id::CpuId::GREATEST).map(Self::Core)
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "{NODE_PREFIX}{node}"),
            Self::Core(core) => write!(f, "{CORE_PREFIX}{core}"),
        }
    }
}

impl ClaimCapacity {
    /// Its key in slices and claims: `numa-enforcer.io/memory`.
    pub fn key(self) -> String {
        let name = match self {
            Self::Cpu => "cpu".into(),
            Self::MilliCpu => "milliCpu".into(),
            Self::Memory => "memory".into(),
            Self::Hugepages(size) => format!("hugepages{}", of_bytes(size)),
        };
        format!("{DRIVER}/{name}")
    }

    /// The capacity of this key.
    pub fn parse(key: &str) -> Option<Self> {
        match key.strip_prefix(DRIVER)?.strip_prefix('/')? {
            "cpu" => Some(Self::Cpu),
            "milliCpu" => Some(Self::MilliCpu),
            "memory" => Some(Self::Memory),
            other => {
                let size = quantity::exact(other.strip_prefix("hugepages")?)?;
                Some(Self::Hugepages(size)).filter(|own| own.key() == key)
            }
        }
    }

    /// Name of the same resource among those of a node; none if the node has none like it.
    pub fn node_resource(self) -> Option<String> {
        match self {
            Self::Cpu => Some("cpu".into()),
            Self::MilliCpu => None,
            Self::Memory => Some("memory".into()),
            Self::Hugepages(size) => Some(format!("hugepages-{}", of_bytes(size))),
        }
    }
}

impl ClaimUid {
    /// The uid, if it is one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_uid = !text.is_empty() && text.len() <= MAX_UID && text.bytes().all(is_fit);
        let is_bounded = !text.starts_with('-') && !text.ends_with('-');
        (is_uid && is_bounded).then(|| Self(text.into()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClaimUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_one_spelling() {
        for name in ["ne-numa0", "ne-numa1023", "ne-core4"] {
            assert_eq!(DeviceName::parse(name).unwrap().to_string(), name);
        }
        for name in ["ne-numa", "ne-numa01", "ne-numa+1", "ne-numa1024", "numa0", "ne-core8192", "ne-numa0/x"]
        {
            assert_eq!(DeviceName::parse(name), None, "{name}");
        }
        for key in ["cpu", "milliCpu", "memory", "hugepages2Mi", "hugepages1Gi"] {
            let key = format!("numa-enforcer.io/{key}");
            assert_eq!(ClaimCapacity::parse(&key).unwrap().key(), key);
        }
        for key in ["cpu", "numa-enforcer.io/cpus", "numa-enforcer.io/hugepages2048Ki", "dra.cpu/cpu", ""] {
            assert_eq!(ClaimCapacity::parse(key), None, "{key}");
        }
    }

    #[test]
    fn uid_is_safe_in_paths_and_variables() {
        assert!(ClaimUid::parse("3c0f6b5e-1d2a-4f7e-9a51-0a1b2c3d4e5f").is_some());
        for text in ["", "-a", "a-", "../a", "a/b", "a=b", "a b", "ä", &"a".repeat(65)] {
            assert_eq!(ClaimUid::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = (DeviceName::parse(&text), ClaimCapacity::parse(&text), ClaimUid::parse(&text));
        }
    }
}
