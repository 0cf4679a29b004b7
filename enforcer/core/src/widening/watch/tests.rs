use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::named::Named as _;
use crate::widening::{ReleaseReason, spares};
use numa_topology::{MemoryTier, Topology, synth::Machine};

const GIB: u64 = 1 << 30;

fn set(text: &str) -> NodeSet {
    text.parse().unwrap()
}

/// Nodes 0 and 1 of one tier, 2 and 3 of a slower one; 100 GiB each.
fn machine() -> Topology {
    let mut machine = Machine::new().sockets(4).build();
    let tier = |(id, nodes)| MemoryTier { id, nodes: set(nodes) };
    machine.memory_tiers = [(4, "0-1"), (22, "2-3")].map(tier).to_vec();
    machine
}

fn guarded(name: &str, home: &str, allowed: &str) -> ProtectedWorkload {
    let home = set(home);
    ProtectedWorkload {
        cgroup: CgroupPath::new(name),
        cgroup_id: Some(name.len() as u64),
        kept: NodeSet::new(),
        cpu_nodes: home.clone(),
        spares: spares(&machine(), &home, &home, &set(allowed), true),
        mems: home.clone(),
        home,
        strict: false,
        above: Vec::new(),
        bound: None,
        bytes: BTreeMap::new(),
    }
}

fn watch(guarded: Vec<ProtectedWorkload>) -> WideningWatch {
    let mut watch = WideningWatch::default();
    watch.set_guarded(&WideningSettings::default(), guarded);
    watch
}

fn rooms(gib: [u64; 4]) -> Vec<(NodeId, NodeRoom)> {
    let room = |gib: u64| NodeRoom { free: gib * GIB, managed: 100 * GIB, ..NodeRoom::default() };
    (0..).map(NodeId).zip(gib.map(room)).collect()
}

/// `0: widen 0-1`, by the name of each cgroup.
fn looked(watch: &mut WideningWatch, at_ms: u64, gib: [u64; 4]) -> Vec<String> {
    looked_with(watch, at_ms, gib, None)
}

fn looked_with(watch: &mut WideningWatch, at_ms: u64, gib: [u64; 4], limit: Option<u64>) -> Vec<String> {
    let steps = watch.steps(at_ms * MS, &rooms(gib), 0, &mut |_| limit).to_vec();
    let said = |step: &WideningStep| {
        let name = watch.guards()[step.guard].guarded().cgroup.as_str();
        match &step.what {
            WideningAction::Widen(mems) => format!("{name}: {mems}"),
            WideningAction::Refuse(refusal) => format!("{name}: {}", refusal.name()),
        }
    };
    steps.iter().map(said).collect()
}

#[test]
fn a_calm_look_is_left_out_three_times_while_next_to_nothing_goes() {
    let passes = |watch: &mut WideningWatch, gone: u64| (0..6).map(|_| watch.pass(gone)).collect::<Vec<_>>();
    let mut calm = watch(vec![guarded("a", "0", "0-1")]);
    assert!(!calm.pass(0), "there was no look yet");
    // Armed with 8 GiB left: 72 may go, and 9 of these unseen.
    looked(&mut calm, 0, [80, 80, 80, 80]);
    assert_eq!(passes(&mut calm, 9 * GIB), [true, true, true, false, true, true]);
    looked(&mut calm, 100, [80, 80, 80, 80]);
    assert_eq!(passes(&mut calm, 9 * GIB + 1), [false; 6]);
    calm.note_sign(PressureSign::KswapdWoken, NodeId(0), 7);
    assert!(!calm.pass(0), "the kernel told");
    looked(&mut calm, 200, [80, 80, 80, 80]);
    assert!(!calm.pass(0), "a report of the kernel is looked into");
    looked(&mut calm, 300, [80, 80, 80, 80]);
    assert!(calm.pass(0));
    calm.set_guarded(&WideningSettings::default(), vec![guarded("a", "0", "0-1"), guarded("b", "1", "0-1")]);
    assert!(!calm.pass(0), "a workload is new");
    let mut armed = watch(vec![guarded("a", "0", "0-1")]);
    looked(&mut armed, 0, [7, 80, 80, 80]);
    assert!(!armed.pass(0), "a workload is near");
}

