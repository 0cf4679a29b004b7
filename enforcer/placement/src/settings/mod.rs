//! How pods are placed: the `[placement]` part of the configuration.
//!
//! All keys are in snake case and all values in kebab case; names of the kubelet and of the topology-aware
//! policy are aliases. A `[[placement.rule]]` and annotations override settings of the host for some pods;
//! annotations take precedence.

#[cfg(feature = "schemars")]
mod aliases;
pub mod covering;
mod cpu_amount;
mod declared;
mod duration;
pub mod glob;
pub(crate) mod glob_matcher;
mod glob_tokens;
mod hints;
mod memory_types;
pub mod name_glob;
mod names;
mod options;
mod pools;
pub mod refusal;
mod rule;
#[cfg(feature = "serde")]
pub mod whole;

use std::collections::BTreeMap;

use self::refusal::{Relation, at_odds, quoted, refused};
pub use self::{
    cpu_amount::{CpuAmount, CpuAmountError, CpuChoice},
    declared::DeclaredClass,
    duration::{DurationError, HumanDuration},
    glob::{CgroupGlob, GlobError},
    hints::{
        HintsSettings, KubeletDeviceHints, MemoryManagerPolicy, NumaAllocationStrategy, Profile, Scope,
        TopologyPolicy,
    },
    memory_types::{MemoryType, MemoryTypes, NoMemoryType},
    name_glob::{NameGlob, NameGlobError},
    names::UnknownName,
    options::{HintsOptions, NoHintsOption},
    pools::{CpuPriority, PoolLevel, PoolsSettings},
    refusal::{OtherSetting, PolicyError},
    rule::{HINTS_KEYS, PlacementRule},
};
use numa_topology::size::ByteSize;

/// Placement of pods.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = aliases::of_placement))]
#[non_exhaustive]
pub struct PlacementSettings {
    /// Engine for pods without another one from a rule or annotation.
    pub engine: PlacementEngine,
    /// CPUs that workloads may get: `cpuset:0-3`, `exclude-cpuset:0-1`, or a plain list; all when absent.
    #[cfg_attr(
        feature = "serde",
        serde(
            alias = "AvailableResources",
            alias = "availableResources",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub available: Option<AvailableResources>,
    /// Resources reserved for the system.
    #[cfg_attr(feature = "serde", serde(alias = "ReservedResources", alias = "reservedResources"))]
    pub reserved: ReservedResources,
    /// Settings of the engine `hints`.
    pub hints: HintsSettings,
    /// Settings of the engine `pools`.
    pub pools: PoolsSettings,
    /// Other settings for some pods; the first matching rule applies.
    #[cfg_attr(feature = "serde", serde(rename = "rule", skip_serializing_if = "Vec::is_empty"))]
    pub rules: Vec<PlacementRule>,
}

/// The engines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = aliases::of_engines))]
pub enum PlacementEngine {
    /// Merged hints of all resources, as in the kubelet's managers.
    #[default]
    Hints,
    /// A tree of pools, as in the topology-aware policy.
    #[cfg_attr(feature = "serde", serde(alias = "topology-aware"))]
    Pools,
}

/// Resources that workloads may get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = aliases::of_resources))]
#[non_exhaustive]
pub struct AvailableResources {
    /// `cpuset:LIST`, `exclude-cpuset:LIST` or a plain list with a comma or a range.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "cpu", alias = "CPU", skip_serializing_if = "Option::is_none")
    )]
    pub cpus: Option<CpuChoice>,
}

/// Resources reserved for the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = aliases::of_resources))]
#[non_exhaustive]
pub struct ReservedResources {
    /// `cpuset:LIST`, `exclude-cpuset:LIST`, a quantity (`750m`, `2`), or a plain list where it has a
    /// comma or a range. A bare number is a quantity: CPU 0 is `cpuset:0`. A quantity is rounded up to whole
    /// CPUs: the smallest packages that fit as a whole, then the lowest ids, whole cores first.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "cpu", alias = "CPU", skip_serializing_if = "Option::is_none")
    )]
    pub cpus: Option<CpuAmount>,
    /// Memory by node id (`"0"`), then by resource: `memory`, `hugepages-2Mi`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub memory: BTreeMap<String, BTreeMap<String, ByteSize>>,
}

impl PlacementSettings {
    /// Are pods placed as a kubelet would place them, regardless of rules, annotations and entries?
    pub fn predicts_kubelet(&self) -> bool {
        self.engine == PlacementEngine::Hints && self.hints.is_kubelet()
    }

    /// Checks relations that types cannot express: the options can be combined, for the host and under each
    /// rule, and reserved memory names valid nodes and resources.
    ///
    /// # Errors
    /// The first setting that is refused.
    pub fn validate(&self) -> Result<(), PolicyError> {
        self.hints.validate("placement.hints")?;
        if self.hints.is_kubelet() && self.engine != PlacementEngine::Hints {
            let relation = Relation::excludes("no kubelet has the engine pools");
            let profile = ("placement.hints.profile", quoted("kubelet"));
            return Err(at_odds(profile, relation, ("placement.engine", quoted("pools"))));
        }
        for (index, rule) in self.rules.iter().enumerate() {
            let section = format!("placement.rule[{index}]");
            // Settings that the rule does not have come from `placement.hints`.
            let written = |key: &str| {
                let name = key.strip_prefix(section.as_str())?.strip_prefix('.')?;
                let is_own = rule.keys_of_hints().any(|own| own == name);
                (!is_own).then(|| format!("placement.hints.{name}"))
            };
            rule.hints(&self.hints).validate(&section).map_err(|error| error.renamed(written))?;
        }
        let available = self.available.as_ref().and_then(|available| available.cpus.as_ref());
        if let Some(none @ CpuChoice::Only(cpus)) = available
            && cpus.is_empty()
        {
            return Err(refused("placement.available.cpus", format!("\"{none}\""), "no CPU is left"));
        }
        if self.reserved.cpus == Some(CpuAmount::Milli(0)) {
            let problem =
                "a bare number is an amount, and none is set aside without the key; CPU 0 is `cpuset:0`";
            return Err(refused("placement.reserved.cpus", quoted("0"), problem));
        }
        for (node, amounts) in &self.reserved.memory {
            if node.parse::<u32>().map_or(true, |id| id.to_string() != *node) {
                let problem = "the id of a node is expected";
                return Err(refused("placement.reserved.memory", quoted(node), problem));
            }
            let unknown = |name: &&String| {
                let size = name.strip_prefix("hugepages-").map(numa_topology::quantity::whole);
                *name != "memory" && size.flatten().is_none_or(|size| size == 0)
            };
            if let Some(name) = amounts.keys().find(unknown) {
                let key = format!("placement.reserved.memory.{node}");
                let problem = "memory or hugepages-SIZE is expected, as in hugepages-2Mi";
                return Err(refused(key, quoted(name), problem));
            }
        }
        Ok(())
    }
}
