//! What an entry of the configuration may be about, as far as it is known.
//!
//! Problem: names are what people match by, and most of them are chosen by those who are matched: a container
//! calls its processes and cgroups as it likes, a user's own service manager has a `redis.service`, too.
//! Idea: a name counts only where whoever gives it is trusted with it. A unit is one of the system's own
//! manager, which alone makes slices; a command is none of a container's; names and labels of pods are those
//! that the container runtime tells.

use std::collections::BTreeMap;

use crate::workload::{CgroupPath, Origin, system_unit};

/// A workload, or a container that is about to be one.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its cgroup, where known.
    pub cgroup: Option<&'a CgroupPath>,
    /// What it is.
    pub standing: Standing,
    /// Its names, of a container of a pod of which a runtime has told.
    pub pod: Option<PodNames<'a>>,
    /// Names of its processes, as far as they were seen.
    pub commands: &'a [&'a str],
}

/// How far names that something gives itself are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A pod, or a container of one.
    Pod,
    /// Another container.
    Container,
    /// Neither.
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

impl Subject<'_> {
    /// The unit of the system's manager that it belongs to; a pod is no unit.
    pub(super) fn unit(&self) -> Option<&str> {
        self.cgroup.filter(|_| self.standing != Standing::Pod).and_then(system_unit)
    }
}

impl From<&Origin> for Standing {
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
