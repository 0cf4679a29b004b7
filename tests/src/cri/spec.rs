//! A container as the specification of a pod has it, and what a kubelet makes of that.
//!
//! Where a specification says nothing a kubelet still says something: which files of `/proc` and `/sys` are
//! hidden or read-only (`securitycontext.ConvertToRuntimeMaskedPaths` and its like).

use super::{
    Amounts,
    messages::{
        Capability, FROM_HOST, LOCALHOST, LinuxContainerSecurityContext, Mount, NODE, PRIVATE,
        RUNTIME_DEFAULT, SecurityProfile, UNCONFINED, UserId,
    },
    pod::namespaces,
};

/// Hidden from a container (Kubernetes' `pkg/securitycontext/util.go`).
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Read-only in a container, by the same file.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// A container of any image.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the specification")]
pub struct ContainerSpec {
    /// Its name in the pod.
    pub name: String,
    /// Its image, which runs its own program.
    pub image: String,
    /// Arguments of that program.
    pub args: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(String, String)>,
    /// Requests and limits.
    pub amounts: Amounts,
    /// User that the program runs as.
    pub user: i64,
    /// Capabilities without `CAP_`; it has no others.
    pub capabilities: Vec<String>,
    /// Does no privilege come with a program?
    pub no_new_privileges: bool,
    /// Is its own file system read-only?
    pub read_only_root: bool,
    /// Are its processes those of the machine?
    pub host_pid: bool,
    /// File of its seccomp profile; `None` for the runtime's own.
    pub seccomp: Option<String>,
    /// Is it without the runtime's own profile of AppArmor?
    pub unconfined: bool,
    /// What it sees of the machine.
    pub mounts: Vec<MountSpec>,
}

/// A file or folder of the machine in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// Path in the container.
    pub container_path: String,
    /// Path on the machine.
    pub host_path: String,
    /// Is it read-only?
    pub is_read_only: bool,
    /// Does the container see what the machine mounts below it later?
    pub follows_host: bool,
}

impl ContainerSpec {
    pub(super) fn mounts(&self) -> Vec<Mount> {
        let of = |mount: &MountSpec| Mount {
            container_path: mount.container_path.clone(),
            host_path: mount.host_path.clone(),
            readonly: mount.is_read_only,
            propagation: if mount.follows_host { FROM_HOST } else { PRIVATE },
        };
        self.mounts.iter().map(of).collect()
    }

    pub(super) fn security(&self) -> LinuxContainerSecurityContext {
        let profile = |profile_type| SecurityProfile { profile_type, localhost_ref: String::new() };
        let mut namespaces = namespaces();
        if self.host_pid {
            namespaces.pid = NODE;
        }
        LinuxContainerSecurityContext {
            capabilities: Some(Capability {
                add_capabilities: self.capabilities.clone(),
                drop_capabilities: vec!["ALL".to_owned()],
            }),
            namespace_options: Some(namespaces),
            run_as_user: Some(UserId { value: self.user }),
            readonly_rootfs: self.read_only_root,
            no_new_privs: self.no_new_privileges,
            masked_paths: MASKED.map(str::to_owned).to_vec(),
            readonly_paths: READ_ONLY.map(str::to_owned).to_vec(),
            seccomp: Some(match &self.seccomp {
                Some(path) => SecurityProfile { profile_type: LOCALHOST, localhost_ref: path.clone() },
                None => profile(RUNTIME_DEFAULT),
            }),
            // A kubelet asks for no profile where the specification has none.
            apparmor: self.unconfined.then(|| profile(UNCONFINED)),
        }
    }
}
