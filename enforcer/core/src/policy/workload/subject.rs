//! A workload that entries are matched against, as far as it is known.
//!
//! Problem: people match by names, and workloads choose most of these names themselves: a container names its
//! processes and cgroups freely, and a user's service manager can also have a `redis.service`. Idea: a name
//! counts only if its source is trusted. A unit must belong to the system's service manager, which alone
//! makes slices; commands of containers do not count; names and labels of pods are those that the container
//! runtime reports.
//! that the container runtime tells.

use std::collections::BTreeMap;

use crate::workload::{CgroupPath, Origin, system_unit};

/// A workload, or a container that is about to be created.
#[derive(Debug, Clone, Copy)]
pub struct RuleSubject<'a> {
    /// Its cgroup, if known.
    pub cgroup: Option<&'a CgroupPath>,
    /// Its kind, which determines the trusted names.
    pub standing: WorkloadKind,
    /// Names of its pod, for a container that the runtime has reported.
    pub pod: Option<PodNames<'a>>,
    /// Names of its processes, as far as they were sampled.
    pub commands: &'a [&'a str],
}

/// Kind of workload, by the trust in names that it gives itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A pod, or a container of one.
    Pod,
    /// A container outside Kubernetes.
    Container,
    /// Neither a pod nor a container.
    Other,
}

/// Names of a container of a pod.
#[derive(Debug, Clone, Copy)]
pub struct PodNames<'a> {
    /// Its pod's namespace.
    pub namespace: &'a str,
    /// Its pod's name.
    pub pod: &'a str,
    /// Its own name.
    pub container: &'a str,
    /// Its pod's labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl RuleSubject<'_> {
    /// The system manager's unit that it belongs to; none for a pod.
    pub(super) fn unit(&self) -> Option<&str> {
        self.cgroup.filter(|_| self.standing != WorkloadKind::Pod).and_then(system_unit)
    }
}

impl From<&Origin> for WorkloadKind {
    fn from(origin: &Origin) -> Self {
        match origin {
            Origin::Pod { .. } => Self::Pod,
            Origin::Container { .. } => Self::Container,
            Origin::Unit { .. } | Origin::VirtualMachine { .. } | Origin::Cgroup | Origin::Process { .. } => {
                Self::Other
            }
        }
    }
}
