//! Shared, reserved and mixed CPUs, and the settings that assign them.

use super::{machines::*, *};
use crate::CpuClass;
use numa_topology::synth::Machine;

const RESERVED: &str = "[reserved]\ncpus = '750m'";

/// E3
#[test]
fn burstable_containers_with_limits_are_spread() {
    let mut node = Node::new(n4c16(), RESERVED);
    let pod = (0..4).fold(Pod::new("p"), |pod, _| pod.burstable(2000, Some(2002), 100 * MB));
    node.run(pod);
    let names: Vec<String> = (0..4).map(|n| format!("p/c{n}")).collect();
    let sets: Vec<CpuSet> = names.iter().map(|name| node.cpus(name)).collect();
    assert!(disjoint(&sets), "{sets:?}");
    let mut mems: Vec<String> = names.iter().map(|name| node.mems(name)).collect();
    mems.sort();
    assert_eq!(mems, ["0", "1", "2", "3"]);
}

/// E5
#[test]
fn colocated_containers_share_their_cpus() {
    let mut node = Node::new(n4c16(), &format!("[pools]\ncolocate_pods = true\n{RESERVED}"));
    node.run((0..4).fold(Pod::new("p"), |pod, _| pod.guaranteed(100, 10 * MB)));
    assert!((1..4).all(|n| node.cpus(&format!("p/c{n}")) == node.cpus("p/c0")));

    let mut node = Node::new(n4c16(), &format!("[pools]\ncolocate_namespaces = true\n{RESERVED}"));
    let names: Vec<String> =
        (0..3).map(|n| node.run(Pod::new(&format!("p{n}")).guaranteed(100, 10 * MB))).collect();
    assert!(names.iter().all(|name| node.cpus(name) == node.cpus(&names[0])));
}

/// E11
#[test]
fn containers_that_avoid_each_other_are_on_other_nodes() {
    let mut node = Node::new(n4c16(), RESERVED);
    let rules = r#"{"c4": ["c0", "c1", "c2"], "c5": ["c0", "c2", "c3"]}"#;
    let pod = (0..6).fold(Pod::new("p"), |pod, _| pod.guaranteed(100, 10 * MB));
    node.run(pod.annotated("resource-policy.nri.io/anti-affinity", rules));
    for (one, others) in [(4, [0, 1, 2]), (5, [0, 2, 3])] {
        for other in others {
            let [one, other] = [one, other].map(|n| node.cpus(&format!("p/c{n}")));
            assert!(one.is_disjoint(&other), "{one:?} {other:?}");
        }
    }
}

/// E13
#[test]
fn burstable_containers_without_a_limit_get_the_configured_level() {
    let settings = "[available]\ncpus = 'exclude-cpuset:0-1'\n[reserved]\ncpus = '11-15'\n[pools]\nunlimited_burstable = 'system'";
    let mut node = Node::new(n4c16(), settings);
    let name = node.run(Pod::new("p").burstable(250, None, 10 * MB));
    assert_eq!((node.cpus(&name), node.mems(&name).as_str()), (cpus("2-10"), "0-3"));
}

/// E15
#[test]
fn system_pods_run_on_the_reserved_cpus_and_no_others_do() {
    for (reserved, system) in [("10-11", 3), ("7,11", 4)] {
        let mut node =
            Node::new(n4c16(), &format!("[available]\ncpus = '4-13'\n[reserved]\ncpus = '{reserved}'"));
        for n in 0..system {
            let name = node.run(Pod::new(&format!("s{n}")).namespace("kube-system").best_effort());
            assert_eq!((node.cpus(&name), node.grant(&name).class), (cpus(reserved), CpuClass::Reserved));
        }
        for n in 0..4 {
            let name = node.run(Pod::new(&format!("g{n}")).guaranteed(200, 10 * MB));
            assert!(node.cpus(&name).is_disjoint(&cpus(reserved)));
        }
    }
}

/// E17, E19, E21
#[test]
fn a_quantity_of_reserved_cpus_and_shared_ones_that_come_back() {
    let mut node = Node::new(n4c16(), "[available]\ncpus = '4-13'\n[reserved]\ncpus = '2250m'");
    let system = node.run(Pod::new("s").namespace("kube-system").best_effort());
    assert_eq!(node.cpus(&system), cpus("4-6"));
    let half = node.run(Pod::new("half").guaranteed(500, 10 * MB));
    let mixed = node.run(Pod::new("mixed").guaranteed(1500, 10 * MB));
    let grant = node.grant(&mixed);
    assert_eq!((grant.class, grant.exclusive.len(), grant.cpu_shares), (CpuClass::Mixed, 1, Some(1536)));
    assert!(node.cpus(&half).is_disjoint(&node.grant(&mixed).exclusive));
    let shared = node.run(
        Pod::new("shared")
            .annotated("prefer-shared-cpus.resource-policy.nri.io/pod", "true")
            .guaranteed(1500, 10 * MB),
    );
    assert_eq!((node.grant(&shared).class, node.grant(&shared).exclusive.len()), (CpuClass::Shared, 0));
    node.delete("mixed");
    node.delete("shared");
    assert!(node.cpus(&half).len() >= 2, "{:?}", node.cpus(&half));
}

#[test]
fn too_few_reserved_cpus_are_said_and_none_at_all_are_not() {
    let mut node = Node::new(n4c16(), RESERVED);
    let system = |name: &str, milli| Pod::new(name).namespace("kube-system").guaranteed(milli, 10 * MB);
    let one = node.run(system("one", 900));
    assert_eq!((node.cpus(&one), node.warnings.len()), (cpus("0"), 0));
    let two = node.run(system("two", 900));
    assert_eq!((node.pool(&two), node.cpus(&two)), ("root", cpus("1-15")));
    assert!(node.warnings[0].contains("misconfiguration"), "{:?}", node.warnings);

    let mut node = Node::new(n4c16(), "");
    let name = node.run(system("p", 900));
    assert_eq!((node.grant(&name).class, node.warnings.len()), (CpuClass::Shared, 0));
}

