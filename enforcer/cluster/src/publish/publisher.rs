//! One server-side apply, and what its answer means.

use std::{collections::BTreeSet, future::pending, sync::Arc};

use hyper::Method;
use serde_json::{Map, Value, json};
use tokio::sync::watch::Receiver;

use super::{
    conditions::LeaseConditions,
    newer::{NewerEpoch, OtherWriters},
    outage::Returns,
    pace::WriteEnd,
};
use crate::{
    api_error::ApiError,
    connection::{APPLY, ApiConnection, JSON},
    objects::{BOOT_ID, LEASE_NAMESPACE},
};

/// Field manager of everything that the daemon publishes.
pub(crate) use enforcer_core::cluster::state::FIELD_MANAGER;

/// A kind of cluster scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedKind {
    /// API group.
    pub group: String,
    /// Version of the group.
    pub version: String,
    /// Name in paths.
    pub plural: String,
    /// Name in objects.
    pub kind: String,
    /// Whether the kind is the project's own, so that fields of other managers are taken over.
    pub own: bool,
}

/// An object as it is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedObject {
    /// Everything but `apiVersion`, `kind` and `metadata`.
    pub content: Map<String, Value>,
}

/// What a successful call did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The server has the object, of this resource version.
    Written(String),
    /// The server had it already: nothing was sent.
    Equal,
}

/// Publishes the object of one kind that has the node's name, and belongs to the node.
pub struct Publisher {
    connection: Arc<ApiConnection>,
    kind: PublishedKind,
    node: String,
    node_uid: NodeUid,
    /// Annotations of an object of the project's own kind.
    annotations: Map<String, Value>,
    written: Option<WrittenObject>,
    /// What the lease beside the object depends on.
    lease: Option<Arc<LeaseConditions>>,
    /// In the project's own kind: states of other writers.
    others: Option<OtherWriters>,
}

/// The uid of the node that the object belongs to.
enum NodeUid {
    Unknown,
    /// From the server: another node may have taken the name since.
    Asked(String),
    /// From the caller: that of each node that takes the name.
    Followed(Receiver<String>),
}

/// What the server has, as far as its answers told.
struct WrittenObject {
    object: PublishedObject,
    version: String,
}

impl Publisher {
    /// Nothing is published yet.
    pub fn new(connection: Arc<ApiConnection>, kind: PublishedKind, node: String) -> Self {
        let (node_uid, annotations) = (NodeUid::Unknown, Map::new());
        Self { connection, kind, node, node_uid, annotations, written: None, lease: None, others: None }
    }

    /// The same with the uid of the node, which changes when another node takes the name: the server is not
    /// asked for it.
    #[must_use]
    pub fn with_node_uid(self, uid: Receiver<String>) -> Self {
        Self { node_uid: NodeUid::Followed(uid), ..self }
    }

    /// The same, beside [`keep_lease`](super::keep_lease): the object of the project's own kind names
    /// the lease's namespace, so that its readers know which lease counts, and the lease is renewed only
    /// while the object is up to date.
    #[must_use]
    pub fn with_lease(self, conditions: Arc<LeaseConditions>) -> Self {
        let namespace = self.connection.namespace().to_owned();
        Self { lease: Some(conditions), ..self.annotated(LEASE_NAMESPACE, namespace) }
    }

    /// The same on a machine of this boot: the object of the project's own kind names it, so that its readers
    /// know it from one of before the machine started.
    #[must_use]
    pub fn with_boot(self, boot_id: String) -> Self {
        self.annotated(BOOT_ID, boot_id)
    }

    /// The same, whose states have revisions: this is raised when the server keeps a newer state of a writer
    /// that no longer writes.
    #[must_use]
    pub fn with_newer(self, newer: Arc<NewerEpoch>) -> Self {
        Self { others: Some(OtherWriters::new(newer)), ..self }
    }

    /// The same with the annotations of this object about its daemon.
    #[must_use]
    pub fn with_annotations_of(mut self, live: &Value) -> Self {
        for key in [LEASE_NAMESPACE, BOOT_ID] {
            let annotations = live.pointer("/metadata/annotations");
            if let Some(value) = annotations.and_then(|of| of.get(key)).and_then(Value::as_str) {
                self = self.annotated(key, value.to_owned());
            }
        }
        self
    }

