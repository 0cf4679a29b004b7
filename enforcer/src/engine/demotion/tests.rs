//! Room for a neighbour that is declared to stay and runs short; and the choice of the backend of a round.

use std::{fs, path::Path, sync::Arc};

use enforcer_core::{
    demotion::backend::BackendProbe,
    policy::{DemotionSettings, WideningSettings, placement::PlacementSettings},
    widening::{NodeRoom, PressureTracker, PressuredNodes, ProtectedWorkload},
};
use numa_placement::Inventory;
use numa_topology::{MemoryKind, id::NodeId, synth::Machine};

use super::{progress::RoundBackoff, *};
use enforcer_act::fixture::Fixture;
use enforcer_kernel::fake::FakeKernel;
use enforcer_report::decision::DecisionSubject;

const PAGE: usize = 4096;
const COLD_AT: usize = 0x7f00_0000_0000;
const HOT_AT: usize = 0x7f10_0000_0000;
/// Pages of 64 and 32 MiB.
const COLD: usize = 16_384;
const HOT: usize = 8_192;
/// Pages of each node; with less than 128 MiB free something is missing.
const NODE: usize = 100_000;
const WANTED: usize = 32_768;

struct Host {
    fixture: Fixture,
    wanted: DemotionWork,
    rounds: Rounds<FakeKernel>,
}

