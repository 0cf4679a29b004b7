//! The node that this daemon runs on, as the API server has it.

use std::{collections::BTreeMap, net::IpAddr};

use hyper::Method;
use jiff::Timestamp;
use numa_topology::quantity;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    api_error::ApiError,
    connection::{ApiConnection, JSON},
};

/// Most resources of a node that are read.
const RESOURCES: usize = 256;

/// A node of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its uid: a node that takes the same name later has another one.
    pub uid: String,
    /// Version of its kubelet, as in `v1.36.2`.
    pub kubelet_version: String,
    /// Id of the boot of the machine that the kubelet runs on; empty if not known.
    pub boot_id: String,
    /// Time of the kubelet's latest report in the object, in seconds since 1970; the version is of then.
    pub reported_at: Option<i64>,
    /// Its address within the cluster, where its kubelet listens.
    pub address: Option<IpAddr>,
    /// Number of each resource that has a domain in its name (`vendor.com/gpu`), unhealthy ones included.
    pub capacity: BTreeMap<String, u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    capacity: BTreeMap<String, String>,
    addresses: Vec<NodeAddress>,
    conditions: Vec<NodeCondition>,
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeCondition {
    #[serde(rename = "type")]
    kind: String,
    last_heartbeat_time: Option<String>,
}

#[derive(Deserialize)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    #[serde(rename = "bootID")]
    boot_id: String,
    kubelet_version: String,
}

impl ClusterNode {
    fn read(body: Value) -> Option<Self> {
        let Node { metadata, status } = serde_json::from_value(body).ok()?;
        let extended = status.capacity.into_iter().filter(|(name, _)| name.contains('/'));
        let counted = extended.filter_map(|(name, text)| Some((name, quantity::whole(&text)?)));
        let capacity = counted.take(RESOURCES).collect();
        let mut internal = status.addresses.iter().filter(|one| one.kind == "InternalIP");
        // The kubelet writes this condition itself, with each status.
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let reported_at =
            ready.and_then(|ready| ready.last_heartbeat_time.as_deref()?.parse::<Timestamp>().ok());
        Some(Self {
            uid: metadata.uid,
            kubelet_version: status.node_info.kubelet_version,
            boot_id: status.node_info.boot_id,
            reported_at: reported_at.map(Timestamp::as_second),
            address: internal.find_map(|one| one.address.parse().ok()),
            capacity,
        })
    }
}

impl ApiConnection {
    /// The node of this name.
    pub async fn node(&self, name: &str) -> Result<ClusterNode, ApiError> {
        let path = format!("/api/v1/nodes/{name}");
        let answer = self.request("get", Method::GET, &path, JSON, b"").await?;
        let code = answer.status.as_u16();
        ClusterNode::read(answer.body).ok_or_else(|| ApiError::Refused {
            operation: format!("get {path}"),
            code,
            message: "the answer is no Node".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_is_read_as_far_as_it_says_something() {
        let capacity = json!({"cpu": "8", "vendor.com/gpu": "4", "vendor.com/odd": "x", "memory": "1Gi"});
        let addresses = json!([
            {"type": "Hostname", "address": "a"}, {"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "InternalIP", "address": "fd00::7"},
        ]);
        let conditions = json!([
            {"type": "MemoryPressure", "lastHeartbeatTime": "2026-11-28T02:00:00Z"},
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "1970-01-01T00:01:40Z"},
        ]);
        let info = json!({"kubeletVersion": "v1.36.2", "bootID": "b"});
        let node = json!({
            "metadata": {"uid": "u"},
            "status": {"capacity": capacity, "addresses": addresses, "conditions": conditions, "nodeInfo": info},
        });
        let read = ClusterNode::read(node).unwrap();
        assert_eq!((read.uid.as_str(), read.kubelet_version.as_str()), ("u", "v1.36.2"));
        assert_eq!(read.capacity, [("vendor.com/gpu".to_owned(), 4)].into());
        assert_eq!(read.boot_id, "b");
        assert_eq!(read.reported_at, Some(100));
        assert_eq!(read.address, Some([10, 0, 0, 7].into()));
        assert_eq!(ClusterNode::read(json!({})), Some(ClusterNode::default()));
        assert_eq!(ClusterNode::read(json!({"status": 7})), None);
    }
}
