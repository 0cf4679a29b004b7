//! Selection of moves: which holders move, which never do, and that fewer moves would not suffice.

use proptest::prelude::*;

use super::*;
use crate::samples::{GIB, Host, container, devices, pod, policy};
use numa_topology::synth::Machine;

/// Node 0 has CPUs 0-3,8-11, node 1 has 4-7,12-15; 16 GiB each.
fn host() -> Host {
    Host::new(
        Machine::new().sockets(2).cores(4).memory_gib(16).build(),
        policy(TopologyPolicy::SingleNumaNode),
    )
}

fn fill(host: &mut Host, name: &str, node: &str, cpus: u64, gib: u64) {
    let mut request = container("c", cpus * 1000, gib * GIB);
    request.allowed_nodes = Some(node.parse().unwrap());
    host.admit(&pod(name, vec![request])).unwrap();
}

fn ask(host: &Host, request: &PodRequest) -> Option<Vec<(String, u64)>> {
    let moves = what_if(&host.inventory, &host.settings, &host.allocations, request, |_| true)?;
    Some(moves.iter().map(|one| (one.holder.to_string(), one.bytes / GIB)).collect())
}

#[test]
fn the_fewest_holders_with_the_least_memory_move() {
    let mut host = host();
    fill(&mut host, "a", "0", 2, 3);
    fill(&mut host, "b", "0", 2, 2);
    fill(&mut host, "c", "1", 1, 1);
    fill(&mut host, "d", "1", 2, 1);
    let wide = pod("p", vec![container("c", 6000, GIB)]);
    assert!(host.admit(&wide).is_err());
    // One move is enough: `c` to node 0; `d` need not move.
    assert_eq!(ask(&host, &wide), Some(vec![("default/c/c".into(), 1)]));
    let whole = pod("p", vec![container("c", 7000, GIB)]);
    assert_eq!(ask(&host, &whole), Some(vec![("default/d/c".into(), 1)]));
    let all = pod("p", vec![container("c", 8000, GIB)]);
    assert_eq!(ask(&host, &all), Some(vec![("default/c/c".into(), 1), ("default/d/c".into(), 1)]));
    assert_eq!(ask(&host, &pod("p", vec![container("c", 9000, GIB)])), None);
    assert_eq!(ask(&host, &pod("p", vec![container("c", 1000, GIB)])), Some(vec![]));
}

#[test]
fn memory_alone_can_be_in_the_way() {
    let mut host = host();
    fill(&mut host, "a", "0", 1, 10);
    fill(&mut host, "b", "1", 1, 2);
    fill(&mut host, "c", "1", 1, 4);
    assert_eq!(
        ask(&host, &pod("p", vec![container("c", 1000, 13 * GIB)])),
        Some(vec![("default/c/c".into(), 4)])
    );
}

#[test]
fn container_that_frees_nothing_makes_way_for_one_that_does() {
    let mut host = host();
    for (at, (cpus, gib, node)) in
        [(2, 1, "1"), (1, 1, "1"), (2, 1, "1"), (1, 1, "1"), (3, 1, "0")].into_iter().enumerate()
    {
        fill(&mut host, &format!("f{at}"), node, cpus, gib);
    }
    // Node 1 has two CPUs left and f4 needs three, so f1 changes places with it.
    let expected = ["default/f1/c", "default/f4/c"].map(|name| (name.to_owned(), 1));
    assert_eq!(ask(&host, &pod("p", vec![container("c", 7000, GIB)])), Some(expected.to_vec()));
}

#[test]
fn unmovable_containers_are_never_moved() {
    let mut host = host();
    fill(&mut host, "a", "0", 4, 1);
    fill(&mut host, "b", "1", 4, 1);
    let request = pod("p", vec![container("c", 6000, GIB)]);
    assert_eq!(ask(&host, &request).map(|moves| moves.len()), Some(1));
    let stays = |holder: &Holder| holder.pod().name != "a";
    let moves = what_if(&host.inventory, &host.settings, &host.allocations, &request, stays).unwrap();
    assert_eq!(moves[0].holder.to_string(), "default/b/c");
    assert_eq!((moves[0].from.mems.to_string(), moves[0].to.mems.to_string()), ("1".into(), "0".into()));
    assert_eq!(moves[0].to.cpus.len(), 4);
    let none_may_move = what_if(&host.inventory, &host.settings, &host.allocations, &request, |_| false);
    assert_eq!(none_may_move, None);
}

