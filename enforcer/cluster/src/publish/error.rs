//! Why an object is not published, what to do about it, and how reports name it.

use std::time::Duration;

use numa_topology::degraded::Degraded;
use thiserror::Error;

use super::pace::WriteEnd;

/// Why an object was not written.
#[derive(Debug, Error)]
pub enum PublishError {
    /// No server was reached, or the connection broke.
    #[error("{operation}: no answer of the API server: {cause}")]
    Unreachable {
        /// Verb and path.
        operation: String,
        /// What failed.
        cause: String,
    },
    /// The server does not know the daemon (401), also with a token that was read again.
    #[error("{operation}: the API server does not accept the token: {message}")]
    Unauthorized {
        /// Verb and path.
        operation: String,
        /// What the server said.
        message: String,
    },
    /// A rule of RBAC is missing (403).
    #[error("{operation}: not permitted: a role needs the verb {verb} on {resource} of group \"{group}\"")]
    Forbidden {
        /// Verb and path.
        operation: String,
        /// Verb of the missing rule.
        verb: &'static str,
        /// API group of the missing rule; empty for the core group.
        group: String,
        /// Resource of the missing rule.
        resource: String,
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

impl PublishError {
    /// What it means for the time of the next write.
    pub fn end(&self) -> WriteEnd {
        match self {
            Self::Unreachable { .. } => WriteEnd::Unreachable,
            Self::Busy { retry_after, .. } => WriteEnd::Busy(*retry_after),
            Self::Unauthorized { .. } => WriteEnd::Busy(None),
            Self::Forbidden { .. } | Self::OwnedByOther { .. } | Self::Refused { .. } => WriteEnd::Refused,
        }
    }

    /// The degraded entry of objects of a kind.
    pub fn degraded(&self, plural: &str) -> Degraded {
        let source = match self {
            Self::OwnedByOther { .. } if plural == "noderesourcetopologies" => {
                "nrt-owned-by-other".to_owned()
            }
            Self::OwnedByOther { .. } => format!("{plural}-owned-by-other"),
            _ => format!("publish:{plural}"),
        };
        Degraded::new(source, self.to_string(), "the cluster sees an older state of this node, or none")
    }
}
