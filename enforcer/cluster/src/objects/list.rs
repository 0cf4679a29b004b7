//! The same objects as the API server lists them, page by page.
//!
//! Problem: a cluster has hundreds of megabytes of pods as text. A server that is asked for its cache
//! (`resourceVersion=0`) ignores `limit` and sends them in one answer. Idea: ask for pages of the newest
//! version, and read each page before the next one is asked for. So one page is there as text at any time,
//! and what is kept of the objects before it. A list that has changed too much since its first page (410)
//! begins again.
//!
//! States come before pods: a pod that a state covers is in the later list too, unless it is gone.

use std::time::Duration;

use enforcer_core::cluster::state::{GROUP, KIND, PLURAL, VERSION};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::{ClusterObjects, DEVICE_GROUP, ObjectsError};
use crate::{api_error::ApiError, connection::ApiConnection};

/// Objects of a page.
const PAGE: usize = 500;
/// Bytes of a page; pods of a cluster have ten to twenty kilobytes.
const LARGEST: usize = 128 << 20;
/// How often a list is tried that expires.
const TRIES: usize = 3;
/// How often a page is asked of a server that has too much to do.
const BUSY_TRIES: usize = 5;
/// Time between two tries of it, if the server names none.
const BUSY_WAIT: Duration = Duration::from_secs(1);
/// Path of all leases.
const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";

/// Collections of claims for devices, and their kinds.
const DEVICE_PLURALS: [(&str, &str); 4] = [
    ("resourceslices", "ResourceSlice"),
    ("deviceclasses", "DeviceClass"),
    ("resourceclaimtemplates", "ResourceClaimTemplate"),
    ("resourceclaims", "ResourceClaim"),
];

/// Why the objects of a cluster are not known.
#[derive(Debug, Error)]
pub enum ListError {
    /// The server did not answer, or refused.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The cluster has no such objects.
    #[error(
        "the cluster does not know the kind {KIND}: no daemon publishes there, or its definition is missing"
    )]
    NoStates,
    /// The answer is no list.
    #[error("list {path}: {cause}")]
    Objects {
        /// What was listed.
        path: String,
        /// What is wrong with the answer.
        cause: ObjectsError,
    },
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PageMetadata {
    #[serde(rename = "continue")]
    token: String,
}

/// States, nodes and pods of a cluster, and the signs of life of daemons as far as they may be read.
///
/// # Errors
/// If the server does not answer, refuses a list, or answers with something else.
pub async fn list_objects(connection: &ApiConnection) -> Result<ClusterObjects, ListError> {
    let mut objects = ClusterObjects::default();
    let states = format!("/apis/{GROUP}/{VERSION}/{PLURAL}");
    add_all(connection, &states, KIND, &mut objects).await.map_err(|error| match error {
        ListError::Api(ApiError::Refused { code: 404, .. }) => ListError::NoStates,
        other => other,
    })?;
    add_all(connection, "/api/v1/nodes", "Node", &mut objects).await?;
    add_all(connection, "/api/v1/pods", "Pod", &mut objects).await?;
    match add_all(connection, LEASES, "Lease", &mut objects).await {
        Ok(()) => objects.has_all_leases = true,
        Err(error) => objects.leave_out(error.to_string()),
    }
    objects.finish();
    objects.now = connection.server_time().unwrap_or(objects.now);
    Ok(objects)
}

/// Adds slices, classes, templates and claims, as far as the cluster has them and they may be read.
pub async fn list_devices(connection: &ApiConnection, objects: &mut ClusterObjects) {
    for (plural, kind) in DEVICE_PLURALS {
        match add_all(connection, &format!("/apis/{DEVICE_GROUP}/v1/{plural}"), kind, objects).await {
            Ok(()) => {}
            // A cluster before 1.34 has no claims in this version.
            Err(ListError::Api(ApiError::Refused { code: 404, .. })) => return,
            Err(error) => objects.leave_out(error.to_string()),
        }
    }
}

/// Adds all objects of a collection. What was read of a list that begins again does not count.
async fn add_all(
    connection: &ApiConnection,
    path: &str,
    kind: &str,
    objects: &mut ClusterObjects,
) -> Result<(), ListError> {
    let mut tries = 1;
    loop {
        match pages(connection, path, kind).await {
            Err(ListError::Api(ApiError::Busy { code: 410, .. })) if tries < TRIES => tries += 1,
            Err(error) => return Err(error),
            Ok(read) => {
                objects.append(read);
                return Ok(());
            }
        }
    }
}

/// All objects of a collection, page by page.
async fn pages(connection: &ApiConnection, path: &str, kind: &str) -> Result<ClusterObjects, ListError> {
    let failed = |cause| ListError::Objects { path: path.to_owned(), cause };
    let mut objects = ClusterObjects::default();
    let mut query = format!("limit={PAGE}");
    loop {
        let text = page(connection, &format!("{path}?{query}")).await?;
        let page: Page<'_> = serde_json::from_slice(&text).map_err(|cause| failed(cause.into()))?;
        for item in page.items.unwrap_or_default() {
            objects.add(item.get(), Some(kind)).map_err(failed)?;
        }
        if page.metadata.token.is_empty() {
            return Ok(objects);
        }
        query = format!("limit={PAGE}&continue={}", escaped(&page.metadata.token));
    }
}

/// One page as text; a server that has too much to do is asked again when it wants.
async fn page(connection: &ApiConnection, path: &str) -> Result<Vec<u8>, ApiError> {
    let mut tries = 1;
    loop {
        match connection.read_whole("list", path, LARGEST).await {
            Err(ApiError::Busy { code: 429, retry_after, .. }) if tries < BUSY_TRIES => {
                tries += 1;
                tokio::time::sleep(retry_after.unwrap_or(BUSY_WAIT)).await;
            }
            ended => return ended,
        }
    }
}

/// A token as the value of a parameter.
fn escaped(token: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    token
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
