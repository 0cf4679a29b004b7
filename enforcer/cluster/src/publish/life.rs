//! Whether a daemon lives that publishes an object.

use enforcer_core::cluster::{
    age::{DaemonLeases, DaemonLife},
    objects::StateOrigin,
};
use hyper::Method;
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    api_error::ApiError,
    connection::{ApiConnection, JSON},
    objects::{LEASE_NAMESPACE, LEASE_PREFIX, read_lease},
};

/// The life of the daemon of the node whose published state this is, by the lease that the state names.
///
/// # Errors
/// The server does not tell the lease.
pub async fn daemon_life(
    connection: &ApiConnection,
    node: &str,
    state: &Value,
) -> Result<DaemonLife, ApiError> {
    let annotations = state.pointer("/metadata/annotations");
    let namespace = annotations.and_then(|of| of.get(LEASE_NAMESPACE)).and_then(Value::as_str);
    let mut lease = None;
    if let Some(namespace) = namespace {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE_PREFIX}{node}");
        match connection.request("get", Method::GET, &path, JSON, b"").await {
            Ok(answer) => {
                let read = read_lease(&answer.body.to_string());
                let broken = |cause| ApiError::Broken { operation: format!("get {path}"), cause };
                lease = read.map_err(broken)?.and_then(|read| read.of_daemon);
            }
            Err(ApiError::Refused { code: 404, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let origin = StateOrigin { lease_namespace: namespace.map(str::to_owned), ..StateOrigin::default() };
    let now = connection.server_time().unwrap_or_else(|| Timestamp::now().as_second());
    Ok(DaemonLeases::new(&lease, true, now).life(node, &origin))
}