fn put(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Host {
    /// Node 1 is slow memory beside node 0, with much room. `/near` has a hot mapping and a cold one on node
    /// 0.
    fn new() -> Self {
        let fixture = Fixture::new(true);
        fixture.cgroup("/near", "0-1", "0-1");
        put(&fixture.path("/near"), "cgroup.procs", "8\n");
        let HostRoot { sys, proc, .. } = fixture.host();
        let (sys, proc) = (sys.as_path(), proc.as_path());
        for node in 0..2 {
            let text = format!("Node {node} MemTotal: 1048576 kB\nNode {node} MemFree: 900000 kB\n");
            put(sys, &format!("devices/system/node/node{node}/meminfo"), &text);
        }
        put(proc, "8/statm", "30000 24576 0 0 0 0 0\n");
        let both = [(COLD_AT, COLD, 0), (HOT_AT, HOT, HOT)];
        let of_each = |line: &dyn Fn(usize, usize, usize) -> String| -> String {
            both.iter().map(|(start, pages, hot)| line(*start, *pages, *hot)).collect()
        };
        let placed = of_each(&|start, pages, _| {
            format!("{start:x} default anon={pages} N0={pages} kernelpagesize_kB=4\n")
        });
        let mapped =
            |start: usize, pages: usize| format!("{start:x}-{:x} rw-p 0 0:0 0\n", start + pages * PAGE);
        let touched = of_each(&|start, pages, hot| {
            format!("{}Rss: {} kB\nReferenced: {} kB\n", mapped(start, pages), pages * 4, hot * 4)
        });
        put(proc, "8/numa_maps", &placed);
        put(proc, "8/maps", &of_each(&|start, pages, _| mapped(start, pages)));
        put(proc, "8/smaps", &touched);
        let machine = Machine::new().sockets(1).cores(2);
        let machine = machine.memory_only(NodeId(1), 64, MemoryKind::Pmem, NodeId(0)).build();
        let (inventory, _) = Inventory::or_whole(machine, &PlacementSettings::default());
        let cgroup = CgroupPath::new("/near");
        let wanted = DemotionWork {
            inventory: Arc::new(inventory),
            settings: DemotionSettings { idle: "50ms".parse().unwrap(), ..DemotionSettings::default() },
            limits: PageMoveLimits::default(),
            kernel_promotes: false,
            of: vec![DemotionTarget {
                subject: DecisionSubject {
                    name: "near".into(),
                    cgroup: Some(cgroup.clone()),
                    container_id: None,
                    ended: false,
                },
                cgroup,
                allowed: "0-1".parse().unwrap(),
                home: "0".parse().unwrap(),
            }],
        };
        let kernel = FakeKernel::default();
        for (start, pages, _) in both {
            kernel.map(8, start, pages, 0);
        }
        let stop = Stop::default();
        let mut rounds = Rounds::new(kernel, &fixture.host(), &fixture.layout, &wanted, &stop);
        // Enough on the slowest machine.
        let limits = PageMoveLimits { time: Duration::from_mins(10), ..PageMoveLimits::default() };
        rounds.relief = PageBudget::new(limits, stop);
        let mut host = Self { fixture, wanted, rounds };
        // From here on the idle pages are known.
        assert!(host.relieve(&mut pressed(0, "/stays", "0"), &Gate::default()).is_none());
        thread::sleep(Duration::from_millis(60));
        host
    }

    fn relieve(&mut self, pressed: &mut PressedNodes, gate: &Gate) -> Option<NeighbourRelief> {
        for standing in self.rounds.standings.values_mut() {
            standing.relieves = None;
        }
        self.rounds.relieve(&self.wanted.of[0], &self.wanted, gate, pressed)
    }

    /// Cold and hot pages on slow memory.
    fn down(&self) -> (usize, usize) {
        let pages = self.rounds.kernel.pages.borrow();
        let down = || pages.iter().filter(|(_, node)| **node == NodeId(1)).map(|((_, address), _)| *address);
        (down().filter(|at| *at < HOT_AT).count(), down().filter(|at| *at >= HOT_AT).count())
    }
}

/// Node 0 has `free` free pages, and `cgroup` is declared to stay there; the nodes `short` are short.
fn pressed(free: usize, cgroup: &str, short: &str) -> PressedNodes {
    let home: NodeSet = "0".parse().unwrap();
    let stays = ProtectedWorkload {
        cgroup: CgroupPath::new(cgroup),
        cgroup_id: None,
        home: home.clone(),
        mems: home.clone(),
        kept: NodeSet::default(),
        cpu_nodes: home,
        spares: Vec::new(),
        strict: true,
        above: Vec::new(),
        bound: None,
        bytes: BTreeMap::new(),
    };
    let bytes = |pages: usize| (pages * PAGE) as u64;
    let room = NodeRoom { free: bytes(free), managed: bytes(NODE), ..NodeRoom::default() };
    let (rooms, settings) = ([(NodeId(0), room)], WideningSettings::default());
    let crowd = PressuredNodes { rooms: &rooms, short: &short.parse().unwrap(), settings: &settings };
    let mut pressing = PressureTracker::default();
    pressing.update(std::slice::from_ref(&stays), &NodeSet::default(), &crowd);
    pressing.update(&[stays], &NodeSet::default(), &crowd)
}

#[test]
fn a_neighbours_cold_pages_make_room_for_a_strict_workload_up_to_the_missing_bytes() {
    let mut host = Host::new();
    let missing = 10_000;
    let mut of = pressed(WANTED - missing, "/stays", "0");
    let relief = host.relieve(&mut of, &Gate::default()).unwrap();
    assert_eq!((relief.bytes, host.down()), ((missing * PAGE) as u64, (missing, 0)));
    assert!(of.of(&CgroupPath::new("/near")).is_empty(), "nothing is missing any longer");
    let said = &relief.record.reason;
    let text = "from node 0 to node 1, so that /stays, which is declared to stay, has room";
    assert!(said.contains(text) && said.contains("not touched for 50ms (referenced)"), "{said}");
    assert_eq!(relief.moves.down_bytes.get("referenced"), Some(&relief.bytes));
}

#[test]
fn hot_pages_stay_whatever_is_missing() {
    let mut host = Host::new();
    let relief = host.relieve(&mut pressed(100, "/stays", "0"), &Gate::default()).unwrap();
    assert_eq!((relief.bytes, host.down()), ((COLD * PAGE) as u64, (COLD, 0)));
}

#[test]
fn strict_workload_short_slow_node_or_pause_prevents_making_room() {
    let mut host = Host::new();
    let (open, closed) = (Gate::default(), Gate::default());
    closed.close(None);
    for (mut of, gate) in [
        (pressed(100, "/near", "0"), &open),
        (pressed(100, "/stays", "0-1"), &open),
        (pressed(100, "/stays", "0"), &closed),
        (pressed(WANTED, "/stays", "0"), &open),
        (PressedNodes::default(), &open),
    ] {
        assert!(host.relieve(&mut of, gate).is_none(), "{of:?}");
        assert_eq!(host.down(), (0, 0), "{of:?}");
    }
    // The same without an obstacle; a workload that has just made room waits.
    assert!(host.relieve(&mut pressed(30_000, "/stays", "0"), &open).is_some());
    let standing = host.rounds.standings.values_mut().next().unwrap();
    let (_, wait) = standing.relieves.unwrap();
    assert_eq!(wait, SHORTEST_ROUND);
    standing.relieves = Some((Instant::now() + Duration::from_mins(10), wait));
    let mut of = pressed(100, "/stays", "0");
    assert!(host.rounds.relieve(&host.wanted.of[0], &host.wanted, &open, &mut of).is_none());
    drop(host.fixture);
}

impl Host {
    /// Cold pages are to go down by reclaim, without an obstacle.
    fn by_reclaim(&mut self) {
        let (host, dir) = (self.fixture.host(), self.fixture.path("/near"));
        put(host.sys.as_path(), "kernel/mm/numa/demotion_enabled", "true\n");
        put(host.proc.as_path(), "swaps", "Filename Type Size Used Priority\n");
        put(&dir, "cpuset.mems.effective", "0-1\n");
        put(&dir, "memory.numa_stat", "anon N0=100663296 N1=0\nfile N0=0 N1=0\n");
        let mut layout = self.fixture.layout.clone();
        layout.memory = Some(layout.cpuset.clone());
        self.rounds.backends = Backends::new(&host, &layout, &Stop::default());
        self.rounds.backends.tried(DemotionBackend::Reclaim, BackendProbe::Sound);
        self.wanted.settings.backend = DemotionBackend::Reclaim;
    }

    /// Runs a round that is due and returns its record.
    fn round(&mut self) -> String {
        for standing in self.rounds.standings.values_mut() {
            (standing.latest, standing.rest) = (None, RoundBackoff::default());
        }
        let (_, record) = self.rounds.of(&self.wanted.of[0], &self.wanted, &Gate::default()).unwrap();
        record.map_or_else(String::new, |record| record.reason)
    }

    fn moves(&self) -> &TierMoves {
        &self.rounds.standings.values().next().unwrap().moves
    }

    fn by(&self) -> (&'static str, Option<String>) {
        let latest = self.moves().latest.as_ref().unwrap();
        (latest.backend, latest.backend_refused.clone())
    }
}

#[test]
fn what_a_huge_page_moved_beyond_the_rate_is_earned_before_more_goes() {
    const HUGE: usize = 512;
    for (is_huge, down) in [(false, [8, 16, 24]), (true, [HUGE, HUGE, HUGE])] {
        let mut host = Host::new();
        host.wanted.settings.bytes_per_second = "32KiB".parse().unwrap();
        let whole = |index: usize| COLD_AT + index * HUGE * PAGE..COLD_AT + (index + 1) * HUGE * PAGE;
        if is_huge {
            host.rounds.kernel.huge = (0..COLD / HUGE).map(|index| (8, whole(index))).collect();
        }
        for pages in down {
            host.round();
            assert_eq!(host.down(), (pages, 0));
            let told: u64 = host.moves().down_bytes.values().sum();
            assert_eq!(told, (pages * PAGE) as u64, "all of it counts");
        }
        host.rounds.standings.values_mut().for_each(|standing| standing.owed = 0);
        host.round();
        assert_eq!(host.down().0, down[2] + if is_huge { HUGE } else { 8 });
    }
}

const ALL_COLD: u64 = (COLD * PAGE) as u64;

#[test]
fn reclaim_is_asked_for_what_is_cold_and_there_and_counts_as_what_memory_shows() {
    let mut host = Host::new();
    host.by_reclaim();
    host.round();
    // The kernel accepted the request and did nothing: no byte counts, and `move_pages` has moved none.
    let file = host.fixture.path("/near").join("memory.reclaim");
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), host.down()), ("8388608", (0, 0)));
    assert_eq!((host.by(), host.moves().by_backend.is_empty()), (("reclaim", None), true));
    // No cold page is left on the fast node.
    fs::remove_file(&file).unwrap();
    host.rounds.kernel.map(8, COLD_AT, COLD, 1);
    host.round();
    assert!(!file.exists(), "it is not asked for what has gone already");
}

