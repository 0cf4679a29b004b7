//! Memory pressure is reported before a node is full, with the cgroup, the task and the reason.
//!
//! A process of its own allocates, in a cgroup of its own that is bound to one node or has a limit: it is
//! this test's binary, started for `pressure::hog` alone.

use std::{
    fs,
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use aya::maps::{Array, Map, MapData, loaded_maps};
use enforcer_core::sample::{OomConstraint, PressureEvent, PressureKind};
use enforcer_kernel::bpf::{AttachOptions, FunctionTracing, Hook, PressureRing, Programs, WatchedCgroup};
use numa_topology::id::NodeId;
use tokio::io::{Interest, unix::AsyncFd};

use crate::{attached_by, leftovers::Ids, options, permitted, refused, remove_cgroup, ways};

const CGROUP: &str = "KERNEL_SIDE_HOG_CGROUP";
const MEBIBYTES: &str = "KERNEL_SIDE_HOG_MEBIBYTES";
/// Longest time until the OOM killer acts, on a slow and busy machine.
const LIMIT: Duration = Duration::from_secs(100);
const KILLED: i32 = 9;

/// The hog of the other tests: joins a cgroup, touches memory and ends.
#[test]
#[ignore = "a process of the tests below"]
fn hog() {
    let (Ok(cgroup), Ok(mebibytes)) = (std::env::var(CGROUP), std::env::var(MEBIBYTES)) else { return };
    // The OOM killer must choose this process.
    fs::write("/proc/self/oom_score_adj", "1000").unwrap();
    fs::write(Path::new(&cgroup).join("cgroup.procs"), "0").unwrap();
    let mut memory = vec![0u8; mebibytes.parse::<usize>().unwrap() << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// A cgroup of the memory controller, until it is dropped.
struct Limited {
    path: PathBuf,
    v2: bool,
}

impl Limited {
    /// None where the controller is not to be had.
    fn new(name: &str) -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = !v1.join("memory.limit_in_bytes").exists() && !v1.join("memory.usage_in_bytes").exists();
        let mount = if v2 { Path::new("/sys/fs/cgroup") } else { v1 };
        if v2 {
            fs::write(mount.join("cgroup.subtree_control"), "+cpuset +memory").ok()?;
        }
        let path = mount.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self { path, v2 })
    }

    fn limit(&self, mebibytes: u64) {
        let file = if self.v2 { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(self.path.join(file), (mebibytes << 20).to_string()).unwrap();
        // Without it a swap file would take what does not fit.
        let _without_swap = fs::write(self.path.join("memory.swap.max"), "0");
    }

    fn hog(&self, mebibytes: u64) -> Child {
        Command::new("/proc/self/exe")
            .args(["--ignored", "--exact", "pressure::hog"])
            .env(CGROUP, &self.path)
            .env(MEBIBYTES, mebibytes.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Kills in it so far, where the kernel says.
    fn kills(&self) -> Option<u64> {
        let file = if self.v2 { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.path.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.parse().ok()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        remove_cgroup(&self.path);
    }
}

/// Waits at the ring's file descriptor, as the daemon's runtime would, until the process has ended and, where
/// it was killed, its death was told.
fn watch(ring: &mut PressureRing, child: &mut Child) -> (ExitStatus, Vec<PressureEvent>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let fd = ring.as_fd().try_clone_to_owned().unwrap();
        #[expect(deprecated, reason = "its successor is unsafe; the descriptor is owned by it here")]
        let mut readable = AsyncFd::with_interest(fd, Interest::READABLE).unwrap();
        let (begun, mut events) = (Instant::now(), Vec::new());
        let mut status = None;
        loop {
            let ready = tokio::time::timeout(Duration::from_millis(100), readable.readable_mut()).await;
            if let Ok(ready) = ready {
                // Before the ring is read: what comes meanwhile makes it readable again.
                ready.unwrap().clear_ready();
                ring.read(|event| events.push(event.unwrap()));
            }
            let told = events.iter().any(|event: &PressureEvent| event.tid == child.id() && is_kill(event));
            if let Some(status) = status
                && (told || ExitStatus::signal(&status).is_none())
            {
                return (status, events);
            }
            status = child.try_wait().unwrap();
            if begun.elapsed() > LIMIT {
                let _gone_already = child.kill();
                panic!("{status:?} after {LIMIT:?}: {events:?}");
            }
        }
    })
}

fn is_kill(event: &PressureEvent) -> bool {
    event.kind == PressureKind::OomVictim
}

/// The programs with all that is told of memory, or why not.
fn programs() -> Option<Programs> {
    programs_by(FunctionTracing::default())
}

fn programs_by(functions: FunctionTracing) -> Option<Programs> {
    if !permitted() {
        return None;
    }
    let options = AttachOptions { event_interval_ns: 0, functions, ..options(|_| NodeId(0)) };
    let (programs, degraded) = Programs::attach(&options);
    if programs.has(Hook::Pressure) && programs.has(Hook::OomVictim) {
        return Some(programs);
    }
    refused(&format!("{degraded:?}"));
    None
}

#[test]
fn a_kill_for_a_limit_is_told_with_its_victim_and_its_constraint() {
    for way in ways() {
        let Some(mut programs) = programs_by(way) else { return };
        let knows_why = attached_by(&programs, Hook::OomConstraint, way);
        if !knows_why && programs.has(Hook::HintFaults) {
            return refused(&format!("{way:?}: {:?}", programs.hooks()));
        }
        let Some(cgroup) = Limited::new("pressure-limit") else { return refused("no memory controller") };
        cgroup.limit(32);
        let mut hog = cgroup.hog(128);
        let (status, events) = watch(programs.pressure().unwrap(), &mut hog);
        assert_eq!(status.signal(), Some(KILLED), "{events:?}");
        let kills: Vec<_> = events.iter().filter(|event| is_kill(event) && event.tid == hog.id()).collect();
        assert_eq!(kills.len(), 1, "{events:?}");
        assert_eq!(kills[0].constraint, knows_why.then_some(OomConstraint::Memcg), "{way:?} {events:?}");
        assert_eq!(cgroup.kills(), Some(1));
        nothing_is_remembered_of_kills(way);
    }
}

/// What the kernel side remembers of a kill that is under way is forgotten when the kernel is through with
/// it: it is an address on the stack of a thread that goes on.
fn nothing_is_remembered_of_kills(way: FunctionTracing) {
    let own = Ids::held_by(std::process::id());
    let map = loaded_maps().flatten().find(|map| map.name() == b"OOM" && own.maps.contains(&map.id()));
    let map = MapData::from_id(map.unwrap().id()).unwrap();
    let words: Array<MapData, u64> = Map::Array(map).try_into().unwrap();
    let end = Instant::now() + LIMIT;
    loop {
        let left = [0, 1].map(|word| words.get(&word, 0).unwrap());
        if left == [0, 0] {
            return;
        }
        assert!(Instant::now() < end, "{way:?} remembers {left:x?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A cgroup that was removed, and that the kernel keeps because memory is still charged to it, takes no room
/// from those that are watched.
#[test]
fn a_removed_cgroup_makes_room_though_its_memory_stays() {
    let Some(mut programs) = programs() else { return };
    if !programs.has(Hook::CgroupTree) {
        return refused(&format!("{:?}", programs.hooks()));
    }
    let Some(parent) = Limited::new("pressure-dying").filter(|cgroup| cgroup.v2) else {
        println!("skipped: needs the memory controller on cgroup v2");
        return;
    };
    if crate::axis().0 == enforcer_kernel::bpf::CgroupAxis::Cpuset {
        println!("skipped: cgroups of another hierarchy are watched");
        return;
    }
    fs::write(parent.path.join("cgroup.subtree_control"), "+memory").unwrap();
    let id = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&parent.path).unwrap());
    programs.watch(&[(id, WatchedCgroup::alone(id))].into()).unwrap();
    let below = parent.path.join("gone");
    fs::create_dir(&below).unwrap();
    assert_eq!(programs.fill().unwrap().0, 2, "it inherits");

    // Memory that outlives its process: this one has the file.
    let file = rustix::fs::memfd_create("left", rustix::fs::MemfdFlags::empty()).unwrap();
    let (own, fd) = (std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&file));
    let fill = format!(
        "echo 0 > {}/cgroup.procs; exec dd if=/dev/zero of=/proc/{own}/fd/{fd} bs=1048576 count=8",
        below.display()
    );
    assert!(Command::new("sh").args(["-c", &fill]).stderr(Stdio::null()).status().unwrap().success());
    remove_cgroup(&below);
    let of_parent = |file: &str| fs::read_to_string(parent.path.join(file)).unwrap();
    let charged: u64 = of_parent("memory.current").trim().parse().unwrap();
    println!("{charged} bytes stay charged; {}", of_parent("cgroup.stat").replace('\n', ", "));
    assert!(charged >= 8 << 20, "control: its memory is there");
    assert_eq!(programs.fill().unwrap().0, 1, "its entry is gone with its directory");
}

#[test]
fn memory_that_fits_kills_no_process() {
    let Some(mut programs) = programs() else { return };
    let Some(cgroup) = Limited::new("pressure-fits") else { return refused("no memory controller") };
    cgroup.limit(256);
    let mut hog = cgroup.hog(32);
    let (status, events) = watch(programs.pressure().unwrap(), &mut hog);
    assert!(status.success(), "{status:?}");
    assert!(!events.iter().any(|event| is_kill(event) && event.tid == hog.id()), "{events:?}");
    assert_eq!(cgroup.kills(), Some(0));
}

/// A node is reported short before the OOM killer acts, while the other node has memory.
#[test]
fn short_node_is_reported_before_the_oom_killer_acts() {
    let memory_of = |node: u32, what: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/sys/devices/system/node/node{node}/meminfo")).ok()?;
        let line = text.lines().find(|line| line.contains(what))?;
        line.split_whitespace().rev().nth(1)?.parse::<u64>().ok().map(|kib| kib >> 10)
    };
    let Some(mut programs) = programs() else { return };
    let (Some(total), Some(_)) = (memory_of(0, "MemTotal"), memory_of(1, "MemTotal")) else {
        println!("skipped: needs two NUMA nodes");
        return;
    };
    let Some(cgroup) = Limited::new("pressure-node").filter(|cgroup| cgroup.v2) else {
        println!("skipped: needs the memory and the cpuset controller on cgroup v2");
        return;
    };
    if total > 8_192 {
        println!("skipped: would fill {total} MiB of this host");
        return;
    }
    fs::write(cgroup.path.join("cpuset.mems"), "0").unwrap();
    let knows_why = programs.has(Hook::OomConstraint);
    let mut hog = cgroup.hog(total);
    let (status, events) = watch(programs.pressure().unwrap(), &mut hog);
    assert_eq!(status.signal(), Some(KILLED), "{events:?}");
    let at = |found: &dyn Fn(&PressureEvent) -> bool| events.iter().position(found);
    let woken = at(&|event| event.kind == PressureKind::KswapdWoken && event.numa_node == NodeId(0)).unwrap();
    let killed = at(&|event| is_kill(event) && event.tid == hog.id()).unwrap();
    println!("{} ns before", events[killed].time_ns.saturating_sub(events[woken].time_ns));
    assert!(woken < killed && events[woken].time_ns < events[killed].time_ns, "{events:?}");
    assert_eq!(events[killed].constraint, knows_why.then_some(OomConstraint::Cpuset), "{events:?}");
    assert_eq!(cgroup.kills(), Some(1));
    assert!(memory_of(1, "MemFree").unwrap() > 32, "the other node has memory");
}
