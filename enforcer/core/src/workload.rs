//! What runs on the machine, and who it belongs to.
//!
//! A [`Workload`] is one cgroup that holds processes, or one process that no cgroup sets apart.
//! Names, pod uids and container ids come from cgroup paths that containers can influence: they are
//! shown and compared, never run or used as paths.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Path of a cgroup from the root of its hierarchy: `/`, `/system.slice/cron.service`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CgroupPath(String);

impl CgroupPath {
    /// The path, with exactly one `/` in front and none behind.
    pub fn new(path: &str) -> Self {
        Self(format!("/{}", path.trim_matches('/')))
    }

    /// The root cgroup.
    pub fn root() -> Self {
        Self("/".into())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Path relative to the mount point of the hierarchy; empty for the root.
    pub fn relative(&self) -> &str {
        self.0.trim_start_matches('/')
    }

    /// The cgroup above it.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        (self.0 != "/").then(|| Self::new(parent))
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Something whose placement can be judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Where its processes are.
    pub cgroup: CgroupPath,
    /// Inode of the cgroup's directory, which is its id in the kernel (`kernfs_node.id` on 64-bit).
    pub cgroup_id: Option<u64>,
    /// What people call it: unit, container or machine name.
    pub name: String,
    /// What it is.
    pub origin: Origin,
}

/// What a workload is, as far as its cgroup path says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Origin {
    /// A container of a Kubernetes pod.
    Pod {
        /// Pod uid with dashes.
        pod_uid: String,
        /// `QoS` class.
        qos: QosClass,
        /// Container id, `None` for the pod's own cgroup.
        container_id: Option<String>,
        /// Runtime, where the path tells.
        runtime: Option<Runtime>,
    },
    /// A container outside Kubernetes.
    Container {
        /// Container id.
        id: String,
        /// Who runs it.
        runtime: Runtime,
    },
    /// A systemd unit.
    Unit {
        /// Unit name with its suffix.
        unit: String,
    },
    /// A libvirt virtual machine.
    VirtualMachine {
        /// Domain name, unescaped.
        domain: String,
    },
    /// A cgroup that nobody known has made.
    Cgroup,
    /// A process in a cgroup that sets nothing apart (the root).
    Process {
        /// Process id.
        pid: u32,
        /// `comm`.
        command: String,
    },
}

/// Kubernetes `QoS` class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum QosClass {
    /// Requests equal limits.
    Guaranteed,
    /// Some requests.
    Burstable,
    /// None.
    BestEffort,
}

/// Container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// containerd.
    Containerd,
    /// CRI-O.
    Crio,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}
