use crate::{
    Allocations, ContainerKind, ContainerRequest, CpuClass, Holder, MemoryResource, PodName, PodRequest,
    RejectionReason, SharedCpus,
    memory::ZoneAccount,
    remove, resize,
    samples::{GIB, Host, container, devices, pod, policy},
    settings::{
        AvailableResources, CpuAmount, CpuChoice, HintsSettings, PlacementSettings, ReservedResources, Scope,
        TopologyPolicy,
    },
    unspill,
};
use numa_topology::{
    MemoryKind, Topology,
    set::{CpuSet, NodeSet},
    synth::Machine,
};

mod always;
mod displaced;
mod explained;
mod first_fit;
mod kubelet;
mod many_nodes;
mod memory_nodes;
mod sharing;

/// Node 0 has CPUs 0-3,8-11, node 1 has 4-7,12-15; 16 GiB each.
fn two_nodes() -> Topology {
    Machine::new().sockets(2).cores(4).memory_gib(16).build()
}

fn reserved(cpus: &str, hints: HintsSettings) -> PlacementSettings {
    let cpus = Some(CpuAmount::Named(CpuChoice::Only(cpus.parse().unwrap())));
    PlacementSettings {
        reserved: ReservedResources { cpus, ..ReservedResources::default() },
        hints,
        ..PlacementSettings::default()
    }
}

fn single() -> HintsSettings {
    policy(TopologyPolicy::SingleNumaNode)
}

#[test]
fn everything_of_a_guaranteed_container_is_on_one_node() {
    let mut host = Host::with(two_nodes(), devices("v.com/gpu", &["1", "1"]), reserved("0,8", single()));
    host.admit(&pod("a", vec![container("c", 4000, 8 * GIB).device("v.com/gpu", 1)])).unwrap();
    assert_eq!(host.place("a", "c"), ("4-5,12-13".into(), "1".into()));
    let grant = host.grant("a", "c");
    assert_eq!(grant.class, CpuClass::Exclusive);
    assert_eq!(grant.devices["v.com/gpu"], ["d0"]);
    assert_eq!(grant.memory[0].zone.to_string(), "1");
    let hint = grant.hint.as_ref().unwrap();
    assert_eq!((hint.nodes.as_ref().unwrap().to_string(), hint.preferred), ("1".into(), true));
    host.admit(&pod("b", vec![container("c", 4000, 8 * GIB)])).unwrap();
    assert_eq!(host.place("b", "c"), ("1-2,9-10".into(), "0".into()));
}

#[test]
fn policies_differ_in_what_they_accept() {
    // 10 CPUs need two nodes on any machine, 8 need one empty node.
    for (policy_of, cpus, admitted) in [
        (TopologyPolicy::None, 8, true),
        (TopologyPolicy::BestEffort, 8, true),
        (TopologyPolicy::Restricted, 8, false),
        (TopologyPolicy::SingleNumaNode, 8, false),
        (TopologyPolicy::NumaManager, 8, true),
        (TopologyPolicy::NumaManagerBestEffort, 8, true),
        (TopologyPolicy::Restricted, 10, true),
        (TopologyPolicy::SingleNumaNode, 10, false),
    ] {
        let mut host = Host::new(two_nodes(), policy(policy_of));
        for (name, node) in [("x", "0"), ("y", "1")] {
            let mut filler = container("c", 2000, GIB);
            filler.allowed_nodes = Some(node.parse().unwrap());
            host.admit(&pod(name, vec![filler])).unwrap();
        }
        let before = host.allocations.clone();
        let outcome = host.admit(&pod("p", vec![container("c", cpus * 1000, cpus * 2 * GIB - GIB)]));
        assert_eq!(outcome.is_ok(), admitted, "{policy_of:?} {cpus}: {outcome:?}");
        match outcome {
            Ok(_) => assert_eq!(host.grant("p", "c").exclusive.len() as u64, cpus),
            Err(rejection) => {
                assert_eq!(rejection.reason, RejectionReason::TopologyAffinityError);
                assert!(!rejection.shortages.is_empty() && rejection.fits.is_some(), "{rejection}");
                assert_eq!(host.allocations, before);
            }
        }
    }
}

