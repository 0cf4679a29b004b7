//! Exclusive CPUs: their origin, and the CPUs that remain for other containers.

use super::{machines::*, *};

const RESERVED: &str = "[reserved]\ncpus = '750m'";

fn n4c16_node(settings: &str) -> Node {
    Node::new(n4c16(), &format!("{settings}\n{RESERVED}"))
}

/// E1
#[test]
fn single_cpus_go_to_the_emptiest_node() {
    let mut node = n4c16_node("");
    let pod = (0..4).fold(Pod::new("p"), |pod, _| pod.guaranteed(1000, 100 * MB));
    node.run(pod);
    let places: Vec<String> = (0..4).map(|n| node.nodes(&format!("p/c{n}"))).collect();
    assert_eq!(places, ["1", "2", "3", "0"]);
    for (n, place) in places.iter().enumerate() {
        let name = format!("p/c{n}");
        assert_eq!(node.mems(&name), *place);
        assert_eq!(node.cpus(&name).len(), 1);
        assert_eq!(node.grant(&name).cpu_shares, Some(1024));
    }
}

/// E7
#[test]
fn larger_requests_take_a_socket_and_the_largest_the_machine() {
    let mut node = n4c16_node("");
    let five = node.run(Pod::new("five").guaranteed(5000, 100 * MB));
    let seven = node.run(Pod::new("seven").guaranteed(7000, 100 * MB));
    let cores =
        |cpus: &CpuSet| cpus.iter().map(|cpu| cpu.0 / 2).collect::<std::collections::BTreeSet<_>>().len();
    let (five, seven) = (node.cpus(&five), node.cpus(&seven));
    let packages =
        |cpus: &CpuSet| cpus.iter().map(|cpu| cpu.0 / 8).collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!((five.len(), cores(&five), packages(&five)), (5, 3, 1));
    assert_eq!((seven.len(), cores(&seven), packages(&seven)), (7, 4, 1));
    assert!(five.is_disjoint(&seven));

    let mut node = n4c16_node("");
    let nine = node.run(Pod::new("nine").guaranteed(9000, 100 * MB));
    assert_eq!((node.cpus(&nine).len(), packages(&node.cpus(&nine))), (9, 2));
}

/// E9
#[test]
fn best_effort_containers_are_moved_out_of_the_way_and_back() {
    let mut node = n4c16_node("");
    let one = node.run(Pod::new("one").guaranteed(5000, 100 * MB));
    let two = node.run(Pod::new("two").guaranteed(5000, 100 * MB));
    let (first, second) = (node.run(Pod::new("be1").best_effort()), node.run(Pod::new("be2").best_effort()));
    let apart = |node: &Node, exclusive: &[&str]| {
        let taken = exclusive.iter().fold(CpuSet::new(), |all, name| all.union(&node.cpus(name)));
        for name in [&first, &second] {
            assert!(node.cpus(name).is_disjoint(&taken) && !node.cpus(name).is_empty(), "{name}");
        }
    };
    apart(&node, &[&one, &two]);
    node.delete("one");
    node.delete("two");
    assert_eq!(node.allocations.exclusive_cpus(), CpuSet::new());
    let names: Vec<String> =
        (0..4).map(|n| node.run(Pod::new(&format!("three{n}")).guaranteed(3000, 100 * MB))).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    apart(&node, &names);
    let last = node.run(Pod::new("last").guaranteed(1000, 100 * MB));
    apart(&node, &[&last]);
}

/// E31
#[test]
fn pools_in_use_are_never_emptied() {
    let kinds: [fn(Pod) -> Pod; 3] = [
        |pod| pod.best_effort(),
        |pod| pod.burstable(1, Some(2), 10 * MB),
        |pod| pod.burstable(250, Some(500), 10 * MB),
    ];
    for kind in kinds {
        let mut node = n4c16_node("");
        let mut names: Vec<String> = (0..4).map(|n| node.run(kind(Pod::new(&format!("b{n}"))))).collect();
        names.push(node.run(Pod::new("g").guaranteed(4000, 100 * MB)));
        let all: Vec<CpuSet> = names.iter().map(|name| node.cpus(name)).collect();
        assert!(disjoint(&all) && all.iter().all(|cpus| !cpus.is_empty()), "{all:?}");
        assert_eq!(all[4].len(), 4);
    }
}

#[test]
fn one_cpu_stays_shared_beside_isolated_ones() {
    for (isolated, reserved, most) in [("1-3", "", 0), ("2-3", "", 1), ("3", "reserved.cpus = 'cpuset:0'", 1)]
    {
        let machine = || numa_topology::synth::Machine::new().cores(4).threads(1).isolated(isolated).build();
        for exclusive in 1..=3 {
            let mut node = Node::new(machine(), &format!("pools.prefer_isolated_cpus = false\n{reserved}"));
            let alone = node.create(&Pod::new("a").guaranteed(exclusive * 1000, MB).build());
            let says = format!("{exclusive} of {most} beside {isolated}: {alone:?}");
            assert_eq!(alone.is_ok(), exclusive <= most, "{says}");
            node.create(&Pod::new("b").burstable(100, None, MB).build()).unwrap_or_else(|_| panic!("{says}"));
        }
    }
}

