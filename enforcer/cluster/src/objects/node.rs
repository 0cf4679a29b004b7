//! A Node object: what a scheduler counts of it.

use std::collections::BTreeMap;

use enforcer_core::cluster::plan::{Amounts, CPU};
use numa_topology::quantity;
use serde::Deserialize;

use super::ObjectMetadata;

/// What a plan needs of a Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeObject {
    /// Its name.
    pub name: String,
    /// Whether a scheduler may put any pod on it: not cordoned, ready, and without a taint that keeps pods
    /// away.
    pub is_schedulable: bool,
    /// `status.allocatable`.
    pub allocatable: Amounts,
}

#[derive(Deserialize)]
struct Node {
    metadata: ObjectMetadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
    taints: Vec<Taint>,
}

#[derive(Deserialize)]
struct Taint {
    effect: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    allocatable: BTreeMap<String, String>,
    conditions: Vec<NodeCondition>,
}

#[derive(Deserialize)]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl NodeObject {
    /// Reads a Node; an amount that is no quantity is a fault.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let Node { metadata, spec, status } =
            serde_json::from_str(text).map_err(|fault| fault.to_string())?;
        let mut allocatable = Amounts::new();
        for (resource, text) in status.allocatable {
            let amount = if resource == CPU { quantity::milli_cpus(&text) } else { quantity::whole(&text) };
            let amount =
                amount.ok_or_else(|| format!("status.allocatable.{resource}: no quantity: {text:?}"))?;
            allocatable.insert(resource, amount);
        }
        let keeps_away = |taint: &Taint| taint.effect != "PreferNoSchedule";
        let is_down = |condition: &NodeCondition| condition.kind == "Ready" && condition.status != "True";
        let is_schedulable = !spec.unschedulable
            && !spec.taints.iter().any(keeps_away)
            && !status.conditions.iter().any(is_down);
        Ok(Self { name: metadata.name, is_schedulable, allocatable })
    }
}
