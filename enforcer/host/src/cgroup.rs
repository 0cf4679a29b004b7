//! Where the cgroup hierarchies are, and what their files are called.
//!
//! A machine has one unified hierarchy (v2), one hierarchy per controller (v1), or both at once
//! (hybrid: v1 hierarchies below `/sys/fs/cgroup`, and a v2 without controllers in `unified`). What
//! matters here is where the cpuset and the memory controller live. On the running host mountinfo
//! tells; in a captured tree, or where mountinfo says nothing of `/sys/fs/cgroup`, the directories do.
//!
//! Paths of cgroups are relative to the mount point. (`/proc/PID/cgroup` names them relative to the
//! reader's cgroup namespace instead, and is not read for them.)
//!
//! Must never assume that a controller is there: only cpuset is required, and it is the cpuset files
//! of each cgroup that say whether it can be pinned.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use enforcer_core::{
    parse::mountinfo::{CgroupMount, Hierarchy, parse_cgroup_mounts},
    sample::CgroupMounts,
    workload::CgroupPath,
};
use rustix::fs::FileType;
use thiserror::Error;

use super::{HostPath, HostRoot};

/// Which hierarchies are mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// v1 hierarchies only.
    V1,
    /// The unified hierarchy only.
    V2,
    /// v1 hierarchies and a unified one beside them.
    Hybrid,
}

impl CgroupVersion {
    /// `v1`, `v2` or `hybrid`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
            Self::Hybrid => "hybrid",
        }
    }
}

impl fmt::Display for CgroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The hierarchies of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLayout {
    /// Which kinds are mounted.
    pub version: CgroupVersion,
    /// The hierarchy with the cpuset controller.
    pub cpuset: ControllerRoot,
    /// The hierarchy with the memory controller.
    pub memory: Option<ControllerRoot>,
    /// The hierarchy with the hugetlb controller.
    pub hugetlb: Option<ControllerRoot>,
    /// systemd's own v1 hierarchy (`name=systemd`), which has no controller but every unit.
    pub systemd: Option<ControllerRoot>,
    /// Mount point of the unified hierarchy.
    pub unified: Option<HostPath>,
}

/// The hierarchy of one controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerRoot {
    /// Its mount point.
    pub path: HostPath,
    /// Is it the unified hierarchy?
    pub v2: bool,
    /// Which cgroup is at the mount point, as `/proc/PID/cgroup` names it; `/` as a rule.
    pub mounted_cgroup: String,
}

/// Names of the files that are read, which differ between v1 and v2
/// (Documentation/admin-guide/cgroup-v1/cpusets.rst, cgroup-v2.rst).
#[derive(Debug, PartialEq, Eq)]
pub struct CgroupFileNames {
    /// CPUs as configured; empty means inherited (v2).
    pub cpus: &'static str,
    /// CPUs that are in force.
    pub cpus_effective: &'static str,
    /// Memory nodes as configured; empty means inherited (v2).
    pub mems: &'static str,
    /// Memory nodes that are in force.
    pub mems_effective: &'static str,
    /// Memory in bytes.
    pub memory_current: &'static str,
    /// Memory per node.
    pub memory_numa_stat: &'static str,
    /// Counted memory events; v1 has none.
    pub memory_events: Option<&'static str>,
    /// Memory pressure; v1 has none.
    pub memory_pressure: Option<&'static str>,
    /// Process ids.
    pub procs: &'static str,
    /// Thread ids.
    pub threads: &'static str,
}

const V1_FILES: CgroupFileNames = CgroupFileNames {
    cpus: "cpuset.cpus",
    cpus_effective: "cpuset.effective_cpus",
    mems: "cpuset.mems",
    mems_effective: "cpuset.effective_mems",
    memory_current: "memory.usage_in_bytes",
    memory_numa_stat: "memory.numa_stat",
    memory_events: None,
    memory_pressure: None,
    procs: "cgroup.procs",
    threads: "tasks",
};

const V2_FILES: CgroupFileNames = CgroupFileNames {
    cpus: "cpuset.cpus",
    cpus_effective: "cpuset.cpus.effective",
    mems: "cpuset.mems",
    mems_effective: "cpuset.mems.effective",
    memory_current: "memory.current",
    memory_numa_stat: "memory.numa_stat",
    memory_events: Some("memory.events"),
    memory_pressure: Some("memory.pressure"),
    procs: "cgroup.procs",
    threads: "cgroup.threads",
};

