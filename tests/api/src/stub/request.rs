//! Which kind and object a path means.

/// A kind that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StubKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Version.
    pub version: &'static str,
    /// Name in paths.
    pub plural: &'static str,
    /// Name in objects.
    pub kind: &'static str,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
}

/// What every stub serves.
pub(super) const WITHOUT_ASKING: [StubKind; 4] = [
    StubKind { group: "", version: "v1", plural: "nodes", kind: "Node", namespaced: false },
    StubKind { group: "", version: "v1", plural: "pods", kind: "Pod", namespaced: true },
    StubKind { group: "events.k8s.io", version: "v1", plural: "events", kind: "Event", namespaced: true },
    StubKind {
        group: "coordination.k8s.io",
        version: "v1",
        plural: "leases",
        kind: "Lease",
        namespaced: true,
    },
];

/// Objects of a kind, or one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) kind: StubKind,
    /// `None` for all namespaces, and for kinds without.
    pub(super) namespace: Option<String>,
    /// `None` for a collection.
    pub(super) name: Option<String>,
}

/// The target of a path without its query.
pub(super) fn target(kinds: &[StubKind], path: &str) -> Option<Target> {
    let mut parts = path.trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let rest: Vec<&str> = parts.collect();
    let (namespace, rest) = match rest.as_slice() {
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    let (plural, name) = match rest {
        [plural] => (*plural, None),
        [plural, name] | [plural, name, "status"] => (*plural, Some((*name).to_owned())),
        _ => return None,
    };
    let is_kind = |kind: &&StubKind| kind.group == group && kind.version == version && kind.plural == plural;
    let kind = *kinds.iter().find(is_kind)?;
    let fits = kind.namespaced == namespace.is_some() || (kind.namespaced && name.is_none());
    fits.then_some(Target { kind, namespace, name })
}

/// The value of a parameter of a query; values of these tests need no decoding.
pub(super) fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_mean_collections_and_objects() {
        let found =
            |path: &str| target(&WITHOUT_ASKING, path).map(|of| (of.kind.kind, of.namespace, of.name));
        let text = |text: &str| Some(text.to_owned());
        for (path, expected) in [
            ("/api/v1/nodes", Some(("Node", None, None))),
            ("/api/v1/nodes/a", Some(("Node", None, text("a")))),
            ("/api/v1/nodes/a/status", Some(("Node", None, text("a")))),
            ("/api/v1/pods", Some(("Pod", None, None))),
            ("/api/v1/namespaces/x/pods/p", Some(("Pod", text("x"), text("p")))),
            ("/apis/coordination.k8s.io/v1/namespaces/x/leases", Some(("Lease", text("x"), None))),
            ("/api/v1/pods/p", None),
            ("/api/v1/namespaces/x/nodes/a", None),
            ("/api/v1/nodes/a/proxy/configz", None),
            ("/apis/apps/v1/deployments", None),
            ("/healthz", None),
        ] {
            assert_eq!(found(path), expected, "{path}");
        }
    }
}
