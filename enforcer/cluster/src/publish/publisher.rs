//! One server-side apply, and what its answer means.

use std::sync::Arc;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::error::PublishError;
use crate::connection::{ApiAnswer, ApiConnection};

/// Field manager of everything that the daemon publishes.
pub(crate) const FIELD_MANAGER: &str = "numa-enforcer";

const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";

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
    written: Option<WrittenObject>,
}

/// The uid of the node that the object belongs to.
enum NodeUid {
    Unknown,
    /// From the server: another node may have taken the name since.
    Asked(String),
    /// From the caller.
    Told(String),
}

/// What the server has, as far as its answers told.
struct WrittenObject {
    object: PublishedObject,
    version: String,
}

impl Publisher {
    /// Nothing is published yet.
    pub fn new(connection: Arc<ApiConnection>, kind: PublishedKind, node: String) -> Self {
        Self { connection, kind, node, node_uid: NodeUid::Unknown, written: None }
    }

    /// The same with a uid of the node that the caller knows: the server is not asked for it.
    #[must_use]
    pub fn with_node_uid(self, uid: String) -> Self {
        Self { node_uid: NodeUid::Told(uid), ..self }
    }

    /// The kind.
    pub fn kind(&self) -> &PublishedKind {
        &self.kind
    }

    /// Writes the object, unless the latest write had the same content.
    pub async fn publish(&mut self, object: &PublishedObject) -> Result<Published, PublishError> {
        if self.written.as_ref().is_some_and(|written| written.object == *object) {
            return Ok(Published::Equal);
        }
        let uid = self.node_uid().await?;
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force={}", self.path(), self.kind.own);
        let body = self.whole(object, &uid).to_string();
        // Without an answer it is unknown what the server has.
        self.written = None;
        let answer = self.ask("patch", Method::PATCH, &path, APPLY, body.as_bytes()).await?;
        let version = resource_version(&answer.body);
        self.written = Some(WrittenObject { object: object.clone(), version: version.clone() });
        Ok(Published::Written(version))
    }

    /// Looks whether the object is as it was written. If another program has changed or deleted it, the next
    /// call of [`Self::publish`] writes again; whether that is so.
    pub async fn check(&mut self) -> Result<bool, PublishError> {
        let Some(version) = self.written.as_ref().map(|written| written.version.clone()) else {
            return Ok(false);
        };
        let found = self.ask("get", Method::GET, &self.path(), JSON, b"").await;
        let same = match found {
            Ok(answer) => resource_version(&answer.body) == version,
            Err(PublishError::Refused { code: 404, .. }) => {
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

    fn path(&self) -> String {
        let PublishedKind { group, version, plural, .. } = &self.kind;
        format!("/apis/{group}/{version}/{plural}/{}", self.node)
    }

    /// The body of the apply: only what the daemon owns.
    fn whole(&self, object: &PublishedObject, uid: &str) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid});
        let mut whole = object.content.clone();
        whole.insert("apiVersion".into(), json!(format!("{}/{}", self.kind.group, self.kind.version)));
        whole.insert("kind".into(), json!(self.kind.kind));
        whole.insert("metadata".into(), json!({"name": self.node, "ownerReferences": [owner]}));
        Value::Object(whole)
    }

    async fn node_uid(&mut self) -> Result<String, PublishError> {
        if let NodeUid::Asked(uid) | NodeUid::Told(uid) = &self.node_uid {
            return Ok(uid.clone());
        }
        let path = format!("/api/v1/nodes/{}", self.node);
        let answer = self.ask("get", Method::GET, &path, JSON, b"").await?;
        let uid = answer.body.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.node_uid = NodeUid::Asked(uid.clone());
        Ok(uid)
    }

    /// Sends a request; every answer but success is an error.
    async fn ask(
        &self,
        verb: &'static str,
        method: Method,
        path: &str,
        media: &'static str,
        body: &[u8],
    ) -> Result<ApiAnswer, PublishError> {
        let shown = path.split('?').next().unwrap_or(path);
        let operation = format!("{verb} {shown}");
        match self.connection.send(method, path, media, body).await {
            Ok(answer) if answer.status.is_success() => Ok(answer),
            Ok(answer) => Err(judge(operation, verb, shown, &answer)),
            Err(cause) => Err(PublishError::Unreachable { operation, cause }),
        }
    }
}