#[test]
fn devices_are_not_moved() {
    let gpus = devices("v.com/gpu", &["0"]);
    let machine = Machine::new().sockets(2).cores(4).build();
    let settings =
        PlacementSettings { hints: policy(TopologyPolicy::SingleNumaNode), ..PlacementSettings::default() };
    let mut host = Host::with(machine, gpus, settings);
    host.admit(&pod("a", vec![container("c", 1000, GIB).device("v.com/gpu", 1)])).unwrap();
    assert_eq!(ask(&host, &pod("p", vec![container("c", 1000, GIB).device("v.com/gpu", 1)])), None);
}

#[test]
fn placement_at_the_same_place_is_no_move() {
    let machine = Machine::new().cores(4).memory_gib(16).build();
    let mut host = Host::new(machine, policy(TopologyPolicy::Restricted));
    let pools = |name: &str, millis: u64| {
        let annotations = [("engine.numa-enforcer.io".to_owned(), "pools".to_owned())].into();
        let containers = vec![container("c", millis, GIB)];
        PodRequest { annotations, ..pod(name, containers) }
    };
    host.admit(&pools("exclusive", 4000)).unwrap();
    host.admit(&pod("shares", vec![container("c", 2500, GIB).without_limits()])).unwrap();
    // The rest is promised. A sharing container could be placed again in the same place, with less to share.
    let request = pools("p", 2000);
    assert!(host.admit(&request).is_err());
    assert_eq!(ask(&host, &request), None);
}

/// Number of placements tried for a pod.
fn trials(host: &Host, request: &PodRequest) -> usize {
    let search = MoveSearch {
        inventory: &host.inventory,
        settings: &host.settings,
        allocations: &host.allocations,
        pod: request,
        trials: Cell::new(TRIALS),
    };
    assert_eq!(search.run(|_, grant| is_movable(grant)), None);
    TRIALS - search.trials.get()
}

#[test]
fn nothing_is_tried_where_moving_cannot_help() {
    let mut host = Host::with(
        Machine::new().sockets(16).cores(4).memory_gib(16).build(),
        devices("v.com/gpu", &["0"]),
        PlacementSettings { hints: policy(TopologyPolicy::SingleNumaNode), ..PlacementSettings::default() },
    );
    for node in 0..16 {
        fill(&mut host, &format!("f{node}"), &node.to_string(), 7, 4);
    }
    for request in [
        // Missing, too few, too large for a node, more than the machine has left.
        container("c", 1000, GIB).device("v.com/none", 1),
        container("c", 1000, GIB).device("v.com/gpu", 2),
        container("c", 9000, GIB),
        container("c", 17_000, GIB),
        // It would fit if a holder left that would find no other node.
        container("c", 2000, GIB),
        container("c", 8000, GIB),
    ] {
        let request = pod("p", vec![request]);
        // The first attempt is the pod on the unchanged allocations.
        assert_eq!(trials(&host, &request), 1, "{:?}", request.containers);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn fewer_moves_than_found_are_not_enough(
        sizes in prop::collection::vec((1..5u64, 1..6u64, 0..2u32), 1..7),
        wanted in 1..9u64,
    ) {
        let mut host = host();
        for (index, (cpus, gib, node)) in sizes.iter().enumerate() {
            let mut request = container("c", cpus * 1000, gib * GIB);
            request.allowed_nodes = Some(node.to_string().parse().unwrap());
            let _ = host.admit(&pod(&format!("f{index}"), vec![request]));
        }
        let request = pod("p", vec![container("c", wanted * 1000, GIB)]);
        let before = host.allocations.clone();
        let found = what_if(&host.inventory, &host.settings, &host.allocations, &request, |_| true);
        prop_assert_eq!(&before, &host.allocations);
        let search = MoveSearch {
            inventory: &host.inventory,
            settings: &host.settings,
            allocations: &host.allocations,
            pod: &request,
            trials: Cell::new(usize::MAX),
        };
        let holders: Vec<&Holder> = host.allocations.iter().map(|(holder, _)| holder).collect();
        let least = (0..1u32 << holders.len())
            .filter(|set| {
                let members: Vec<&Holder> =
                    holders.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, h)| *h).collect();
                search.attempt(&members).is_some()
            })
            .map(u32::count_ones)
            .min();
        match (found, least) {
            (Some(moves), Some(least)) => prop_assert_eq!(moves.len(), least as usize),
            (None, least) => prop_assert!(least.is_none_or(|least| least as usize > EXACT)),
            (Some(moves), None) => prop_assert!(false, "{moves:?}"),
        }
    }
}