#[test]
fn cpus_that_are_never_given_do_not_make_a_set_of_nodes_narrow() {
    // Two of four cores of each node: an empty machine needs both nodes for six CPUs.
    for (limit, gib, expected) in [("0-1,4-5,8-9,12-13", 20, "0-1"), ("0-15", 1, "0")] {
        let available = AvailableResources { cpus: Some(CpuChoice::Only(limit.parse().unwrap())) };
        let hints = policy(TopologyPolicy::Restricted);
        let settings =
            PlacementSettings { available: Some(available), hints, ..PlacementSettings::default() };
        let whole = container("c", 6000, gib * GIB);
        let limited = ContainerRequest { allowed_cpus: Some(limit.parse().unwrap()), ..whole.clone() };
        let machine = Host::with(two_nodes(), Vec::new(), settings);
        let cgroup = Host::new(two_nodes(), policy(TopologyPolicy::Restricted));
        for (mut host, request) in [(machine, whole), (cgroup, limited)] {
            host.admit(&pod("p", vec![request])).unwrap();
            let hint = host.grant("p", "c").hint.clone().unwrap();
            assert_eq!((hint.nodes.unwrap().to_string(), hint.preferred), (expected.into(), true));
        }
    }
}

#[test]
fn the_next_container_finds_what_the_former_left() {
    let mut host = Host::new(two_nodes(), single());
    let containers = ["a", "b", "c"].map(|name| container(name, 5000, GIB));
    let rejection = host.admit(&pod("p", containers.to_vec())).unwrap_err();
    assert_eq!(rejection.container.as_deref(), Some("c"));
    assert_eq!(host.allocations, Allocations::default());
    host.admit(&pod("p", containers[..2].to_vec())).unwrap();
    assert_eq!(host.place("p", "a"), ("0-2,8-9".into(), "0".into()));
    assert_eq!(host.place("p", "b").1, "1");
}

#[test]
fn in_pod_scope_all_containers_share_one_place() {
    let hints = HintsSettings { scope: Scope::Pod, ..single() };
    let mut host = Host::with(two_nodes(), devices("v.com/gpu", &["1"]), reserved("0,4", hints));
    let containers = vec![
        container("a", 2000, GIB),
        container("b", 2000, GIB).device("v.com/gpu", 1),
        container("c", 500, GIB),
    ];
    host.admit(&pod("p", containers)).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(host.place("p", name).1, "1");
        let nodes = host.inventory.machine.nodes_of(&host.place("p", name).0.parse().unwrap());
        assert_eq!(nodes.to_string(), "1", "{name}");
    }
    let rejection =
        host.admit(&pod("q", vec![container("a", 4000, GIB), container("b", 4000, GIB)])).unwrap_err();
    assert_eq!((rejection.reason, rejection.container), (RejectionReason::TopologyAffinityError, None));
}

#[test]
fn init_containers_lend_their_cpus_and_leave_none_behind() {
    let mut host = Host::with(two_nodes(), vec![], reserved("0,8", single()));
    let containers = vec![
        container("i", 4000, 12 * GIB).kind(ContainerKind::Init),
        container("s", 1000, GIB).kind(ContainerKind::Sidecar),
        container("j", 4000, 12 * GIB).kind(ContainerKind::Init),
        container("a", 3000, 10 * GIB),
    ];
    host.admit(&pod("p", containers)).unwrap();
    let exclusive = |name: &str| host.grant("p", name).exclusive.clone();
    assert!(exclusive("s").is_disjoint(&exclusive("a")) && exclusive("s").is_disjoint(&exclusive("j")));
    assert!(exclusive("a").is_subset(&exclusive("i").union(&exclusive("j"))));
    for name in ["i", "s", "j", "a"] {
        assert_eq!(host.place("p", name).1, "0");
    }
    let lent = exclusive("i").union(&exclusive("j"));
    host.admit(&pod("q", vec![container("a", 6000, GIB)])).unwrap();
    assert!(host.grant("q", "a").exclusive.is_disjoint(&lent));
}

