//! What a container's annotations say about its place.
//!
//! Three families of keys mean the same: `KEY.numa-enforcer.io`, `KEY.resource-policy.nri.io` and
//! `KEY.cri-resource-manager.intel.com`. The nearest scope counts: `KEY/container.NAME`, then
//! `KEY/pod`, then the bare key; in one scope ours before the others, in that order. The deprecated
//! `cri-resource-manager.intel.com/KEY`, one value or a map from container to value, counts where none
//! of these is there.
//!
//! A value that cannot be read is reported and counts as absent in its scope and family, so that a
//! wider scope still decides. Annotations are the workload owner's: values are bounded when shown.

use std::time::Duration;

use super::{request::RESOURCES_KEY, topology_hints::HintRules};
use crate::policy::placement::{CpuPriority, PoolLevel};

/// What the annotations of one container say; absent where they say nothing.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an annotation of its own, with the name people know"
)]
pub struct Preferences {
    /// `prefer-isolated-cpus`, `require-isolated-cpus`.
    pub isolated: Option<IsolatedCpus>,
    /// `prefer-shared-cpus`.
    pub shared: Option<bool>,
    /// `prefer-reserved-cpus`.
    pub reserved: Option<bool>,
    /// `prefer-cpu-priority`; `default` is absent.
    pub priority: Option<CpuPriority>,
    /// `unlimited-burstable`.
    pub unlimited_burstable: Option<PoolLevel>,
    /// `hide-hyperthreads`.
    pub hide_hyperthreads: bool,
    /// `pick-resources-by-hints`.
    pub pick_by_hints: bool,
    /// `memory-type`.
    pub memory_types: Option<MemoryTypes>,
    /// `cold-start`: how long without DRAM.
    pub cold_start: Option<Duration>,
    /// `cpu.preserve`.
    pub preserve_cpu: bool,
    /// `memory.preserve`.
    pub preserve_memory: bool,
    /// `memory.strict`: its memory is never moved for others.
    pub strict_memory: bool,
    /// `topologyhints`, `allow.topologyhints`, `deny.topologyhints`, `strict.topologyhints`.
    pub hints: HintRules,
}

/// Use of isolated CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolatedCpus {
    /// Not them.
    Avoid,
    /// Where there are enough.
    Prefer,
    /// Nothing else.
    Require,
}

/// Kinds of memory, as people ask for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryTypes {
    /// Ordinary memory.
    pub dram: bool,
    /// Persistent memory, memory behind CXL, and whatever is there without CPUs and is not known to be
    /// fast.
    pub pmem: bool,
    /// High-bandwidth memory.
    pub hbm: bool,
}

/// The families of keys: what their names end with, or what comes before a name after a `/`. The one that counts
/// first first.
pub(super) const FAMILIES: [&str; 3] =
    ["numa-enforcer.io", "resource-policy.nri.io", "cri-resource-manager.intel.com"];

/// Names below `cri-resource-manager.intel.com/`, as they were once.
const DEPRECATED: [&str; 4] = ["prefer-isolated-cpus", "prefer-shared-cpus", "memory-type", "cold-start"];

/// Is the value of this annotation YAML or JSON?
pub(super) fn is_document(key: &str) -> bool {
    let (base, rest) = key.split_once('/').unwrap_or((key, ""));
    let of_family = |family: &str| base.strip_suffix(family).and_then(|name| name.strip_suffix('.'));
    key == RESOURCES_KEY
        || (FAMILIES.contains(&base) && matches!(rest, "affinity" | "anti-affinity"))
        || (base == FAMILIES[2] && DEPRECATED.contains(&rest))
        || FAMILIES.into_iter().any(|family| of_family(family) == Some("cold-start"))
}
