//! Containers that share CPUs, beside reserved and exclusive ones.
//!
//! Reserved CPUs do not count as room for promises; of equally good places one is taken that displaces no
//! container.

use super::*;

fn fractional(name: &str, millis: u64) -> PodRequest {
    pod(name, vec![container("c", millis, GIB)])
}

/// Two nodes of four CPUs, the first CPU reserved.
fn beside_reserved(policy_of: TopologyPolicy) -> Host {
    let machine = Machine::new().sockets(2).cores(4).threads(1).memory_gib(32).build();
    Host::with(machine, vec![], reserved("0", policy(policy_of)))
}

#[test]
fn node_with_only_reserved_shared_cpus_comes_last() {
    for policy in [TopologyPolicy::BestEffort, TopologyPolicy::Restricted, TopologyPolicy::SingleNumaNode] {
        let mut host = beside_reserved(policy);
        host.admit(&pod("g", vec![container("c", 3000, GIB)])).unwrap();
        assert_eq!(host.place("g", "c").0, "1-3");
        for name in ["a", "b", "c"] {
            host.admit(&fractional(name, 500)).unwrap();
            assert_eq!(host.place(name, "c"), ("4-7".into(), "1".into()), "{name} {policy:?}");
        }
        let burstable = pod("d", vec![container("c", 500, GIB).without_limits()]);
        host.admit(&burstable).unwrap();
        host.admit(&pod("e", vec![container("c", 0, 0)])).unwrap();
        assert_eq!((host.place("d", "c").0, host.place("e", "c").0), ("4-7".into(), "4-7".into()));
    }
}

#[test]
fn reserved_cpus_do_not_count_as_room_for_shared_promises() {
    let mut host = beside_reserved(TopologyPolicy::SingleNumaNode);
    host.admit(&pod("g", vec![container("c", 4000, GIB)])).unwrap();
    host.admit(&fractional("a", 500)).unwrap();
    assert_eq!((host.place("g", "c").0, host.place("a", "c").0), ("4-7".into(), "0-3".into()));
    host.admit(&pod("h", vec![container("c", 3000, GIB)])).unwrap();
    remove(&mut host.allocations, &PodName::new("default", "g"));
    assert_eq!(host.place("a", "c").0, "0,4-7", "not on the reserved CPU alone");
    remove(&mut host.allocations, &PodName::new("default", "h"));
    assert_eq!(host.place("a", "c").0, "0-3");
}

#[test]
fn reserved_cpus_take_no_part_of_promises_over_several_nodes() {
    let machine = Machine::new().sockets(3).cores(4).threads(1).memory_gib(32).build();
    let mut units = devices("v.com/gpu", &["0", "1"]);
    units.extend(devices("v.com/nic", &["0", "1"]));
    let mut host = Host::with(machine, units, reserved("0", policy(TopologyPolicy::BestEffort)));
    let mut exclusive = container("c", 2000, GIB);
    exclusive.allowed_nodes = Some("0".parse().unwrap());
    host.admit(&pod("x", vec![exclusive])).unwrap();
    // Beside the reserved CPU there are one CPU on node 0 and four on node 1.
    let near = |name, millis, resource| {
        pod(name, vec![container("c", millis, GIB).without_limits().device(resource, 2)])
    };
    host.admit(&near("a", 4500, "v.com/gpu")).unwrap();
    host.admit(&near("b", 600, "v.com/nic")).unwrap();
    assert_eq!((host.place("a", "c").0, host.place("b", "c").0), ("0,3-7".into(), "0,3-11".into()));
}

#[test]
fn fractional_pods_of_every_class_go_to_the_emptiest_node() {
    let placed = |guaranteed: bool| {
        let machine = Machine::new().sockets(4).cores(2).threads(1).build();
        let mut host = Host::new(machine, policy(TopologyPolicy::SingleNumaNode));
        let names: Vec<String> = (0..8).map(|number| format!("p{number}")).collect();
        for name in &names {
            let request = container("c", 500, GIB);
            let request = if guaranteed { request } else { request.without_limits() };
            host.admit(&pod(name, vec![request])).unwrap();
        }
        names.iter().map(|name| host.place(name, "c").1).collect::<Vec<_>>()
    };
    assert_eq!(placed(true), ["0", "1", "2", "3", "0", "1", "2", "3"]);
    assert_eq!(placed(true), placed(false));
}

