//! Huge pages that are in use without a promise, as the daemon's decision hands them to the engines.

use crate::{
    decide::History,
    id::NodeId,
    place::{
        Allocations, Holder, PodName, Trace, admit,
        samples::{container, pod},
    },
    policy::placement::PlacementSettings,
    scene::Scene,
    topology::synth::Machine,
};

#[test]
fn huge_pages_that_others_use_are_not_promised() {
    const MIB: u64 = 1 << 20;
    let machine = || Machine::new().sockets(2).threads(1).hugepages(2 * MIB, 100).build();
    let asks = |name: &str, mib: u64| {
        let mut asked = container("c", 1000, 1024 * MIB);
        asked.requests.hugepages.insert(2 * MIB, mib * MIB);
        asked.limits.hugepages.insert(2 * MIB, mib * MIB);
        pod(name, vec![asked])
    };
    for (used, own, mib, node) in [
        ([0, 0], None, 150, Some("0")),
        ([100, 0], None, 150, Some("1")),
        ([100, 100], None, 90, Some("0")),
        ([100, 200], None, 150, None),
        // What the first container uses of its promise is not counted twice, told by its cgroup or not.
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
        let admitted = |allocations: &mut Allocations, pod: &_| {
            admit(&inventory, &settings, allocations, pod, &mut Trace::default())
        };
        let first = asks("first", 100);
        if own.is_some() {
            admitted(&mut allocations, &first).unwrap();
        }
        // Told by no cgroup: of 100 MiB that are in use all count as its own.
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
