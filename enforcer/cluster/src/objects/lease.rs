//! A Lease by which the daemon of a node shows that it lives.

use enforcer_core::cluster::objects::LeaseObject;
use serde::Deserialize;

use super::{ObjectMetadata, seconds};

/// What the name of such a lease begins with; the name of the node follows.
pub const LEASE_PREFIX: &str = "numa-enforcer-";

#[derive(Deserialize)]
struct Lease {
    metadata: ObjectMetadata,
    #[serde(default)]
    spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LeaseSpec {
    renew_time: Option<String>,
    lease_duration_seconds: Option<u32>,
}

/// Reads a Lease; `None` if it is of another program.
pub(super) fn read(text: &str) -> Result<Option<LeaseObject>, String> {
    let Lease { metadata, spec } = serde_json::from_str(text).map_err(|fault| fault.to_string())?;
    let Some(node) = metadata.name.strip_prefix(LEASE_PREFIX) else { return Ok(None) };
    Ok(Some(LeaseObject {
        node: node.to_owned(),
        renewed_at: seconds(spec.renew_time.as_deref()),
        duration_s: spec.lease_duration_seconds.unwrap_or(0),
    }))
}
