//! A Node object, as far as plans and checks read it.

use std::collections::BTreeMap;

use enforcer_core::cluster::{
    objects::{NodeObject, Taint},
    plan::{Amounts, CPU},
};
use numa_topology::quantity;
use serde::Deserialize;

use super::seconds;

/// Most taints of a node; no cluster has a tenth of it.
const TAINTS: usize = 256;

#[derive(Deserialize)]
struct Node {
    metadata: NodeMetadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeMetadata {
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: bool,
    taints: Vec<TaintFields>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TaintFields {
    key: String,
    value: String,
    effect: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    allocatable: BTreeMap<String, String>,
    conditions: Vec<NodeCondition>,
    #[serde(rename = "nodeInfo")]
    info: NodeSystem,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSystem {
    kubelet_version: String,
    #[serde(rename = "bootID")]
    boot_id: String,
    operating_system: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    last_heartbeat_time: Option<String>,
}

/// Reads a Node, and when its kubelet reported last; an amount that is no quantity is a fault.
pub(crate) fn read(text: &str) -> Result<(NodeObject, Option<i64>), String> {
    let Node { metadata, spec, status } =
        serde_json::from_slice(text.as_bytes()).map_err(|fault| fault.to_string())?;
    if spec.taints.len() > TAINTS {
        return Err(format!("{} taints, at most {TAINTS} are read", spec.taints.len()));
    }
    let mut allocatable = Amounts::new();
    for (resource, text) in status.allocatable {
        let amount = if resource == CPU { quantity::milli_cpus(&text) } else { quantity::whole(&text) };
        let amount = amount.ok_or_else(|| format!("status.allocatable.{resource}: no quantity: {text:?}"))?;
        allocatable.insert(resource, amount);
    }
    let taint = |TaintFields { key, value, effect }| Taint { key, value, effect };
    let is_down = |condition: &NodeCondition| condition.kind == "Ready" && condition.status != "True";
    let NodeSystem { kubelet_version, boot_id, operating_system } = status.info;
    let conditions = status.conditions.iter();
    let reported_at = conditions.filter_map(|one| seconds(one.last_heartbeat_time.as_deref())).max();
    let node = NodeObject {
        name: metadata.name,
        uid: metadata.uid,
        kubelet_version,
        boot_id,
        is_foreign_system: !matches!(operating_system.as_str(), "" | "linux"),
        is_cordoned: spec.unschedulable,
        is_ready: !status.conditions.iter().any(is_down),
        taints: spec.taints.into_iter().map(taint).collect(),
        allocatable,
        labels: metadata.labels,
    };
    Ok((node, reported_at))
}
