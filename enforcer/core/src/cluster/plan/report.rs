//! Result of a plan over many nodes, as `plan --cluster -o json` prints it.
//!
//! Keys are a contract (docs/schema/cluster-plan.schema.json). Equal input gives equal bytes.

use std::collections::BTreeMap;

use numa_topology::set::NodeSet;
use schemars::JsonSchema;
use serde::Serialize;

use super::NodeRule;
use crate::cluster::device_claims::PlannedClaim;
use crate::cluster::view::{PredictedContainer, PredictedPlace};

/// Version of [`ClusterPlanReport`]: raised when a key is removed or changes its meaning.
pub const CLUSTER_PLAN_SCHEMA_VERSION: u32 = 1;
/// Maximum number of nodes that are named for one reason.
const NAMED: usize = 3;

/// The pods of a plan, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPlanReport {
    /// Version of this format.
    pub schema_version: u32,
    /// Rule by which nodes were chosen.
    pub rule: NodeRule,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of pods with a node.
    pub placed: u64,
    /// Number of pods without one.
    pub pending: u64,
    /// One entry per pod.
    pub pods: Vec<PodPlan>,
}

/// Where one pod goes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodPlan {
    /// Namespace and name.
    pub pod: String,
    /// Its node; `null` if it stays pending.
    pub node: Option<String>,
    /// NUMA nodes of its exclusive CPUs and its memory; empty if it has none of its own.
    pub numa_nodes: NodeSet,
    /// Its containers with CPUs or memory of their own.
    pub containers: Vec<PredictedContainer>,
    /// Its claims for devices with what they get; absent if it names none, or stays pending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<PlannedClaim>,
    /// Why other nodes do not take it, as a scheduler groups it; the most frequent reason first.
    pub refused: Vec<RefusedNodes>,
}

/// Nodes that do not take a pod for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedNodes {
    /// The reason.
    pub reason: String,
    /// Number of nodes.
    pub count: u64,
    /// The first of them by name.
    pub nodes: Vec<String>,
    /// What the first of them lacks; only with `--explain`.
    pub detail: Option<String>,
}

impl PodPlan {
    pub(super) fn put(&mut self, node: &str, place: &PredictedPlace) {
        self.node = Some(node.to_owned());
        self.numa_nodes.clone_from(&place.nodes);
        let own = place.containers.iter().filter(|one| !one.cpus.is_empty() || !one.mems.is_empty());
        self.containers = own.cloned().collect();
    }
}

/// Reasons of nodes, collected.
#[derive(Debug, Default)]
pub(super) struct RefusalGroups {
    groups: BTreeMap<String, RefusedNodes>,
}

impl RefusalGroups {
    pub(super) fn add(&mut self, node: &str, reason: &str, detail: Option<String>) {
        let group = self.groups.entry(reason.to_owned()).or_insert_with(|| RefusedNodes {
            reason: reason.to_owned(),
            detail,
            ..RefusedNodes::default()
        });
        group.count += 1;
        if group.nodes.len() < NAMED {
            group.nodes.push(node.to_owned());
        }
    }

    pub(super) fn into_refused(self) -> Vec<RefusedNodes> {
        let mut all: Vec<RefusedNodes> = self.groups.into_values().collect();
        all.sort_by(|one, other| (other.count, &one.reason).cmp(&(one.count, &other.reason)));
        all
    }
}