#[test]
fn ended_init_containers_elsewhere_do_not_keep_a_pod_from_its_devices() {
    let mut host = Host::with(two_nodes(), devices("v.com/gpu", &["1"]), reserved("0,8", single()));
    let containers = vec![
        container("i", 1000, GIB).kind(ContainerKind::Init),
        container("a", 2000, GIB).device("v.com/gpu", 1),
    ];
    host.admit(&pod("p", containers)).unwrap();
    assert_eq!((host.place("p", "i").1, host.place("p", "a").1), ("0".into(), "1".into()));
}

#[test]
fn other_classes_get_one_node_too_and_are_never_rejected_for_it() {
    let mut host = Host::with(two_nodes(), vec![], reserved("0", single()));
    let burstable = |name: &str| pod(name, vec![container("c", 5000, 4 * GIB).without_limits()]);
    host.admit(&burstable("a")).unwrap();
    host.admit(&burstable("b")).unwrap();
    host.admit(&burstable("c")).unwrap();
    assert_eq!(host.place("a", "c"), ("0-3,8-11".into(), "0".into()));
    assert_eq!(host.place("b", "c"), ("4-7,12-15".into(), "1".into()));
    assert_eq!(host.place("c", "c"), ("0-15".into(), "0-1".into()));
    for name in ["d", "e"] {
        host.admit(&pod(name, vec![container("c", 0, 0)])).unwrap();
    }
    // With the reserved CPU node 0 is fuller.
    assert_eq!((host.place("d", "c").1, host.place("e", "c").1), ("1".into(), "1".into()));
}

#[test]
fn without_alignment_of_all_classes_they_share_everything() {
    let hints = HintsSettings { align_all_qos: false, strict_cpu_reservation: true, ..single() };
    let mut host = Host::with(two_nodes(), vec![], reserved("0", hints));
    host.admit(&pod("a", vec![container("c", 500, GIB).without_limits()])).unwrap();
    assert_eq!(host.place("a", "c"), ("1-15".into(), "0-1".into()));
    assert!(host.grant("a", "c").memory.is_empty());
}

#[test]
fn policy_none_gives_cpus_and_memory_each_on_its_own() {
    let machine = Machine::new()
        .sockets(2)
        .cores(4)
        .memory_only(numa_topology::id::NodeId(2), 64, MemoryKind::Cxl, numa_topology::id::NodeId(1))
        .build();
    let mut host = Host::new(machine, policy(TopologyPolicy::None));
    // More than the CPU nodes have, so the memory-only node is used too.
    host.admit(&pod("a", vec![container("c", 4000, 40 * GIB)])).unwrap();
    assert_eq!(host.place("a", "c"), ("0-1,8-9".into(), "0-2".into()));
    let grant = host.grant("a", "c");
    assert_eq!((grant.hint.clone(), grant.pin_mems), (None, true));
    assert_eq!(grant.memory[0].bytes, 40 * GIB);
    for (name, gib, place) in [("b", 10, ("2-3,10-11", "0")), ("c", 10, ("4-5,12-13", "1"))] {
        host.admit(&pod(name, vec![container("c", 4000, gib * GIB)])).unwrap();
        assert_eq!(host.place(name, "c"), (place.0.into(), place.1.into()));
    }
    host.admit(&pod("d", vec![container("c", 1000, 30 * GIB)])).unwrap();
    assert_eq!(host.place("d", "c").1, "0-2");
    host.admit(&pod("e", vec![container("c", 100, GIB).without_limits()])).unwrap();
    assert_eq!((host.place("e", "c").1.as_str(), host.grant("e", "c").pin_mems), ("0-2", false));
    let rejection = host.admit(&pod("f", vec![container("c", 1000, 30 * GIB)])).unwrap_err();
    assert!(rejection.to_string().contains("failed to get the default NUMA affinity"), "{rejection}");
}

