//! A machine with two sockets, each with slow memory beside it.

use proptest::prelude::*;

use super::*;
use crate::named::Named as _;
use crate::sample::NodeBytes;
use numa_topology::{MemoryKind, synth::Machine};

const MIB: u64 = 1 << 20;
const ALL: [DemotionBackend; 3] =
    [DemotionBackend::MovePages, DemotionBackend::Damos, DemotionBackend::Reclaim];

fn machine() -> Topology {
    let machine = Machine::new().sockets(2).cores(2);
    let machine = machine.memory_only(NodeId(2), 64, MemoryKind::Pmem, NodeId(0));
    machine.memory_only(NodeId(3), 64, MemoryKind::Pmem, NodeId(1)).build()
}

fn set(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn flow(from: u32, to: u32, mib: u64) -> PageFlow {
    PageFlow { from: NodeId(from), to: NodeId(to), pieces: Vec::new(), bytes: mib * MIB }
}

fn memory(of: &[(u32, u64, u64)]) -> ByNode {
    let bytes =
        |anon: u64, file: u64| NodeBytes { anon: anon * MIB, file: file * MIB, ..NodeBytes::default() };
    of.iter().map(|(node, anon, file)| (NodeId(*node), bytes(*anon, *file))).collect()
}

struct Case {
    allowed: &'static str,
    probe: BackendProbe,
    demotes: bool,
    below: usize,
    swap: bool,
    files: u64,
    in_vain: u32,
}

impl Case {
    fn new() -> Self {
        Self {
            allowed: "0,2",
            probe: BackendProbe::Sound,
            demotes: true,
            below: 0,
            swap: false,
            files: 0,
            in_vain: 0,
        }
    }

    fn obstacle(&self, backend: DemotionBackend) -> Option<BackendObstacle> {
        let (topology, allowed) = (machine(), set(self.allowed));
        let memory = memory(&[(0, 200, 50), (2, 10, self.files)]);
        let footing = BackendPreconditions {
            topology: &topology,
            allowed: &allowed,
            probe: &self.probe,
            kernel_demotes: self.demotes,
            cgroups_below: self.below,
            may_swap: self.swap,
            in_vain: self.in_vain,
            memory: &memory,
        };
        obstacle(backend, &footing, &[flow(0, 2, 40)], 40 * MIB)
    }
}

#[test]
fn nothing_stands_in_the_way_of_any_on_a_sound_kernel() {
    for backend in ALL {
        assert_eq!(Case::new().obstacle(backend), None, "{}", backend.name());
    }
}

#[test]
fn what_one_backend_does_not_ask_for_keeps_it_from_being_used_and_never_move_pages() {
    let past = || BackendProbe::PastCpusets(4 * MIB);
    let gone = || BackendProbe::Unusable("no such file".into());
    let forbidden = |nodes: &str| Some(BackendObstacle::Forbidden(set(nodes)));
    let unusable = || Some(BackendObstacle::Unusable("no such file".into()));
    for (name, case, damos, reclaim) in [
        ("no file", Case { probe: gone(), ..Case::new() }, unusable(), unusable()),
        ("demotion off", Case { demotes: false, ..Case::new() }, None, Some(BackendObstacle::DemotionOff)),
        ("past cpusets, not all allowed", Case { probe: past(), ..Case::new() }, None, forbidden("3")),
        ("past cpusets, all allowed", Case { probe: past(), allowed: "0-3", ..Case::new() }, None, None),
        ("keeps to cpusets", Case { allowed: "0,2", ..Case::new() }, None, None),
        ("narrowed since", Case { allowed: "0", ..Case::new() }, forbidden("2"), forbidden("2")),
        (
            "cgroups below",
            Case { below: 2, ..Case::new() },
            Some(BackendObstacle::CgroupsBelow(2)),
            Some(BackendObstacle::CgroupsBelow(2)),
        ),
        ("swap", Case { swap: true, ..Case::new() }, None, Some(BackendObstacle::Swap)),
        ("twice in vain", Case { in_vain: 2, ..Case::new() }, None, None),
        (
            "three times in vain",
            Case { in_vain: 3, ..Case::new() },
            Some(BackendObstacle::InVain),
            Some(BackendObstacle::InVain),
        ),
        ("a few files", Case { files: 2, ..Case::new() }, None, None),
        ("files", Case { files: 3, ..Case::new() }, None, Some(BackendObstacle::Files(3 * MIB))),
    ] {
        assert_eq!(case.obstacle(DemotionBackend::Damos), damos, "{name}");
        assert_eq!(case.obstacle(DemotionBackend::Reclaim), reclaim, "{name}");
        assert_eq!(case.obstacle(DemotionBackend::MovePages), None, "{name}");
    }
}

#[test]
fn what_went_down_is_what_one_side_gained_and_the_other_lost() {
    let (upper, lower, allowed) = (set("0-1"), set("2"), set("0-2"));
    for (before, after, down, outside, dropped) in [
        (memory(&[(0, 100, 0)]), memory(&[(0, 60, 0), (2, 40, 0)]), 40, 0, 0),
        // It grew there by itself.
        (memory(&[(0, 100, 0), (2, 5, 0)]), memory(&[(0, 100, 0), (2, 45, 0)]), 0, 0, 0),
        // It freed some.
        (memory(&[(0, 100, 0)]), memory(&[(0, 10, 0), (2, 40, 0)]), 40, 0, 0),
        (memory(&[(0, 50, 0), (1, 50, 0)]), memory(&[(0, 40, 0), (1, 40, 0), (2, 20, 0)]), 20, 0, 0),
        (memory(&[(0, 100, 20)]), memory(&[(0, 90, 5), (2, 10, 5), (3, 4, 0)]), 15, 4, 10),
        (memory(&[]), memory(&[]), 0, 0, 0),
    ] {
        let shift = MemoryShift::between(&before, &after, &upper, &lower, &allowed);
        let mib = [shift.down, shift.outside, shift.dropped].map(|bytes| bytes / MIB);
        assert_eq!(mib, [down, outside, dropped], "{before:?} {after:?}");
    }
}

proptest! {
    #[test]
    fn reclaim_is_never_asked_for_more_than_is_cold_and_there_nor_than_any_node_it_may_choose_has_room_for(
        flows in prop::collection::vec((0u32..2, 2u32..4, 0u64..500), 0..3),
        there in prop::array::uniform2(0u64..500),
        rooms in prop::collection::btree_map(0u32..4, (0u64..1000, 0u64..1000), 0..5),
        allowed in 0u64..16,
    ) {
        let flows: Vec<PageFlow> = flows.into_iter().map(|(from, to, mib)| flow(from, to, mib)).collect();
        let (topology, allowed, memory) = (machine(), NodeSet::from_words(&[allowed]), ByNode::new());
        let footing = BackendPreconditions {
            topology: &topology,
            allowed: &allowed,
            probe: &BackendProbe::Sound,
            kernel_demotes: true,
            cgroups_below: 0,
            may_swap: false,
            in_vain: 0,
            memory: &memory,
        };
        let there: BTreeMap<_, _> = [0, 1].map(NodeId).into_iter().zip(there.map(|mib| mib * MIB)).collect();
        let rooms: BTreeMap<_, _> =
            rooms.into_iter().map(|(node, (total, free))| (NodeId(node), NodeMemory { total, available: free })).collect();
        let asked = ask(&footing, &flows, &there, &rooms);
        prop_assert!(asked <= flows.iter().map(|flow| flow.bytes.min(there[&flow.from])).sum::<u64>());
        for node in [2, 3].map(NodeId).into_iter().filter(|node| asked > 0 && allowed.contains(*node)) {
            if allowed.contains(NodeId(0)) || allowed.contains(NodeId(1)) {
                let room = rooms[&node];
                prop_assert!(room.available - asked >= room.total / 10);
            }
        }
        prop_assert!(asked == 0 || slower(&topology, &allowed).iter().any(|node| allowed.contains(node)));
    }

    #[test]
    fn no_backend_but_move_pages_is_let_at_a_node_that_the_cpuset_does_not_allow(
        allowed in 0u64..16, to in 2u32..4, past in any::<bool>(),
    ) {
        let (topology, allowed, memory) = (machine(), NodeSet::from_words(&[allowed]), ByNode::new());
        let probe = if past { BackendProbe::PastCpusets(1) } else { BackendProbe::Sound };
        let footing = BackendPreconditions {
            topology: &topology,
            allowed: &allowed,
            probe: &probe,
            kernel_demotes: true,
            cgroups_below: 0,
            may_swap: false,
            in_vain: 0,
            memory: &memory,
        };
        for backend in [DemotionBackend::Damos, DemotionBackend::Reclaim] {
            if obstacle(backend, &footing, &[flow(0, to, 1)], MIB).is_none() {
                prop_assert!(allowed.contains(NodeId(to)));
                let picks = past && backend == DemotionBackend::Reclaim;
                prop_assert!(!picks || slower(&topology, &allowed).iter().all(|node| allowed.contains(node)));
            }
        }
    }

    #[test]
    fn no_more_went_down_than_the_slow_nodes_hold(
        before in prop::collection::btree_map(0u32..4, (0u64..100, 0u64..100), 0..5),
        after in prop::collection::btree_map(0u32..4, (0u64..100, 0u64..100), 0..5),
    ) {
        let of = |map: BTreeMap<u32, (u64, u64)>| {
            let flat: Vec<_> = map.into_iter().map(|(node, (anon, file))| (node, anon, file)).collect();
            memory(&flat)
        };
        let (before, after) = (of(before), of(after));
        let shift = MemoryShift::between(&before, &after, &set("0-1"), &set("2-3"), &set("0-2"));
        let on = |of: &ByNode, nodes: &[u32]| -> u64 {
            nodes.iter().filter_map(|node| of.get(&NodeId(*node))).map(|one| one.anon + one.file).sum()
        };
        prop_assert!(shift.down <= on(&after, &[2, 3]) && shift.down <= on(&before, &[0, 1]));
        prop_assert!(shift.outside <= on(&after, &[3]));
    }
}