#[test]
fn three_vain_requests_fall_back_to_move_pages() {
    let mut host = Host::new();
    host.by_reclaim();
    for _ in 0..3 {
        host.round();
        assert_eq!(host.down(), (0, 0));
    }
    let said = host.round();
    assert!(
        said.contains("moved with move-pages and not by reclaim: nothing went down in 3 rounds"),
        "{said}"
    );
    assert_eq!(host.down(), (COLD, 0));
    assert_eq!(host.moves().by_backend, [("move-pages", ALL_COLD)].into());
}

#[test]
fn what_is_not_safe_goes_by_move_pages_and_why_is_told_once() {
    let put_back = |host: &Host| host.rounds.kernel.map(8, COLD_AT, COLD, 0);
    for (what, reason, of_the_host) in [
        ("demotion", "the kernel's demotion is off", true),
        ("cpuset", "the workload may not use node 1", false),
        ("below", "1 of its cgroups are below its own", false),
        ("swap", "there is swap", false),
        ("files", "reclaim would drop 67108864 bytes of files", false),
        ("probe", "no such thing", true),
        ("unreadable", "memory.numa_stat", false),
    ] {
        let mut host = Host::new();
        host.by_reclaim();
        let (sys, proc, dir) =
            (host.fixture.host().sys, host.fixture.host().proc, host.fixture.path("/near"));
        match what {
            "demotion" => put(sys.as_path(), "kernel/mm/numa/demotion_enabled", "false\n"),
            "cpuset" => put(&dir, "cpuset.mems.effective", "0\n"),
            "below" => fs::create_dir(dir.join("child")).unwrap(),
            "swap" => put(proc.as_path(), "swaps", "Filename\n/dev/vda2 partition 8 0 -2\n"),
            "files" => put(&dir, "memory.numa_stat", "anon N0=100663296 N1=0\nfile N0=0 N1=67108864\n"),
            "probe" => {
                let probe = BackendProbe::Unusable("no such thing".into());
                host.rounds.backends.tried(DemotionBackend::Reclaim, probe);
            }
            _ => fs::remove_file(dir.join("memory.numa_stat")).unwrap(),
        }
        let said = host.round();
        assert!(said.contains("not by reclaim") && said.contains(reason), "{what}: {said}");
        assert_eq!(host.down(), (COLD, 0), "{what}");
        assert!(!dir.join("memory.reclaim").exists(), "{what}");
        put_back(&host);
        // Nothing changed, so it is not logged again, though the report still shows it.
        let again = host.round();
        assert!(!again.contains("not by reclaim"), "{what}: {again}");
        let (by, refused) = host.by();
        assert!(by == "move-pages" && refused.unwrap().contains(reason), "{what}");
        assert_eq!(host.moves().by_backend, [("move-pages", 2 * ALL_COLD)].into(), "{what}");
        let degraded = host.rounds.backends.degraded();
        assert_eq!(degraded.is_some(), of_the_host, "{what}: {degraded:?}");
    }
}

#[test]
fn damos_in_use_by_another_tool_falls_back_to_move_pages() {
    let mut host = Host::new();
    host.by_reclaim();
    host.wanted.settings.backend = DemotionBackend::Damos;
    let said = host.round();
    assert!(said.contains("not by damos") && said.contains("nr_kdamonds"), "{said}");
    assert_eq!(host.down(), (COLD, 0));
    let degraded = host.rounds.backends.degraded().unwrap();
    assert_eq!(
        (degraded.source.as_str(), degraded.reason.starts_with("damos: ")),
        ("demotion-backend", true)
    );
}
