//! The files that a turn opens when nothing has changed: each file of current placement once, and no other.
//! inotify reports each file, so the test does not rely on the code's own account.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tempfile::TempDir;

use super::*;
use enforcer_act::{
    Journal, LiveActuator,
    pages::{PageBudget, PageMoveLimits, Stop},
};
use enforcer_host::{HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::fake::FakeKernel;
use enforcer_observe::SamplerOptions;

const CONTAINERS: u32 = 3;

/// Two nodes of four CPUs, and containers that have one CPU each and are where they should be.
struct Quiet {
    dir: TempDir,
    engine: Engine,
}

impl Quiet {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| put(dir.path(), path, text);
        put("proc/sys/kernel/random/boot_id", "boot-1\n");
        put("proc/sys/kernel/numa_balancing", "1\n");
        put("sys/devices/system/cpu/online", "0-7\n");
        for (node, cpus) in [(0, 0..4), (1, 4..8)] {
            let at = format!("sys/devices/system/node/node{node}");
            let memory = format!("Node {node} MemTotal: 8388608 kB\nNode {node} MemFree: 8000000 kB\n");
            put(&format!("{at}/meminfo"), &memory);
            put(&format!("{at}/cpulist"), &format!("{}-{}\n", cpus.start, cpus.end - 1));
            put(&format!("{at}/distance"), if node == 0 { "10 20\n" } else { "20 10\n" });
            for cpu in cpus {
                let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
                put(&format!("{topology}/physical_package_id"), &format!("{node}\n"));
                put(&format!("{topology}/core_id"), &format!("{cpu}\n"));
                put(&format!("{topology}/thread_siblings_list"), &format!("{cpu}\n"));
            }
        }
        put("cgroup/cgroup.controllers", "cpuset cpu memory\n");
        put("cgroup/cpuset.cpus.effective", "0-7\n");
        put("cgroup/cpuset.mems.effective", "0-1\n");
        let mut policy = "mode = \"enforce\"\n".to_owned();
        for index in 0..CONTAINERS {
            let (cgroup, pid) = (format!("cgroup/{index}"), 1_000 + index);
            for file in ["cpuset.cpus", "cpuset.cpus.effective"] {
                put(&format!("{cgroup}/{file}"), &format!("{index}\n"));
            }
            for file in ["cpuset.mems", "cpuset.mems.effective"] {
                put(&format!("{cgroup}/{file}"), "0\n");
            }
            put(&format!("{cgroup}/memory.current"), "8192\n");
            put(&format!("{cgroup}/memory.numa_stat"), "anon N0=8192 N1=0\nfile N0=0 N1=0\n");
            put(&format!("{cgroup}/cgroup.procs"), &format!("{pid}\n"));
            put(&format!("{cgroup}/cgroup.threads"), &format!("{pid}\n"));
            let zeros = "0 ".repeat(23);
            let stat = format!("{pid} (worker) S 1 1 1 0 -1 4194304 0 0 0 0 1 2 {zeros}{index} 0\n");
            for at in ["", "task/PID/"] {
                put(&format!("proc/{pid}/{}stat", at.replace("PID", &pid.to_string())), &stat);
            }
            put(&format!("proc/{pid}/task/{pid}/status"), &format!("Cpus_allowed_list:\t{index}\n"));
            writeln!(policy, "[[workload]]\nname = \"{index}\"\ncgroup = \"/{index}\"\ncpus = 1").unwrap();
        }
        let at = |name: &str| dir.path().join(name);
        let live = HostRoot::live();
        let [sys, proc, cgroup] = ["sys", "proc", "cgroup"].map(|tree| live.at(at(tree)));
        let host = HostRoot { sys, proc, cgroup, captured: false };
        let layout = CgroupLayout::read(&host).unwrap();
        let options = SamplerOptions { bpf: false, counters: false, ..SamplerOptions::default() };
        let source = LiveSource::new(host.clone(), layout.clone(), options);
        let mut engine = Engine::new(Box::new(source), toml::from_str(&policy).unwrap());
        let budget = PageBudget::new(PageMoveLimits::default(), Stop::default());
        let journal = Journal::open(&at("state")).unwrap();
        let kernel = Box::new(FakeKernel::default());
        engine.set_actuator(Box::new(LiveActuator::new(&host, &layout, journal, kernel, budget)));
        Self { dir, engine }
    }

    /// Runs a turn and collects the file events.
    fn turn(&mut self, number: u64) -> (TickReport, Touched) {
        let watches = Watches::below(self.dir.path());
        let report = self.engine.turn(number * 10 * SECOND).unwrap();
        (report, watches.touched())
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Number of opens of each file, and the changed files.
#[derive(Debug, Default)]
struct Touched {
    opened: BTreeMap<PathBuf, usize>,
    changed: BTreeSet<PathBuf>,
}

impl Touched {
    /// Opens of a container's files and its process's, with counts.
    fn of(&self, index: u32) -> BTreeMap<String, usize> {
        let (cgroup, process) = (format!("cgroup/{index}/"), format!("proc/{}/", 1_000 + index));
        let name = |path: &PathBuf| {
            let path = path.to_str()?;
            let of_it = path.starts_with(&cgroup) || path.starts_with(&process);
            of_it.then(|| path.replace(&cgroup, "cgroup/").replace(&(1_000 + index).to_string(), "PID"))
        };
        self.opened.iter().filter_map(|(path, &times)| Some((name(path)?, times))).collect()
    }
}

struct Watches {
    inotify: OwnedFd,
    root: PathBuf,
    dirs: BTreeMap<i32, PathBuf>,
}

impl Watches {
    fn below(root: &Path) -> Self {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let mut watches = Self { inotify, root: root.into(), dirs: BTreeMap::new() };
        watches.add(root);
        watches
    }

    fn add(&mut self, dir: &Path) {
        let changes = WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVE;
        let flags = WatchFlags::OPEN | WatchFlags::CREATE | WatchFlags::DELETE | changes;
        let entries: Vec<_> = fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
        for entry in entries.iter().filter(|entry| entry.file_type().unwrap().is_dir()) {
            self.add(&entry.path());
        }
        let number = inotify::add_watch(&self.inotify, dir, flags).unwrap();
        self.dirs.insert(number, dir.strip_prefix(&self.root).unwrap().into());
    }

    fn touched(self) -> Touched {
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut events = Reader::new(&self.inotify, &mut buffer);
        let mut touched = Touched::default();
        while let Ok(event) = events.next() {
            assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW), "some events are lost");
            // A directory's own event has no name; its parent's event has one.
            let Some(name) = event.file_name() else { continue };
            let path = self.dirs[&event.wd()].join(name.to_str().unwrap());
            if event.events().contains(ReadFlags::ISDIR | ReadFlags::OPEN) {
                // The library opens directories for listings.
            } else if event.events().contains(ReadFlags::OPEN) {
                *touched.opened.entry(path).or_default() += 1;
            } else {
                touched.changed.insert(path);
            }
        }
        touched
    }
}