    fn annotated(mut self, key: &str, value: String) -> Self {
        self.annotations.insert(key.to_owned(), Value::String(value));
        self
    }

    /// The kind.
    pub fn kind(&self) -> &PublishedKind {
        &self.kind
    }

    /// What the lease beside the object depends on, if there is one.
    pub(super) fn lease(&self) -> Option<&LeaseConditions> {
        self.lease.as_deref()
    }

    /// Writes the object, unless the latest write had the same content.
    pub async fn publish(&mut self, object: &PublishedObject) -> Result<Published, ApiError> {
        let ended = self.write(object).await;
        if let Some(lease) = self.lease() {
            match &ended {
                Ok(_) => lease.note_written(),
                Err(error) if WriteEnd::of(error) == WriteEnd::Refused => {
                    lease.note_refused(error.to_string());
                }
                Err(_later) => {}
            }
        }
        match &ended {
            Ok(_) => self.others.iter_mut().for_each(OtherWriters::note_written),
            Err(ApiError::Refused { code: 422, .. }) if self.others.is_some() => {
                let live = self.read().await.ok().flatten();
                if let (Some(others), Some(live)) = (&mut self.others, live) {
                    others.note_refusal(object, &live);
                }
            }
            Err(_other) => {}
        }
        ended
    }

    /// Whether the next state exceeds one that the server kept instead of the last.
    pub(super) fn take_raised(&mut self) -> bool {
        self.others.as_mut().is_some_and(OtherWriters::take_raised)
    }

    /// When the server comes back.
    pub(super) fn returns(&self) -> Returns {
        Returns::of(&self.connection)
    }

    async fn write(&mut self, object: &PublishedObject) -> Result<Published, ApiError> {
        if self.written.as_ref().is_some_and(|written| written.object == *object) {
            return Ok(Published::Equal);
        }
        self.refuse_foreign().await?;
        let uid = self.node_uid().await?;
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force={}", self.path(), self.kind.own);
        let body = self.whole(object, &uid).to_string();
        // Without an answer it is unknown what the server has.
        self.written = None;
        let answer = self.connection.request("patch", Method::PATCH, &path, APPLY, body.as_bytes()).await?;
        let version = resource_version(&answer.body);
        self.written = Some(WrittenObject { object: object.clone(), version: version.clone() });
        Ok(Published::Written(version))
    }

    /// Looks whether the object is as it was written. If another program has changed or deleted it, the next
    /// call of [`Self::publish`] writes again; whether that is so.
    pub async fn check(&mut self) -> Result<bool, ApiError> {
        let Some(version) = self.written.as_ref().map(|written| written.version.clone()) else {
            return Ok(false);
        };
        let found = self.connection.request("get", Method::GET, &self.path(), JSON, b"").await;
        let same = match found {
            Ok(answer) => resource_version(&answer.body) == version,
            Err(ApiError::Refused { code: 404, .. }) => {
                // It goes with its node, which may be another one by now.
                if let NodeUid::Asked(_) = self.node_uid {
                    self.node_uid = NodeUid::Unknown;
                }
                false
            }
            Err(error) => return Err(error),
        };
        if !same {
            self.written = None;
        }
        Ok(!same)
    }

    /// Waits until another node has taken the name; the next call of [`Self::publish`] writes then.
    pub(super) async fn node_replaced(&mut self) {
        if let NodeUid::Followed(uid) = &mut self.node_uid
            && uid.changed().await.is_ok()
        {
            self.written = None;
            return;
        }
        pending::<()>().await;
    }

