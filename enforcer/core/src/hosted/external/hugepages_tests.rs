//! Huge pages in use or reserved without a promise, as the daemon passes them to the engines.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::{
    hosted::{Announced, Containers, Cpuset, PlacementNode},
    policy::placement::PlacementSettings,
    scene::Scene,
    turn::History,
    workload::CgroupPath,
};
use numa_placement::{
    Allocations, Holder, PodName, PodRequest, admit,
    samples::{container, pod},
};
use numa_topology::{id::NodeId, synth::Machine};

const MIB: u64 = 1 << 20;

fn asks(name: &str, mib: u64) -> PodRequest {
    let mut asked = container("c", 1000, 1024 * MIB);
    asked.requests.hugepages.insert(2 * MIB, mib * MIB);
    asked.limits.hugepages.insert(2 * MIB, mib * MIB);
    pod(name, vec![asked])
}

#[test]
fn huge_pages_that_others_use_are_not_promised() {
    let machine = || Machine::new().sockets(2).threads(1).hugepages(2 * MIB, 100).build();
    for (used, own, mib, node) in [
        ([0, 0], None, 150, Some("0")),
        ([100, 0], None, 150, Some("1")),
        ([100, 100], None, 90, Some("0")),
        ([100, 200], None, 150, None),
        // Huge pages that the first container uses of its promise count once, reported by its cgroup or not.
        ([100, 0], Some(100), 100, Some("0")),
        ([100, 0], Some(0), 100, Some("1")),
        ([150, 0], Some(100), 50, Some("0")),
        ([160, 0], Some(100), 50, Some("1")),
    ] {
        let mut scene = Scene::new(machine());
        for (node, used) in [0, 1].into_iter().zip(used) {
            let seen = scene.now.nodes.get_mut(&NodeId(node)).unwrap();
            seen.hugepages_used = [(2 * MIB, used * MIB)].into();
        }
        let (inventory, settings) = (scene.inventory(), PlacementSettings::default());
        let mut allocations = Allocations::default();
        let admitted =
            |allocations: &mut Allocations, pod: &_| admit(&inventory, &settings, allocations, pod);
        let first = asks("first", 100);
        if own.is_some() {
            admitted(&mut allocations, &first).unwrap();
        }
        // Without a report of its cgroup, 100 MiB in use all count as its own.
        if own == Some(0) {
            scene.now.nodes.get_mut(&NodeId(0)).unwrap().hugepages_used = [(2 * MIB, 200 * MIB)].into();
        }
        scene.decide_with(&History::default(), &mut allocations);
        let got = admitted(&mut allocations, &asks("second", mib));
        let Some(node) = node else {
            let text = got.unwrap_err().to_string();
            assert!(text.contains("processes on node 0 without a promise"), "{text}");
            continue;
        };
        got.unwrap_or_else(|rejection| panic!("{used:?} {own:?}: {rejection}"));
        let holder = Holder::new(PodName::new("default", "second"), "c".into());
        assert_eq!(allocations.get(&holder).unwrap().mems.to_string(), node, "{used:?} {own:?}");
    }
}

/// Nodes with 200 MiB of huge pages each: MiB that others use on each node and reserve on the host; and the
/// promise on node 0, use and reservation of a first container, if its cgroup reports them.
struct Taken {
    used: Vec<u64>,
    reserved: u64,
    own: Option<(u64, Option<(u64, u64)>)>,
}

/// Does a pod with this request get all of it, with the pages of one node or of all?
fn fits(given: &Taken, mib: u64) -> bool {
    let machine = Machine::new()
        .sockets(given.used.len().try_into().unwrap())
        .threads(1)
        .hugepages(2 * MIB, 100)
        .build();
    let mut scene = Scene::new(machine).workload("/first", "0", "0");
    let (inventory, settings) = (scene.inventory(), PlacementSettings::default());
    let mut allocations = Allocations::default();
    let mut containers = Containers::default();
    let admitted = |allocations: &mut Allocations, pod: &_| admit(&inventory, &settings, allocations, pod);
    let (mut used, mut reserved) = (given.used.clone(), given.reserved);
    if let Some((promised, told)) = given.own {
        let mut node =
            PlacementNode { inventory: &inventory, settings: &settings, allocations: &mut allocations };
        let one = Announced {
            id: "first".into(),
            cgroup: Some(CgroupPath::new("/first")),
            pod: asks("first", promised),
            now: Cpuset::default(),
            shown: None,
            given: None,
            named_claims: BTreeSet::new(),
            claimed: None,
            opts_out: false,
        };
        assert_eq!(containers.create(&mut node, &one).rejections.len(), 0);
        if let Some((uses, holds)) = told {
            (used[0], reserved) = (used[0] + uses, reserved + holds);
            let (seen, file) = (scene.now_mut("/first"), || "hugetlb.2MB.numa_stat".to_owned());
            seen.hugetlb_by_file = [(file(), [(NodeId(0), uses * MIB)].into())].into();
            seen.hugetlb_reserved = [(file(), holds * MIB)].into();
        }
    }
    for (node, used) in (0..).zip(used) {
        let seen = scene.now.nodes.get_mut(&NodeId(node)).unwrap();
        seen.hugepages_used = [(2 * MIB, used * MIB)].into();
    }
    scene.now.hugepages_reserved = [(2 * MIB, reserved * MIB)].into();
    scene.decide_beside(&containers, &History::default(), &mut allocations);
    admitted(&mut allocations, &asks("second", mib)).is_ok()
}

