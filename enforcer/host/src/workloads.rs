//! Finds the workloads on the machine in the cgroup tree.
//!
//! A workload is a cgroup with processes. The hierarchy with the cpuset controller comes first, because CPUs
//! and memory are pinned there. On v1 it often separates little: systemd leaves every service in its root.
//! Processes in that root are then separated by their memory cgroup, then by systemd's own hierarchy, then by
//! the unified one, because users know services by name. A process that no hierarchy separates is a workload
//! of its own.
//!
//! Kernel threads belong to no workload. The observing process itself is left out as well.
//!
//! Cost: a file per cgroup, one more the first time that it is seen, and one per process of the root cgroups.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::PathBuf,
    process,
};

use enforcer_core::{
    parse::task_stat::{TaskStat, parse_task_stat},
    workload::{CgroupPath, Origin, Workload, identify, printable},
};
use numa_topology::degraded::{Degraded, DegradedTally};
use thiserror::Error;

use crate::{
    HostRoot, ReadError,
    cgroup::{CgroupLayout, ControllerRoot},
    cgroup_tree::{Visited, vanished, walk},
};

/// Most processes that become workloads of their own.
const MAX_PROCESSES: usize = 1_000;
/// Most processes of the root that are read; large machines have thousands of kernel threads there.
const MAX_ROOT_PROCESSES: usize = 20_000;

const NOT_AUDITED: &str = "what runs in it is not audited";

/// Why there is no list of workloads.
#[derive(Debug, Error)]
#[error("the cgroup hierarchy at {path} cannot be listed: {reason}", path = path.display())]
pub struct WorkloadsError {
    /// Mount point.
    pub path: PathBuf,
    /// Cause of the failure.
    pub reason: String,
}

/// One user process of each cgroup, so that it need not be searched again while that process exists. A kernel
/// thread that got the same number in the same cgroup would be mistaken for it.
#[derive(Debug, Default)]
pub struct UserProcesses {
    by_cgroup: BTreeMap<CgroupPath, u32>,
    own: Option<CgroupPath>,
}

impl UserProcesses {
    /// Cgroup of this process in the cpuset hierarchy. `/proc/self/cgroup` names it relative to a cgroup
    /// namespace, in a container to the container's own cgroup; the lists of processes do not.
    pub fn own_cgroup(&self) -> Option<&CgroupPath> {
        self.own.as_ref()
    }
}

/// All workloads in ascending order of cgroup and process id, and what could not be read. `known` carries
/// over from one census to the next.
pub fn read_workloads(
    host: &HostRoot,
    layout: &CgroupLayout,
    known: &mut UserProcesses,
) -> Result<(Vec<Workload>, Vec<Degraded>), WorkloadsError> {
    let before = std::mem::take(&mut known.by_cgroup);
    let mut census = Census { before, ..Census::new(host) };
    let root_pids = census.pinned_apart(&layout.cpuset)?;
    let mut left: BTreeSet<u32> = root_pids.into_iter().collect();
    for hierarchy in others(layout) {
        if left.is_empty() {
            break;
        }
        census.set_apart(&hierarchy, &mut left);
    }
    census.processes(&left);
    known.by_cgroup = std::mem::take(&mut census.known);
    known.own = census.own.take();
    Ok(census.finish())
}

/// Hierarchies that can separate what the cpuset hierarchy does not, the best first.
fn others(layout: &CgroupLayout) -> Vec<ControllerRoot> {
    let unified = layout.unified.as_ref().map(|path| ControllerRoot {
        path: path.clone(),
        v2: true,
        mounted_cgroup: "/".into(),
    });
    let mut roots: Vec<ControllerRoot> = Vec::new();
    for root in [layout.memory.clone(), layout.systemd.clone(), unified].into_iter().flatten() {
        if root.path != layout.cpuset.path && roots.iter().all(|known| known.path != root.path) {
            roots.push(root);
        }
    }
    roots
}

/// A census in progress.
struct Census<'a> {
    host: &'a HostRoot,
    workloads: BTreeMap<CgroupPath, Workload>,
    processes: Vec<Workload>,
    degraded: DegradedTally,
    /// User processes of the previous census, and of this one.
    before: BTreeMap<CgroupPath, u32>,
    known: BTreeMap<CgroupPath, u32>,
    own: Option<CgroupPath>,
}

