//! Pods on machines of eight to sixty-four nodes, with and without lists of their sets, and on larger ones.
//!
//! The assertions are about location: CPUs, memory and devices of one pod are on the same nodes.

use super::{always::check, *};
use crate::{Trace, admit_traced, settings::NumaAllocationStrategy};

/// Sockets of four nodes, each with eight CPUs and 16 GiB.
fn machine(nodes: u32) -> Topology {
    Machine::new().sockets(nodes / 4).nodes_per_socket(4).cores(4).memory_gib(16).build()
}

/// A host with a device at each node.
fn host(nodes: u32, hints: HintsSettings) -> Host {
    let near: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();
    let gpus = devices("v.com/gpu", &near.iter().map(String::as_str).collect::<Vec<_>>());
    Host::with(machine(nodes), gpus, PlacementSettings { hints, ..PlacementSettings::default() })
}

/// Nodes of the exclusive CPUs of a container.
fn nodes_of_cpus(host: &Host, pod: &str) -> NodeSet {
    host.inventory.machine.nodes_of(&host.grant(pod, "c").exclusive)
}

/// The nodes of the merge, if every resource preferred them.
fn chosen(host: &Host, pod: &str) -> String {
    let hint = host.grant(pod, "c").hint.as_ref().unwrap();
    assert!(hint.preferred, "{hint:?}");
    hint.nodes.as_ref().unwrap().to_string()
}

#[track_caller]
fn admitted(host: &mut Host, name: &str, milli_cpus: u64, gib: u64, gpus: u64) {
    let request = container("c", milli_cpus, gib * GIB).device("v.com/gpu", gpus);
    host.admit(&pod(name, vec![request])).unwrap_or_else(|rejection| panic!("{name}: {rejection}"));
}

#[test]
fn pods_of_one_node_fill_the_machine_node_by_node() {
    for nodes in [16, 64] {
        let mut host = host(nodes, single());
        let mut used = NodeSet::new();
        for number in 0..nodes {
            let name = format!("p{number}");
            admitted(&mut host, &name, 6000, 12, 1);
            let on = nodes_of_cpus(&host, &name);
            let grant = host.grant(&name, "c");
            assert_eq!((on.len(), &grant.mems, &grant.memory[0].zone), (1, &on, &on));
            let device: usize = grant.devices["v.com/gpu"][0][1..].parse().unwrap();
            assert_eq!(host.inventory.devices["v.com/gpu"][device].nodes.len(), 1);
            assert!(on.is_disjoint(&used), "{on} twice");
            used.extend(&on);
        }
        assert_eq!(used.len(), nodes as usize);
        let rejection = host.admit(&pod("more", vec![container("c", 6000, GIB)])).unwrap_err();
        assert_eq!(rejection.reason, RejectionReason::TopologyAffinityError);
    }
}

#[test]
fn a_device_draws_the_rest_to_its_node() {
    for nodes in [16, 64] {
        let last = nodes - 1;
        let gpus = devices("v.com/gpu", &[&last.to_string()]);
        let settings = PlacementSettings { hints: single(), ..PlacementSettings::default() };
        let mut host = Host::with(machine(nodes), gpus, settings);
        admitted(&mut host, "p", 4000, 8, 1);
        assert_eq!(
            (chosen(&host, "p"), nodes_of_cpus(&host, "p").to_string()),
            (last.to_string(), last.to_string())
        );
        assert_eq!(host.grant("p", "c").memory[0].zone.to_string(), last.to_string());
    }
}

#[test]
fn what_needs_several_nodes_has_them_in_one_socket() {
    for nodes in [16, 64] {
        let mut host = host(nodes, policy(TopologyPolicy::Restricted));
        // Two nodes of the first socket are in use, so that two pairs of it are not free.
        admitted(&mut host, "a", 8000, 16, 1);
        admitted(&mut host, "b", 8000, 16, 1);
        for name in ["c", "d"] {
            admitted(&mut host, name, 16_000, 30, 2);
            let on = nodes_of_cpus(&host, name);
            assert_eq!((chosen(&host, name), on.len()), (on.to_string(), 2));
            assert!(on.iter().all(|node| node.0 / 4 == on.first().unwrap().0 / 4), "{on} are in two sockets");
            assert_eq!(host.grant(name, "c").memory[0].zone, on);
        }
        assert_eq!((chosen(&host, "c"), chosen(&host, "d")), ("2-3".to_owned(), "4-5".to_owned()));
    }
}

