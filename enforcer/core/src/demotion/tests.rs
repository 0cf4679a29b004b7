//! Rounds on a machine with two sockets, each with slow memory beside it.

use proptest::prelude::*;

use super::*;
use numa_topology::{MemoryKind, synth::Machine};

const MIB: u64 = 1 << 20;
const IDLE: Duration = Duration::from_secs(5);

/// Slow nodes are 2, beside 0, and 3, beside 1.
fn machine() -> Topology {
    let machine = Machine::new().sockets(2).cores(2);
    let machine = machine.memory_only(NodeId(2), 64, MemoryKind::Pmem, NodeId(0));
    machine.memory_only(NodeId(3), 64, MemoryKind::Pmem, NodeId(1)).build()
}

fn set(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn rooms(free_mib: [u64; 4]) -> BTreeMap<NodeId, NodeMemory> {
    let room = |free: u64| NodeMemory { total: 500 * MIB, available: free * MIB };
    (0..4).map(NodeId).zip(free_mib.map(room)).collect()
}

fn region(start_mib: u64, end_mib: u64, touched_percent: u8, seconds: u64) -> AddressRegion {
    let unchanged = Duration::from_secs(seconds);
    AddressRegion { start: start_mib * MIB, end: end_mib * MIB, touched_percent, unchanged, exact: false }
}

/// 40 MiB hot, 20 MiB with an unknown edge, 100 MiB cold.
fn watched() -> Vec<ProcessRegions> {
    let regions = vec![region(0, 40, 100, 9), region(40, 60, 0, 9), region(60, 160, 0, 9)];
    vec![ProcessRegions { pid: 7, regions }]
}

fn flows(flows: &[PageFlow]) -> Vec<(u32, u32, u64)> {
    flows.iter().map(|flow| (flow.from.0, flow.to.0, flow.bytes / MIB)).collect()
}

struct Case {
    allowed: &'static str,
    home: &'static str,
    free: [u64; 4],
    estimate: Option<u64>,
    kernel_promotes: bool,
}

const CASE: Case = Case { allowed: "0,2", home: "0", free: [300; 4], estimate: None, kernel_promotes: false };

fn decided(case: &Case, trust: &DemotionBackoff) -> DemotionRound {
    with(case, |situation| decide(situation, trust))
}

fn with<T>(case: &Case, ask: impl FnOnce(&DemotionInput<'_>) -> T) -> T {
    let machine = machine();
    let (allowed, home, rooms, watched) = (set(case.allowed), set(case.home), rooms(case.free), watched());
    let situation = DemotionInput {
        topology: &machine,
        allowed: &allowed,
        home: &home,
        rooms: &rooms,
        watched: &watched,
        estimate: case.estimate.map(|mib| mib * MIB),
        idle: IDLE,
        page: PageSize::SMALLEST,
        rate: 1000 * MIB,
        kernel_promotes: case.kernel_promotes,
        now_ns: 0,
    };
    ask(&situation)
}

#[test]
fn cold_pages_go_to_the_nearest_slower_node_and_hot_ones_back() {
    let round = decided(&CASE, &DemotionBackoff::default());
    assert_eq!((flows(&round.down), flows(&round.up)), (vec![(0, 2, 100)], vec![(2, 0, 40)]));
    assert_eq!((round.cold / MIB, round.hot / MIB, round.bound), (100, 40, Some(AmountBound::Cold)));
    let range = AddressRange { start: 60 * MIB, end: 160 * MIB };
    assert_eq!(round.down[0].pieces, [ProcessRange { pid: 7, range }]);
}

#[test]
fn a_cpuset_without_the_slow_node_keeps_everything() {
    let round = decided(&Case { allowed: "0", ..CASE }, &DemotionBackoff::default());
    assert_eq!((round.down, round.up, round.bound), (vec![], vec![], None));
}

#[test]
fn each_socket_has_its_own_target_and_together_they_get_no_more_than_is_cold() {
    let case = Case { allowed: "0-3", home: "1", free: [300, 300, 110, 300], ..CASE };
    let round = decided(&case, &DemotionBackoff::default());
    assert_eq!(flows(&round.down), [(0, 2, 60), (1, 3, 40)]);
    assert_eq!(flows(&round.up), [(2, 1, 40), (3, 1, 40)]);
}

#[test]
fn a_second_source_a_full_node_and_a_promoting_kernel_are_heard() {
    let round =
        decided(&Case { estimate: Some(30), kernel_promotes: true, ..CASE }, &DemotionBackoff::default());
    assert_eq!((flows(&round.down), flows(&round.up)), (vec![(0, 2, 30)], vec![]));
    assert_eq!(round.bound, Some(AmountBound::Estimate));
    let round = decided(&Case { free: [60, 300, 50, 300], ..CASE }, &DemotionBackoff::default());
    assert_eq!((flows(&round.down), flows(&round.up)), (vec![], vec![(2, 0, 10)]));
    assert_eq!(round.bound, Some(AmountBound::Headroom));
}

#[test]
fn a_wrong_round_halves_the_next() {
    let mut trust = DemotionBackoff::default();
    trust.note(0, 100 * MIB, 100 * MIB, Duration::ZERO, 0);
    let round = decided(&CASE, &trust);
    assert_eq!((flows(&round.down), round.bound), (vec![(0, 2, 50)], Some(AmountBound::BackOff)));
    assert_eq!(flows(&round.up), [(2, 0, 40)], "what is hot comes back all the same");
}

#[test]
fn short_node_loses_its_cold_pages_and_no_more_than_is_missing() {
    let relieved = |case: &Case, trust: &DemotionBackoff, missing: &[(u32, u64)]| {
        let missing = missing.iter().map(|(node, mib)| (NodeId(*node), mib * MIB)).collect();
        flows(&with(case, |situation| relieve(situation, trust, &missing)).down)
    };
    let right = DemotionBackoff::default();
    assert_eq!(relieved(&CASE, &right, &[(0, 30)]), [(0, 2, 30)]);
    assert_eq!(
        relieved(&CASE, &right, &[(0, 5000)]),
        [(0, 2, 100)],
        "what is hot stays, whatever is missing"
    );
    assert_eq!(relieved(&CASE, &right, &[(1, 30), (2, 30)]), []);
    let estimated = Case { estimate: Some(20), ..CASE };
    assert_eq!(relieved(&estimated, &right, &[(0, 30)]), [(0, 2, 20)]);
    assert_eq!(relieved(&Case { allowed: "0-1", ..CASE }, &right, &[(0, 30)]), []);
    assert_eq!(relieved(&Case { free: [300, 300, 60, 300], ..CASE }, &right, &[(0, 30)]), [(0, 2, 10)]);
    let both = Case { allowed: "0-3", ..CASE };
    assert_eq!(relieved(&both, &right, &[(0, 70), (1, 70)]), [(0, 2, 70), (1, 3, 30)]);
    let mut wrong = DemotionBackoff::default();
    wrong.note(100 * MIB, 0, 0, IDLE, 0);
    wrong.note(0, 100 * MIB, 60 * MIB, IDLE, 0);
    assert_eq!(relieved(&CASE, &wrong, &[(0, 30)]), [], "pages were wanted back a moment ago");
}

proptest! {
    #[test]
    fn no_more_goes_down_than_is_cold_and_only_where_the_cpuset_allows(
        allowed in 0u64..16, home in 0u64..4, free in prop::array::uniform4(0u64..500), rate in 0u64..300,
        regions in prop::collection::vec((0u64..8, 1u64..20, 0u8..3, 0u64..10), 0..12),
    ) {
        let mut at = 0;
        let regions = regions.into_iter().map(|(gap, size, touched, seconds)| {
            let start = at + gap;
            at = start + size;
            region(start, at, touched * 50, seconds)
        });
        let watched = [ProcessRegions { pid: 1, regions: regions.collect() }];
        let (machine, rooms) = (machine(), rooms(free));
        let (allowed, home) = (NodeSet::from_words(&[allowed]), NodeSet::from_words(&[home]));
        let situation = DemotionInput {
            topology: &machine,
            allowed: &allowed,
            home: &home,
            rooms: &rooms,
            watched: &watched,
            estimate: None,
            idle: IDLE,
            page: PageSize::SMALLEST,
            rate: rate * MIB,
            kernel_promotes: false,
            now_ns: 0,
        };
        let round = decide(&situation, &DemotionBackoff::default());
        let sum = |flows: &[PageFlow]| flows.iter().map(|flow| flow.bytes).sum::<u64>();
        prop_assert!(sum(&round.down) <= round.cold && sum(&round.down) <= rate * MIB);
        prop_assert!(sum(&round.up) <= rate * MIB);
        let missing = BTreeMap::from([(NodeId(0), rate * MIB), (NodeId(1), 9 * MIB)]);
        let relieved = relieve(&situation, &DemotionBackoff::default(), &missing);
        prop_assert!(sum(&relieved.down) <= relieved.cold && relieved.up.is_empty());
        prop_assert!(relieved.down.iter().all(|flow| flow.bytes <= missing[&flow.from]));
        for flow in round.down.iter().chain(&round.up).chain(&relieved.down) {
            prop_assert!(allowed.contains(flow.from) && allowed.contains(flow.to) && flow.from != flow.to);
            let room = rooms[&flow.to];
            prop_assert!(room.available - flow.bytes >= room.total / 10);
        }
    }
}
