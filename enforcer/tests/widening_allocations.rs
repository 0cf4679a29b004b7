//! The thread that guards workloads against full memory nodes allocates nothing while all is calm: what looks
//! ten times a second, and two hundred times when memory is short, must not wait for an allocator that waits
//! for memory itself.
//!
//! Every allocation of this process is counted by the thread that makes it. Looks are counted by the thread's
//! own waits, so nothing here depends on how fast the machine is. The control is the same thread when it has
//! something to do: it is counted then, so it would have been before.
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]
#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    fs,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread::sleep,
    time::{Duration, Instant},
};

use enforcer::engine::{BrakeParts, Demotion, Gate, ReliefSensors, Sensors, start_widening};
use enforcer_act::cpuset::CpusetTree;
use enforcer_core::{
    policy::WideningSettings,
    widening::{ProtectedWorkload, spares},
    workload::CgroupPath,
};
use enforcer_host::HostRoot;
use enforcer_observe::{HeadroomReader, MemoryLimits, PressureTap, ResidentsReader};
use numa_topology::{id::NodeId, set::NodeSet, synth::Machine};

/// Rows for thread ids; two threads of this process hardly share one.
const ROWS: usize = 4_096;
/// Looks that have to be without an allocation, one after the other.
const LOOKS: u64 = 5;
/// Longest wait for anything: a bound on a hang.
const LIMIT: Duration = Duration::from_mins(2);

static COUNTS: [AtomicU64; ROWS] = [const { AtomicU64::new(0) }; ROWS];

struct Counting;

fn row(tid: u32) -> Option<&'static AtomicU64> {
    COUNTS.get(tid as usize % ROWS)
}

fn count() {
    let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    if let Some(row) = row(tid) {
        row.fetch_add(1, Relaxed);
    }
}

// SAFETY: everything is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Looks at something until it is there.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// The thread of this process with that name.
fn thread_named(name: &str) -> Option<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap());
    let found = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    });
    found.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).next()
}

/// How often a thread has waited.
fn waits(tid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// So many pages of each of two nodes of 100,000 are free.
fn free_pages(root: &Path, pages: [u32; 2]) {
    for (node, pages) in pages.iter().enumerate() {
        let text = format!(
            "Node {node} MemFree: {} kB\nNode {node} Active(file): 40 kB\nNode {node} SReclaimable: 20 kB\n",
            pages * 4
        );
        put(root, &format!("sys/devices/system/node/node{node}/meminfo"), &text);
    }
}

#[test]
fn a_look_while_all_is_calm_allocates_nothing() {
    let dir = tempfile::TempDir::new().unwrap();
    let root = dir.path();
    free_pages(root, [90_000, 90_000]);
    let zone = |node: u32| format!("Node {node}, zone Normal\n  low 50\n  managed 100000\n");
    put(root, "proc/zoneinfo", &(zone(0) + &zone(1)));
    put(root, "cgroup/a/cpuset.mems", "0\n");
    put(root, "cgroup/a/cpuset.cpus", "0\n");

    let host = HostRoot::captured(root);
    let rooms = || HeadroomReader::new(&host, enforcer_core::page_size::PageSize::SMALLEST);
    let senses = Sensors { tap: PressureTap::default(), rooms: rooms(), limits: MemoryLimits::new(None) };
    let relief = ReliefSensors { rooms: rooms(), tenants: ResidentsReader::new(&host) };
    let tree = CpusetTree::new(&host.at(root.join("cgroup")), true);
    let record = Err("no brake in this test".to_owned());
    let brake = BrakeParts { record, boot_id: None, demotes: Box::new(|| false) };
    let widening = start_widening(senses, relief, brake, tree, Gate::default(), Demotion::default()).unwrap();

    let machine = Machine::new().sockets(2).build();
    let home: NodeSet = [NodeId(0)].into_iter().collect();
    let guarded = ProtectedWorkload {
        cgroup: CgroupPath::new("/a"),
        cgroup_id: None,
        spares: spares(&machine, &home, &home, &machine.memory_nodes(), true),
        mems: home.clone(),
        kept: NodeSet::default(),
        cpu_nodes: home.clone(),
        home,
        strict: false,
        above: Vec::new(),
        bound: None,
        bytes: [(NodeId(0), 1 << 20)].into(),
    };
    widening.guard(&WideningSettings::default(), vec![guarded]);

    let tid = until("there is no such thread", || thread_named("widening"));
    let counted = || row(tid).unwrap().load(Relaxed);
    // Every ten seconds the watermarks are read anew, which does allocate: some stretch between has none of
    // that.
    let mut stretches = Vec::new();
    for _ in 0..20 {
        let (looks, allocations) = (waits(tid), counted());
        until("it does not look", || (waits(tid) >= looks + LOOKS).then_some(()));
        stretches.push(counted() - allocations);
        if stretches.last() == Some(&0) {
            break;
        }
    }
    assert_eq!(stretches.last(), Some(&0), "allocations in each stretch: {stretches:?}");

    let before = counted();
    free_pages(root, [100, 90_000]);
    let mems = || fs::read_to_string(root.join("cgroup/a/cpuset.mems")).unwrap();
    until("it does not widen", || mems().starts_with("0-1").then_some(()));
    assert!(counted() > before, "what a widening allocates is counted");
}