impl<'a> Census<'a> {
    fn new(host: &'a HostRoot) -> Self {
        Self {
            host,
            workloads: BTreeMap::new(),
            processes: Vec::new(),
            degraded: DegradedTally::default(),
            before: BTreeMap::new(),
            known: BTreeMap::new(),
            own: None,
        }
    }

    /// Adds the cgroups of the cpuset hierarchy; returns the processes in its root.
    fn pinned_apart(&mut self, root: &ControllerRoot) -> Result<Vec<u32>, WorkloadsError> {
        let cgroups = self.walk(root);
        if cgroups.is_empty() {
            let reason = "its root is gone or unreadable".to_owned();
            return Err(WorkloadsError { path: root.path.as_path().to_owned(), reason });
        }
        let mut root_pids = Vec::new();
        let ids: BTreeMap<&CgroupPath, u64> = cgroups.iter().map(|c| (&c.path, c.inode)).collect();
        for cgroup in &cgroups {
            let Some(pids) = self.members(root, &cgroup.path) else { continue };
            if !self.host.captured && pids.contains(&process::id()) {
                self.own = Some(cgroup.path.clone());
            }
            if cgroup.path.is_root() {
                root_pids = pids;
            } else if self.has_user_process(&cgroup.path, &pids) {
                let id = |path: &CgroupPath| ids.get(path).copied().filter(|_| !self.host.captured);
                let workload = workload(&cgroup.path, id);
                self.workloads.entry(workload.cgroup.clone()).or_insert(workload);
            }
        }
        Ok(root_pids)
    }

    /// Adds the cgroups of another hierarchy that hold processes of `left`, and removes these from `left`.
    fn set_apart(&mut self, root: &ControllerRoot, left: &mut BTreeSet<u32>) {
        for cgroup in self.walk(root).iter().filter(|cgroup| !cgroup.path.is_root()) {
            let Some(pids) = self.members(root, &cgroup.path) else { continue };
            let claimed: Vec<u32> = pids.into_iter().filter(|pid| left.contains(pid)).collect();
            if self.has_user_process(&cgroup.path, &claimed) {
                let workload = workload(&cgroup.path, |_| None);
                self.workloads.entry(workload.cgroup.clone()).or_insert(workload);
                for pid in claimed {
                    left.remove(&pid);
                }
            }
        }
    }

    /// Adds a workload for each process that is no kernel thread.
    fn processes(&mut self, pids: &BTreeSet<u32>) {
        let own = (!self.host.captured).then(process::id);
        let mut unseen = 0;
        for &pid in pids.iter().filter(|&&pid| Some(pid) != own).take(MAX_ROOT_PROCESSES) {
            let Some(stat) = self.stat(pid) else {
                unseen += 1;
                continue;
            };
            if stat.kernel_thread {
                continue;
            }
            if self.processes.len() == MAX_PROCESSES {
                self.degraded.push(Degraded::new(
                    "processes",
                    format!("the root cgroup has more than {MAX_PROCESSES} processes"),
                    "those with the highest process ids are not audited",
                ));
                break;
            }
            let command = printable(&stat.command);
            self.processes.push(Workload {
                cgroup: CgroupPath::root(),
                cgroup_id: None,
                name: format!("{command} ({pid})"),
                origin: Origin::Process { pid, command },
            });
        }
        // Some may have ended meanwhile, but not all of them.
        if unseen > 0 && unseen == pids.len() {
            self.degraded.push(Degraded::new(
                "processes",
                format!(
                    "none of the {unseen} processes and kernel threads of the root cgroup is in {}",
                    self.host.proc.display()
                ),
                "processes that no cgroup sets apart are not audited",
            ));
        }
    }

    fn finish(self) -> (Vec<Workload>, Vec<Degraded>) {
        (
            self.processes.into_iter().chain(self.workloads.into_values()).collect(),
            self.degraded.into_entries(),
        )
    }

