//! A sign of life of the daemon: a Lease that it renews.
//!
//! Problem: a published state stays in the cluster when its daemon has ended, and nothing in it says so.
//! Renewing the state itself would cost each of its readers an event. Idea: a Lease in the namespace of the
//! daemon, as the kubelet has one for its node; readers compare its time with their own.
//!
//! Invariants: one write at most between two renewals, whatever the server answers. A lease that cannot be
//! written delays nothing else, and is named. It is renewed only while the state beside it is true
//! ([`LeaseConditions`]).

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use hyper::Method;
use jiff::Timestamp;
use numa_topology::degraded::Degraded;
use serde_json::json;
use tokio::{sync::watch::Sender, time::sleep};

use super::{
    conditions::{LeaseConditions, Unrenewable},
    outage::Returns,
    publisher::FIELD_MANAGER,
};
use crate::{
    api_error::ApiError,
    connection::{APPLY, ApiConnection},
    newest::send_if_different,
    objects::LEASE_PREFIX,
};

/// Seconds for which a renewal counts.
const DURATION_S: u64 = 60;
/// Effect of a lease that is not renewed.
const EFFECT: &str = "readers of the node's state take it as that of a daemon that has ended";

/// Longest time between two looks at the conditions of a lease that is not renewed.
const LOOK: Duration = Duration::from_secs(1);

/// Times of the renewals of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewalTimes {
    /// Time between two.
    pub renewal: Duration,
    /// Time until the next one after the server has come back, which differs from node to node.
    pub after_return: Duration,
}

/// Renews the lease of a node's daemon, as soon as the conditions hold and then again and again.
/// `degraded` is set while it cannot, or they no longer hold.
pub async fn keep_lease(
    connection: &ApiConnection,
    node: &str,
    RenewalTimes { renewal, after_return }: RenewalTimes,
    conditions: &LeaseConditions,
    degraded: &Sender<Option<Degraded>>,
) -> Infallible {
    let mut returns = Returns::of(connection);
    loop {
        returns.forget();
        let (reason, wait) = match conditions.check(Instant::now()) {
            Ok(()) => tokio::select! {
                renewed = renew(connection, node) => (renewed.err().map(|error| error.to_string()), renewal),
                // An answer to a request of before may never come.
                () = returns.next() => {
                    sleep(after_return).await;
                    continue;
                }
            },
            Err(Unrenewable::NotYet) => (None, LOOK.min(renewal)),
            Err(Unrenewable::Fault(reason)) => (Some(reason), LOOK.min(renewal)),
        };
        let entry = reason.map(|reason| Degraded::new("publish:lease", reason, EFFECT));
        send_if_different(degraded, entry);
        tokio::select! {
            () = sleep(wait) => {}
            () = returns.next() => sleep(after_return.min(wait)).await,
        }
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