#[test]
fn after_a_look_that_was_left_out_the_next_one_waits_for_less() {
    let mut calm = watch(vec![guarded("a", "0", "0-1")]);
    looked(&mut calm, 0, [88, 80, 80, 80]);
    assert_eq!(calm.rest(true).as_millis(), 800);
    assert!(calm.pass(GIB));
    assert_eq!(calm.rest(true).as_millis(), 700);
    looked(&mut calm, 100, [88, 80, 80, 80]);
    assert_eq!(calm.rest(true).as_millis(), 800);
}

#[test]
fn where_nothing_went_for_long_the_next_look_waits_for_longer_until_something_goes() {
    let mut calm = watch(vec![guarded("a", "0", "0-1")]);
    let looks = |calm: &mut WideningWatch, looks| {
        for at in 0..looks {
            if !calm.pass(0) {
                looked(calm, at, [88, 80, 80, 80]);
            }
        }
        calm.rest(true).as_millis()
    };
    looked(&mut calm, 0, [88, 80, 80, 80]);
    assert_eq!((looks(&mut calm, 15), looks(&mut calm, 1)), (700, 3200));
    assert_eq!(
        [(); 4].map(|()| {
            let passes = calm.pass(0);
            if !passes {
                looked(&mut calm, 50, [88, 80, 80, 80]);
            }
            passes
        }),
        [true, false, true, false],
        "of looks that are far apart every other one is made"
    );
    assert_eq!(calm.rest(false).as_millis(), 400, "the kernel may not tell");
    assert!(!calm.pass(20 * GIB), "something went");
    looked(&mut calm, 100, [88, 80, 80, 80]);
    assert_eq!(calm.rest(true).as_millis(), 800);
    let mut told = calm.clone();
    assert_eq!((looks(&mut told, 16), looks(&mut calm, 16)), (3200, 3200));
    told.note_sign(PressureSign::KswapdWoken, NodeId(3), 7);
    calm.set_guarded(&WideningSettings::default(), vec![guarded("a", "0", "0-1"), guarded("b", "0", "0-1")]);
    for watch in [&mut told, &mut calm] {
        looked(watch, 200, [88, 80, 80, 80]);
        assert_eq!(watch.rest(true).as_millis(), 800, "the kernel reported, or a workload is new");
    }
}

#[test]
fn a_full_node_gets_another_beside_it_once() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3")]);
    assert!(looked(&mut watch, 0, [50, 90, 90, 90]).is_empty() && !watch.is_armed());
    assert!(looked(&mut watch, 60_000, [7, 90, 90, 90]).is_empty());
    assert!(watch.is_armed());
    assert_eq!(looked(&mut watch, 60_005, [3, 90, 90, 90]), ["/a: 0-1"]);
    assert!(looked(&mut watch, 60_010, [1, 90, 90, 90]).is_empty(), "it is asked for");
    watch.written(&CgroupPath::new("/a"), true);
    assert!(looked(&mut watch, 90_000, [1, 90, 90, 90]).is_empty(), "both nodes together have room");
    assert_eq!(looked(&mut watch, 120_000, [0, 9, 90, 90]), [""; 0]);
    assert_eq!(looked(&mut watch, 150_000, [0, 4, 90, 90]), ["/a: 0-2"]);
}

#[test]
fn steps_are_two_seconds_apart_unless_it_is_an_emergency() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3")]);
    let path = CgroupPath::new("/a");
    looked(&mut watch, 0, [3, 90, 90, 90]);
    let steps = |watch: &mut WideningWatch, at, node_2| {
        watch.written(&path, true);
        looked(watch, at, [0, 0, node_2, 90])
    };
    assert_eq!(watch.guards()[0].guarded().mems.to_string(), "0-1");
    assert_eq!(steps(&mut watch, 1_999, 90), [""; 0]);
    assert_eq!(steps(&mut watch, 2_000, 90), ["/a: 0-2"]);
    watch.note_sign(PressureSign::ReclaimRetry, NodeId(0), 2);
    assert_eq!(steps(&mut watch, 2_099, 11), [""; 0]);
    watch.note_sign(PressureSign::ReclaimRetry, NodeId(0), 2);
    assert_eq!(steps(&mut watch, 2_100, 11), ["/a: 0-3"]);
}