/// P4, P5, P8, A1, A2
#[test]
fn a_leaf_as_long_as_one_is_large_enough() {
    let server_node = || Node::new(server(), RESERVED);
    for (cpus, leaf) in [(25, true), (29, false)] {
        let mut node = server_node();
        let name = node.run(Pod::new("p").guaranteed(cpus * 1000, 10_000));
        assert_eq!(node.pool(&name).starts_with("NUMA"), leaf, "{cpus}");
        assert_eq!(node.cpus(&name).len() as u64, cpus);
    }
    let mut node = server_node();
    node.run(Pod::new("p").guaranteed(2000, 1000).guaranteed(2000, 1000).guaranteed(2000, 1000));
    for name in ["p/c0", "p/c1", "p/c2"] {
        assert!(node.pool(name).starts_with("NUMA"), "{}", node.pool(name));
    }
    let mut node = server_node();
    let three = node.run(Pod::new("p").guaranteed(3000, 1000));
    assert_eq!(node.pool(&three), "NUMA node #2");
    let system = node.run(Pod::new("s").namespace("kube-system").guaranteed(500, 1000));
    assert_eq!((node.pool(&system), node.cpus(&system)), ("root", cpus("0")));
}

#[test]
fn isolated_cpus_by_default_for_one_by_annotation_for_more_and_strictly_if_required() {
    let mut node = Node::new(server(), RESERVED);
    let one = node.run(Pod::new("one").guaranteed(1000, 1000));
    assert!(node.cpus(&one).is_subset(&cpus("4-7,60-63")), "{:?}", node.cpus(&one));
    assert_eq!(node.grant(&one).class, crate::CpuClass::Isolated);
    let two = node.run(Pod::new("two").guaranteed(2000, 1000));
    assert!(node.cpus(&two).is_disjoint(&cpus("4-7,60-63")));
    let key = "require-isolated-cpus.resource-policy.nri.io/pod";
    let seven = node.run(Pod::new("seven").annotated(key, "true").guaranteed(7000, 1000));
    assert!(node.cpus(&seven).is_subset(&cpus("4-7,60-63")));
    let refused =
        node.create(&Pod::new("no").annotated(key, "true").guaranteed(1000, 1000).build()).unwrap_err();
    assert!(refused.to_string().contains("isolated CPUs"), "{refused}");
    // No isolated CPU is left, and they were only preferred.
    let other = node.run(Pod::new("other").guaranteed(1000, 1000));
    assert!(node.cpus(&other).is_disjoint(&cpus("4-7,60-63")));
}

/// E33
#[test]
fn strict_hints_are_kept_or_the_pod_is_rejected() {
    let mut node = n4c16_node("");
    let strict = "strict.topologyhints.resource-policy.nri.io/pod";
    let pod = |name: &str, milli| {
        Pod::new(name).annotated(strict, "true").guaranteed(milli, 10 * MB).hint("device:/dev/x", "2")
    };
    let one = node.run(pod("one", 1000));
    assert!(node.cpus(&one).is_subset(&cpus("8-11")));
    assert_eq!(node.mems(&one), "2");
    node.run(pod("two", 1000));
    let before = node.allocations.clone();
    let refused = node.create(&pod("three", 3000).build()).unwrap_err();
    assert!(refused.to_string().contains("fail strict hint"), "{refused}");
    assert_eq!(node.allocations, before);
    let isolated = pod("four", 1000).annotated("require-isolated-cpus.resource-policy.nri.io/pod", "true");
    let refused = node.create(&isolated.build()).unwrap_err();
    assert!(refused.to_string().contains("isolated CPUs"), "{refused}");
    let prefers = isolated.annotated("prefer-isolated-cpus.resource-policy.nri.io/container.c0", "true");
    node.run(prefers);
}

#[test]
fn resources_are_picked_by_hints_of_device_plugins() {
    let mut node = n4c16_node("");
    let pod = Pod::new("p")
        .annotated("pick-resources-by-hints.resource-policy.nri.io/pod", "true")
        .guaranteed(4000, 10 * MB)
        .hint("pod-resources:gpu", "1")
        .hint("pod-resources:nic", "3");
    let name = node.run(pod);
    let own = node.cpus(&name);
    assert_eq!((own.common(&cpus("4-7")), own.common(&cpus("12-15"))), (2, 2), "{own:?}");
    assert_eq!(node.mems(&name), "1,3");
}

