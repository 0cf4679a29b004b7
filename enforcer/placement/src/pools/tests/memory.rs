//! Kinds of memory, zones, and which containers move to wider zones.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{machines::*, *};
use crate::{MemoryPriority, MemoryResource, memory::ZoneAccount};
use numa_topology::{MemoryKind, id::NodeId, synth::Machine};

const RESERVED: &str = "[reserved]\ncpus = '750m'";

/// E27
#[test]
fn a_memory_limit_decides_how_many_nodes() {
    // Without a limit the reference takes the whole machine: a container with a small request has no locality
    // then.
    for (limit, count) in [(Some(2500), 2), (Some(5000), 4), (Some(2500), 2), (None, 1)] {
        let mut node = Node::new(n4c16(), RESERVED);
        let limits = amounts(Some(1000), limit.map(|mega| mega * MB));
        let name = node.run(Pod::new("p").container(amounts(Some(500), Some(100 * MB)), limits));
        assert_eq!(node.grant(&name).mems.len(), count, "{limit:?}");
    }
}

/// X1
#[test]
fn kinds_of_memory_come_from_the_own_package() {
    for (kind, on) in [
        ("", ["0,4", "1,5"]),
        ("dram", ["0", "1"]),
        ("hbm", ["2", "3"]),
        ("pmem", ["4", "5"]),
        ("mixed", ["0,2,4", "1,3,5"]),
    ] {
        let mut node = Node::new(n6(), "");
        let mut pod = Pod::new("p").guaranteed(500, 512 * MB);
        if !kind.is_empty() {
            pod = pod.annotated("memory-type.resource-policy.nri.io/pod", kind);
        }
        let name = node.run(pod);
        assert!(on.contains(&node.mems(&name).as_str()), "{kind}: {}", node.mems(&name));
        assert_eq!(node.mems(&name), on[usize::from(node.cpus(&name) == cpus("4-7"))], "{kind}");
    }
    let mut node = Node::new(n4c16(), "");
    let pod = Pod::new("p").annotated("memory-type.resource-policy.nri.io/pod", "hbm").guaranteed(500, MB);
    let refused = node.create(&pod.build()).unwrap_err();
    assert!(refused.to_string().contains("no memory of type hbm"), "{refused}");
}