#[test]
fn a_write_that_fails_is_tried_again() {
    let mut watch = watch(vec![guarded("/a", "0", "0-1")]);
    assert_eq!(looked(&mut watch, 0, [3, 90, 90, 90]), ["/a: 0-1"]);
    watch.written(&CgroupPath::new("/a"), false);
    assert_eq!(watch.guards()[0].guarded().mems.to_string(), "0");
    assert_eq!(looked(&mut watch, 100, [3, 90, 90, 90]), [""; 0]);
    assert_eq!(looked(&mut watch, 2_000, [3, 90, 90, 90]), ["/a: 0-1"]);
}

#[test]
fn a_refusal_is_told_once_for_each_shortage() {
    let strict = ProtectedWorkload { strict: true, ..guarded("/strict", "0", "0-3") };
    let mut watch = watch(vec![strict, guarded("/alone", "0", "0")]);
    let refused = ["/strict: strict", "/alone: no-node"];
    assert_eq!(looked(&mut watch, 0, [3, 90, 90, 90]), refused);
    assert_eq!(looked(&mut watch, 60_000, [3, 90, 90, 90]), [""; 0]);
    assert_eq!(looked(&mut watch, 120_000, [50, 90, 90, 90]), [""; 0]);
    assert_eq!(looked(&mut watch, 180_000, [3, 90, 90, 90]), refused);
}

#[test]
fn workload_that_reaches_its_own_limit_first_is_left_alone() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3")]);
    assert_eq!(looked_with(&mut watch, 0, [3, 90, 90, 90], Some(3 * GIB)), ["/a: memory-limit"]);
    assert_eq!(looked_with(&mut watch, 5, [3, 90, 90, 90], Some(4 * GIB)), ["/a: 0-1"]);
}

#[test]
fn neighbours_of_a_strict_one_are_widened_the_largest_first_until_that_will_do() {
    let strict = ProtectedWorkload { strict: true, ..guarded("/strict", "0", "0-3") };
    let neighbour = |name: &str, home: &str, gib: u64| {
        let bytes = home.parse::<u32>().map(|node| [(NodeId(node), gib * GIB)].into()).unwrap();
        ProtectedWorkload { bytes, ..guarded(name, home, "0-3") }
    };
    let away = neighbour("/away", "1", 90);
    let here = |name: &str, gib: u64| neighbour(name, "0", gib);
    // Room for 13 GiB is missing: 16 % of the node, and 3 are left.
    let others = [here("/small", 4), here("/mid", 6), here("/big", 10), away];
    let mut watch = watch([strict.clone()].into_iter().chain(others).collect());
    looked(&mut watch, 0, [50, 90, 90, 90]);
    let said = looked(&mut watch, 60_000, [3, 90, 90, 90]);
    // Each of them is short as well, and would be widened for itself.
    assert!(said.contains(&"/strict: strict".to_owned()), "{said:?}");
    let alone = |others: Vec<ProtectedWorkload>, gib| {
        let mut watch = super::WideningWatch::default();
        let low =
            WideningSettings { widen_percent: 1, arm_percent: 2, release_percent: 16, ..Default::default() };
        watch.set_guarded(&low, [strict.clone()].into_iter().chain(others).collect());
        watch.note_sign(PressureSign::DirectReclaim, NodeId(0), 7);
        looked(&mut watch, 0, gib)
    };
    let both = |name: &str, gib: u64| ProtectedWorkload {
        mems: set("0-1"),
        bytes: [(NodeId(0), gib * GIB)].into(),
        ..guarded(name, "0", "0-3")
    };
    assert_eq!(
        alone(vec![here("/small", 4), here("/mid", 6), here("/big", 10)], [3, 90, 90, 90]),
        ["/strict: strict", "/mid: 0-1", "/big: 0-1"]
    );
    // One that has a node with room already counts, and needs no other.
    assert_eq!(alone(vec![both("/wide", 20), here("/big", 10)], [3, 90, 90, 90]), ["/strict: strict"]);
    // No node has room.
    assert_eq!(alone(vec![here("/big", 10)], [3, 9, 9, 9]), ["/strict: strict"]);
}

#[test]
fn direct_reclaim_counts_for_its_cgroup_or_for_workloads_that_run_there() {
    let mut watch =
        watch(vec![guarded("/a", "0", "0-3"), guarded("/bb", "0", "0-3"), guarded("/ccc", "1", "0-3")]);
    let at = |watch: &mut WideningWatch, at: u64, id| {
        watch.note_sign(PressureSign::DirectReclaim, NodeId(0), id);
        looked(watch, at, [15, 15, 50, 50])
    };
    assert_eq!(at(&mut watch, 0, 3), ["/bb: 0-1"]);
    assert_eq!(at(&mut watch, 10, 99), ["/a: 0-1"]);
}