/// E25
#[test]
fn reserved_cpus_by_annotation_and_one_thread_of_each_core() {
    let reserved = "prefer-reserved-cpus.resource-policy.nri.io";
    let hide = "hide-hyperthreads.resource-policy.nri.io/pod";
    let pod = |name: &str| Pod::new(name).guaranteed(1000, 10 * MB);
    for (pod, runs_on) in [
        (pod("pod").annotated(&format!("{reserved}/pod"), "true"), "10-11"),
        (pod("other").annotated(&format!("{reserved}/container.unknown"), "true"), "8"),
        (pod("hide").annotated(&format!("{reserved}/pod"), "true").annotated(hide, "true"), "10"),
    ] {
        let mut node = Node::new(n4c16(), "[available]\ncpus = '8-11'\n[reserved]\ncpus = '10-11'");
        let name = node.run(pod);
        assert_eq!(node.cpus(&name), cpus(runs_on), "{name}");
    }
}

/// E29
#[test]
fn an_annotation_says_the_level_for_one_container() {
    for (settings, annotation, count) in [
        ("", None, 2),
        ("", Some("numa"), 1),
        ("", Some("die"), 2),
        ("", Some("system"), 4),
        ("[pools]\nunlimited_burstable = 'numa'", None, 1),
    ] {
        let mut node = Node::new(n4c16(), &format!("{settings}\n{RESERVED}"));
        let mut pod = Pod::new("p").burstable(2000, None, 100 * MB);
        if let Some(level) = annotation {
            pod = pod.annotated("unlimited-burstable.resource-policy.nri.io/container.c0", level);
        }
        let name = node.run(pod);
        let used = node.inventory.machine.nodes_of(&node.cpus(&name));
        assert_eq!(used.len(), count, "{settings} {annotation:?}");
    }
}

/// L1, L2
#[test]
fn caches_are_pools_too() {
    for (level, request, limit, count) in [
        ("l3cache", 1500, None, 8),
        ("system", 1500, None, 127),
        ("package", 1500, None, 64),
        ("l3cache", 12_000, None, 31),
        ("l3cache", 4000, Some(20_000), 32),
        ("l3cache", 4000, Some(8000), 8),
    ] {
        let mut node = Node::new(n4c128(), &format!("[pools]\nunlimited_burstable = '{level}'\n{RESERVED}"));
        let name = node.run(Pod::new("p").burstable(request, limit, 100 * MB));
        assert_eq!(node.cpus(&name).len(), count, "{level} {request} {limit:?}");
    }
}

#[test]
fn a_limit_that_no_pool_holds_takes_the_pool_with_most() {
    let mut node = Node::new(n4c128(), RESERVED);
    for n in 0..3 {
        let name = node.run(Pod::new(&format!("p{n}")).burstable(6000, Some(200_000), 10 * MB));
        assert_eq!(node.pool(&name), "root");
    }
}

#[test]
fn what_is_preserved_is_not_pinned_and_keeps_its_weight() {
    let mut node = Node::new(n4c16(), RESERVED);
    let pod = Pod::new("p")
        .annotated("cpu.preserve.resource-policy.nri.io/pod", "true")
        .annotated("memory.preserve.resource-policy.nri.io/pod", "true")
        .guaranteed(2000, 10 * MB);
    let name = node.run(pod);
    let grant = node.grant(&name);
    assert_eq!(
        (grant.class, grant.pin_cpus, grant.pin_mems, grant.cpu_shares),
        (CpuClass::Preserved, false, false, None)
    );
    assert!(grant.exclusive.is_empty());
    // Its request is accounted all the same.
    let refused = node.create(&Pod::new("q").guaranteed(14_000, 10 * MB).build()).unwrap_err();
    assert!(refused.to_string().contains("of 14 cpu"), "{refused}");
}

#[test]
fn nothing_is_pinned_when_that_is_switched_off() {
    let mut node = Node::new(n4c16(), &format!("[pools]\nPinCPU = false\nPinMemory = false\n{RESERVED}"));
    let name = node.run(Pod::new("p").guaranteed(2000, 10 * MB));
    let grant = node.grant(&name);
    assert_eq!((grant.pin_cpus, grant.pin_mems, grant.cpu_shares), (false, false, None));
    assert_eq!(grant.exclusive.len(), 2);
}

#[test]
fn wish_about_cpus_that_cannot_be_granted_is_said() {
    let isolated = || Machine::new().cores(4).threads(1).isolated("2-3").build();
    let plain = || Machine::new().cores(4).threads(1).build();
    for (machine, milli, key, said) in [
        (plain(), 2000, "prefer-isolated-cpus", Some("no CPU that may be given is isolated")),
        (isolated(), 500, "prefer-isolated-cpus", Some("it has no exclusive CPUs")),
        (isolated(), 1000, "prefer-isolated-cpus", None),
        (plain(), 1000, "prefer-reserved-cpus", Some("no CPUs are set aside (placement.reserved.cpus)")),
        (plain(), 1000, "pick-resources-by-hints", Some("of nothing that it uses the place is known")),
    ] {
        let mut node = Node::new(machine, "");
        let pod = Pod::new("p").annotated(&format!("{key}.numa-enforcer.io"), "true");
        node.run(pod.guaranteed(milli, GB));
        let said: Vec<String> =
            said.into_iter().map(|said| format!("container c0: {key}: {said}, ignored")).collect();
        assert_eq!(node.warnings, said, "{key}");
    }
}