    fn walk(&mut self, root: &ControllerRoot) -> Vec<Visited> {
        let found = walk(root, &CgroupPath::root(), !self.host.captured);
        for (path, error) in found.unreadable {
            self.degraded.add("cgroup", path, format_args!("{}: {error}", root.path.display()), NOT_AUDITED);
        }
        for path in found.cut {
            let reason = "too many cgroups, or too deep";
            self.degraded.add("cgroup", path, reason, "the cgroups below it are not audited");
        }
        found.cgroups
    }

    /// The processes of a cgroup; `None` when it is gone or cannot be read.
    fn members(&mut self, root: &ControllerRoot, path: &CgroupPath) -> Option<Vec<u32>> {
        let dir = root.dir(path);
        let text = match dir.join(root.files().procs).read_text() {
            // A threaded cgroup has threads but no processes (cgroup-v2.rst, "Threads").
            Err(ReadError { cause, .. }) if cause.kind() == io::ErrorKind::Unsupported => {
                dir.join(root.files().threads).read_text()
            }
            other => other,
        };
        match text {
            Ok(text) => Some(pids(&text)),
            Err(error) if vanished(&error.cause) => None,
            Err(error) => {
                self.degraded.add("cgroup", path, error, NOT_AUDITED);
                None
            }
        }
    }

    /// Whether the cgroup has a user process. The youngest is read first: kernel threads are old. One that
    /// has ended meanwhile was a user process, and is not cached.
    fn has_user_process(&mut self, cgroup: &CgroupPath, pids: &[u32]) -> bool {
        if let Some((cgroup, pid)) = self.before.remove_entry(cgroup).filter(|(_, pid)| pids.contains(pid)) {
            self.known.insert(cgroup, pid);
            return true;
        }
        for &pid in pids.iter().rev() {
            match self.stat(pid) {
                Some(stat) if stat.kernel_thread => {}
                Some(_user) => {
                    self.known.insert(cgroup.clone(), pid);
                    return true;
                }
                None => return true,
            }
        }
        false
    }

    fn stat(&self, pid: u32) -> Option<TaskStat> {
        let text = self.host.proc.join(pid.to_string()).join("stat").read_text().ok()?;
        parse_task_stat(&text).ok()
    }
}

fn workload(path: &CgroupPath, id_of: impl Fn(&CgroupPath) -> Option<u64>) -> Workload {
    let identity = identify(path);
    Workload {
        cgroup_id: id_of(&identity.cgroup),
        cgroup: identity.cgroup,
        name: identity.name,
        origin: identity.origin,
    }
}

