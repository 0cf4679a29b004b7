//! `[[placement.rule]]`: other settings for some pods.
//!
//! A rule has matchers for pods and the settings that differ for them. Globs are compiled when the
//! configuration is read, so matching is cheap and cannot fail.

use std::collections::BTreeMap;

use super::{
    HintsSettings, MemoryManagerPolicy, NumaAllocationStrategy, PlacementEngine, Scope, TopologyPolicy,
    covering::Effort, name_glob::covers_optional,
};
use crate::settings::NameGlob;

/// What a rule may set of `placement.hints`, from one list of keys; the one in brackets is optional there as
/// well.
macro_rules! overrides {
    ($($key:ident),+, [$optional:ident], $($more:ident),+) => {
        /// Keys of `placement.hints` that a rule may also have.
        pub const HINTS_KEYS: &[&str] = &[$(stringify!($key),)+ stringify!($optional), $(stringify!($more)),+];

        impl PlacementRule {
            /// The settings of the engine `hints` for the pods that it matches.
            #[must_use]
            pub fn hints(&self, host: &HintsSettings) -> HintsSettings {
                HintsSettings {
                    $($key: self.$key.unwrap_or(host.$key),)+
                    $optional: self.$optional.or(host.$optional),
                    $($more: self.$more.unwrap_or(host.$more),)+
                    ..host.clone()
                }
            }

            /// The keys of this rule that the engine `hints` reads.
            pub fn keys_of_hints(&self) -> impl Iterator<Item = &'static str> {
                let written = [$(self.$key.is_some(),)+ self.$optional.is_some(), $(self.$more.is_some()),+];
                HINTS_KEYS.iter().zip(written).filter_map(|(key, written)| written.then_some(*key))
            }
        }
    };
}

/// Settings for the pods that it matches; absent ones are those of the host.
#[derive(Debug, Clone, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemars", schemars(transform = super::aliases::of_rule))]
#[non_exhaustive]
pub struct PlacementRule {
    /// Glob over namespaces; every namespace when absent.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub namespace: Option<NameGlob>,
    /// Glob over names of pods; every pod when absent.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub pod: Option<NameGlob>,
    /// Labels that the pod must have.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub labels: BTreeMap<String, String>,
    /// Engine.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub engine: Option<PlacementEngine>,
    /// Policy of the engine `hints`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub policy: Option<TopologyPolicy>,
    /// Scope of the engine `hints`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub scope: Option<Scope>,
    /// As `hints.memory_manager_policy`.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "memoryManagerPolicy", skip_serializing_if = "Option::is_none")
    )]
    pub memory_manager_policy: Option<MemoryManagerPolicy>,
    /// Tie-break of the engine `hints`.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "numa-allocation-strategy", skip_serializing_if = "Option::is_none")
    )]
    pub numa_allocation_strategy: Option<NumaAllocationStrategy>,
    /// Distances as a tie-break of the engine `hints`.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "prefer-closest-numa-nodes", skip_serializing_if = "Option::is_none")
    )]
    pub prefer_closest_numa_nodes: Option<bool>,
    /// As `hints.full_pcpus_only`.
    #[cfg_attr(feature = "serde", serde(alias = "full-pcpus-only", skip_serializing_if = "Option::is_none"))]
    pub full_pcpus_only: Option<bool>,
    /// As `hints.distribute_cpus_across_numa`.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "distribute-cpus-across-numa", skip_serializing_if = "Option::is_none")
    )]
    pub distribute_cpus_across_numa: Option<bool>,
    /// As `hints.distribute_cpus_across_cores`.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "distribute-cpus-across-cores", skip_serializing_if = "Option::is_none")
    )]
    pub distribute_cpus_across_cores: Option<bool>,
    /// As `hints.align_by_socket`.
    #[cfg_attr(feature = "serde", serde(alias = "align-by-socket", skip_serializing_if = "Option::is_none"))]
    pub align_by_socket: Option<bool>,
    /// As `hints.prefer_align_cpus_by_uncore_cache`.
    #[cfg_attr(
        feature = "serde",
        serde(
            alias = "prefer-align-cpus-by-uncorecache",
            alias = "prefer_align_cpus_by_uncorecache",
            skip_serializing_if = "Option::is_none"
        )
    )]
    pub prefer_align_cpus_by_uncore_cache: Option<bool>,
    /// As `hints.strict_cpu_reservation`: these pods do not run on reserved CPUs.
    #[cfg_attr(
        feature = "serde",
        serde(alias = "strict-cpu-reservation", skip_serializing_if = "Option::is_none")
    )]
    pub strict_cpu_reservation: Option<bool>,
    /// As `hints.strict_memory_groups`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub strict_memory_groups: Option<bool>,
    /// As `hints.align_all_qos`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub align_all_qos: Option<bool>,
}

overrides! {
    policy, scope, memory_manager_policy, numa_allocation_strategy, [prefer_closest_numa_nodes], full_pcpus_only,
    distribute_cpus_across_numa, distribute_cpus_across_cores, align_by_socket, prefer_align_cpus_by_uncore_cache,
    strict_cpu_reservation, strict_memory_groups, align_all_qos
}

impl PlacementRule {
    /// Does it match the pod of this name with these labels?
    pub fn matches(&self, namespace: &str, pod: &str, labels: &BTreeMap<String, String>) -> bool {
        let named = |glob: &Option<NameGlob>, name: &str| glob.as_ref().is_none_or(|glob| glob.matches(name));
        named(&self.namespace, namespace)
            && named(&self.pod, pod)
            && self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// Does it match every pod that the other one matches?
    pub fn is_about_all_of(&self, other: &Self, effort: &mut Effort) -> bool {
        effort.take_pair()
            && covers_optional(self.namespace.as_ref(), other.namespace.as_ref(), effort)
            && covers_optional(self.pod.as_ref(), other.pod.as_ref(), effort)
            && self.labels.iter().all(|(key, value)| other.labels.get(key) == Some(value))
    }
}