/// Why no layout could be made out.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// Neither a unified hierarchy nor a v1 one with the cpuset controller.
    #[error("no cgroup hierarchy with the cpuset controller below {top}", top = .top.display())]
    NoCpuset {
        /// Where they are looked for.
        top: PathBuf,
    },
    /// The directory of the hierarchies cannot be listed.
    #[error("listing {path}: {cause}", path = .path.display())]
    Unreadable {
        /// Which directory.
        path: PathBuf,
        /// Why not.
        #[source]
        cause: io::Error,
    },
}

impl CgroupLayout {
    /// The layout of this host.
    pub fn read(host: &HostRoot) -> Result<Self, LayoutError> {
        if !host.captured
            && let Ok(text) = host.proc.join("self/mountinfo").read_text()
            && let Ok(mounts) = parse_cgroup_mounts(&text)
            && let Some(layout) = Self::of_mounts(host, &below(mounts, host.cgroup.as_path()))
        {
            return Ok(layout);
        }
        Self::of_mounts(host, &probe(&host.cgroup)?)
            .ok_or_else(|| LayoutError::NoCpuset { top: host.cgroup.as_path().to_owned() })
    }

    /// The mount points as the machine itself names them: in a captured tree, without the path of the
    /// copy.
    pub fn mounts(&self, host: &HostRoot) -> CgroupMounts {
        let own = |root: &ControllerRoot| match root.path.as_path().strip_prefix(host.cgroup.as_path()) {
            Ok(inside) if inside.as_os_str().is_empty() => "/sys/fs/cgroup".to_owned(),
            Ok(inside) => Path::new("/sys/fs/cgroup").join(inside).to_string_lossy().into_owned(),
            Err(_elsewhere) => root.path.display().to_string(),
        };
        let cpuset = own(&self.cpuset);
        CgroupMounts { memory: self.memory.as_ref().map_or_else(|| cpuset.clone(), own), cpuset }
    }

    fn of_mounts(host: &HostRoot, mounts: &[CgroupMount]) -> Option<Self> {
        let unified = mounts.iter().rev().find(|mount| mount.hierarchy == Hierarchy::Unified);
        let v1 = |option: &str| {
            mounts.iter().rev().find(|mount| match &mount.hierarchy {
                Hierarchy::V1(options) => options.iter().any(|o| o == option),
                Hierarchy::Unified => false,
            })
        };
        let root = |mount: &CgroupMount| ControllerRoot::of_mount(host, mount);
        let version = match (unified, mounts.iter().any(|mount| mount.hierarchy != Hierarchy::Unified)) {
            (Some(_), true) => CgroupVersion::Hybrid,
            (Some(_), false) => CgroupVersion::V2,
            (None, _) => CgroupVersion::V1,
        };
        Some(Self {
            version,
            cpuset: v1("cpuset").or(unified).map(root)?,
            memory: v1("memory").or(unified).map(root),
            hugetlb: v1("hugetlb").or(unified).map(root),
            systemd: v1("name=systemd").map(root),
            unified: unified.map(|mount| host.at(&mount.mount_point)),
        })
    }
}

impl ControllerRoot {
    /// Names of the files in this hierarchy.
    pub const fn files(&self) -> &'static CgroupFileNames {
        if self.v2 { &V2_FILES } else { &V1_FILES }
    }

    /// Directory of a cgroup.
    pub fn dir(&self, cgroup: &CgroupPath) -> HostPath {
        self.path.join(cgroup.relative())
    }

    fn of_mount(host: &HostRoot, mount: &CgroupMount) -> Self {
        Self {
            path: host.at(&mount.mount_point),
            v2: mount.hierarchy == Hierarchy::Unified,
            mounted_cgroup: mount.root.clone(),
        }
    }
}

/// The mounts below `top`, so that another copy of a hierarchy elsewhere (a container's, a mount of
/// an administrator) is not taken for the host's; all of them when none is there.
fn below(mounts: Vec<CgroupMount>, top: &Path) -> Vec<CgroupMount> {
    let (inside, outside): (Vec<_>, Vec<_>) =
        mounts.into_iter().partition(|mount| Path::new(&mount.mount_point).starts_with(top));
    if inside.is_empty() { outside } else { inside }
}

