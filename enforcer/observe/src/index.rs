//! Maps threads and kernel cgroup ids to workloads.
//!
//! The kernel side names cgroups by the id of one hierarchy. Workloads that only another hierarchy separates
//! have no such id; the threads in their cgroup's list identify them. Without the kernel side that holds for
//! all workloads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
};

use enforcer_core::workload::{CgroupPath, Origin, Workload};
use numa_topology::degraded::DegradedTally;

use super::procfs::{MAX_TASKS, Membership};
use enforcer_host::{
    HostRoot,
    cgroup::{CgroupLayout, ControllerRoot},
    cgroup_tree::{vanished, walk},
};

/// The workloads of one sample, by their identities.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Cgroups to read, and whether everything below belongs to them.
    pub(super) cgroups: BTreeMap<CgroupPath, bool>,
    /// Cgroup by kernel id; several ids of one virtual machine have the same.
    pub(super) ids: BTreeMap<u64, CgroupPath>,
    /// Kernel id of a workload's own cgroup.
    pub(super) owners: BTreeMap<CgroupPath, u64>,
    /// Processes that are workloads of their own.
    pub(super) processes: BTreeSet<u32>,
}

impl Index {
    pub(super) fn new(host: &HostRoot, layout: &CgroupLayout, workloads: &[Workload]) -> Self {
        let mut index = Self::default();
        for workload in workloads {
            index.cgroups.insert(workload.cgroup.clone(), workload.spans_subtree());
            if let Origin::Process { pid, .. } = workload.origin {
                index.processes.insert(pid);
            } else if let Some(id) = workload.cgroup_id {
                index.ids.insert(id, workload.cgroup.clone());
                index.owners.insert(workload.cgroup.clone(), id);
                if workload.spans_subtree() {
                    for below in walk(&layout.cpuset, &workload.cgroup, !host.captured).cgroups {
                        index.ids.insert(below.inode, workload.cgroup.clone());
                    }
                }
            }
        }
        let root = CgroupPath::root();
        if !host.captured
            && index.cgroups.contains_key(&root)
            && let Ok(metadata) = fs::metadata(layout.cpuset.path.as_path())
        {
            index.ids.insert(metadata.ino(), root.clone());
            index.owners.insert(root, metadata.ino());
        }
        index
    }

    /// Cgroups that the kernel side knows by an id.
    #[cfg(feature = "bpf")]
    pub(super) fn with_id(&self) -> BTreeSet<&CgroupPath> {
        self.ids.values().collect()
    }

    /// The threads that the `wanted` cgroups list.
    pub(super) fn members(
        &self,
        host: &HostRoot,
        layout: &CgroupLayout,
        wanted: impl Fn(&CgroupPath) -> bool,
        degraded: &mut DegradedTally,
    ) -> Membership {
        let mut members = Membership { processes: self.processes.clone(), ..Membership::default() };
        for (path, &below) in &self.cgroups {
            // The root lists the machine's threads; its workloads are processes.
            if path.is_root() || !wanted(path) {
                continue;
            }
            for tid in threads(host, layout, path, below, degraded) {
                if members.threads.len() < MAX_TASKS {
                    members.threads.insert(tid, path.clone());
                }
            }
        }
        members
    }
}

/// Threads of a cgroup, from the first hierarchy that has it.
fn threads(
    host: &HostRoot,
    layout: &CgroupLayout,
    path: &CgroupPath,
    below: bool,
    degraded: &mut DegradedTally,
) -> Vec<u32> {
    let unified = layout.unified.as_ref().map(|path| ControllerRoot {
        path: path.clone(),
        v2: true,
        mounted_cgroup: "/".into(),
    });
    let hierarchies =
        [Some(&layout.cpuset), layout.memory.as_ref(), layout.systemd.as_ref(), unified.as_ref()];
    let Some(root) = hierarchies.into_iter().flatten().find(|root| root.dir(path).is_dir()) else {
        return Vec::new();
    };
    let mut paths = vec![path.clone()];
    if below {
        paths = walk(root, path, !host.captured).cgroups.into_iter().map(|visited| visited.path).collect();
    }
    let mut tids = Vec::new();
    for path in &paths {
        let dir = root.dir(path);
        match dir.join(root.files().threads).read_text() {
            Ok(text) => tids.extend(text.lines().filter_map(|line| line.trim().parse::<u32>().ok())),
            Err(error) if vanished(&error.cause) => {}
            Err(error) => degraded.add("cgroup", path, error, "its threads are not seen"),
        }
    }
    tids
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn workload(path: &str, id: Option<u64>, origin: Origin) -> Workload {
        Workload { cgroup: CgroupPath::new(path), cgroup_id: id, name: path.into(), origin }
    }

    fn write(top: &Path, file: &str, text: &str) {
        let path = top.join("sys/fs/cgroup").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn threads_come_from_the_hierarchy_that_has_the_cgroup() {
        let dir = tempfile::TempDir::new().unwrap();
        let top = dir.path();
        write(top, "cpuset/tasks", "1\n2\n3\n4\n5\n");
        write(top, "cpuset/a/tasks", "1\n2\n");
        write(top, "memory/b/tasks", "3\n");
        write(top, "memory/a/tasks", "9\n");
        write(top, "cpuset/vm/emulator/tasks", "4\n");
        write(top, "cpuset/vm/vcpu0/tasks", "5\nnonsense\n");
        let host = HostRoot::captured(top);
        let layout = CgroupLayout::read(&host).unwrap();
        let workloads = [
            workload("/a", Some(7), Origin::Cgroup),
            workload("/b", None, Origin::Cgroup),
            workload("/vm", Some(8), Origin::VirtualMachine { domain: "vm".into() }),
            workload("/", None, Origin::Process { pid: 6, command: "x".into() }),
            workload("/gone", None, Origin::Cgroup),
        ];
        let index = Index::new(&host, &layout, &workloads);
        assert_eq!(index.ids[&7], CgroupPath::new("/a"));
        assert_eq!(index.ids.values().filter(|path| path.as_str() == "/vm").count(), 4);
        let mut degraded = DegradedTally::default();
        let list = |members: &Membership| {
            members.threads.iter().map(|(tid, path)| format!("{tid}{path}")).collect::<Vec<_>>()
        };
        let all = index.members(&host, &layout, |_| true, &mut degraded);
        assert_eq!(list(&all), ["1/a", "2/a", "3/b", "4/vm", "5/vm"]);
        assert_eq!(all.processes, [6].into());
        let wanted = |path: &CgroupPath| path.as_str() == "/b";
        assert_eq!(list(&index.members(&host, &layout, wanted, &mut degraded)), ["3/b"]);
        assert!(degraded.into_entries().is_empty());
    }
}
