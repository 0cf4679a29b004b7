//! What a request that failed means for publishing: when to write again, and how reports name it.

use numa_topology::degraded::Degraded;

use super::{pace::WriteEnd, publisher::PublishedKind};
use crate::api_error::ApiError;

/// Effect of an object that is not published.
const EFFECT: &str = "the cluster sees an older state of this node, or none";

impl WriteEnd {
    /// What a failure means for the time of the next write.
    pub fn of(error: &ApiError) -> Self {
        match error {
            ApiError::Unreachable { .. } => Self::Unreachable,
            ApiError::Busy { retry_after, .. } => Self::Busy(*retry_after),
            ApiError::Broken { .. } | ApiError::Unauthorized { .. } | ApiError::Late { .. } => {
                Self::Busy(None)
            }
            ApiError::Forbidden { .. } | ApiError::OwnedByOther { .. } | ApiError::Refused { .. } => {
                Self::Refused
            }
        }
    }
}

/// The degraded entry of an object of this kind. A kind of others that the cluster does not serve has a
/// name of its own: the project's objects are published all the same.
pub(super) fn unpublished_kind(error: &ApiError, kind: &PublishedKind) -> Degraded {
    match error {
        ApiError::Refused { code: 404, operation, .. } if !kind.own && operation.starts_with("patch ") => {
            let unserved_source = format!("{}-not-served", short_name(&kind.plural));
            let reason =
                format!("{operation}: the cluster has no definition of {}.{}", kind.plural, kind.group);
            Degraded::new(unserved_source, reason, EFFECT)
        }
        _ => unpublished(error, &kind.plural),
    }
}

/// The name of a kind in names of sources.
fn short_name(plural: &str) -> &str {
    if plural == "noderesourcetopologies" { "nrt" } else { plural }
}

/// The degraded entry of objects of a kind that are not published.
pub fn unpublished(error: &ApiError, plural: &str) -> Degraded {
    let unpublished_source = match error {
        ApiError::OwnedByOther { .. } => format!("{}-owned-by-other", short_name(plural)),
        _ => format!("publish:{plural}"),
    };
    Degraded::new(unpublished_source, error.to_string(), EFFECT)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::StatusCode;
    use serde_json::{Value, json};

    use super::*;
    use crate::{api_error::judge, connection::ApiAnswer};

    fn judged(code: u16, body: Value) -> ApiError {
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
            assert_eq!(WriteEnd::of(&judged(code, Value::Null)), end, "{code}");
        }
    }

    #[test]
    fn missing_rule_and_other_manager_are_named() {
        let refused = "User \"a\" cannot patch resource \"noderesourcetopologies\"";
        let forbidden = judged(403, json!({"message": refused})).to_string();
        assert!(
            forbidden.contains("verb patch on noderesourcetopologies of group \"topology.node.k8s.io\""),
            "{forbidden}"
        );
        let policy = "ValidatingAdmissionPolicy denied request: a daemon writes the state of its node";
        let denied = judged(403, json!({"message": policy})).to_string();
        assert!(denied.ends_with(policy) && !denied.contains("role"), "{denied}");
        let cause = json!({
            "reason": "FieldManagerConflict", "field": ".zones",
            "message": "conflict with \"nfd-master\" using topology.node.k8s.io/v1alpha2",
        });
        let error = judged(409, json!({"details": {"causes": [cause]}}));
        assert_eq!(WriteEnd::of(&error), WriteEnd::Refused);
        let entry = unpublished(&error, "noderesourcetopologies");
        assert_eq!(entry.source, "nrt-owned-by-other");
        assert!(entry.reason.contains("nfd-master owns .zones"), "{}", entry.reason);
    }
}