/// What a refusal means.
fn judge(operation: String, verb: &'static str, path: &str, answer: &ApiAnswer) -> PublishError {
    let text = |pointer: &str| answer.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let message = match text("/message") {
        "" => answer.status.canonical_reason().unwrap_or("no reason told").to_owned(),
        message => message.to_owned(),
    };
    let code = answer.status.as_u16();
    match answer.status {
        StatusCode::UNAUTHORIZED => PublishError::Unauthorized { operation, message },
        StatusCode::FORBIDDEN => {
            let (group, resource) = group_and_resource(path);
            PublishError::Forbidden { operation, verb, group, resource }
        }
        StatusCode::CONFLICT => {
            let fields = conflicting_fields(&answer.body);
            if fields.is_empty() {
                let retry_after = answer.retry_after;
                return PublishError::Busy { operation, code, message, retry_after };
            }
            PublishError::OwnedByOther { operation, managers: managers(&answer.body), fields }
        }
        StatusCode::GONE | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            PublishError::Busy { operation, code, message, retry_after: answer.retry_after }
        }
        status if status.is_server_error() => {
            PublishError::Busy { operation, code, message, retry_after: answer.retry_after }
        }
        _ => PublishError::Refused { operation, code, message },
    }
}

fn resource_version(object: &Value) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The group and the resource of a path, as a rule of RBAC names them.
fn group_and_resource(path: &str) -> (String, String) {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, resource) = match parts.as_slice() {
        ["apis", group, _, resource, ..] => (*group, *resource),
        ["api", _, resource, ..] => ("", *resource),
        _ => ("", path),
    };
    (group.to_owned(), resource.to_owned())
}

fn conflict_causes(status: &Value) -> impl Iterator<Item = &Value> {
    let causes = status.pointer("/details/causes").and_then(Value::as_array).into_iter().flatten();
    causes.filter(|cause| cause["reason"] == "FieldManagerConflict")
}

fn conflicting_fields(status: &Value) -> Vec<String> {
    conflict_causes(status).filter_map(|cause| cause["field"].as_str()).map(str::to_owned).collect()
}

/// The managers in `conflict with "NAME" using numa.io/v1`, each once.
fn managers(status: &Value) -> String {
    let quoted = |cause: &Value| Some(cause["message"].as_str()?.split('"').nth(1)?.to_owned());
    let mut names: Vec<String> = conflict_causes(status).filter_map(quoted).collect();
    names.sort();
    names.dedup();
    if names.is_empty() { "another manager".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::publish::WriteEnd;

    fn judged(code: u16, body: Value) -> PublishError {
        let status = StatusCode::from_u16(code).unwrap();
        let answer = ApiAnswer { status, body, retry_after: Some(Duration::from_secs(3)) };
        judge(
            "patch /x".into(),
            "patch",
            "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/a",
            &answer,
        )
    }

    #[test]
    fn answers_decide_when_to_come_back() {
        let busy = WriteEnd::Busy(Some(Duration::from_secs(3)));
        for (code, end) in [
            (401, WriteEnd::Busy(None)),
            (403, WriteEnd::Refused),
            (404, WriteEnd::Refused),
            (409, busy),
            (410, busy),
            (422, WriteEnd::Refused),
            (429, busy),
            (500, busy),
            (504, busy),
        ] {
            assert_eq!(judged(code, Value::Null).end(), end, "{code}");
        }
    }

    #[test]
    fn missing_rule_and_other_manager_are_named() {
        let forbidden = judged(403, json!({"message": "no"})).to_string();
        assert!(
            forbidden.contains("verb patch on noderesourcetopologies of group \"topology.node.k8s.io\""),
            "{forbidden}"
        );
        let cause = json!({
            "reason": "FieldManagerConflict", "field": ".zones",
            "message": "conflict with \"nfd-master\" using topology.node.k8s.io/v1alpha2",
        });
        let error = judged(409, json!({"details": {"causes": [cause]}}));
        assert_eq!(error.end(), WriteEnd::Refused);
        let entry = error.degraded("noderesourcetopologies");
        assert_eq!(entry.source, "nrt-owned-by-other");
        assert!(entry.reason.contains("nfd-master owns .zones"), "{}", entry.reason);
    }
}