#[test]
fn killed_workload_is_widened_earlier_also_in_its_next_life() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3"), guarded("/b", "0", "0-3")]);
    watch.killed(&CgroupPath::new("/a"));
    assert_eq!(looked(&mut watch, 0, [5, 90, 90, 90]), ["/a: 0-1"]);
    let again = ProtectedWorkload { cgroup_id: Some(77), ..guarded("/a", "0", "0-3") };
    watch.set_guarded(&WideningSettings::default(), vec![again]);
    assert_eq!(looked(&mut watch, 60_000, [5, 90, 90, 90]), ["/a: 0-1"]);
}

#[test]
fn state_goes_on_with_the_same_cgroup_alone() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3")]);
    looked(&mut watch, 0, [3, 90, 90, 90]);
    watch.set_guarded(&WideningSettings::default(), vec![guarded("/b", "1", "0"), guarded("/a", "0", "0-3")]);
    assert_eq!(watch.guards()[1].guarded().mems.to_string(), "0-1", "the write is under way");
    assert_eq!(looked(&mut watch, 10, [3, 90, 90, 90]), [""; 0]);
    let again = ProtectedWorkload { cgroup_id: Some(77), ..guarded("/a", "0", "0-3") };
    watch.set_guarded(&WideningSettings::default(), vec![again]);
    assert_eq!(looked(&mut watch, 20, [3, 90, 90, 90]), ["/a: 0-1"], "it was made again");
}

#[test]
fn the_nearest_to_the_end_comes_first() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3"), guarded("/b", "1", "0-3")]);
    looked(&mut watch, 0, [30, 30, 90, 90]);
    assert_eq!(looked(&mut watch, 1_000, [3, 1, 90, 90]), ["/b: 1-2", "/a: 0,2"]);
}

proptest! {
    /// Whatever the nodes and the kernel do, each step is allowed for its workload and not too frequent.
    #[test]
    fn steps_keep_to_the_rules(
        homes in proptest::collection::vec((0u32..4, 0u32..16, any::<bool>()), 1..5),
        looks in proptest::collection::vec(
            (1u64..1_000, proptest::array::uniform4(0u64..100), 0u32..4, 0u32..4, any::<bool>()), 1..80,
        ),
    ) {
        let of = |bits: u32| (0..4).filter(|id| bits & (1 << id) != 0).map(NodeId).collect::<NodeSet>();
        let guarded: Vec<_> = homes.iter().zip(["/a", "/bb", "/ccc", "/dddd"]).map(|((home, allowed, strict), name)| {
            ProtectedWorkload {
                strict: *strict,
                bytes: [(NodeId(*home), u64::from(*allowed) * GIB)].into(),
                ..guarded(name, &home.to_string(), &of(*allowed).to_string())
            }
        }).collect();
        let mut watch = watch(guarded);
        let mut at = 0;
        let mut stepped: Vec<Option<u64>> = vec![None; homes.len()];
        let mut had: Vec<NodeSet> = homes.iter().map(|(home, ..)| of(1 << home)).collect();
        for (passed, gib, node, sign, returns) in looks {
            at += passed;
            if let Some(sign) = [PressureSign::KswapdWoken, PressureSign::DirectReclaim, PressureSign::ReclaimRetry].get(sign as usize) {
                watch.note_sign(*sign, NodeId(node), 1);
            }
            let steps = watch.steps(at * MS, &rooms(gib), 0, &mut |_| None).to_vec();
            for WideningStep { guard, stage, what, .. } in steps {
                let (home, allowed, strict) = homes[guard];
                let WideningAction::Widen(mems) = what else { continue };
                prop_assert!(!strict, "a strict one was widened");
                prop_assert!(stage >= PressureLevel::Widen);
                let new = mems.difference(&had[guard]);
                prop_assert!(had[guard].is_subset(&mems) && !new.is_empty());
                prop_assert!(new.is_subset(&of(allowed)) && mems.contains(NodeId(home)));
                prop_assert!(stage == PressureLevel::Emergency || new.len() == 1);
                prop_assert!(new.is_disjoint(&of(0b0011)) || new.is_disjoint(&of(0b1100)), "two tiers");
                let apart = if stage == PressureLevel::Emergency { APART_IN_EMERGENCY } else { APART };
                prop_assert!(stepped[guard].is_none_or(|before| (at - before) * MS >= apart));
                stepped[guard] = Some(at);
                had[guard] = mems;
                if returns {
                    let cgroup = watch.guards()[guard].guarded().cgroup.clone();
                    watch.written(&cgroup, true);
                }
            }
        }
    }
}