#[test]
fn isolated_cpus_are_exclusive_or_unused() {
    let machine = Machine::new().sockets(2).cores(4).isolated("1,9").build();
    let mut host = Host::with(machine, vec![], reserved("0,2-7,8,10-15", single()));
    let mut asks = pod("a", vec![container("c", 2000, GIB)]);
    let refused = host.admit(&asks).unwrap_err().to_string();
    assert!(refused.contains("0 of 2 cpu"), "{refused}");
    asks.containers[0].wishes.class = Some(crate::settings::DeclaredClass::Isolated);
    host.admit(&asks).unwrap();
    assert_eq!(host.grant("a", "c").class, CpuClass::Isolated);
    assert_eq!(host.place("a", "c").0, "1,9");
    host.admit(&pod("b", vec![container("c", 0, 0)])).unwrap();
    let cpus: CpuSet = host.place("b", "c").0.parse().unwrap();
    assert!(cpus.is_disjoint(&"1,9".parse().unwrap()));
}

#[test]
fn a_resize_keeps_what_it_can() {
    let mut host = Host::new(two_nodes(), single());
    let sized = |cpus: u64| pod("p", vec![container("a", cpus * 1000, GIB), container("b", 2000, GIB)]);
    host.admit(&sized(2)).unwrap();
    let mut resized = |cpus: u64| {
        let Host { inventory, settings, allocations } = &mut host;
        let outcome = resize(inventory, settings, allocations, &sized(cpus));
        outcome.map(|_| (host.place("p", "a").0, host.place("p", "b").0))
    };
    let (a, b) = resized(2).unwrap();
    assert_eq!((a.as_str(), b.as_str()), ("0,8", "1,9"));
    let (grown, kept) = resized(4).unwrap();
    assert_eq!((grown.as_str(), kept.as_str()), ("0,2,8,10", "1,9"));
    let (shrunk, kept) = resized(1).unwrap();
    assert_eq!((shrunk.as_str(), kept.as_str()), ("0", "1,9"));
    assert_eq!(resized(9).unwrap_err().reason, RejectionReason::TopologyAffinityError);
    assert_eq!(resized(1).unwrap(), ("0".into(), "1,9".into()));
}

#[test]
fn what_is_resident_decides_between_equals() {
    let mut host = Host::new(two_nodes(), single());
    let mut request = container("c", 2000, GIB);
    request.resident_bytes = [(numa_topology::id::NodeId(1), GIB), (numa_topology::id::NodeId(0), 5)].into();
    host.admit(&pod("a", vec![request.clone()])).unwrap();
    host.admit(&pod("b", vec![request.clone().without_limits()])).unwrap();
    assert_eq!((host.place("a", "c").1, host.place("b", "c").1), ("1".into(), "1".into()));
}

#[test]
fn a_container_stays_inside_what_the_cgroups_above_leave_it() {
    let mut host = Host::new(two_nodes(), policy(TopologyPolicy::BestEffort));
    let mut request = container("c", 2000, GIB);
    request.allowed_cpus = Some("5-6,13".parse().unwrap());
    host.admit(&pod("a", vec![request.clone()])).unwrap();
    assert!(host.grant("a", "c").exclusive.is_subset(&"5-6,13".parse().unwrap()));
    let rejection = host.admit(&pod("b", vec![request.clone()])).unwrap_err();
    assert_eq!(rejection.shortages[0].available, 1);
    request.allowed_cpus = Some("99".parse().unwrap());
    assert_eq!(
        host.admit(&pod("c", vec![request])).unwrap_err().reason,
        RejectionReason::UnexpectedAdmissionError
    );
}

#[test]
fn shrinking_container_keeps_the_cpus_near_its_place() {
    let mut host = Host::new(two_nodes(), policy(TopologyPolicy::BestEffort));
    let sized = |cpus: u64| pod("p", vec![container("c", cpus * 1000, GIB)]);
    host.admit(&sized(2)).unwrap();
    // Eight CPUs of node 0 and four of node 1, which alone would be the tighter fit; the memory stays.
    for (cpus, on) in [(12, "0-1"), (4, "0"), (1, "0")] {
        let Host { inventory, settings, allocations } = &mut host;
        resize(inventory, settings, allocations, &sized(cpus)).unwrap();
        let nodes = host.inventory.machine.nodes_of(&host.grant("p", "c").exclusive);
        let hint = host.grant("p", "c").hint.clone().unwrap();
        assert_eq!(
            (nodes.to_string(), hint.nodes.unwrap().to_string()),
            (on.into(), on.into()),
            "{cpus} CPUs"
        );
    }
    assert_eq!(host.place("p", "c").1, "0");
}
