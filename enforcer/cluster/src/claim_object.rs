//! One claim of Dynamic Resource Allocation, as the API server has it.
//!
//! Problem: a kubelet names a claim by namespace, name and uid, and passes nothing of it. Under that name may
//! be no claim by now, or another one. Idea: the object is read by name, and counts only with the uid that
//! was asked for; an error says whether another try can help, and whether the claim is gone.
//!
//! Only `resource.k8s.io/v1` is read, which servers have since Kubernetes 1.34: earlier ones do not serve
//! allocated claims by default. Invariants: time and size of an answer are bounded; a name that could lead to
//! another path is not asked for.

use std::time::Duration;

use hyper::Method;
use numa_topology::text::printable_within;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    api_error::ApiError,
    connection::{APPLY, ApiConnection, JSON},
};

/// Owner of what is written of a claim.
const MANAGER: &str = "numa-enforcer-claims";
/// Longest time of one read.
const LIMIT: Duration = Duration::from_secs(5);
/// Characters of a foreign text that an error repeats.
const MAX_SHOWN: usize = 80;

/// Why a claim was not read.
#[derive(Debug, Error)]
pub enum ClaimReadError {
    /// Its namespace or its name can be of no object.
    #[error("get claim: {0:?} is no name of an object")]
    NoName(String),
    /// There is no claim of this name.
    #[error("{operation}: not found: the claim was deleted")]
    Absent {
        /// Verb and path.
        operation: String,
    },
    /// The name belongs to another claim.
    #[error("{operation}: the claim was replaced: uid {asked} is asked for, and the API server has {found}")]
    Replaced {
        /// Verb and path.
        operation: String,
        /// Uid of the kubelet's request.
        asked: String,
        /// Uid of the object.
        found: String,
    },
    /// The server does not have the kind.
    #[error(
        "{operation}: the API server does not serve resource.k8s.io/v1: Kubernetes 1.34 or newer is needed"
    )]
    NotServed {
        /// Verb and path.
        operation: String,
    },
    /// The answer has no uid.
    #[error("{operation}: the answer is no ResourceClaim")]
    NoClaim {
        /// Verb and path.
        operation: String,
    },
    /// The server refuses, or does not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ClaimReadError {
    /// Whether the API server has no claim of this uid any more.
    pub const fn is_gone(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Replaced { .. })
    }

    /// Whether the same question may be answered within a minute.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Api(error) => !matches!(error, ApiError::Forbidden { .. } | ApiError::Refused { .. }),
            _ => false,
        }
    }
}

impl ApiConnection {
    /// Writes devices into the status of the claim of this namespace, name and uid, by server-side apply:
    /// what other writers have there stays.
    ///
    /// # Errors
    /// If the server does not answer within 5 s, refuses, or has a claim of another uid there.
    pub async fn write_claim_devices(
        &self,
        (namespace, name): (&str, &str),
        uid: &str,
        devices: Value,
    ) -> Result<(), ClaimReadError> {
        for part in [namespace, name] {
            if !is_object_name(part) {
                return Err(ClaimReadError::NoName(printable_within(part, MAX_SHOWN)));
            }
        }
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status");
        let body = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "status": {"devices": devices},
        });
        let (query, body) = (format!("{path}?fieldManager={MANAGER}&force=true"), body.to_string());
        let request = self.request("patch", Method::PATCH, &query, APPLY, body.as_bytes());
        let late = |_elapsed| ApiError::Late { operation: format!("patch {path}"), limit: LIMIT };
        tokio::time::timeout(LIMIT, request).await.map_err(late)??;
        Ok(())
    }

    /// The claim of this namespace, name and uid.
    ///
    /// # Errors
    /// If the server does not answer within 5 s, refuses, or has no claim of this uid there.
    pub async fn resource_claim(
        &self,
        (namespace, name): (&str, &str),
        uid: &str,
    ) -> Result<Value, ClaimReadError> {
        for part in [namespace, name] {
            if !is_object_name(part) {
                return Err(ClaimReadError::NoName(printable_within(part, MAX_SHOWN)));
            }
        }
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        let operation = format!("get {path}");
        let answer = tokio::time::timeout(LIMIT, self.request("get", Method::GET, &path, JSON, b"")).await;
        let late = |_elapsed| ApiError::Late { operation: operation.clone(), limit: LIMIT };
        let claim = match answer.map_err(late)? {
            Ok(answer) => answer.body,
            Err(ApiError::Refused { code: 404, message, .. }) => {
                // So says `NewNotFound` of apimachinery; a server without the kind has other words.
                let is_of_name = message.ends_with(&format!("\"{name}\" not found"));
                return Err(if is_of_name {
                    ClaimReadError::Absent { operation }
                } else {
                    ClaimReadError::NotServed { operation }
                });
            }
            Err(error) => return Err(error.into()),
        };
        match claim.pointer("/metadata/uid").and_then(Value::as_str) {
            Some(found) if found == uid => Ok(claim),
            Some(found) => {
                let [asked, found] = [uid, found].map(|uid| printable_within(uid, MAX_SHOWN));
                Err(ClaimReadError::Replaced { operation, asked, found })
            }
            None => Err(ClaimReadError::NoClaim { operation }),
        }
    }
}

/// Is it a subdomain as in names of objects, and so safe as a part of a path?
pub(crate) fn is_object_name(name: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    let is_bounded = !name.starts_with('.') && !name.ends_with('.') && name.len() <= 253;
    !name.is_empty() && is_bounded && name.bytes().all(is_plain)
}
