//! A sign of life of the daemon: a Lease that it renews.
//!
//! Problem: a published state stays in the cluster when its daemon has ended, and nothing in it says so.
//! Renewing the state itself would cost each of its readers an event. Idea: a Lease in the namespace of the
//! daemon, as the kubelet has one for its node; readers compare its time with their own.
//!
//! Invariants: one write at most between two renewals, whatever the server answers. A lease that cannot be
//! written delays nothing else, and is named.

use std::{convert::Infallible, time::Duration};

use hyper::Method;
use jiff::Timestamp;
use numa_topology::degraded::Degraded;
use serde_json::json;
use tokio::{sync::watch::Sender, time::sleep};

use super::publisher::FIELD_MANAGER;
use crate::{
    api_error::ApiError,
    connection::{APPLY, ApiConnection},
    objects::LEASE_PREFIX,
};

/// Seconds for which a renewal counts.
const DURATION_S: u64 = 60;
/// Effect of a lease that is not renewed.
const EFFECT: &str = "readers of the node's state take it as that of a daemon that has ended";

/// Renews the lease of a node's daemon, at once and then every `renewal`. `degraded` is set while it cannot.
pub async fn keep_lease(
    connection: &ApiConnection,
    node: &str,
    renewal: Duration,
    degraded: &Sender<Option<Degraded>>,
) -> Infallible {
    loop {
        let ended = renew(connection, node).await;
        let entry = ended.err().map(|error| Degraded::new("publish:lease", error.to_string(), EFFECT));
        degraded.send_if_modified(|now| {
            let differs = *now != entry;
            *now = entry;
            differs
        });
        sleep(renewal).await;
    }
}

async fn renew(connection: &ApiConnection, node: &str) -> Result<(), ApiError> {
    let (namespace, name) = (connection.namespace(), format!("{LEASE_PREFIX}{node}"));
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": FIELD_MANAGER}},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": DURATION_S, "renewTime": now},
    });
    let query = format!("{path}?fieldManager={FIELD_MANAGER}&force=true");
    connection.request("patch", Method::PATCH, &query, APPLY, lease.to_string().as_bytes()).await.map(drop)
}
