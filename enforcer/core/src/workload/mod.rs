//! Workloads on the machine, and the origin of each.
//!
//! A [`Workload`] is one cgroup that holds processes, or one process outside of any workload's cgroup.
//! Containers can influence names, pod uids and container ids in cgroup paths: the daemon shows and compares
//! them and never runs them or uses them as paths.

mod naming;
mod unit;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use naming::{Identity, SLICE_SUFFIX, UNIT_SUFFIXES, identify, system_unit};
pub use numa_placement::{CgroupPath, QosClass};
pub use numa_topology::text::{cut_at, is_unfit, printable, printable_within};
pub use unit::UnitName;

/// A cgroup or process that findings are made about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Cgroup of its processes.
    pub cgroup: CgroupPath,
    /// Inode of the cgroup's directory in the hierarchy with the cpuset controller, which is its id in the
    /// kernel (`kernfs_node.id` on 64-bit). `None` if that hierarchy has no own cgroup for it.
    pub cgroup_id: Option<u64>,
    /// Display name: unit, container or machine name.
    pub name: String,
    /// Origin by its cgroup path.
    pub origin: Origin,
}

impl Workload {
    /// Do the cgroups below it belong to it too? True for a virtual machine: its emulator and vCPUs have
    /// their own.
    pub fn spans_subtree(&self) -> bool {
        matches!(self.origin, Origin::VirtualMachine { .. })
    }

    /// The unit of systemd that decides about its cpuset: its own, or for a container the service in which
    /// the runtime was started (a quadlet of Podman, systemd-nspawn). A scope of the runtime is the
    /// container itself: what it sets there was asked for with the container.
    pub fn settled_by_unit(&self) -> Option<&str> {
        match &self.origin {
            Origin::Unit { unit } => Some(unit),
            Origin::Container { .. } => system_unit(&self.cgroup).filter(|unit| unit.ends_with(".service")),
            _ => None,
        }
    }

    /// Unique name among all workloads of a host: its cgroup, followed by `#PID` if it is one process.
    pub fn object(&self) -> String {
        self.origin.object(&self.cgroup)
    }
}

/// Origin of a workload, as far as its cgroup path shows.
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
        /// Container runtime, if the path shows it.
        runtime: Option<Runtime>,
    },
    /// A container outside Kubernetes.
    Container {
        /// Container id.
        id: String,
        /// Container runtime.
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
    /// A cgroup of unknown origin.
    Cgroup,
    /// A process in a cgroup that is no workload of its own (the root).
    Process {
        /// Process id.
        pid: u32,
        /// `comm`.
        command: String,
    },
}

impl Origin {
    /// Unique name of a workload of this origin in that cgroup ([`Workload::object`]).
    pub fn object(&self, cgroup: &CgroupPath) -> String {
        match self {
            Self::Process { pid, .. } => format!("{cgroup}#{pid}"),
            _ => cgroup.to_string(),
        }
    }
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
    /// LXC, LXD or Incus.
    Lxc,
    /// systemd-nspawn.
    Nspawn,
}