#[test]
fn exclusive_cpus_are_taken_where_no_container_is_displaced() {
    for (millis, expected) in [(0, "1"), (500, "1"), (100, "1")] {
        let machine = Machine::new().sockets(3).cores(1).threads(1).build();
        let mut host = Host::new(machine, policy(TopologyPolicy::BestEffort));
        host.admit(&pod("a", vec![container("c", millis, 0).without_limits()])).unwrap();
        assert_eq!(host.place("a", "c").0, "0");
        host.admit(&pod("g", vec![container("c", 1000, GIB)])).unwrap();
        assert_eq!(host.place("g", "c").0, expected, "beside {millis}m");
        assert_eq!(host.place("a", "c").0, "0");
    }
    // Two nodes out of four: the empty ones.
    let machine = Machine::new().sockets(4).cores(2).threads(1).build();
    let mut host = Host::new(machine, policy(TopologyPolicy::Restricted));
    host.admit(&pod("a", vec![container("c", 500, GIB).without_limits()])).unwrap();
    host.admit(&pod("g", vec![container("c", 4000, 20 * GIB)])).unwrap();
    assert_eq!((host.place("a", "c").0, host.place("g", "c").0), ("0-1".into(), "2-5".into()));
    // If there is room beside it, the lowest ids come first as usual.
    host.admit(&pod("h", vec![container("c", 1000, GIB)])).unwrap();
    assert_eq!(host.place("h", "c").0, "0");
}

#[test]
fn non_preferred_sets_displace_no_container_if_equally_good_ones_exist() {
    // Memory would fit on one node, CPUs take two: no set is preferred by both.
    for (sockets, cores, shares, expected) in [
        (4, 1, 1, ("1-2", "0")),
        (4, 1, 2, ("2-3", "0")),
        (3, 2, 1, ("2-5", "0-1")),
        (10, 1, 1, ("1-2", "0")),
    ] {
        let machine = Machine::new().sockets(sockets).cores(cores).threads(1).build();
        let mut host = Host::new(machine, policy(TopologyPolicy::BestEffort));
        for number in 0..shares {
            let name = format!("a{number}");
            host.admit(&pod(&name, vec![container("c", 500, GIB).without_limits()])).unwrap();
        }
        host.admit(&pod("g", vec![container("c", 2000 * u64::from(cores), GIB)])).unwrap();
        let got = (host.place("g", "c").0, host.place("a0", "c").0);
        assert_eq!(got, (expected.0.into(), expected.1.into()), "{sockets} {cores} {shares}");
    }
    // If no other set has enough, the lowest ids are taken, and the container that shares makes room.
    let machine = Machine::new().sockets(2).cores(2).threads(1).build();
    let mut host = Host::new(machine, policy(TopologyPolicy::BestEffort));
    host.admit(&pod("a", vec![container("c", 500, GIB).without_limits()])).unwrap();
    host.admit(&pod("g", vec![container("c", 3000, GIB)])).unwrap();
    assert_eq!(host.place("a", "c").0.len(), 1);
}

#[test]
fn exclusive_cpus_are_never_mixed_with_isolated_ones() {
    let machine = || Machine::new().cores(4).threads(1).isolated("1-3").build();
    let mut host = Host::new(machine(), policy(TopologyPolicy::BestEffort));
    for millis in [1000, 2000] {
        let refused = host.admit(&pod("p", vec![container("c", millis, GIB)])).unwrap_err().to_string();
        assert!(refused.contains("cpu"), "{refused}");
    }
    let mut isolated = pod("i", vec![container("c", 2000, GIB)]);
    isolated.containers[0].wishes.class = Some(crate::settings::DeclaredClass::Isolated);
    host.admit(&isolated).unwrap();
    assert_eq!((host.place("i", "c").0.as_str(), host.grant("i", "c").class), ("1-2", CpuClass::Isolated));
    isolated.name.name = "j".into();
    host.admit(&isolated).unwrap_err();
    host.admit(&pod("s", vec![container("c", 500, GIB)])).unwrap();
    assert_eq!(host.place("s", "c").0, "0");
}
