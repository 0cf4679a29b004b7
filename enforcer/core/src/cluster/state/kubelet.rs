//! Settings of the kubelet that affect where it puts a pod.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits;

/// Settings of a kubelet, in its own spelling; empty texts are not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletProfile {
    /// Its version, as in `v1.36.2`. The rules of device hints differ by version.
    #[schemars(length(max = limits::WORD))]
    pub version: String,
    /// Start of the process, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub started_at: Option<i64>,
    /// Hash of the effective settings.
    #[schemars(length(max = limits::WORD))]
    pub config_hash: String,
    /// Source of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_from: Option<ConfigurationSource>,
    /// `cpuManagerPolicy`: `none` or `static`.
    #[schemars(length(max = 32))]
    pub cpu_policy: String,
    /// `cpuManagerPolicyOptions`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = limits::OPTIONS, "additionalProperties" = {
        "type": "string", "maxLength": limits::WORD,
    }))]
    pub cpu_options: BTreeMap<String, String>,
    /// `memoryManagerPolicy`: `None` or `Static`.
    #[schemars(length(max = 32))]
    pub memory_policy: String,
    /// `topologyManagerPolicy`.
    #[schemars(length(max = 32))]
    pub topology_policy: String,
    /// `topologyManagerScope`.
    #[schemars(length(max = 32))]
    pub topology_scope: String,
    /// `topologyManagerPolicyOptions`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = limits::OPTIONS, "additionalProperties" = {
        "type": "string", "maxLength": limits::WORD,
    }))]
    pub topology_options: BTreeMap<String, String>,
    /// Feature gates that affect placement and are set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = limits::GATES))]
    pub gates: BTreeMap<String, bool>,
}

/// Source of the kubelet's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigurationSource {
    /// The kubelet's `/configz`.
    Configz,
    /// Its files and its command line.
    Files,
}
