//! Changes of a workload's CPUs or memory nodes, with the process that made them; a kernel without
//! trampolines is named.

use std::{fs, process::Command};

use enforcer_core::{
    memory_policy::PolicyMode,
    sample::{Change, ChangeKind, CpusetFile, PolicyCounts, PolicyScope},
};
use enforcer_kernel::bpf::{
    AttachOptions, FunctionTracing, Hook, KernelChange, Programs, Sizes, WatchedCgroup,
};
use numa_topology::id::NodeId;

use crate::{
    OwnCgroup, attached_by, axis,
    memory::{self, BIND, DEFAULT, INTERLEAVE, Pages},
    options, permitted, refused, remove_cgroup, thread_id, ways,
};

/// Programs with a hook that is attached in the given way, or why that fails.
fn programs(
    hook: Hook,
    functions: FunctionTracing,
    change: impl Fn(AttachOptions) -> AttachOptions,
) -> Option<Programs> {
    let options = AttachOptions { functions, ..change(options(|_| NodeId(0))) };
    let (programs, degraded) = Programs::attach(&options);
    if attached_by(&programs, hook, functions) {
        return Some(programs);
    }
    if functions != FunctionTracing::Trampolines || programs.has(Hook::HintFaults) {
        refused(&format!("{functions:?}: {degraded:?}"));
    } else {
        // Where that must not be, the tests of hinting faults say so.
        println!("skipped: this kernel lets no program trace functions: {degraded:?}");
    }
    None
}

/// The same for each way that there is here.
fn in_each_way(hook: Hook, test: impl Fn(Programs, FunctionTracing)) {
    if !permitted() {
        return;
    }
    for way in ways() {
        if let Some(programs) = programs(hook, way, |options| options) {
            test(programs, way);
        }
    }
}

/// An empty cgroup with cpuset files; `None` without the controller.
struct Empty(std::path::PathBuf);

impl Empty {
    fn new(name: &str) -> Option<Self> {
        let (_, mount) = axis();
        // Where it is on already, or cannot be switched on, the next line tells.
        let _ = fs::write(mount.join("cgroup.subtree_control"), "+cpuset");
        let path = mount.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let made = Self(path);
        made.0.join("cpuset.mems").exists().then_some(made)
    }

    fn id(&self) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(&self.0).unwrap().ino()
    }

    /// Writes by a shell, as another process.
    fn write_by_shell(&self, file: &str, text: &str) -> bool {
        let script = format!("echo '{text}' > {}", self.0.join(file).display());
        Command::new("sh").args(["-c", &script]).status().unwrap().success()
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        remove_cgroup(&self.0);
    }
}

fn told(programs: &mut Programs) -> Vec<Change> {
    let told = programs.changes().unwrap();
    assert_eq!((told.told, told.forgotten), (told.latest.len() as u64, 0));
    told.latest.into_iter().map(|KernelChange { change, .. }| change).collect()
}

#[test]
fn foreign_cpuset_write_is_reported_with_its_process() {
    in_each_way(Hook::CpusetWrites, |mut programs, way| {
        let (Some(watched), Some(other)) = (Empty::new("written"), Empty::new("unwatched")) else {
            return refused("no cpuset controller");
        };
        programs.watch(&[(watched.id(), WatchedCgroup::alone(watched.id()))].into()).unwrap();
        let written = |file| ChangeKind::CpusetWritten { file };
        for (name, file) in [("cpuset.cpus", CpusetFile::Cpus), ("cpuset.mems", CpusetFile::Mems)] {
            assert!(watched.write_by_shell(name, "0"));
            let told = told(&mut programs);
            let [change] = told.as_slice() else { panic!("{told:?}") };
            assert_eq!((&change.what, change.cgroup_id), (&written(file), watched.id()), "{way:?}");
            assert!(
                change.command == "sh" && change.tid == change.pid && change.tid != thread_id(),
                "{change:?}"
            );
        }
        // What is refused changes nothing, what the daemon writes is its own, and others are not watched.
        assert!(!watched.write_by_shell("cpuset.mems", "1000"));
        fs::write(watched.0.join("cpuset.mems"), "0").unwrap();
        assert!(other.write_by_shell("cpuset.mems", "0"));
        assert_eq!(told(&mut programs), []);
        let counters = programs.read().unwrap().remove(&watched.id()).unwrap();
        let once = [(CpusetFile::Cpus, 1), (CpusetFile::Mems, 1)].into();
        assert_eq!(counters.tallies.cpuset_writes(), once);
    });
}

/// After the reported write is read, the next write is reported again.
#[test]
fn of_unread_writes_one_is_reported_and_all_are_counted() {
    in_each_way(Hook::CpusetWrites, |mut programs, _| {
        let Some(watched) = Empty::new("often") else { return refused("no cpuset controller") };
        programs.watch(&[(watched.id(), WatchedCgroup::alone(watched.id()))].into()).unwrap();
        for round in 1..=2 {
            for _ in 0..5 {
                assert!(watched.write_by_shell("cpuset.mems", "0"));
            }
            assert_eq!(told(&mut programs).len(), 1);
            let counters = programs.read().unwrap().remove(&watched.id()).unwrap();
            assert_eq!(counters.tallies.cpuset_writes(), [(CpusetFile::Mems, 5 * round)].into());
            assert_eq!(programs.drops().unwrap().unwrap().changes_unread, 4 * round);
        }
    });
}