/// Workloads slowed down after a look at nodes with this room, with all writes in progress.
fn slowed(watch: &mut WideningWatch, at_ms: u64, gib: [u64; 4], limit: Option<u64>) -> Vec<String> {
    looked_with(watch, at_ms, gib, limit);
    let orders = watch.brake(at_ms * MS, 0, Some(BrakeKind::Freeze)).to_vec();
    let slow = |order: BrakeOrder| match order {
        BrakeOrder::Slow { cgroup, .. } => Some(cgroup.to_string()),
        BrakeOrder::Release { .. } => None,
    };
    orders.into_iter().filter_map(slow).collect()
}

#[test]
fn workload_that_fills_its_nodes_during_the_write_is_slowed_down() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3")]);
    assert_eq!(slowed(&mut watch, 0, [60, 90, 90, 90], None), [""; 0]);
    assert!(!watch.may_brake());
    assert_eq!(slowed(&mut watch, 100, [50, 90, 90, 90], None), [""; 0]);
    assert_eq!(slowed(&mut watch, 110, [30, 90, 90, 90], None), ["/a"], "it waits for node 1");
    assert!(watch.may_brake() && watch.is_armed());
    watch.written(&CgroupPath::new("/a"), true);
    assert!(matches!(
        watch.brake(115 * MS, 0, Some(BrakeKind::Freeze)),
        [BrakeOrder::Release { why: ReleaseReason::Written, .. }]
    ));
    assert!(!watch.may_brake());
}

#[test]
fn a_reclaim_of_its_own_slows_it_down_until_the_write_returns() {
    let mut watch = watch(vec![guarded("/a", "0", "0-3")]);
    assert_eq!(slowed(&mut watch, 0, [3, 90, 90, 90], None), [""; 0], "there is time");
    watch.note_sign(PressureSign::DirectReclaim, NodeId(0), 2);
    assert_eq!(slowed(&mut watch, 5, [3, 90, 90, 90], None), ["/a"]);
}

#[test]
fn workload_widened_to_make_room_is_not_slowed_down() {
    let strict = ProtectedWorkload { strict: true, ..guarded("/strict", "0", "0-3") };
    let big = ProtectedWorkload { bytes: [(NodeId(0), 10 * GIB)].into(), ..guarded("/big", "0", "0-3") };
    let low = WideningSettings { widen_percent: 1, arm_percent: 2, ..Default::default() };
    let mut watch = WideningWatch::default();
    watch.set_guarded(&low, vec![strict, big]);
    watch.note_sign(PressureSign::DirectReclaim, NodeId(0), 7);
    assert_eq!(slowed(&mut watch, 0, [3, 90, 90, 90], None), [""; 0]);
    assert_eq!(watch.guards()[1].guarded().mems.to_string(), "0-1", "it was widened");
    watch.note_sign(PressureSign::DirectReclaim, NodeId(0), 4);
    assert_eq!(slowed(&mut watch, 5, [3, 90, 90, 90], None), [""; 0]);
}

proptest! {
    /// Strict ones and those that reach their own limit go on as they were.
    #[test]
    fn only_workloads_widened_for_themselves_are_slowed_down(
        looks in proptest::collection::vec((1u64..300, 0u64..30, any::<bool>()), 1..40), limited: bool,
    ) {
        let strict = ProtectedWorkload { strict: true, ..guarded("/strict", "0", "0-3") };
        let mut watch = watch(vec![strict, guarded("/own", "0", "0-3")]);
        let mut at = 0;
        for (passed, left, reclaims) in looks {
            at += passed;
            if reclaims {
                watch.note_sign(PressureSign::DirectReclaim, NodeId(0), "/own".len() as u64);
            }
            let limit = limited.then_some(0);
            for name in slowed(&mut watch, at, [left, 90, 90, 90], limit) {
                prop_assert_eq!(name.as_str(), "/own");
                prop_assert!(!limited, "its own limit ends its growth");
            }
        }
    }
}
