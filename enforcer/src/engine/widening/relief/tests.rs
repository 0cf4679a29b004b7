use std::{fs, path::Path};

use enforcer_core::{policy::WideningSettings, widening::spares};
use numa_topology::synth::Machine;

use super::*;
use enforcer_host::HostRoot;
use enforcer_kernel::fake::FakeKernel;

/// Pages of each node; with less than 96 MiB free it is short, and 128 MiB are wanted.
const NODE: usize = 100_000;
/// Pages of 78 MiB: 50 MiB are missing.
const SHORT: usize = 20_000;
const MISSING: usize = 12_768;
const START: usize = 0x7f00_0000_0000;

struct Host {
    dir: tempfile::TempDir,
    relief: ReliefWorker<FakeKernel>,
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Host {
    /// Two nodes with these numbers of free pages.
    fn new(free: [usize; 2]) -> Self {
        let dir = tempfile::TempDir::new().unwrap();
        let zone = |node: usize| format!("Node {node}, zone Normal\n  low 0\n  managed {NODE}\n");
        put(dir.path(), "proc/zoneinfo", &(zone(0) + &zone(1)));
        for (node, free) in free.iter().enumerate() {
            let path = format!("sys/devices/system/node/node{node}/meminfo");
            put(dir.path(), &path, &format!("Node {node} MemFree: {} kB\n", free * 4));
        }
        let host = HostRoot::captured(dir.path());
        let widening = Widening::new().unwrap();
        let senses = ReliefSensors {
            rooms: HeadroomReader::new(&host, enforcer_core::page_size::PageSize::SMALLEST),
            tenants: ResidentsReader::new(&host),
        };
        let tree = CpusetTree::new(&host.at(dir.path().join("cgroup")), true);
        let mut relief = ReliefWorker::new(
            FakeKernel::default(),
            widening,
            senses,
            tree,
            Gate::default(),
            Demotion::default(),
        );
        // Enough on the slowest machine.
        let limits = PageMoveLimits { time: Duration::from_mins(10), ..PageMoveLimits::default() };
        relief.budget = PageBudget::new(limits, Stop::default());
        Self { dir, relief }
    }

    /// A process with `pages` pages on node 0, under this policy.
    fn process(&self, cgroup: &str, pid: u32, policy: &str, pages: usize) {
        let root = self.dir.path();
        put(root, &format!("cgroup{cgroup}/cgroup.procs"), &format!("{pid}\n"));
        let line = format!("{START:x} {policy} anon={pages} N0={pages} kernelpagesize_kB=4\n");
        put(root, &format!("proc/{pid}/numa_maps"), &line);
        let end = START + pages * 4096;
        put(root, &format!("proc/{pid}/maps"), &format!("{START:x}-{end:x} rw-p 0 0:0 0\n"));
        self.relief.kernel.map(pid, START, pages, 0);
    }

    /// Guards these: at home on node 0, strict or not, and with node 1 added or not.
    fn guard(&self, guarded: &[(&str, bool, bool)]) {
        let machine = Machine::new().sockets(2).build();
        let home: NodeSet = [NodeId(0)].into_iter().collect();
        let one = |(path, strict, _): &(&str, bool, bool)| ProtectedWorkload {
            cgroup: CgroupPath::new(path),
            cgroup_id: None,
            spares: spares(&machine, &home, &home, &machine.memory_nodes(), true),
            mems: home.clone(),
            kept: NodeSet::default(),
            cpu_nodes: home.clone(),
            home: home.clone(),
            strict: *strict,
            above: Vec::new(),
            bound: None,
            bytes: BTreeMap::new(),
        };
        let widening = &self.relief.widening;
        for (path, _, added) in guarded {
            if *added {
                widening.adopt(&CgroupPath::new(path), [NodeId(1)].into_iter().collect());
            }
        }
        widening.guard(&WideningSettings::default(), guarded.iter().map(one).collect());
    }

    fn moved(&self) -> usize {
        self.relief.kernel.count_on(1)
    }

    fn said(&self) -> Vec<String> {
        self.relief.widening.lock().moved.iter().map(ReliefMove::sentence).collect()
    }
}

#[test]
fn a_bound_process_of_a_widened_workload_makes_room_for_itself() {
    let mut host = Host::new([SHORT, 90_000]);
    host.process("/a", 7, "bind:0", 40_000);
    host.guard(&[("/a", false, true)]);
    assert_eq!(host.relief.run_round(), BUSY);
    assert_eq!(host.moved(), MISSING, "what is missing and no more");
    let said = host.said();
    assert!(said.len() == 1 && said[0].contains("1 process bound to node 0 went to node 1"), "{said:?}");
    let report = host.relief.widening.report();
    assert_eq!(report.relieved.get("bound"), Some(&(MISSING as u64 * 4096)));
}

#[test]
fn workload_that_is_not_widened_or_not_bound_or_has_room_is_left_alone_and_rests() {
    for (free, policy, added) in [
        ([90_000, 90_000], "bind:0", true),
        ([SHORT, 90_000], "bind:0", false),
        ([SHORT, SHORT], "bind:0", true),
        ([SHORT, 90_000], "default", true),
    ] {
        let mut host = Host::new(free);
        host.process("/a", 7, policy, 40_000);
        host.guard(&[("/a", false, added)]);
        assert_eq!(host.relief.run_round(), if added { CALM } else { IDLE });
        assert_eq!((host.moved(), host.said().len()), (0, 0), "{free:?} {policy} {added}");
        let reads = free[0] == SHORT && free[1] > SHORT && added;
        assert_eq!(host.relief.rests.len(), usize::from(reads));
    }
}

#[test]
fn a_workload_that_may_need_room_wakes_the_thread() {
    let mut host = Host::new([90_000, 90_000]);
    let woken = |host: &Host| host.relief.widening.relief_waker.wait(None, Duration::ZERO).unwrap().0;
    host.guard(&[("/a", false, false)]);
    assert!(!woken(&host), "no workload needs it");
    assert_eq!(host.relief.run_round(), IDLE);
    host.guard(&[("/a", true, false)]);
    assert!(woken(&host), "one is declared to stay");
    host.guard(&[("/a", true, false), ("/b", false, false)]);
    assert!(!woken(&host), "it looks often already");
    host.relief.widening.adopt(&CgroupPath::new("/b"), "1".parse().unwrap());
    assert!(woken(&host), "an earlier daemon has added a node");
    assert_eq!(host.relief.run_round(), CALM);
}

#[test]
fn neighbours_make_room_for_a_strict_workload() {
    let mut host = Host::new([SHORT, 90_000]);
    host.process("/stays", 7, "default", 30_000);
    host.process("/near", 8, "default", 30_000);
    host.guard(&[("/stays", true, false), ("/near", false, true)]);
    assert_eq!(host.relief.run_round(), BUSY);
    assert_eq!(host.moved(), MISSING);
    assert!(
        host.said()[0].contains("so that /stays, which is declared to stay, has room"),
        "{:?}",
        host.said()
    );
    let pages = host.relief.kernel.pages.borrow();
    assert!(pages.iter().all(|((pid, _), node)| *pid == 8 || *node == NodeId(0)), "its own pages stay");
}

#[test]
fn nothing_moves_while_enforcement_is_paused() {
    let mut host = Host::new([SHORT, 90_000]);
    host.process("/a", 7, "bind:0", 40_000);
    host.guard(&[("/a", false, true)]);
    host.relief.gate.close(None);
    host.relief.run_round();
    assert_eq!(host.moved(), 0);
    host.relief.gate.open();
    host.relief.rests.clear();
    host.relief.run_round();
    assert_eq!(host.moved(), MISSING);
}

#[test]
fn what_moving_does_not_free_is_asked_of_cold_pages_and_no_longer_once_there_is_room() {
    let mut host = Host::new([SHORT, 90_000]);
    host.process("/stays", 7, "default", 30_000);
    host.process("/near", 8, "default", 30_000);
    let missing = |host: &Host| host.relief.demotion.pressed().of(&CgroupPath::new("/near"));
    host.guard(&[("/stays", true, false), ("/near", false, true)]);
    host.relief.run_round();
    assert_eq!((host.moved(), missing(&host)), (MISSING, BTreeMap::new()), "pages went elsewhere");
    // It may be on the full node only.
    let mut host = Host::new([SHORT, 90_000]);
    host.process("/near", 8, "default", 30_000);
    host.guard(&[("/stays", true, false), ("/near", false, false)]);
    host.relief.run_round();
    assert_eq!(missing(&host), BTreeMap::new(), "it may be widened in a moment");
    host.relief.run_round();
    assert_eq!(missing(&host), BTreeMap::from([(NodeId(0), MISSING as u64 * 4096)]));
    let path = "sys/devices/system/node/node0/meminfo";
    put(host.dir.path(), path, "Node 0 MemFree: 360000 kB\n");
    host.relief.run_round();
    assert_eq!((host.moved(), missing(&host)), (0, BTreeMap::new()));
}