#[test]
fn a_resize_keeps_pool_and_cpus_and_a_failed_one_everything() {
    let mut node = n4c16_node("");
    let name = node.run(Pod::new("p").guaranteed(2000, 10 * MB));
    let (pool, had) = (node.pool(&name).to_owned(), node.cpus(&name));
    node.resize(&Pod::new("p").guaranteed(3000, 10 * MB).build()).unwrap();
    assert_eq!(node.pool(&name), pool);
    assert!(had.is_subset(&node.cpus(&name)) && node.cpus(&name).len() == 3);
    let before = node.allocations.clone();
    node.resize(&Pod::new("p").guaranteed(30_000, 10 * MB).build()).unwrap_err();
    assert_eq!(node.allocations, before);
    node.resize(&Pod::new("p").guaranteed(1000, 10 * MB).build()).unwrap();
    assert!(node.cpus(&name).is_subset(&before.exclusive_cpus()) && node.cpus(&name).len() == 1);
}

#[test]
fn devices_draw_their_container_and_are_given_once() {
    let device =
        |id: &str, on: &str| DeviceUnit { resource: "x/gpu".into(), id: id.into(), nodes: nodes(on) };
    let devices = vec![device("a", "3"), device("b", "3"), device("c", "2")];
    let mut node = Node::with_devices(n4c16(), RESERVED, devices);
    let pod = |name: &str, count| {
        Pod::new(name).guaranteed(1000, 10 * MB).last(|container| {
            container.devices.insert("x/gpu".into(), count);
        })
    };
    let two = node.run(pod("two", 2));
    assert_eq!(
        (node.nodes(&two).as_str(), &node.grant(&two).devices["x/gpu"]),
        ("3", &vec!["a".into(), "b".into()])
    );
    let one = node.run(pod("one", 1));
    assert_eq!((node.nodes(&one).as_str(), &node.grant(&one).devices["x/gpu"]), ("2", &vec!["c".into()]));
    let refused = node.create(&pod("no", 1).build()).unwrap_err();
    assert!(refused.to_string().contains("x/gpu"), "{refused}");
}

/// The other engine prefers nodes in use, although that displaces sharing containers.
const FULLEST: &str = "[hints]\nnuma_allocation_strategy = \"most-allocated\"";

#[test]
fn a_mixed_container_keeps_its_fraction_beside_another_engine() {
    let mut node = Node::new(n4c16(), FULLEST);
    let mixed =
        Pod::new("m").annotated("hide-hyperthreads.numa-enforcer.io", "true").guaranteed(1500, 100 * MB);
    let mixed = node.run(mixed);
    let aligned = |name: &str, milli| {
        let pod = Pod::new(name).annotated("engine.numa-enforcer.io", "hints");
        pod.guaranteed(milli, 100 * MB).build()
    };
    node.create(&aligned("other", 15_000)).unwrap_err();
    node.create(&aligned("three", 3000)).unwrap();
    node.create(&aligned("four", 4000)).unwrap();
    let (exclusive, taken) = (&node.grant(&mixed).exclusive, node.allocations.exclusive_cpus());
    assert_eq!(exclusive.len(), 1);
    let left = node.grant(&mixed).shared.as_ref().unwrap().reach().difference(&taken);
    assert_eq!(left.len(), 8, "all that is left, since its pool has nothing: {left}");
    // One thread of each core, also of those that it got only now.
    assert_eq!(node.cpus(&mixed).len(), 5, "{}", node.cpus(&mixed));
}

#[test]
fn sharing_containers_of_a_pool_keep_their_promises_beside_another_engine() {
    let mut node = Node::new(n4c16(), &format!("[pools]\ncolocate_namespaces = true\n{FULLEST}"));
    let four: Vec<String> =
        (0..4).map(|n| node.run(Pod::new(&format!("p{n}")).guaranteed(900, 100 * MB))).collect();
    assert!(four.iter().all(|name| node.cpus(name) == cpus("0-3")));
    let aligned = Pod::new("h").annotated("engine.numa-enforcer.io", "hints").guaranteed(2000, 100 * MB);
    node.create(&aligned.build()).unwrap();
    let all: Vec<String> = four.iter().map(|name| node.cpus(name).to_string()).collect();
    assert_eq!(all, ["2-3", "2-3", "2-15", "2-15"]);
}

#[test]
fn a_device_whose_node_is_gpu_memory_is_beside_the_cpus_of_the_gpu() {
    use numa_topology::{MemoryKind, id::NodeId, synth::Machine};
    let mut machine =
        Machine::new().sockets(2).memory_only(NodeId(8), 96, MemoryKind::Gpu, NodeId(1)).build();
    for node in &mut machine.nodes {
        node.closest_cpu_node = Some(NodeId(1)).filter(|_| node.id == NodeId(8));
    }
    let devices = samples::devices("vendor.com/gpu", &["8"]);
    let mut node = Node::with_devices(machine.clone(), "", devices);
    let name = node.run(Pod::new("p").guaranteed(2000, GB).last(|container| {
        container.devices.insert("vendor.com/gpu".into(), 1);
    }));
    assert_eq!((node.pool(&name), node.mems(&name).as_str()), ("socket #1", "1"));
    // The same if the configuration or a mount names the device.
    let mut node = Node::new(machine, "");
    let name = node.run(Pod::new("p").guaranteed(2000, GB).hint("device:card1", "8"));
    assert_eq!((node.pool(&name), node.mems(&name).as_str()), ("socket #1", "1"));
}
