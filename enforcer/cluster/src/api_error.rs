//! What an answer of the API server means.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;
use thiserror::Error;

use crate::connection::ApiAnswer;

/// Why a request was not done.
#[derive(Debug, Error)]
pub enum ApiError {
    /// No server was reached.
    #[error("{operation}: no answer of the API server: {cause}")]
    Unreachable {
        /// Verb and path.
        operation: String,
        /// What failed.
        cause: String,
    },
    /// The connection broke: the server may have done what was asked.
    #[error("{operation}: the connection to the API server broke: {cause}")]
    Broken {
        /// Verb and path.
        operation: String,
        /// What failed.
        cause: String,
    },
    /// The server did not answer in time, and may have done what was asked.
    #[error("{operation}: no answer of the API server within {} s", limit.as_secs())]
    Late {
        /// Verb and path.
        operation: String,
        /// The time.
        limit: Duration,
    },
    /// The server does not know the daemon (401), also with a token that was read again.
    #[error("{operation}: the API server does not accept the token: {message}")]
    Unauthorized {
        /// Verb and path.
        operation: String,
        /// What the server said.
        message: String,
    },
    /// A rule of RBAC is missing, or a policy of admission refuses the request (403).
    #[error("{operation}: not permitted: {}", forbidden(message, verb, group, resource))]
    Forbidden {
        /// Verb and path.
        operation: String,
        /// Verb of the missing rule.
        verb: &'static str,
        /// API group of the missing rule; empty for the core group.
        group: String,
        /// Resource of the missing rule.
        resource: String,
        /// What the server said.
        message: String,
    },
    /// Another field manager owns fields of the object (409).
    #[error("{operation}: {managers} owns {}", fields.join(", "))]
    OwnedByOther {
        /// Verb and path.
        operation: String,
        /// Names of the managers.
        managers: String,
        /// Paths of the fields.
        fields: Vec<String>,
    },
    /// The server has too much to do or fails (429, 5xx), or the object changed meanwhile (409, 410).
    #[error("{operation}: {code}: {message}")]
    Busy {
        /// Verb and path.
        operation: String,
        /// HTTP status.
        code: u16,
        /// What the server said.
        message: String,
        /// When to come back, if the server said that.
        retry_after: Option<Duration>,
    },
    /// The server refuses the object (422), or does not serve the kind (404).
    #[error("{operation}: {code}: {message}")]
    Refused {
        /// Verb and path.
        operation: String,
        /// HTTP status.
        code: u16,
        /// What the server said.
        message: String,
    },
}

/// A policy of admission has words of its own; anything else is a missing rule.
fn forbidden(message: &str, verb: &str, group: &str, resource: &str) -> String {
    if message.contains("denied request") {
        message.to_owned()
    } else {
        format!("a role needs the verb {verb} on {resource} of group \"{group}\"")
    }
}

/// What a refusal means.
pub(crate) fn judge(operation: String, verb: &'static str, path: &str, answer: &ApiAnswer) -> ApiError {
    let text = |pointer: &str| answer.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let message = match text("/message") {
        "" => answer.status.canonical_reason().unwrap_or("no reason told").to_owned(),
        message => message.to_owned(),
    };
    let code = answer.status.as_u16();
    match answer.status {
        StatusCode::UNAUTHORIZED => ApiError::Unauthorized { operation, message },
        StatusCode::FORBIDDEN => {
            let (group, resource) = group_and_resource(path);
            ApiError::Forbidden { operation, verb, group, resource, message }
        }
        StatusCode::CONFLICT => {
            let fields = conflicting_fields(&answer.body);
            if fields.is_empty() {
                let retry_after = answer.retry_after;
                return ApiError::Busy { operation, code, message, retry_after };
            }
            ApiError::OwnedByOther { operation, managers: managers(&answer.body), fields }
        }
        StatusCode::GONE | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => {
            ApiError::Busy { operation, code, message, retry_after: answer.retry_after }
        }
        // So the server names a field that its definition of the kind lacks: it is older than the daemon.
        StatusCode::INTERNAL_SERVER_ERROR if message.contains("field not declared in schema") => {
            ApiError::Refused { operation, code, message }
        }
        status if status.is_server_error() => {
            ApiError::Busy { operation, code, message, retry_after: answer.retry_after }
        }
        _ => ApiError::Refused { operation, code, message },
    }
}

/// The group and the resource of a path, as a rule of RBAC names them.
fn group_and_resource(path: &str) -> (String, String) {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, resource) = match parts.as_slice() {
        ["apis", group, _, "namespaces", _, resource, ..] | ["apis", group, _, resource, ..] => {
            (*group, *resource)
        }
        ["api", _, "namespaces", _, resource, ..] | ["api", _, resource, ..] => ("", *resource),
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
