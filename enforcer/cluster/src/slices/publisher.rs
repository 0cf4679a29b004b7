//! The calls for slices, and which fields the API server keeps.

use std::sync::Arc;

use enforcer_core::dra::slice::{DroppedFields, ResourceSlice, dropped};
use hyper::Method;
use serde_json::{Value, json};

use super::plan::{SliceWrite, StoredSlice, writes};
use crate::{
    api_error::ApiError,
    claim_object::is_object_name,
    connection::{ApiConnection, JSON},
};

/// All slices.
pub(super) const PATH: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// What the API server keeps of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptFields {
    /// Amounts that claims share out (`DRAConsumableCapacity`).
    pub consumable_capacity: bool,
    /// The mapping to amounts of the node, in the shape that was tried.
    pub node_allocatable: bool,
}

impl From<DroppedFields> for KeptFields {
    fn from(dropped: DroppedFields) -> Self {
        Self {
            consumable_capacity: !dropped.consumable_capacity,
            node_allocatable: !dropped.node_allocatable,
        }
    }
}

/// A call that was done.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are two at a time")]
pub(super) enum DoneCall {
    /// A slice was deleted.
    Deleted,
    /// A slice is stored.
    Stored {
        /// As it was sent.
        sent: ResourceSlice,
        /// As the server has it; `None` if that cannot be read.
        kept: Option<ResourceSlice>,
    },
}

/// Writes the slices of one driver and node.
pub struct SlicePublisher {
    connection: Arc<ApiConnection>,
}

impl SlicePublisher {
    /// Over this connection.
    #[must_use]
    pub const fn new(connection: Arc<ApiConnection>) -> Self {
        Self { connection }
    }

    pub(super) fn connection(&self) -> &ApiConnection {
        &self.connection
    }

    /// Asks the server, which stores nothing, what it would keep of this slice.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the slice.
    pub async fn probe(&self, slice: &ResourceSlice) -> Result<KeptFields, ApiError> {
        let body = slice.to_json(0).to_string();
        let path = format!("{PATH}?dryRun=All");
        let answer = self.connection.request("create", Method::POST, &path, JSON, body.as_bytes()).await?;
        let broken = |cause: String| ApiError::Broken { operation: format!("create {PATH}"), cause };
        let kept = ResourceSlice::read(&answer.body).map_err(|error| broken(error.to_string()))?;
        Ok(dropped(slice, &kept).into())
    }

    async fn call(&self, call: &SliceWrite<'_>) -> Result<Value, ApiError> {
        let (verb, method, path, body) = match call {
            SliceWrite::Create(at, slice) => ("create", Method::POST, PATH.to_owned(), slice.to_json(*at)),
            SliceWrite::Replace(stored, slice) => {
                let mut object = slice.to_json(0);
                object["metadata"]["name"] = json!(stored.name);
                object["metadata"]["uid"] = json!(stored.uid);
                object["metadata"]["resourceVersion"] = json!(stored.version);
                ("update", Method::PUT, format!("{PATH}/{}", stored.name), object)
            }
            SliceWrite::Delete(stored) => {
                let seen = json!({"uid": stored.uid, "resourceVersion": stored.version});
                ("delete", Method::DELETE, format!("{PATH}/{}", stored.name), json!({"preconditions": seen}))
            }
        };
        let answer = self.connection.request(verb, method, &path, JSON, body.to_string().as_bytes()).await;
        match answer {
            Err(ApiError::Refused { code: 404, .. }) if matches!(call, SliceWrite::Delete(_)) => {
                Ok(Value::Null)
            }
            answer => answer.map(|answer| answer.body),
        }
    }
}

/// Writes slices.
pub(super) trait SliceWriter {
    /// Makes the stored slices as they are wanted. `done` has each call that was done.
    ///
    /// # Errors
    /// Of the first call that fails; the rest is not done.
    fn write(
        &self,
        stored: &[StoredSlice],
        wanted: &(dyn Fn(u64) -> Vec<ResourceSlice> + Sync),
        done: &mut Vec<DoneCall>,
    ) -> impl Future<Output = Result<(), ApiError>> + Send;
}

impl SliceWriter for SlicePublisher {
    async fn write(
        &self,
        stored: &[StoredSlice],
        wanted: &(dyn Fn(u64) -> Vec<ResourceSlice> + Sync),
        done: &mut Vec<DoneCall>,
    ) -> Result<(), ApiError> {
        for call in writes(stored, wanted) {
            let answer = self.call(&call).await?;
            done.push(match call {
                SliceWrite::Delete(_) => DoneCall::Deleted,
                SliceWrite::Create(_, sent) | SliceWrite::Replace(_, sent) => {
                    DoneCall::Stored { sent, kept: ResourceSlice::read(&answer).ok() }
                }
            });
        }
        Ok(())
    }
}

/// A slice as the server tells it; `None` for one of another driver or node, whatever was asked for, and for
/// one without a usable name.
pub(super) fn read_stored(object: &Value, (driver, node): (&str, &str)) -> Option<StoredSlice> {
    let text = |key: &str| object.pointer(key).and_then(Value::as_str).map(str::to_owned);
    if text("/spec/driver")? != driver || text("/spec/nodeName")? != node {
        return None;
    }
    let name = text("/metadata/name")?;
    // It becomes a part of a path.
    is_object_name(&name).then_some(StoredSlice {
        name,
        uid: text("/metadata/uid").unwrap_or_default(),
        version: text("/metadata/resourceVersion").unwrap_or_default(),
        slice: ResourceSlice::read(object).ok(),
    })
}