/// C3, as far as it is placement
#[test]
fn a_cold_start_is_without_dram_and_says_when_it_ends() {
    let mut node = Node::new(c4pmem4(), "");
    let pod = Pod::new("p")
        .annotated("memory-type.cri-resource-manager.intel.com/pod", "dram,pmem")
        .annotated("cold-start.cri-resource-manager.intel.com/pod", r#"{"duration": "10s"}"#)
        .guaranteed(500, GB)
        .last(|container| container.allowed_cpus = Some("1".parse().unwrap()));
    let name = node.run(pod);
    let grant = node.grant(&name);
    assert_eq!(grant.mems.to_string(), "7", "{:?}", node.warnings);
    let then = grant.cold_start.as_ref().unwrap();
    assert_eq!((then.after.as_secs(), then.mems.to_string().as_str()), (10, "1,7"));
    // Its promise must fit before the DRAM is added.
    let large = Pod::new("q")
        .annotated("memory-type.cri-resource-manager.intel.com/pod", "dram,pmem")
        .annotated("cold-start.cri-resource-manager.intel.com/pod", r#"{"duration": "10s"}"#)
        .guaranteed(100, 17 * GB);
    node.create(&large.build()).unwrap_err();
}

#[test]
fn a_resize_neither_begins_a_cold_start_again_nor_forgets_when_it_began() {
    let mut node = Node::new(c4pmem4(), "");
    let asking = |milli| {
        Pod::new("p")
            .annotated("memory-type.cri-resource-manager.intel.com/pod", "dram,pmem")
            .annotated("cold-start.cri-resource-manager.intel.com/pod", r#"{"duration": "10s"}"#)
            .guaranteed(milli, GB)
            .build()
    };
    node.create(&asking(500)).unwrap();
    let (holder, mut grant) = node.allocations.iter().next().map(|(a, b)| (a.clone(), b.clone())).unwrap();
    let slow = grant.mems.clone();
    grant.cold_start.as_mut().unwrap().began_ns = Some(7);
    node.allocations.give(holder.clone(), grant);
    node.resize(&asking(600)).unwrap();
    let grant = node.allocations.get(&holder).unwrap();
    assert_eq!((&grant.mems, grant.cold_start.as_ref().unwrap().began_ns), (&slow, Some(7)));
    crate::finish_cold_start(&mut node.allocations, &holder).unwrap();
    node.resize(&asking(700)).unwrap();
    let grant = node.allocations.get(&holder).unwrap();
    assert!(grant.cold_start.is_none() && slow.is_subset(&grant.mems) && grant.mems.len() > 1, "{grant:?}");
}

#[test]
fn chosen_cpus_are_kept_and_skip_no_cold_start() {
    let asking = || {
        Pod::new("p")
            .annotated("memory-type.cri-resource-manager.intel.com/pod", "dram,pmem")
            .annotated("cold-start.cri-resource-manager.intel.com/pod", r#"{"duration": "10s"}"#)
            .guaranteed(2_000, GB)
            .build()
    };
    let placed = |previous: Option<Grant>| {
        let mut node = Node::new(c4pmem4(), "");
        let mut pod = asking();
        pod.previous = previous.map(|grant| (pod.containers[0].name.clone(), grant)).into_iter().collect();
        node.create(&pod).unwrap();
        node.allocations.iter().next().map(|(_, grant)| grant.clone()).unwrap()
    };
    let free = placed(None);
    let last = cpus("2-3");
    assert_ne!(free.exclusive, last);
    let chosen = placed(Some(Grant::chosen(last.clone(), NodeSet::new())));
    assert_eq!(chosen.exclusive, last);
    assert!(free.cold_start.is_some() && chosen.cold_start.is_some(), "{chosen:?}");
    let ran = placed(Some(Grant { exclusive: last, ..Grant::default() }));
    assert_eq!(ran.cold_start, None);
}

/// C5
#[test]
fn machines_are_filled_without_moving_containers() {
    for each in [2u64, 3, 4] {
        let mut node = Node::new(c4pmem4(), "");
        let mut names = Vec::new();
        for n in 0..3 * each {
            let pod = Pod::new(&format!("p{n}")).guaranteed(750 / each, 4500 * MB / each).build();
            let admission = node.create(&pod).unwrap();
            assert!(admission.updates.is_empty());
            names.push(format!("p{n}/c0"));
        }
        for name in names {
            assert!(
                ["0,6", "1,7", "2,4", "3,5"].contains(&node.mems(&name).as_str()),
                "{}",
                node.mems(&name)
            );
        }
    }
}

/// C7: the reference moves both; every promise can be kept where it is, so no container moves here.
#[test]
fn no_container_moves_while_all_promises_can_be_kept() {
    let mut node = Node::new(c4pmem4(), "");
    let one = node.run(Pod::new("one").guaranteed(200, 5 * GB));
    let two = node.run(Pod::new("two").guaranteed(200, 5 * GB));
    let (mems_of_one, mems_of_two) = (node.mems(&one), node.mems(&two));
    let root = node.run(
        Pod::new("root")
            .annotated("prefer-shared-cpus.resource-policy.nri.io", "true")
            .guaranteed(1200, 2 * GB),
    );
    assert_eq!((node.pool(&root), node.mems(&root).as_str()), ("root", "0-7"));
    assert_eq!((node.mems(&one), node.mems(&two)), (mems_of_one, mems_of_two));
    // Another one that needs more room than the pool of the first has, apart from the nodes of all.
    let full = node.run(Pod::new("full").guaranteed(200, 10 * GB));
    let sum: u64 = [&one, &two, &root, &full].iter().map(|name| node.grant(name).memory[0].bytes).sum();
    assert_eq!(sum, 22 * GB);
}

#[test]
fn others_get_a_wider_zone_and_are_told() {
    let mut node = Node::new(n4c16(), RESERVED);
    let pod = |name: &str| Pod::new(name).last_burstable(100, 1500 * MB);
    let limit = |pod: Pod| pod.last(|container| container.allowed_cpus = Some("4-7".parse().unwrap()));
    let one = node.run(limit(pod("one")));
    assert_eq!(node.mems(&one), "1");
    let guaranteed = limit(Pod::new("two").guaranteed(1000, 1500 * MB));
    let admission = node.create(&guaranteed.build()).unwrap();
    assert_eq!(node.mems("two/c0"), "1");
    assert_eq!(node.mems(&one), "0-1");
    let update = admission.updates.iter().find(|update| update.mems.is_some()).unwrap();
    assert_eq!((update.holder.name(), update.mems.clone()), ("c0", Some(nodes("0-1"))));
    for name in [&one, "two/c0"] {
        let claim = &node.grant(name).memory[0];
        assert_eq!(claim.by_node.values().sum::<u64>(), claim.bytes);
        assert!(claim.by_node.keys().all(|node| claim.zone.contains(*node)));
    }
    // Strict containers are not moved, and a zone that is too small for them is not taken.
    let mut node = Node::new(n4c16(), RESERVED);
    let strict = limit(pod("one")).annotated("memory.strict.numa-enforcer.io/pod", "true");
    let one = node.run(strict);
    assert_eq!(node.grant(&one).memory_priority, MemoryPriority::Strict);
    node.run(guaranteed);
    assert_eq!((node.mems(&one).as_str(), node.mems("two/c0") == "1"), ("1", false));
}

#[test]
fn huge_pages_are_on_nodes_that_have_them() {
    let mut machine = n4c16();
    machine.nodes[3].hugepages.push(numa_topology::Hugepages { size_bytes: 2 << 20, total: 64, free: 64 });
    let mut node = Node::new(machine, RESERVED);
    let pod = |name: &str, pages: u64| {
        Pod::new(name).guaranteed(1000, 10 * MB).last(|container| {
            container.requests.hugepages.insert(2 << 20, pages << 21);
            container.limits.hugepages.insert(2 << 20, pages << 21);
        })
    };
    let one = node.run(pod("one", 60));
    assert_eq!(node.mems(&one), "3");
    let refused = node.create(&pod("two", 10).build()).unwrap_err();
    assert!(refused.to_string().contains("hugepages-2Mi"), "{refused}");
}

impl Pod {
    fn last_burstable(self, milli: u64, memory: u64) -> Self {
        self.burstable(milli, Some(milli + 1), memory)
    }
}

#[test]
fn the_reason_says_where_the_memory_is_that_the_pool_does_not_have() {
    for (strict, expected) in [
        (false, "NUMA node #1 is the best pool, with room after 1 other got a wider zone; "),
        (true, "NUMA node #1 is the best pool for its CPUs, with memory on node 0 outside it; "),
    ] {
        let mut node = Node::new(n4c16(), RESERVED);
        let limit = |pod: Pod| pod.last(|container| container.allowed_cpus = Some("4-7".parse().unwrap()));
        let mut one = limit(Pod::new("one").last_burstable(100, 1500 * MB));
        if strict {
            one = one.annotated("memory.strict.numa-enforcer.io/pod", "true");
        }
        let one = node.run(one);
        let reason = &node.grant(&one).reason;
        assert!(reason.starts_with("NUMA node #1 is the best pool that has room; "), "{reason}");
        let two = node.run(limit(Pod::new("two").guaranteed(1000, 1500 * MB)));
        let grant = node.grant(&two);
        assert_eq!(grant.mems.to_string(), if strict { "0-1" } else { "1" });
        assert!(grant.reason.starts_with(expected), "{}", grant.reason);
    }
}

/// A socket of 8 CPUs and 16 GiB with slow memory beside it, and one of the same size without.
fn with_slow_memory() -> Topology {
    Machine::new().sockets(2).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(0)).build()
}

#[test]
fn ordinary_memory_comes_before_slow_memory_unless_kinds_are_asked_for() {
    let gib = 1 << 30;
    let on_node_0 =
        |pod: Pod| pod.last(|container| container.allowed_cpus = Some("0-3,8-11".parse().unwrap()));
    for (held, asked, annotation, on) in [
        // No ordinary memory near the slow memory is left.
        (16, 12, None, "1-2"),
        // Some is left, but most of it would be slow.
        (12, 12, None, "1-2"),
        // Most of it would be ordinary, and the other socket has room for all.
        (8, 12, None, "1-2"),
        // Neither socket has room in ordinary memory, and one has in slow memory.
        (2, 40, None, "0,2"),
        // Slow memory was requested.
        (16, 12, Some("pmem"), "2"),
        (16, 12, Some("mixed"), "0,2"),
    ] {
        let mut node = Node::new(with_slow_memory(), "");
        let holder = Pod::new("holder").annotated("memory-type.numa-enforcer.io/pod", "dram");
        node.run(on_node_0(holder.guaranteed(500, held * gib)));
        let mut pod = Pod::new("p").guaranteed(500, asked * gib);
        if let Some(kind) = annotation {
            pod = pod.annotated("memory-type.numa-enforcer.io/pod", kind);
        }
        let name = node.run(pod);
        assert_eq!(node.mems(&name), on, "{held} held, {asked} asked for, {annotation:?}");
    }
}

#[test]
fn a_request_without_a_limit_stays_near_with_head_room() {
    let memory = |name: &str, mega| {
        Pod::new(name).container(amounts(Some(500), Some(mega * MB)), Resources::default())
    };
    for (settings, cpu_limit, mega, nodes) in [
        // Containers without a CPU limit go to a package.
        ("", None, 100, 2),
        ("[pools]\nunlimited_burstable = 'numa'", None, 100, 1),
        ("[pools]\nunlimited_burstable = 'numa'", None, 1000, 1),
        // Twice the request must have room.
        ("[pools]\nunlimited_burstable = 'numa'", None, 1001, 2),
        ("", Some(2000), 100, 1),
        ("", Some(6000), 100, 2),
    ] {
        let mut node = Node::new(n4c16(), &format!("{settings}\n{RESERVED}"));
        let pod = memory("p", mega).last(|container| container.limits.milli_cpus = cpu_limit);
        let name = node.run(pod);
        assert_eq!(node.grant(&name).mems.len(), nodes, "{settings} {cpu_limit:?} {mega}");
        assert_eq!(node.nodes(&name).parse::<NodeSet>().unwrap().len(), nodes);
    }
    let mut node = Node::new(n4c128(), &format!("[pools]\nunlimited_burstable = 'l3cache'\n{RESERVED}"));
    let name = node.run(memory("p", 100));
    assert_eq!((node.cpus(&name).len(), node.grant(&name).mems.len()), (8, 1));
}

#[test]
fn many_requests_without_a_limit_change_nothing_for_others() {
    let mut node = Node::new(n4c128(), RESERVED);
    for number in 0..200 {
        let amounts = amounts(Some(100), Some(20 * MB));
        let pod = Pod::new(&format!("p{number}")).container(amounts, Resources::default()).build();
        let updates = node.create(&pod).unwrap().updates;
        assert!(updates.is_empty(), "{number}: {updates:?}");
    }
}

#[test]
fn a_wish_for_memory_that_cannot_be_kept_is_said() {
    let asking = |kind: &str| {
        Pod::new("p").annotated("memory-type.resource-policy.nri.io/pod", kind).guaranteed(500, MB).build()
    };
    let mut machine = n6();
    machine.nodes.iter_mut().skip(2).for_each(|node| node.normal_memory = Some(false));
    let mut node = Node::new(machine, "");
    node.create(&asking("hbm")).unwrap();
    let said = "memory-type hbm: nodes 2-3 have movable memory only, which the kernel cannot use for itself: \
                the nearest other node is added";
    assert_eq!(node.warnings, [format!("container c0: {said}")]);
    let mut node = Node::new(n4c16(), "");
    node.create(&asking("dram,hbm")).unwrap();
    assert_eq!(node.warnings, ["container c0: memory-type: the machine has no hbm, ignored"]);
}

#[test]
fn nodes_of_movable_memory_get_one_for_the_kernel_on_which_nothing_is_promised() {
    let mut machine = n4c16();
    machine.nodes.iter_mut().skip(1).for_each(|node| node.normal_memory = Some(false));
    let mut node = Node::new(machine, "");
    let pod = node.run(Pod::new("p").guaranteed(500, GB).last(|container| {
        container.allowed_cpus = Some("4-7".parse().unwrap());
    }));
    assert_eq!(node.mems(&pod), "0-1");
    let grants = node.allocations.iter().flat_map(|(_, grant)| &grant.memory);
    let zones: Vec<String> = grants.map(|claim| claim.zone.to_string()).collect();
    assert_eq!(zones, ["1"]);
}

#[test]
fn a_rejection_says_that_memory_of_gpus_was_left_out() {
    let machine = Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 96, MemoryKind::Gpu, NodeId(0));
    let mut node = Node::new(machine.build(), "");
    let rejection = node.create(&Pod::new("p").guaranteed(500, 40 << 30).build()).unwrap_err().to_string();
    let said = "too little memory, also if others were moved (node 2 left out: memory of a GPU): 32 GiB of 40 GiB \
                memory on nodes 0-1";
    assert!(rejection.contains(said), "{rejection}");
}

#[test]
fn slow_memory_is_of_the_own_package_and_no_more_than_holds_the_request() {
    let mut machine = server();
    for row in machine.distances.iter_mut().take(4) {
        row[4..].fill(Some(28));
    }
    let asking = |name: &str, giga| {
        Pod::new(name)
            .annotated("memory-type.resource-policy.nri.io/pod", "pmem")
            .guaranteed(500, giga * GB)
            .last(|container| container.allowed_cpus = Some("14-27".parse().unwrap()))
    };
    let mut node = Node::new(machine, RESERVED);
    let near = node.run(asking("near", 5));
    assert_eq!(node.mems(&near), "4", "node 5 is as far, and beside the other package");
}

#[test]
fn ordinary_memory_is_gone_where_others_lie_though_they_could_be_slow() {
    let gib = 1 << 30;
    let mut node = Node::new(with_slow_memory(), "");
    let on_node_0 = |container: &mut ContainerRequest| {
        container.allowed_cpus = Some("0-3,8-11".parse().unwrap());
    };
    node.run(Pod::new("first").guaranteed(500, 15 * gib).last(on_node_0));
    let second = node.run(Pod::new("second").guaranteed(500, 12 * gib));
    assert_eq!((node.pool(&second), node.mems(&second).as_str()), ("socket #1", "1-2"));
}

/// 66 packages of one node with two CPUs and 16 GiB.
fn large() -> Machine {
    Machine::new().sockets(66).cores(2).threads(1).memory_gib(16)
}

#[test]
fn memory_beyond_the_64th_node_is_promised_once() {
    const GIB: u64 = 1 << 30;
    let mut node = Node::new(large().build(), "");
    let within = |pod: Pod| pod.last(|container| container.allowed_nodes = Some(nodes("63-65")));
    for number in 0..3 {
        let name = node.run(within(Pod::new(&format!("a{number}")).guaranteed(1000, 9 * GIB)));
        assert_eq!(node.grant(&name).mems.len(), 1, "{name}: {:?}", node.grant(&name));
    }
    let taken: NodeSet = node.allocations.iter().flat_map(|(_, grant)| grant.mems.iter()).collect();
    assert_eq!(taken.to_string(), "63-65");
    // 7 GiB of each node are left.
    let account = ZoneAccount::new(&node.inventory, &node.allocations, |_| false);
    let free = |zone: &str| account.free(&nodes(zone), MemoryResource::Memory) / GIB;
    assert_eq!([free("63"), free("64"), free("65"), free("63-65")], [7, 7, 7, 21]);
    let name = node.run(within(Pod::new("b").guaranteed(1000, 9 * GIB)));
    assert!(node.grant(&name).mems.len() > 1, "{:?}", node.grant(&name));
    // Others get wider zones for it, if there is room.
    node.run(within(Pod::new("c").guaranteed(1000, 13 * GIB)));
    let account = ZoneAccount::new(&node.inventory, &node.allocations, |_| false);
    assert!(account.overcommitted(MemoryResource::Memory).is_empty());
}

/// Amount of this promised memory that is available at once, by the definition: a flow from holders to nodes.
fn kept_at_once(promises: &[(NodeSet, u64)], mut free: BTreeMap<NodeId, u64>) -> u64 {
    let mut lies = vec![BTreeMap::<NodeId, u64>::new(); promises.len()];
    let mut kept = 0;
    for (at, (zone, bytes)) in promises.iter().enumerate() {
        let mut rest = *bytes;
        while rest > 0 {
            // How each node was reached: the previous node, and the promise that moves.
            let mut from: BTreeMap<NodeId, Option<(NodeId, usize)>> =
                zone.iter().map(|node| (node, None)).collect();
            let mut queue: Vec<NodeId> = zone.iter().collect();
            let mut next = 0;
            let end = loop {
                let Some(node) = queue.get(next).copied() else { break None };
                if free[&node] > 0 {
                    break Some(node);
                }
                for mover in (0..promises.len()).filter(|mover| lies[*mover].contains_key(&node)) {
                    for to in promises[mover].0.iter() {
                        if let std::collections::btree_map::Entry::Vacant(place) = from.entry(to) {
                            place.insert(Some((node, mover)));
                            queue.push(to);
                        }
                    }
                }
                next += 1;
            };
            let Some(end) = end else { break };
            let mut path = Vec::new();
            let mut to = end;
            while let Some((before, mover)) = from[&to] {
                path.push((before, mover, to));
                to = before;
            }
            let movable =
                path.iter().map(|(before, mover, _)| lies[*mover][before]).min().unwrap_or(u64::MAX);
            let bytes = rest.min(free[&end]).min(movable);
            for (before, mover, to) in path {
                *lies[mover].get_mut(&before).unwrap() -= bytes;
                lies[mover].retain(|_, bytes| *bytes > 0);
                *lies[mover].entry(to).or_default() += bytes;
            }
            *lies[at].entry(to).or_default() += bytes;
            *free.get_mut(&end).unwrap() -= bytes;
            rest -= bytes;
            kept += bytes;
        }
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn promises_of_all_sizes_over_more_than_64_nodes_can_be_kept_at_once(
        sockets in 11u32..=12,
        sizes in proptest::collection::vec(
            (prop::sample::select(vec![1u64, 2, 4]), prop::sample::select(vec![100u64, 200, 300, 380, 500])),
            15,
        ),
    ) {
        const GIB: u64 = 1 << 30;
        let machine = Machine::new().sockets(sockets).nodes_per_socket(6).cores(4).memory_gib(64).build();
        let mut node = Node::new(machine, "");
        let supply = node.inventory.nodes.iter();
        let supply: BTreeMap<NodeId, u64> =
            supply.map(|node| (node.id, node.allocatable(MemoryResource::Memory))).collect();
        for (number, (cpus, gib)) in sizes.into_iter().enumerate() {
            let pod = Pod::new(&format!("p{number}")).guaranteed(cpus * 1000, gib * GIB).build();
            let _ = node.create(&pod);
        }
        let claims = node.allocations.iter().flat_map(|(_, grant)| &grant.memory);
        let promises: Vec<(NodeSet, u64)> = claims.map(|claim| (claim.zone.clone(), claim.bytes)).collect();
        let promised: u64 = promises.iter().map(|(_, bytes)| bytes).sum();
        prop_assert!(promised <= supply.values().sum::<u64>(), "{} GiB promised", promised / GIB);
        prop_assert!(promised > supply.values().sum::<u64>() / 2, "{} GiB promised", promised / GIB);
        prop_assert_eq!(kept_at_once(&promises, supply), promised);
    }
}

#[test]
fn device_beyond_the_64th_node_is_taken_beside_the_cpus() {
    let device = |id: &str, node: u32| DeviceUnit {
        resource: "vendor.com/gpu".into(),
        id: id.into(),
        nodes: NodeSet::from_iter([NodeId(node)]),
    };
    let mut node = Node::with_devices(large().build(), "", vec![device("a", 3), device("b", 65)]);
    let name = node.run(Pod::new("p").guaranteed(1000, 1 << 30).hint("x", "65").last(|container| {
        container.devices.insert("vendor.com/gpu".into(), 1);
    }));
    assert_eq!(node.nodes(&name), "65");
    assert_eq!(node.grant(&name).devices["vendor.com/gpu"], ["b"]);
}