#[test]
fn a_change_that_finds_no_room_is_counted() {
    let page = u32::try_from(rustix::param::page_size()).unwrap();
    let small = |options: AttachOptions| AttachOptions {
        event_interval_ns: 0,
        sizes: Sizes { event_bytes: page, ..options.sizes },
        ..options
    };
    if !permitted() {
        return;
    }
    let trampolines = FunctionTracing::Trampolines;
    let Some(mut programs) = programs(Hook::Policies, trampolines, small) else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cgroup = OwnCgroup::enter("no-room");
            let nowhere = WatchedCgroup {
                allowed: Some([].into_iter().collect()),
                ..WatchedCgroup::alone(cgroup.id())
            };
            programs.watch(&[(cgroup.id(), nowhere)].into()).unwrap();
            // Threads that start where they should not fill the ring.
            while programs.drops().unwrap().unwrap().events == 0 {
                std::thread::spawn(|| ()).join().unwrap();
            }
            memory::set_policy(BIND, 1).unwrap();
            memory::set_policy(DEFAULT, 0).unwrap();
            let drops = programs.drops().unwrap().unwrap();
            assert_eq!((drops.changes, drops.changes_unread), (2, 0));
        });
    });
}

#[test]
fn memory_policies_are_told_with_mode_and_nodes() {
    in_each_way(Hook::Policies, |mut programs, _| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Outside of what is watched.
                memory::set_policy(BIND, 1).unwrap();
                memory::set_policy(DEFAULT, 0).unwrap();
                let pages = Pages::touched(4);
                let cgroup = OwnCgroup::enter("policies");
                programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
                assert_eq!(told(&mut programs), []);
                for (mode, name) in [(BIND, PolicyMode::Bind), (INTERLEAVE, PolicyMode::Interleave)] {
                    memory::set_policy(mode, 1).unwrap();
                    let told = told(&mut programs);
                    let numa_nodes = [NodeId(0)].into_iter().collect();
                    let set = ChangeKind::PolicySet { scope: PolicyScope::Task, mode: name, numa_nodes };
                    let [change] = told.as_slice() else { panic!("{told:?}") };
                    assert_eq!((&change.what, change.cgroup_id), (&set, cgroup.id()));
                    assert_eq!((change.tid, change.pid), (thread_id(), std::process::id()));
                }
                // A mode that there is not is refused, so it changes nothing.
                memory::set_policy(99, 1).unwrap_err();
                pages.bind(0).unwrap();
                let told = told(&mut programs);
                let scopes: Vec<PolicyScope> = told
                    .iter()
                    .filter_map(|change| match change.what {
                        ChangeKind::PolicySet { scope, .. } => Some(scope),
                        ChangeKind::CpusetWritten { .. } => None,
                    })
                    .collect();
                assert_eq!(scopes, [PolicyScope::Range], "{told:?}");
                memory::set_policy(DEFAULT, 0).unwrap();
                let counters = programs.read().unwrap().remove(&cgroup.id()).unwrap();
                let counts = |tasks, ranges| PolicyCounts { tasks, ranges };
                let expected = [
                    (PolicyMode::Default, counts(1, 0)),
                    (PolicyMode::Bind, counts(1, 1)),
                    (PolicyMode::Interleave, counts(1, 0)),
                ];
                assert_eq!(counters.tallies.policies(), expected.into());
            });
        });
    });
}

/// The mask of a policy is as long as the kernel's, and all of it is told: nodes that the machine has not are
/// in it too, and stay without effect.
#[test]
fn nodes_behind_the_first_word_of_a_policy_are_told() {
    in_each_way(Hook::Policies, |mut programs, way| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let cgroup = OwnCgroup::enter("wide-policies");
                programs.watch(&[(cgroup.id(), WatchedCgroup::alone(cgroup.id()))].into()).unwrap();
                let mask = [1, 1 << 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 << 63];
                let set = memory::set_wide_policy(BIND, &mask);
                memory::set_policy(DEFAULT, 0).unwrap();
                if let Err(error) = set {
                    println!("skipped: this kernel is built for fewer nodes: {error}");
                    return;
                }
                let told = told(&mut programs);
                let nodes: Vec<_> = told
                    .iter()
                    .filter_map(|change| match &change.what {
                        ChangeKind::PolicySet { numa_nodes, .. } => Some(numa_nodes.to_string()),
                        ChangeKind::CpusetWritten { .. } => None,
                    })
                    .collect();
                assert_eq!(nodes, ["0,70,1023"], "{way:?}");
            });
        });
    });
}