#[test]
fn of_a_container_that_has_not_changed_what_tells_so_is_read_once_and_nothing_else() {
    let mut quiet = Quiet::new();
    let (report, _) = quiet.turn(1);
    assert_eq!(report.decision.in_place.len(), CONTAINERS as usize, "{:?}", report.decision);
    let mut before = None;
    for number in 2..5 {
        let (report, touched) = quiet.turn(number);
        assert!(report.outcomes.is_empty());
        assert_eq!(touched.changed, BTreeSet::new());
        for index in 0..CONTAINERS {
            let of_it = touched.of(index);
            assert!(of_it.values().all(|&times| times == 1), "{of_it:#?}");
            assert_eq!(*before.get_or_insert_with(|| of_it.clone()), of_it);
        }
    }
    insta::assert_snapshot!(before.unwrap().into_keys().collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_is_written_for_one_that_has_changed_is_seen() {
    let mut quiet = Quiet::new();
    quiet.turn(1);
    for file in ["cpuset.cpus", "cpuset.cpus.effective"] {
        put(quiet.dir.path(), &format!("cgroup/1/{file}"), "4-7\n");
    }
    let (_, touched) = quiet.turn(2);
    let changed: Vec<_> = touched.changed.iter().map(|path| path.to_str().unwrap()).collect();
    assert!(changed.contains(&"cgroup/1/cpuset.cpus"), "{changed:?}");
    assert!(changed.iter().any(|path| path.starts_with("state/")), "{changed:?}");
    assert!(!changed.iter().any(|path| path.starts_with("cgroup/0/")), "{changed:?}");
}
