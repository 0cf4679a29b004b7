//! Cgroup trees in a directory, for tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use enforcer_core::{
    plan::{Action, PLAN_SCHEMA_VERSION, Plan, Step},
    workload::CgroupPath,
};

use super::{
    Journal, LiveActuator,
    pages::{PageBudget, PageMoveLimits, Stop},
};
use enforcer_host::{
    HostRoot,
    cgroup::{CgroupLayout, CgroupVersion, ControllerRoot},
};
use enforcer_kernel::fake::FakeKernel;

/// A host with a cpuset hierarchy, and a state directory.
pub struct Fixture {
    dir: tempfile::TempDir,
    /// Its one hierarchy.
    pub layout: CgroupLayout,
}

impl Fixture {
    /// With cgroup v2, or with the cpuset hierarchy of v1.
    pub fn new(v2: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::live_below(dir.path()).cgroup;
        fs::create_dir_all(root.as_path()).unwrap();
        let boot = dir.path().join("proc/sys/kernel/random");
        fs::create_dir_all(&boot).unwrap();
        fs::write(boot.join("boot_id"), "boot-1\n").unwrap();
        let cpuset = ControllerRoot { path: root, v2, mounted_cgroup: "/".into() };
        let version = if v2 { CgroupVersion::V2 } else { CgroupVersion::V1 };
        let (memory, hugetlb, systemd, unified) = (None, None, None, None);
        let layout = CgroupLayout { version, cpuset, memory, hugetlb, systemd, unified };
        Self { dir, layout }
    }

    /// Makes a cgroup with these file texts; v1 also has `memory_migrate`.
    pub fn cgroup(&self, path: &str, cpus: &str, mems: &str) {
        let dir = self.path(path);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cpuset.cpus"), cpus).unwrap();
        fs::write(dir.join("cpuset.mems"), mems).unwrap();
        if !self.layout.cpuset.v2 {
            fs::write(dir.join("cpuset.memory_migrate"), "0\n").unwrap();
        }
    }

    /// Makes a process of one thread in a cgroup, as `/proc` shows it.
    pub fn process(&self, cgroup: &str, pid: u32, cpus: &str, numa_maps: &str) {
        let proc = self.dir.path().join("proc");
        let dir = proc.join(format!("{pid}/task/{pid}"));
        fs::create_dir_all(&dir).unwrap();
        let status = format!("Name:\tdb\nTgid:\t{pid}\nCpus_allowed_list:\t{cpus}\n");
        fs::write(proc.join(format!("{pid}/status")), status).unwrap();
        let stat = format!("{pid} (d) b) S {} 77 0\n", "0 ".repeat(18).trim());
        fs::write(proc.join(format!("{pid}/stat")), stat).unwrap();
        fs::write(dir.join("numa_maps"), numa_maps).unwrap();
        let threads = self.path(cgroup).join("cgroup.threads");
        let listed = fs::read_to_string(&threads).unwrap_or_default();
        fs::write(threads, format!("{listed}{pid}\n")).unwrap();
    }

    /// Directory of a cgroup.
    pub fn path(&self, cgroup: &str) -> PathBuf {
        self.layout.cpuset.dir(&CgroupPath::new(cgroup)).as_path().to_owned()
    }

    /// The text of a file of a cgroup.
    pub fn read(&self, cgroup: &str, file: &str) -> String {
        fs::read_to_string(self.path(cgroup).join(file)).unwrap()
    }

    /// The host as the daemon is handed it.
    pub fn host(&self) -> HostRoot {
        HostRoot::live_below(self.dir.path())
    }

    /// The state directory, which nothing is in yet.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Opens the journal of the state directory.
    pub fn journal(&self) -> Journal {
        Journal::open(&self.state_dir()).unwrap()
    }

    /// Actuator for this host, with the journal of the state directory.
    pub fn actuator(&self) -> LiveActuator {
        self.actuator_with(self.journal())
    }

    /// Actuator for this host, with this journal.
    pub fn actuator_with(&self, journal: Journal) -> LiveActuator {
        let budget = PageBudget::new(PageMoveLimits::default(), Stop::default());
        LiveActuator::new(&self.host(), &self.layout, journal, Box::new(FakeKernel::default()), budget)
    }

    /// Every file below the root of the hierarchy with its bytes.
    pub fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        collect(self.layout.cpuset.path.as_path(), &mut files);
        files.sort();
        files
    }
}

fn collect(dir: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), files);
        } else {
            files.push((entry.path(), fs::read(entry.path()).unwrap()));
        }
    }
}

/// A plan of these actions.
pub fn plan(actions: impl IntoIterator<Item = Action>) -> Plan {
    let steps = actions.into_iter().map(|action| Step { action, reason: "test".into() }).collect();
    Plan { schema_version: PLAN_SCHEMA_VERSION, steps, ..Plan::default() }
}

/// A step that sets CPUs.
pub fn set_cpus(cgroup: &str, cpus: &str) -> Action {
    Action::SetCpus { cgroup: CgroupPath::new(cgroup), cpus: cpus.parse().unwrap() }
}

/// A step that sets memory nodes.
pub fn set_mems(cgroup: &str, mems: &str) -> Action {
    Action::SetMems { cgroup: CgroupPath::new(cgroup), mems: mems.parse().unwrap() }
}
