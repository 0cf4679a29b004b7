//! `[[placement.rule]]`: other settings for some pods.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Engine, NumaAllocationStrategy, Scope, TopologyPolicy};

/// Settings for the pods that it matches; what it leaves out is as for all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementRule {
    /// Glob over namespaces; every namespace when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Glob over names of pods; every pod when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Labels that the pod must have.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub labels: std::collections::BTreeMap<String, String>,
    /// Engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Policy of the engine `hints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<TopologyPolicy>,
    /// Scope of the engine `hints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Tie-break of the engine `hints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_allocation_strategy: Option<NumaAllocationStrategy>,
    /// Distances as a tie-break of the engine `hints`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_closest_numa_nodes: Option<bool>,
}
