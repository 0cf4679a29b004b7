use std::{fs, os::fd::OwnedFd, thread, time::Duration};

use numa_topology::set::NodeSet;

use super::*;
use crate::{brake::watchdog::pair, fixture::Fixture};

const MIB: u64 = 1 << 20;
/// Later than all that is tested.
const LATE: u64 = u64::MAX;

/// A frozen-able cgroup with 10 MiB and this `memory.high`.
fn cgroup(fixture: &Fixture, path: &str, high: &str) -> CgroupPath {
    fixture.cgroup(path, "0-3", "0\n");
    let current = format!("{}\n", 10 * MIB);
    for (file, text) in [("cgroup.freeze", "0\n"), ("memory.high", high), ("memory.current", &*current)] {
        fs::write(fixture.path(path).join(file), text).unwrap();
    }
    CgroupPath::new(path)
}

fn guarded(cgroup: &CgroupPath, strict: bool) -> ProtectedWorkload {
    ProtectedWorkload {
        cgroup: cgroup.clone(),
        cgroup_id: Some(1),
        home: NodeSet::new(),
        mems: NodeSet::new(),
        kept: NodeSet::new(),
        cpu_nodes: NodeSet::new(),
        spares: Vec::new(),
        strict,
        above: Vec::new(),
        bound: None,
        bytes: BTreeMap::new(),
    }
}

/// Brakes with a thread as the watching process, and the other end of its socket.
fn brakes(fixture: &Fixture) -> BrakeControl {
    drop(fixture.journal());
    let (near, far): (OwnedFd, OwnedFd) = pair().unwrap();
    thread::spawn(move || watchdog::watch(far.as_fd(), &mut io::sink(), &|_| ()));
    let record = BrakeRecord::open(&fixture.state_dir()).unwrap();
    BrakeControl::new(record, Some("boot-1".into()), BrakeWatchdog::ready_over(near))
}

#[test]
fn it_is_recorded_while_it_lasts_and_the_original_comes_back() {
    let fixture = Fixture::new(true);
    let tree = CpusetTree::new(&fixture.layout.cpuset.path, true);
    let mut brakes = brakes(&fixture);
    let mut files = BrakeFiles::default();
    for (kind, name, high, set, what) in [
        (BrakeKind::Freeze, "cgroup.freeze", "max\n", "1", "cgroup.freeze = 1"),
        (BrakeKind::High, "memory.high", "max\n", "14680064", "memory.high = 14680064"),
        (BrakeKind::High, "memory.high", "99999744\n", "14680064", "memory.high = 14680064"),
    ] {
        let path = cgroup(&fixture, "/a", high);
        let before = fixture.read("/a", name);
        files.follow(&tree, &[guarded(&path, false)]);
        let file = files.get(&path).unwrap();
        brakes.slow(Arc::clone(&file), kind, 400 * MIB, LATE).unwrap();
        assert!(fixture.read("/a", name).starts_with(set), "{what}");
        let recorded = BrakeRecord::read(&fixture.state_dir()).unwrap().slowed;
        assert_eq!((recorded[0].set.as_str(), recorded[0].original.as_str()), (set, before.as_str()));
        assert_eq!(brakes.overdue(LATE, 1), std::slice::from_ref(&path));
        let (slowed, result) = brakes.release(&path).unwrap();
        assert_eq!((slowed.what().as_str(), slowed.kind(), result), (what, kind, Ok(())));
        assert!(fixture.read("/a", name).starts_with(&before), "{what}");
        assert!(BrakeRecord::read(&fixture.state_dir()).unwrap().is_empty());
        assert!(brakes.release(&path).is_none() && brakes.slowed().is_empty());
    }
}

#[test]
fn slow_or_late_workloads_and_foreign_values_are_left_alone() {
    let fixture = Fixture::new(true);
    let tree = CpusetTree::new(&fixture.layout.cpuset.path, true);
    let mut brakes = brakes(&fixture);
    let mut files = BrakeFiles::default();
    let path = cgroup(&fixture, "/a", "11534336\n");
    files.follow(&tree, &[guarded(&path, false)]);
    let file = files.get(&path).unwrap();
    let mut refused = |kind, until| brakes.slow(Arc::clone(&file), kind, 0, until).unwrap_err();
    assert_eq!(refused(BrakeKind::High, LATE), "its memory.high is 11534336 already");
    assert_eq!(refused(BrakeKind::Freeze, 0), "it would be over already");
    fs::write(fixture.path("/a").join("cgroup.freeze"), "1\n").unwrap();
    assert_eq!(refused(BrakeKind::Freeze, LATE), "its tasks stand still already");
    fs::write(fixture.path("/a").join("cgroup.freeze"), "0\n").unwrap();
    brakes.slow(Arc::clone(&file), BrakeKind::Freeze, 0, LATE).unwrap();
    fs::write(fixture.path("/a").join("cgroup.freeze"), "7\n").unwrap();
    assert_eq!(brakes.release(&path).unwrap().1, Ok(()));
    assert_eq!(fixture.read("/a", "cgroup.freeze"), "7\n");
}

#[test]
fn no_file_is_written_without_a_watching_process() {
    let fixture = Fixture::new(true);
    let tree = CpusetTree::new(&fixture.layout.cpuset.path, true);
    drop(fixture.journal());
    let (near, far) = pair().unwrap();
    drop(far);
    let record = BrakeRecord::open(&fixture.state_dir()).unwrap();
    let mut brakes = BrakeControl::new(record, None, BrakeWatchdog::over(near, Duration::from_mins(1)));
    let path = cgroup(&fixture, "/a", "max\n");
    let mut files = BrakeFiles::default();
    files.follow(&tree, &[guarded(&path, false)]);
    let file = files.get(&path).unwrap();
    for kind in [BrakeKind::Freeze, BrakeKind::High] {
        let error = brakes.slow(Arc::clone(&file), kind, 0, LATE).unwrap_err();
        assert!(error.starts_with("no process watches over it"), "{error}");
    }
    assert_eq!(
        (fixture.read("/a", "cgroup.freeze"), fixture.read("/a", "memory.high")),
        ("0\n".into(), "max\n".into())
    );
    assert!(BrakeRecord::read(&fixture.state_dir()).unwrap().is_empty());
}

#[test]
fn files_of_strict_ones_are_not_opened_and_others_once() {
    let fixture = Fixture::new(true);
    let tree = CpusetTree::new(&fixture.layout.cpuset.path, true);
    let [strict, loose] = ["/strict", "/loose"].map(|path| cgroup(&fixture, path, "max\n"));
    let mut files = BrakeFiles::default();
    let all = [guarded(&strict, true), guarded(&loose, false), guarded(&CgroupPath::new("/gone"), false)];
    files.follow(&tree, &all);
    assert!(files.get(&strict).is_none());
    let first = files.get(&loose).unwrap();
    files.follow(&tree, &all);
    assert!(Arc::ptr_eq(&first, &files.get(&loose).unwrap()));
    files.follow(&tree, &[ProtectedWorkload { cgroup_id: Some(2), ..guarded(&loose, false) }]);
    assert!(!Arc::ptr_eq(&first, &files.get(&loose).unwrap()), "it was made again");
    files.follow(&tree, &[]);
    assert!(files.get(&loose).is_none());
}
