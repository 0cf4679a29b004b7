//! A Lease: the sign of life of a daemon of this program, or of a kubelet.

use std::collections::BTreeMap;

use enforcer_core::cluster::objects::LeaseObject;
use serde::Deserialize;

use super::{
    seconds,
    state::{ManagedFields, written_at},
};

/// What the name of a daemon's lease begins with; the name of the node follows.
pub const LEASE_PREFIX: &str = "numa-enforcer-";
/// Annotation of a published object: the namespace of the lease of the daemon that writes it.
pub const LEASE_NAMESPACE: &str = "numa-enforcer.io/lease-namespace";
/// Label of a lease by which one of several replicas works, and its value: it is no sign of life of a daemon,
/// whatever its name begins with.
pub(crate) const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "election");
/// Namespace of the kubelets' leases, which have the names of their nodes.
const OF_KUBELETS: &str = "kube-node-lease";

#[derive(Deserialize)]
struct Lease {
    metadata: LeaseMetadata,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseMetadata {
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    managed_fields: Vec<ManagedFields>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Option<String>,
    lease_duration_seconds: Option<u32>,
}

/// What was read of a Lease.
#[derive(Debug, Default)]
pub(crate) struct ReadLease {
    /// The sign of life of a daemon, if it is that.
    pub(crate) of_daemon: Option<LeaseObject>,
    /// The node whose clock its time of renewal is of.
    pub(super) node: String,
    /// When it was renewed, by the clock of the node.
    pub(super) renewed_at: Option<i64>,
    /// The same by the clock of the API server, as far as the list shows that.
    pub(super) written_at: Option<i64>,
}

/// Reads a Lease; `None` if it is of another program.
pub(crate) fn read(text: &str) -> Result<Option<ReadLease>, String> {
    let Lease { metadata, spec } =
        serde_json::from_slice(text.as_bytes()).map_err(|fault| fault.to_string())?;
    let LeaseMetadata { name, namespace, labels, managed_fields } = metadata;
    let renewed_at = seconds(spec.renew_time.as_deref());
    if namespace == OF_KUBELETS {
        return Ok(Some(ReadLease { node: name, renewed_at, ..ReadLease::default() }));
    }
    let is_of_election = labels.get(COMPONENT.0).is_some_and(|component| component == COMPONENT.1);
    let Some(node) = name.strip_prefix(LEASE_PREFIX).filter(|_| !is_of_election) else { return Ok(None) };
    let written_at = written_at(&managed_fields);
    let of_daemon = LeaseObject {
        namespace,
        node: node.to_owned(),
        renewed_at: written_at.or(renewed_at),
        duration_s: spec.lease_duration_seconds.unwrap_or(0),
    };
    let node = node.to_owned();
    Ok(Some(ReadLease { of_daemon: Some(of_daemon), node, renewed_at, written_at }))
}