    /// The object as the server has it, whichever program wrote it; `None` if there is none.
    pub async fn read(&self) -> Result<Option<Value>, ApiError> {
        match self.connection.request("get", Method::GET, &self.path(), JSON, b"").await {
            Ok(answer) => Ok(Some(answer.body)),
            Err(ApiError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// In a kind of others: an object of which another manager owns content is left to that manager. The
    /// server itself refuses only fields that differ.
    async fn refuse_foreign(&self) -> Result<(), ApiError> {
        if self.kind.own || self.written.is_some() {
            return Ok(());
        }
        let Some(object) = self.read().await? else { return Ok(()) };
        match foreign_content(&object) {
            None => Ok(()),
            Some((managers, fields)) => {
                Err(ApiError::OwnedByOther { operation: format!("patch {}", self.path()), managers, fields })
            }
        }
    }

    /// Path of the object.
    pub fn path(&self) -> String {
        let PublishedKind { group, version, plural, .. } = &self.kind;
        format!("/apis/{group}/{version}/{plural}/{}", self.node)
    }

    /// The body of the apply: only what the daemon owns.
    fn whole(&self, object: &PublishedObject, uid: &str) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid});
        let mut whole = object.content.clone();
        whole.insert("apiVersion".into(), json!(format!("{}/{}", self.kind.group, self.kind.version)));
        whole.insert("kind".into(), json!(self.kind.kind));
        let mut metadata = json!({"name": self.node, "ownerReferences": [owner]});
        if self.kind.own && !self.annotations.is_empty() {
            metadata["annotations"] = Value::Object(self.annotations.clone());
        }
        whole.insert("metadata".into(), metadata);
        Value::Object(whole)
    }

    async fn node_uid(&mut self) -> Result<String, ApiError> {
        match &mut self.node_uid {
            NodeUid::Asked(uid) => return Ok(uid.clone()),
            NodeUid::Followed(uid) => return Ok(uid.borrow_and_update().clone()),
            NodeUid::Unknown => {}
        }
        let uid = self.connection.node(&self.node).await?.uid;
        self.node_uid = NodeUid::Asked(uid.clone());
        Ok(uid)
    }
}

pub(super) fn resource_version(object: &Value) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Fields of other managers that an error names.
const NAMED_FIELDS: usize = 8;

/// Names of other managers, and the first fields beside the metadata that they own.
fn foreign_content(object: &Value) -> Option<(String, Vec<String>)> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array)?;
    let (mut managers, mut fields) = (BTreeSet::new(), BTreeSet::new());
    for entry in entries {
        let manager = entry["manager"].as_str().unwrap_or("an unnamed manager");
        let owned = entry["fieldsV1"].as_object().into_iter().flatten();
        let content = owned.filter(|(field, _)| field.starts_with("f:") && *field != "f:metadata");
        for (field, below) in content.filter(|_| manager != FIELD_MANAGER) {
            managers.insert(manager);
            add_fields(&format!(".{}", field.trim_start_matches("f:")), below, &mut fields);
        }
    }
    let managers: Vec<_> = managers.into_iter().collect();
    (!managers.is_empty()).then(|| (managers.join(", "), fields.into_iter().take(NAMED_FIELDS).collect()))
}

/// Adds the paths of the fields at and below this one that have no fields below them.
fn add_fields(path: &str, owned: &Value, fields: &mut BTreeSet<String>) {
    let mut is_last = true;
    for (field, below) in owned.as_object().into_iter().flatten() {
        if let Some(name) = field.strip_prefix("f:") {
            is_last = false;
            add_fields(&format!("{path}.{name}"), below, fields);
        }
    }
    if is_last {
        fields.insert(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn managed(entries: &[(&str, &[&str])]) -> Value {
        let entries = entries.iter().map(|(manager, fields)| {
            let fields: Map<String, Value> =
                fields.iter().map(|field| (format!("f:{field}"), json!({}))).collect();
            json!({"manager": manager, "fieldsV1": fields})
        });
        json!({"metadata": {"managedFields": entries.collect::<Vec<_>>()}})
    }

    #[test]
    fn managers_of_content_are_foreign_and_those_of_labels_are_not() {
        let none: &[&str] = &[];
        for (entries, expected) in [
            (&[][..], none),
            (&[(FIELD_MANAGER, &["metadata", "zones"][..])], none),
            (&[("kubectl-label", &["metadata"])], none),
            (
                &[(FIELD_MANAGER, &["zones"]), ("nfd-master", &["zones", "attributes"])],
                &[".attributes", ".zones"],
            ),
        ] {
            let found = foreign_content(&managed(entries));
            assert_eq!(found.clone().map(|(_, fields)| fields).unwrap_or_default(), expected, "{entries:?}");
            assert!(found.is_none_or(|(managers, _)| managers == "nfd-master"));
        }
        assert_eq!(foreign_content(&json!({})), None);
    }
}
