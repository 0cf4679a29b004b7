//! The same objects as the API server lists them, page by page.
//!
//! The first page is asked of the server's cache (`resourceVersion=0`), which costs the cluster little and
//! may be some seconds old; a server that answers from the cache may also send everything in one page. A list
//! that has changed too much since its first page (410) begins again.
//!
//! States come before pods: a pod that a state covers is in the later list too, unless it is gone.

use enforcer_core::cluster::state::{GROUP, KIND, PLURAL, VERSION};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::{ClusterObjects, ObjectsError};
use crate::{api_error::ApiError, connection::ApiConnection};

/// Objects of a page.
const PAGE: usize = 500;
/// Bytes of a page: a server that answers from its cache sends all objects at once.
const LARGEST: usize = 512 << 20;
/// How often a list begins again.
const TRIES: usize = 3;

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

/// States, nodes and pods of a cluster, and with `leases` the signs of life of daemons as far as they may be
/// read.
///
/// # Errors
/// If the server does not answer, refuses a list, or answers with something else.
pub async fn list_objects(connection: &ApiConnection, leases: bool) -> Result<ClusterObjects, ListError> {
    let mut objects = ClusterObjects::default();
    let states = format!("/apis/{GROUP}/{VERSION}/{PLURAL}");
    add_all(connection, &states, KIND, &mut objects).await.map_err(|error| match error {
        ListError::Api(ApiError::Refused { code: 404, .. }) => ListError::NoStates,
        other => other,
    })?;
    add_all(connection, "/api/v1/nodes", "Node", &mut objects).await?;
    add_all(connection, "/api/v1/pods", "Pod", &mut objects).await?;
    if leases
        && let Err(error) =
            add_all(connection, "/apis/coordination.k8s.io/v1/leases", "Lease", &mut objects).await
    {
        objects.left_out.push(error.to_string());
    }
    objects.finish();
    Ok(objects)
}

/// Adds all objects of a collection.
async fn add_all(
    connection: &ApiConnection,
    path: &str,
    kind: &str,
    objects: &mut ClusterObjects,
) -> Result<(), ListError> {
    let mut tries = 1;
    loop {
        match pages(connection, path).await {
            Err(ApiError::Busy { code: 410, .. }) if tries < TRIES => tries += 1,
            Err(error) => return Err(error.into()),
            Ok(pages) => {
                let failed = |cause| ListError::Objects { path: path.to_owned(), cause };
                for text in pages {
                    let page: Page<'_> =
                        serde_json::from_slice(&text).map_err(|cause| failed(cause.into()))?;
                    for item in page.items.unwrap_or_default() {
                        objects.add(item.get(), Some(kind)).map_err(failed)?;
                    }
                }
                return Ok(());
            }
        }
    }
}

/// All pages of a collection, as text: what was read of a list that begins again does not count.
async fn pages(connection: &ApiConnection, path: &str) -> Result<Vec<Vec<u8>>, ApiError> {
    let mut pages = Vec::new();
    let mut query = format!("limit={PAGE}&resourceVersion=0");
    loop {
        let text = connection.read_whole("list", &format!("{path}?{query}"), LARGEST).await?;
        let next =
            serde_json::from_slice::<Page<'_>>(&text).map(|page| page.metadata.token).unwrap_or_default();
        pages.push(text);
        if next.is_empty() {
            return Ok(pages);
        }
        query = format!("limit={PAGE}&continue={}", escaped(&next));
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
