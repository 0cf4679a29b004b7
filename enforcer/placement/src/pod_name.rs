//! Names of pods. They are untrusted: they are compared and shown, never trusted.

use std::fmt;

use crate::CgroupPath;
use numa_topology::text::printable;

/// Name of a pod on its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Distinguishes pods with the same name: a recreated pod may start before the old one has ended. Empty
    /// if unknown. It is compared, never shown or matched by rules.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "String::is_empty"))]
    pub uid: String,
}

impl PodName {
    /// The name without a uid.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), uid: String::new() }
    }

    /// The name with this uid.
    #[must_use]
    pub fn with_uid(self, uid: impl Into<String>) -> Self {
        Self { uid: uid.into(), ..self }
    }

    /// Name of a cgroup outside Kubernetes: a pod without a namespace, which no real pod is.
    pub fn of_cgroup(cgroup: &CgroupPath) -> Self {
        Self::new("", cgroup.as_str())
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No namespace of Kubernetes starts with a dash: such a namespace marks another kind of holder, which
        // is shown by name.
        if self.namespace.is_empty() || self.namespace.starts_with('-') {
            return f.write_str(&printable(&self.name));
        }
        write!(f, "{}/{}", printable(&self.namespace), printable(&self.name))
    }
}