#[test]
fn huge_pages_that_are_reserved_are_not_promised() {
    let given = |used: &[u64], reserved, own| Taken { used: used.to_vec(), reserved, own };
    for (given, most) in [
        (given(&[0], 0, None), 200),
        // On one node the owner of the reservation is known.
        (given(&[0], 100, None), 100),
        (given(&[60], 100, None), 40),
        (given(&[0], 400, None), 0),
        // The first container has reserved its promise, which counts once, reported or not.
        (given(&[0], 0, Some((100, Some((0, 100))))), 100),
        (given(&[0], 50, Some((100, Some((0, 100))))), 50),
        (given(&[0], 50, Some((100, Some((60, 40))))), 50),
        (given(&[0], 100, Some((100, None))), 100),
        // A reservation of others is not part of a promise without a reservation.
        (given(&[0], 50, Some((100, Some((0, 0))))), 50),
        (given(&[50], 0, Some((100, Some((0, 0))))), 50),
        // On several nodes the node of a reservation is unknown: it counts on all together.
        (given(&[0, 0], 50, None), 350),
        (given(&[0, 0], 200, None), 200),
        (given(&[0, 0], 400, None), 0),
        (given(&[200, 0], 50, None), 150),
        // A promise on several nodes without a report of its cgroup counts once.
        (given(&[0, 0], 400, Some((300, None))), 0),
        (given(&[200, 200], 0, Some((300, None))), 0),
        (given(&[200, 0], 0, Some((300, None))), 100),
    ] {
        for mib in [most, most + 2] {
            assert_eq!(
                fits(&given, mib),
                mib == most,
                "{mib} MiB, {:?} used, {} reserved",
                given.used,
                given.reserved
            );
        }
    }
}

/// A process that reserves half of all pages leaves the other half, on any node; the next pod is refused with
/// the cause.
#[test]
fn half_of_all_that_is_reserved_keeps_no_node_from_being_promised_the_other_half() {
    let mut scene = Scene::new(Machine::new().sockets(2).threads(1).hugepages(2 * MIB, 100).build());
    scene.now.hugepages_reserved = [(2 * MIB, 200 * MIB)].into();
    let settings: PlacementSettings = toml::from_str("hints.policy = 'single-numa-node'").unwrap();
    let (inventory, mut allocations) = (scene.inventory(), Allocations::default());
    scene.decide_with(&History::default(), &mut allocations);
    let mut admitted = |pod: &_| admit(&inventory, &settings, &mut allocations, pod);
    admitted(&asks("first", 150)).unwrap();
    admitted(&asks("second", 50)).unwrap();
    let text = admitted(&asks("third", 2)).unwrap_err().to_string();
    assert!(text.contains("reserved, and the kernel does not say where"), "{text}");
    assert!(
        text.contains("0 KiB of 2048 KiB hugepages-2Mi on node 0 (held by processes that have them reserved"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Reserved pages are always available to the process that reserved them, on whichever node, after all
    /// promises are used.
    #[test]
    fn no_promise_takes_pages_that_are_reserved(
        used in proptest::collection::vec((0u64..=100).prop_map(|pages| 2 * pages), 1..=3),
        reserved in 0u64..=300,
        asked in 1u64..=300,
    ) {
        let free: u64 = used.iter().map(|used| 200 - used).sum();
        let given = Taken { used, reserved: (2 * reserved).min(free), own: None };
        let fits = fits(&given, 2 * asked);
        prop_assert_eq!(fits, 2 * asked + given.reserved <= free);
    }
}

#[test]
fn huge_pages_of_which_it_is_not_known_whether_they_are_free_are_not_promised() {
    type Blind = fn(&mut Scene);
    let size = 2 * MIB;
    let blind_on: [Blind; 2] = [
        |scene| _ = scene.now.nodes.get_mut(&NodeId(0)).unwrap().hugepages_unknown.insert(2 * MIB),
        |scene| _ = scene.now.nodes.remove(&NodeId(0)),
    ];
    let reserved: Blind = |scene| _ = scene.now.hugepages_reserved_unknown.insert(2 * MIB);
    let seen: Blind = |_| ();
    for (blind, promised, mib, node) in [
        (seen, 0, 150, Some("0")),
        (blind_on[0], 0, 150, Some("1")),
        (blind_on[1], 0, 150, Some("1")),
        (blind_on[0], 0, 250, None),
        (reserved, 0, 2, None),
        // What was promised there stays promised, and no more.
        (blind_on[0], 100, 150, Some("1")),
        (reserved, 100, 2, None),
    ] {
        let mut scene = Scene::new(Machine::new().sockets(2).threads(1).hugepages(size, 100).build());
        let (inventory, settings) = (scene.inventory(), PlacementSettings::default());
        let mut allocations = Allocations::default();
        let admitted =
            |allocations: &mut Allocations, pod: &_| admit(&inventory, &settings, allocations, pod);
        if promised > 0 {
            admitted(&mut allocations, &asks("first", promised)).unwrap();
        }
        blind(&mut scene);
        scene.decide_with(&History::default(), &mut allocations);
        let got = admitted(&mut allocations, &asks("second", mib));
        let holder = Holder::new(PodName::new("default", "second"), "c".into());
        let mems = got.ok().and_then(|_| Some(allocations.get(&holder)?.mems.to_string()));
        assert_eq!(mems.as_deref(), node, "{promised} and {mib}");
        let first = Holder::new(PodName::new("default", "first"), "c".into());
        assert_eq!(allocations.get(&first).is_some(), promised > 0);
    }
}