/// Process ids; those of another pid namespace read as 0 and are kept, because they are processes too.
fn pids(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use enforcer_core::workload::{QosClass, Runtime};
    use tempfile::TempDir;

    use super::*;

    const ID: &str = "3f4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566aabb";

    struct Tree(TempDir);

    impl Tree {
        fn new() -> Self {
            Self(TempDir::new().unwrap())
        }
        fn file(self, path: &str, text: &str) -> Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }
        /// A cgroup and its processes; `/sys/fs/cgroup` is in front.
        fn cgroup(self, path: &str, pids: &[u32]) -> Self {
            let lines: Vec<String> = pids.iter().map(u32::to_string).collect();
            self.file(&format!("sys/fs/cgroup/{path}/cgroup.procs"), &lines.join("\n"))
        }
        fn process(self, pid: u32, command: &str, kernel_thread: bool) -> Self {
            let flags = if kernel_thread { 0x0020_8040 } else { 4_194_304 };
            let stat = format!("{pid} ({command}) S 1 1 1 0 -1 {flags} 0 0 0 0 1 2 0 0 20 0 1 0 5 6 7 8");
            self.file(&format!("proc/{pid}/stat"), &stat)
        }
        fn read(&self) -> (Vec<Workload>, Vec<Degraded>) {
            self.read_again(&mut UserProcesses::default())
        }
        fn read_again(&self, known: &mut UserProcesses) -> (Vec<Workload>, Vec<Degraded>) {
            let host = HostRoot::captured(self.0.path());
            read_workloads(&host, &CgroupLayout::read(&host).unwrap(), known).unwrap()
        }
    }

    fn v2() -> Tree {
        Tree::new().file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n")
    }

    fn summary(workloads: &[Workload]) -> Vec<(&str, &str)> {
        workloads.iter().map(|w| (w.cgroup.as_str(), w.name.as_str())).collect()
    }

    #[test]
    fn a_kubernetes_node_with_v2() {
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f2b9a31_6a1d.slice";
        let tree = v2()
            .cgroup("", &[2])
            .process(2, "kthreadd", true)
            .cgroup("init.scope", &[1])
            .cgroup("system.slice", &[])
            .cgroup("system.slice/kubelet.service", &[700])
            .cgroup(&format!("{pod}/cri-containerd-{ID}.scope"), &[900, 901])
            .cgroup(pod, &[]);
        let (workloads, degraded) = tree.read();
        assert_eq!(
            summary(&workloads),
            [
                ("/init.scope", "init.scope"),
                (format!("/{pod}/cri-containerd-{ID}.scope").as_str(), "pod-0f2b9a31/3f4a5b6c7d8e"),
                ("/system.slice/kubelet.service", "kubelet.service"),
            ]
        );
        let expected = Origin::Pod {
            pod_uid: "0f2b9a31-6a1d".into(),
            qos: QosClass::Burstable,
            container_id: Some(ID.into()),
            runtime: Some(Runtime::Containerd),
        };
        assert_eq!(workloads[1].origin, expected);
        assert_eq!(degraded, []);
    }

    #[test]
    fn kernel_threads_belong_to_no_workload() {
        let tree = v2()
            .cgroup("", &[2, 50])
            .process(2, "kthreadd", true)
            .process(50, "init", false)
            .cgroup("shielded", &[3, 4])
            .process(3, "rcu_gp", true)
            .process(4, "rcu_par_gp", true);
        let (workloads, degraded) = tree.read();
        assert_eq!(summary(&workloads), [("/", "init (50)")]);
        assert_eq!(workloads[0].origin, Origin::Process { pid: 50, command: "init".into() });
        assert_eq!(degraded, []);
    }

    #[test]
    fn a_process_is_asked_once_while_it_is_in_the_cgroup() {
        let tree = v2().cgroup("", &[2]).process(2, "kthreadd", true);
        let tree = tree.cgroup("a", &[5, 6]).process(5, "one", false).process(6, "other", false);
        let mut known = UserProcesses::default();
        let names = |known: &mut UserProcesses, tree: &Tree| -> Vec<String> {
            tree.read_again(known).0.into_iter().map(|workload| workload.name).collect()
        };
        assert_eq!(names(&mut known, &tree), ["/a"]);
        // The cached answer is used: a new look would find a kernel thread.
        let tree = tree.process(6, "other", true);
        assert_eq!(names(&mut known, &tree), ["/a"]);
        let tree = tree.cgroup("a", &[5]);
        assert_eq!(names(&mut known, &tree), ["/a"], "another one is found");
        let tree = tree.cgroup("a", &[6]);
        assert!(names(&mut known, &tree).is_empty(), "the remaining process is no user process");
        let tree = tree.process(6, "other", false);
        assert_eq!(names(&mut known, &tree), ["/a"]);
        let tree = tree.cgroup("a", &[]);
        assert!(names(&mut known, &tree).is_empty() && known.by_cgroup.is_empty(), "the cgroup is empty");
    }

    #[test]
    fn processes_that_the_cpuset_hierarchy_leaves_together_are_told_apart_by_others() {
        let tree = Tree::new()
            .cgroup("cpuset", &[1, 10, 11, 20, 30])
            .cgroup(&format!("cpuset/docker/{ID}"), &[40])
            .cgroup("memory", &[1, 30])
            .cgroup("memory/jobs/a", &[10, 11])
            .cgroup(&format!("memory/docker/{ID}"), &[40])
            .cgroup("systemd", &[30])
            .cgroup("systemd/init.scope", &[1])
            .cgroup("systemd/system.slice/cron.service", &[20])
            .cgroup("systemd/elsewhere", &[40]);
        let tree = [1, 10, 11, 20, 30].iter().fold(tree, |tree, &pid| tree.process(pid, "a b", false));
        let (workloads, degraded) = tree.read();
        assert_eq!(
            summary(&workloads),
            [
                ("/", "a b (30)"),
                (format!("/docker/{ID}").as_str(), "3f4a5b6c7d8e"),
                ("/init.scope", "init.scope"),
                ("/jobs/a", "/jobs/a"),
                ("/system.slice/cron.service", "cron.service"),
            ]
        );
        assert_eq!(degraded, []);
    }

    #[test]
    fn a_virtual_machine_is_counted_once() {
        let scope = r"machine.slice/machine-qemu\x2d1\x2ddb.scope/libvirt";
        let tree = v2()
            .cgroup(&format!("{scope}/emulator"), &[5])
            .cgroup(&format!("{scope}/vcpu0"), &[6])
            .cgroup(&format!("{scope}/vcpu1"), &[7]);
        let (workloads, _) = tree.read();
        assert_eq!(summary(&workloads), [(r"/machine.slice/machine-qemu\x2d1\x2ddb.scope", "db")]);
    }

    #[test]
    fn a_directory_where_the_list_should_be_is_degraded_by_path() {
        let tree = v2().cgroup("good", &[5]).file("sys/fs/cgroup/bad/cgroup.procs/x", "");
        let (workloads, degraded) = tree.read();
        assert_eq!(summary(&workloads), [("/good", "/good")]);
        assert_eq!(degraded.len(), 1);
        assert_eq!(degraded[0].source, "cgroup:/bad");
        assert!(degraded[0].reason.contains("bad/cgroup.procs"), "{}", degraded[0].reason);
    }

    #[test]
    fn what_vanishes_between_the_walk_and_the_read_is_gone() {
        let tree = v2().cgroup("good", &[5]);
        fs::create_dir(tree.0.path().join("sys/fs/cgroup/gone")).unwrap();
        let (workloads, degraded) = tree.read();
        assert_eq!((summary(&workloads), degraded), (vec![("/good", "/good")], vec![]));
    }

    #[test]
    fn a_copy_without_processes_says_so() {
        let (workloads, degraded) = v2().cgroup("", &[1, 2]).read();
        assert_eq!(workloads, []);
        assert_eq!(degraded[0].source, "processes");
    }

    #[test]
    fn processes_are_bounded() {
        let mut tree = v2().cgroup("", &(1..=1_002).collect::<Vec<u32>>());
        for pid in 1..=1_002 {
            tree = tree.process(pid, "many", false);
        }
        let (workloads, degraded) = tree.read();
        assert_eq!((workloads.len(), degraded.len()), (MAX_PROCESSES, 1));
    }

    #[test]
    fn nonsense_in_a_list_of_processes_is_no_process() {
        let (workloads, _) =
            v2().cgroup("a", &[]).file("sys/fs/cgroup/b/cgroup.procs", "x\n-1\n\u{0}\n").read();
        assert_eq!(workloads, []);
        assert_eq!(pids("0\n0\n12\n99999999999\n"), [0, 0, 12]);
    }

    #[test]
    fn this_host_has_workloads() {
        let host = HostRoot::live();
        let layout = CgroupLayout::read(&host).unwrap();
        let mut known = UserProcesses::default();
        let (workloads, _) = read_workloads(&host, &layout, &mut known).unwrap();
        assert!(known.own_cgroup().is_some(), "this test is in one");
        assert!(!workloads.is_empty());
        let mut keys: Vec<_> = workloads.iter().map(|w| (&w.cgroup, &w.name)).collect();
        keys.dedup();
        assert_eq!(keys.len(), workloads.len());
    }

    #[test]
    fn a_hierarchy_that_is_gone_is_an_error() {
        let tree = v2();
        let host = HostRoot::captured(tree.0.path());
        let layout = CgroupLayout::read(&host).unwrap();
        fs::remove_dir_all(layout.cpuset.path.as_path()).unwrap();
        assert!(
            read_workloads(&host, &layout, &mut UserProcesses::default())
                .unwrap_err()
                .to_string()
                .contains("sys/fs/cgroup")
        );
    }
}
