//! Result of a check of a cluster, as `cluster check -o json` prints it.
//!
//! Keys are a contract (docs/schema/cluster-check.schema.json). Equal input gives equal bytes.

use schemars::JsonSchema;
use serde::Serialize;
use strum::{EnumIter, IntoStaticStr};

/// Version of [`ClusterCheckReport`]: raised when a key is removed or changes its meaning.
pub const CLUSTER_CHECK_SCHEMA_VERSION: u32 = 1;

/// Findings about a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCheckReport {
    /// Version of this format.
    pub schema_version: u32,
    /// Number of Nodes.
    pub nodes: u64,
    /// Number of published states.
    pub states: u64,
    /// Number of Pods.
    pub pods: u64,
    /// Findings, by kind, node and pod.
    pub findings: Vec<ClusterFinding>,
}

impl ClusterCheckReport {
    /// Leaves the findings that an earlier look had as well: objects are read one after another, and a
    /// daemon publishes a change some seconds after it.
    #[must_use]
    pub fn lasting(mut self, earlier: &Self) -> Self {
        self.findings.retain(|one| earlier.findings.iter().any(|other| one.is_again(other)));
        self
    }
}

/// One difference between a state, its node and the pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFinding {
    /// Its kind.
    pub finding: ClusterFindingKind,
    /// Name of the state and of its node.
    pub node: String,
    /// Namespace and name of the pod, or its uid; `null` if it is about no single pod.
    pub pod: Option<String>,
    /// What differs.
    pub reason: String,
}

impl ClusterFinding {
    /// Reasons have times, which differ from look to look.
    fn is_again(&self, other: &Self) -> bool {
        (self.finding, &self.node, &self.pod) == (other.finding, &other.node, &other.pod)
    }
}

/// Kind of a finding, the one that says most about the others first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema, EnumIter, IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ClusterFindingKind {
    /// A node without a state.
    Missing,
    /// A state of no node, of another node, of another version, or written by another program.
    Foreign,
    /// A state that is older than what it describes, or that no daemon keeps up.
    Stale,
    /// A state from which no exact prediction follows.
    Inexact,
    /// Something that a pod holds and does not need.
    Leaked,
    /// A pod that holds something, and the state does not have it.
    Uncovered,
}

impl ClusterFindingKind {
    /// Its name, as in the report.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// What it means, in few words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Missing => "nodes without a state",
            Self::Foreign => "states of no node, of another node or version, or written by another program",
            Self::Stale => "states that are older than what they describe",
            Self::Inexact => "states from which no exact prediction follows",
            Self::Leaked => "what pods hold and do not need",
            Self::Uncovered => "pods that hold something, and the state does not have it",
        }
    }
}