#[test]
fn up_to_sixteen_nodes_the_use_of_nodes_decides_between_equals() {
    for (strategy, expected) in [
        (NumaAllocationStrategy::None, "0"),
        (NumaAllocationStrategy::MostAllocated, "5"),
        (NumaAllocationStrategy::LeastAllocated, "1"),
    ] {
        let hints =
            HintsSettings { numa_allocation_strategy: strategy, ..policy(TopologyPolicy::Restricted) };
        let gpus = devices("v.com/gpu", &["0", "5"]);
        let settings = PlacementSettings { hints, ..PlacementSettings::default() };
        let mut host = Host::with(machine(16), gpus, settings);
        // One device each: the first pod is on node 0, and the second, with more, on node 5.
        admitted(&mut host, "a", 1000, 1, 1);
        admitted(&mut host, "b", 4000, 8, 1);
        assert_eq!((chosen(&host, "a"), chosen(&host, "b")), ("0".to_owned(), "5".to_owned()));
        let request = container("c", 2000, 2 * GIB);
        host.admit(&pod("c", vec![request])).unwrap();
        assert_eq!(chosen(&host, "c"), expected, "{strategy:?}");
    }
}

#[test]
fn up_to_sixteen_nodes_a_socket_counts_as_aligned_where_it_is_asked_for() {
    for align_by_socket in [false, true] {
        let hints = HintsSettings { align_by_socket, ..policy(TopologyPolicy::Restricted) };
        let mut host = host(16, hints);
        // Four CPUs need one node, and memory needs two: only as a socket are two nodes right for both.
        let outcome = host.admit(&pod("p", vec![container("c", 4000, 20 * GIB)]));
        assert_eq!(outcome.is_ok(), align_by_socket, "{outcome:?}");
        if align_by_socket {
            let memory = host.grant("p", "c").memory[0].zone.to_string();
            assert_eq!((chosen(&host, "p"), memory), ("0-1".to_owned(), "0-1".to_owned()));
            assert!(nodes_of_cpus(&host, "p").is_subset(&"0-3".parse().unwrap()));
        }
    }
}

#[test]
fn up_to_eight_nodes_movable_memory_blocks_no_placement() {
    let mut host = host(8, policy(TopologyPolicy::Restricted));
    // On nodes 0-1, where its memory is on node 0 first.
    host.admit(&pod("wide", vec![container("c", 8500, 20 * GIB)])).unwrap();
    assert_eq!(host.grant("wide", "c").memory[0].zone.to_string(), "0-1");
    admitted(&mut host, "p", 2000, 12, 1);
    assert_eq!(chosen(&host, "p"), "0");
    assert_eq!(host.grant("p", "c").memory[0].zone.to_string(), "0");
}

/// The warnings about a pod.
fn warned(nodes: u32, policy_of: TopologyPolicy, milli_cpus: u64) -> Vec<String> {
    let mut host = Host::new(machine(nodes), policy(policy_of));
    let mut trace = Trace::default();
    let Host { inventory, settings, allocations } = &mut host;
    let request = pod("p", vec![container("c", milli_cpus, GIB)]);
    admit_traced(inventory, settings, allocations, &request, &mut trace).unwrap();
    trace.into_parts().1
}

#[test]
fn nodes_beyond_the_sixty_fourth_are_aligned_in_windows() {
    let mut host = host(128, single());
    let mut used = NodeSet::new();
    for number in 0..128 {
        let name = format!("p{number}");
        admitted(&mut host, &name, 6000, 12, 1);
        let (on, grant) = (nodes_of_cpus(&host, &name), host.grant(&name, "c"));
        assert_eq!((on.len(), &grant.mems, &grant.memory[0].zone), (1, &on, &on));
        used.extend(&on);
    }
    assert_eq!(used.len(), 128);
    let mut host = Host::new(machine(68), policy(TopologyPolicy::BestEffort));
    for number in 0..8 {
        let name = format!("wide{number}");
        host.admit(&pod(&name, vec![container("c", 64_000, 64 * GIB)])).unwrap();
        assert!(nodes_of_cpus(&host, &name).is_subset(&host.grant(&name, "c").mems));
    }
    host.admit(&pod("shares", vec![container("c", 500, GIB).without_limits()])).unwrap();
    check(&host);
}

#[test]
fn what_no_window_holds_is_used_as_it_comes_and_a_warning_says_so() {
    let said = "at most 64 nodes are aligned: CPUs of nodes 64-67 are used as they come";
    assert_eq!(warned(68, TopologyPolicy::BestEffort, 68 * 8000), [said]);
    assert!(warned(68, TopologyPolicy::BestEffort, 4000).is_empty());
    assert!(warned(68, TopologyPolicy::None, 68 * 8000).is_empty());

    let mut host = Host::new(machine(68), policy(TopologyPolicy::BestEffort));
    host.admit(&pod("all", vec![container("c", 68 * 8000, GIB)])).unwrap();
    assert_eq!(host.grant("all", "c").exclusive, host.inventory.allowed_cpus);
    check(&host);
}