/// What the directories look like when there is no mountinfo to ask.
fn probe(top: &HostPath) -> Result<Vec<CgroupMount>, LayoutError> {
    let mount = |path: &HostPath, hierarchy| CgroupMount {
        mount_point: path.display().to_string(),
        root: "/".into(),
        hierarchy,
    };
    if is_unified(top) {
        return Ok(vec![mount(top, Hierarchy::Unified)]);
    }
    let unreadable = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => LayoutError::NoCpuset { top: top.as_path().to_owned() },
        _ => LayoutError::Unreadable { path: top.as_path().to_owned(), cause },
    };
    let mut mounts = Vec::new();
    for (name, kind) in top.read_dir().map_err(unreadable)? {
        // Symbolic links (`cpu` to `cpu,cpuacct`) name a hierarchy a second time.
        if kind != FileType::Directory {
            continue;
        }
        let path = top.join(&name);
        match name.to_str() {
            Some("unified") if is_unified(&path) => mounts.push(mount(&path, Hierarchy::Unified)),
            Some("systemd") => mounts.push(mount(&path, Hierarchy::V1(vec!["name=systemd".into()]))),
            Some("unified") | None => {}
            Some(name) => {
                let controllers = name.split(',').map(str::to_owned).collect();
                mounts.push(mount(&path, Hierarchy::V1(controllers)));
            }
        }
    }
    Ok(mounts)
}

fn is_unified(dir: &HostPath) -> bool {
    ["cgroup.controllers", "cgroup.subtree_control", "cpuset.cpus.effective"]
        .iter()
        .any(|file| dir.join(file).exists())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn tree(files: &[&str]) -> (TempDir, HostRoot) {
        let dir = TempDir::new().unwrap();
        for file in files {
            let path = dir.path().join("sys/fs/cgroup").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let host = HostRoot::captured(dir.path());
        (dir, host)
    }

    #[test]
    fn probes_a_unified_tree() {
        let (_dir, host) = tree(&["cgroup.controllers", "system.slice/cpuset.cpus"]);
        let layout = CgroupLayout::read(&host).unwrap();
        assert_eq!(layout.version, CgroupVersion::V2);
        assert_eq!(layout.cpuset.path, host.cgroup);
        assert!(layout.cpuset.v2);
        assert_eq!(layout.memory, Some(layout.cpuset.clone()));
        assert_eq!(layout.mounts(&host), CgroupMounts::default());
        assert_eq!(layout.unified, Some(host.cgroup));
        assert_eq!(layout.cpuset.files().cpus_effective, "cpuset.cpus.effective");
    }

    #[test]
    fn probes_v1_and_hybrid_trees() {
        let (_dir, host) = tree(&["cpu,cpuacct/tasks", "cpuset/tasks", "memory/tasks", "systemd/tasks"]);
        let layout = CgroupLayout::read(&host).unwrap();
        assert_eq!(layout.version, CgroupVersion::V1);
        assert_eq!(layout.cpuset.path, host.cgroup.join("cpuset"));
        assert_eq!(layout.cpuset.files().cpus_effective, "cpuset.effective_cpus");
        let mounts = layout.mounts(&host);
        assert_eq!((&*mounts.cpuset, &*mounts.memory), ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/memory"));
        assert_eq!(layout.systemd.unwrap().path, host.cgroup.join("systemd"));
        assert_eq!(layout.unified, None);

        let (_dir, host) = tree(&["cpuset/tasks", "memory/tasks", "unified/cgroup.controllers"]);
        let layout = CgroupLayout::read(&host).unwrap();
        assert_eq!(layout.version, CgroupVersion::Hybrid);
        assert!(!layout.cpuset.v2);
        assert_eq!(layout.memory.unwrap().path, host.cgroup.join("memory"));
        assert_eq!(layout.unified, Some(host.cgroup.join("unified")));
    }

    #[test]
    fn the_unified_hierarchy_has_the_controllers_that_v1_lacks() {
        let (_dir, host) = tree(&["cpuset/tasks", "unified/cgroup.controllers"]);
        let memory = CgroupLayout::read(&host).unwrap().memory.unwrap();
        assert_eq!((memory.path, memory.v2), (host.cgroup.join("unified"), true));
    }

    #[test]
    fn says_what_is_missing() {
        let (_dir, host) = tree(&["memory/tasks"]);
        let error = CgroupLayout::read(&host).unwrap_err();
        assert!(error.to_string().ends_with("sys/fs/cgroup"), "{error}");
        let nowhere = HostRoot::captured(Path::new("/nonexistent"));
        assert!(matches!(CgroupLayout::read(&nowhere), Err(LayoutError::NoCpuset { .. })));
        let dir = TempDir::new().unwrap();
        fs::create_dir_all(dir.path().join("sys/fs")).unwrap();
        fs::write(dir.path().join("sys/fs/cgroup"), "").unwrap();
        let error = CgroupLayout::read(&HostRoot::captured(dir.path())).unwrap_err();
        assert!(matches!(error, LayoutError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn this_host_has_a_layout() {
        let layout = CgroupLayout::read(&HostRoot::live()).unwrap();
        assert!(layout.cpuset.path.is_dir());
        assert!(layout.cpuset.dir(&CgroupPath::root()).join(layout.cpuset.files().procs).exists());
    }
}
