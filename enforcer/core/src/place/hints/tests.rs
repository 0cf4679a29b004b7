use proptest::prelude::*;

use crate::{
    place::{
        Allocations, ContainerKind, ContainerRequest, CpuClass, Holder, MemoryResource, PodName, PodRequest,
        Reason, SharedCpus, Trace, bring_home,
        memory::ZoneAccount,
        remove, resize,
        samples::{GIB, Host, container, devices, pod, policy},
    },
    policy::placement::{
        AvailableResources, CpuAmount, CpuChoice, HintsSettings, PlacementSettings, ReservedResources, Scope,
        TopologyPolicy,
    },
    set::{CpuSet, NodeSet},
    topology::{MemoryKind, Topology, synth::Machine},
};

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
    // 10 CPUs need two nodes on any machine, 8 need one that is empty.
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
                assert_eq!(rejection.reason, Reason::TopologyAffinityError);
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
fn init_containers_that_have_ended_take_no_cpu_from_those_who_share() {
    use ContainerKind::{App, Init, Sidecar};
    let whole = || container("whole", 16_000, GIB);
    let part = || container("part", 500, GIB);
    for (first, second, admitted) in [
        (part().kind(Init), whole().kind(App), true),
        (part().kind(Init), whole().kind(Init), true),
        (whole().kind(Init), part().kind(App), true),
        (whole().kind(Init), part().kind(Sidecar), true),
        (part().kind(Sidecar), whole().kind(Init), false),
        (part().kind(Sidecar), whole().kind(App), false),
        (whole().kind(Sidecar), part().kind(App), false),
    ] {
        let kinds = (first.kind, second.kind);
        let mut host = Host::new(two_nodes(), policy(TopologyPolicy::BestEffort));
        let outcome = host.admit(&pod("p", vec![first, second]));
        assert_eq!(outcome.is_ok(), admitted, "{kinds:?}: {outcome:?}");
    }
    // Others run beside the init container.
    let mut host = Host::new(two_nodes(), policy(TopologyPolicy::BestEffort));
    host.admit(&pod("other", vec![part()])).unwrap();
    host.admit(&pod("p", vec![whole().kind(Init), part()])).unwrap_err();
}

#[test]
fn a_rejection_says_what_was_short_where_and_what_would_fit() {
    let mut host = Host::with(two_nodes(), devices("v.com/gpu", &["1"]), reserved("0-1", single()));
    let mut filler = container("c", 6000, GIB);
    filler.allowed_nodes = Some("1".parse().unwrap());
    host.admit(&pod("x", vec![filler])).unwrap();
    let text = |host: &mut Host, request| {
        let mut rejection = host.admit(&pod("p", vec![request])).unwrap_err();
        // What took it is told by tests of its own.
        rejection.wording.taken.clear();
        rejection.to_string()
    };
    for (request, said) in [
        (
            container("c", 4000, GIB).device("v.com/gpu", 1),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             2 of 4 cpu on node 1; all of it fits on nodes 0-1, but not aligned",
        ),
        (
            container("c", 7000, GIB),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             6 of 7 cpu on node 0; all of it fits on nodes 0-1, but not aligned",
        ),
        (
            container("c", 1000, 20 * GIB),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             16 GiB of 20 GiB memory on node 0; all of it fits on nodes 0-1, but not aligned",
        ),
        (
            container("c", 1000, GIB).device("v.com/gpu", 2),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             1 of 2 v.com/gpu on node 1; at most 6 cpu on node 0, 16 GiB memory on node 0, \
             1 v.com/gpu on node 1 would fit",
        ),
        (
            container("c", 9000, GIB),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
             6 of 9 cpu on node 0; at most 6 cpu on node 0, 16 GiB memory on node 0 would fit",
        ),
    ] {
        assert_eq!(text(&mut host, request), said);
    }
}

#[test]
fn what_needs_more_nodes_than_the_rest_is_what_was_short() {
    let mut host = Host::new(two_nodes(), policy(TopologyPolicy::Restricted));
    let mut text = |request| host.admit(&pod("p", vec![request])).unwrap_err().to_string();
    let cpus = "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
                8 of 10 cpu on node 0; all of it fits on nodes 0-1, but not aligned";
    assert_eq!(text(container("c", 10_000, GIB)), cpus);
    let memory = "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: \
                  16 GiB of 20 GiB memory on node 0; all of it fits on nodes 0-1, but not aligned";
    assert_eq!(text(container("c", 2000, 20 * GIB)), memory);
}

#[test]
fn whole_cores_are_refused_by_their_own_name() {
    let hints = HintsSettings { full_pcpus_only: true, ..policy(TopologyPolicy::BestEffort) };
    let mut host = Host::with(two_nodes(), vec![], reserved("0", hints));
    let rejection = host.admit(&pod("p", vec![container("c", 3000, GIB)])).unwrap_err();
    assert_eq!(rejection.reason, Reason::SmtAlignmentError);
    assert_eq!(
        rejection.fits.as_deref(),
        Some("2 or 4 CPUs are whole cores, at most 8 cpu on node 1 and 14 on nodes 0-1 would fit")
    );
    let rejection = host.admit(&pod("p", vec![container("c", 16000, GIB)])).unwrap_err();
    assert_eq!(rejection.reason, Reason::SmtAlignmentError);
    assert_eq!((rejection.shortages[0].wanted, rejection.shortages[0].available), (16, 14));
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
    assert_eq!((rejection.reason, rejection.container), (Reason::TopologyAffinityError, None));
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
    // Beside the reserved CPU node 0 is fuller.
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
        .memory_only(crate::id::NodeId(2), 64, MemoryKind::Cxl, crate::id::NodeId(1))
        .build();
    let mut host = Host::new(machine, policy(TopologyPolicy::None));
    // Beyond what the nodes with CPUs have, and so on the one without, too.
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
fn a_squeezed_neighbour_gets_the_whole_shared_pool() {
    let mut host = Host::new(two_nodes(), single());
    host.admit(&pod("a", vec![container("c", 500, GIB).without_limits()])).unwrap();
    host.admit(&pod("b", vec![container("c", 500, GIB).without_limits()])).unwrap();
    assert_eq!(host.place("a", "c").0, "0-3,8-11");
    let admission = host.admit(&pod("g", vec![container("c", 8000, GIB)])).unwrap();
    assert_eq!(host.place("a", "c").0, "4-7,12-15");
    let update = &admission.updates[0];
    assert_eq!(update.cpus.as_ref().unwrap().to_string(), "4-7,12-15");
    let before = host.allocations.clone();
    let rejection = host.admit(&pod("h", vec![container("c", 8000, GIB)])).unwrap_err();
    assert_eq!(rejection.reason, Reason::UnexpectedAdmissionError);
    assert!(rejection.to_string().contains("default/a/c would have no CPU left"), "{rejection}");
    assert_eq!(host.allocations, before);
}

#[test]
fn who_was_driven_from_home_returns_when_there_is_room_again() {
    let mut host = Host::new(two_nodes(), single());
    for (name, millis) in [("old", 3000), ("young", 3000)] {
        host.admit(&pod(name, vec![container("c", millis, GIB).without_limits()])).unwrap();
    }
    host.settings.hints.policy = TopologyPolicy::BestEffort;
    let home = |host: &Host| [host.place("old", "c").0, host.place("young", "c").0];
    let before = host.allocations.clone();
    let [first, second] = home(&host);
    assert_eq!([first.as_str(), second.as_str()], ["0-3,8-11", "4-7,12-15"]);
    host.admit(&pod("g", vec![container("c", 8000, GIB)])).unwrap();
    host.admit(&pod("h", vec![container("c", 7000, GIB)])).unwrap();
    assert_eq!(home(&host), ["15", "15"]);
    assert!(host.grant("old", "c").why().contains("on all shared CPUs as long as"));
    // Half of what was taken: who belongs there returns, the other runs there, too.
    let of = |name: &str| PodName::new("default", name);
    let updates = remove(&mut host.allocations, &of("h"));
    assert_eq!(updates.len(), 2, "{updates:?}");
    assert_eq!(home(&host), ["4-7,12-15", "4-7,12-15"]);
    let updates = remove(&mut host.allocations, &of("g"));
    let told: Vec<_> =
        updates.iter().map(|update| (update.holder.to_string(), update.cpus.clone())).collect();
    let cpus = |text: &str| Some(text.parse::<CpuSet>().unwrap());
    assert_eq!(told, [("default/old/c".to_owned(), cpus("0-3,8-11"))]);
    assert_eq!(host.allocations, before);
}

#[test]
fn the_youngest_of_a_scope_go_and_the_oldest_of_them_return_first() {
    let mut host = Host::new(two_nodes(), single());
    let of = |name: &str| PodName::new("default", name);
    let limited = |name: &str, millis| {
        let mut own = container("c", millis, 0).without_limits();
        own.allowed_nodes = Some("0".parse().unwrap());
        pod(name, vec![own])
    };
    for (name, millis) in [("a", 3000), ("b", 3000), ("c", 1000), ("idle", 0)] {
        host.admit(&limited(name, millis)).unwrap();
    }
    let away = |host: &Host| {
        let all = ["a", "b", "c", "idle"].into_iter();
        let holder = |name: &str| Holder::new(of(name), "c".into());
        let shared = |name| host.allocations.get(&holder(name))?.shared.as_ref();
        all.filter(|name| shared(name).is_some_and(|shared| shared.refuge.is_some())).collect::<String>()
    };
    let exclusive = |name: &str, cpus: u64| {
        let mut own = container("c", cpus * 1000, GIB);
        own.allowed_nodes = Some("0".parse().unwrap());
        pod(name, vec![own])
    };
    host.admit(&exclusive("x", 2)).unwrap();
    assert_eq!(away(&host), "c");
    // `c` alone would still find room beside `a`, but those before it come first.
    host.admit(&exclusive("y", 2)).unwrap();
    assert_eq!(away(&host), "bc");
    host.admit(&exclusive("z", 4)).unwrap();
    assert_eq!(away(&host), "abcidle");
    remove(&mut host.allocations, &of("y"));
    assert_eq!(away(&host), "abc");
    remove(&mut host.allocations, &of("z"));
    assert_eq!(away(&host), "c");
    // Room that another sharing pod leaves counts as well.
    remove(&mut host.allocations, &of("b"));
    assert_eq!(away(&host), "");
}

#[test]
fn soft_promises_of_memory_give_way_to_a_guaranteed_pod() {
    let mut host = Host::with(
        two_nodes(),
        devices("v.com/gpu", &["0"]),
        PlacementSettings { hints: single(), ..Default::default() },
    );
    host.admit(&pod("a", vec![container("c", 500, 10 * GIB).without_limits()])).unwrap();
    assert_eq!(host.place("a", "c").1, "0");
    let admission =
        host.admit(&pod("g", vec![container("c", 1000, 12 * GIB).device("v.com/gpu", 1)])).unwrap();
    assert_eq!(host.place("g", "c").1, "0");
    assert_eq!(admission.updates[0].mems.as_ref().unwrap().to_string(), "0-1");
    assert_eq!(host.grant("a", "c").memory[0].zone.to_string(), "0-1");
}

#[test]
fn isolated_cpus_are_exclusive_or_unused() {
    let machine = Machine::new().sockets(2).cores(4).isolated("1,9").build();
    let mut host = Host::with(machine, vec![], reserved("0,2-7,8,10-15", single()));
    let mut asks = pod("a", vec![container("c", 2000, GIB)]);
    let refused = host.admit(&asks).unwrap_err().to_string();
    assert!(refused.contains("0 of 2 cpu"), "{refused}");
    asks.containers[0].wishes.class = Some(crate::policy::DeclaredClass::Isolated);
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
        let outcome = resize(inventory, settings, allocations, &sized(cpus), &mut Trace::default());
        outcome.map(|_| (host.place("p", "a").0, host.place("p", "b").0))
    };
    let (a, b) = resized(2).unwrap();
    assert_eq!((a.as_str(), b.as_str()), ("0,8", "1,9"));
    let (grown, kept) = resized(4).unwrap();
    assert_eq!((grown.as_str(), kept.as_str()), ("0,2,8,10", "1,9"));
    let (shrunk, kept) = resized(1).unwrap();
    assert_eq!((shrunk.as_str(), kept.as_str()), ("0", "1,9"));
    assert_eq!(resized(9).unwrap_err().reason, Reason::TopologyAffinityError);
    assert_eq!(resized(1).unwrap(), ("0".into(), "1,9".into()));
}

#[test]
fn what_is_resident_decides_between_equals() {
    let mut host = Host::new(two_nodes(), single());
    let mut request = container("c", 2000, GIB);
    request.resident_bytes = [(crate::id::NodeId(1), GIB), (crate::id::NodeId(0), 5)].into();
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
    assert_eq!(host.admit(&pod("c", vec![request])).unwrap_err().reason, Reason::UnexpectedAdmissionError);
}

#[test]
fn hostile_amounts_are_rejections() {
    let mut host = Host::with(two_nodes(), devices("v.com/gpu", &["1"]), PlacementSettings::default());
    for scope in [Scope::Container, Scope::Pod] {
        host.settings.hints.scope = scope;
        for request in [
            container("c", u64::MAX / 1000 * 1000, u64::MAX),
            container("c", 1000, u64::MAX),
            container("c", 0, 0).device("v.com/gpu", u64::MAX),
            container("c", 0, 0).device("no.such/thing", 1),
        ] {
            let pod = pod(
                "p",
                vec![request.clone(), crate::place::ContainerRequest { name: "d".into(), ..request }],
            );
            assert!(host.admit(&pod).is_err());
        }
    }
    assert_eq!(host.allocations, Allocations::default());
}

#[test]
fn every_candidate_is_told_to_those_who_ask() {
    let mut host = Host::new(two_nodes(), single());
    host.admit(&pod("a", vec![container("c", 6000, GIB)])).unwrap();
    let mut trace = Trace::wanted();
    let Host { inventory, settings, allocations } = &mut host;
    let request = pod("b", vec![container("c", 4000, GIB)]);
    crate::place::admit(inventory, settings, allocations, &request, &mut trace).unwrap();
    let (candidates, _) = trace.into_parts();
    let told: Vec<_> = candidates.iter().map(|c| (c.place.as_str(), c.chosen, c.because.as_str())).collect();
    assert_eq!(
        told,
        [
            ("node 1", true, "every resource prefers it"),
            ("node 0", false, "too little cpu"),
            ("nodes 0-1", false, "cpu, memory would need fewer nodes if empty"),
        ]
    );
}

#[test]
fn first_fit_is_strict_for_guaranteed_pods_only() {
    for (policy_of, admitted) in
        [(TopologyPolicy::NumaManager, false), (TopologyPolicy::NumaManagerBestEffort, true)]
    {
        // One device that is nowhere: three of them have no set of nodes in common with anything.
        let gpus = devices("v.com/gpu", &["0", "1", ""]);
        let settings = PlacementSettings { hints: policy(policy_of), ..PlacementSettings::default() };
        let mut host = Host::with(two_nodes(), gpus, settings);
        let request = container("c", 2000, GIB).device("v.com/gpu", 3);
        let outcome = host.admit(&pod("one", vec![request.clone()]));
        assert_eq!(outcome.is_ok(), admitted, "{policy_of:?}: {outcome:?}");
        remove(&mut host.allocations, &PodName::new("default", "one"));
        host.admit(&pod("two", vec![request.without_limits()])).unwrap();
        // The first list decides, also where another set were the better one for all.
        host.admit(&pod("three", vec![container("c", 10_000, GIB)])).unwrap();
        assert_eq!(host.place("three", "c").1, "0-1");
    }
}

#[test]
fn first_fit_is_offered_sets_without_a_node_too_many() {
    for policy_of in
        [TopologyPolicy::NumaManager, TopologyPolicy::NumaManagerBestEffort, TopologyPolicy::BestEffort]
    {
        let mut host = Host::new(two_nodes(), policy(policy_of));
        let most = host.inventory.nodes[0].allocatable(MemoryResource::Memory);
        let mut first = container("c", 1000, most - GIB);
        first.allowed_nodes = Some("0".parse().unwrap());
        host.admit(&pod("first", vec![first])).unwrap();
        // Memory is on node 1 or on both; offered is the narrowest, so that is where the CPUs are.
        let outcome = host.admit(&pod("next", vec![container("c", 1000, 2 * GIB)]));
        assert!(outcome.is_ok(), "{policy_of:?}: {outcome:?}");
        assert_eq!(host.place("next", "c").1, "1", "{policy_of:?}");
        let hint = host.grant("next", "c").hint.clone().unwrap();
        assert!(hint.preferred, "{policy_of:?}: it can hold all");
    }
}

#[test]
fn who_shrinks_keeps_the_cpus_near_its_place() {
    let mut host = Host::new(two_nodes(), policy(TopologyPolicy::BestEffort));
    let sized = |cpus: u64| pod("p", vec![container("c", cpus * 1000, GIB)]);
    host.admit(&sized(2)).unwrap();
    // Eight CPUs of node 0 and four of node 1, which alone would be the tighter fit; the memory stays.
    for (cpus, on) in [(12, "0-1"), (4, "0"), (1, "0")] {
        let Host { inventory, settings, allocations } = &mut host;
        resize(inventory, settings, allocations, &sized(cpus), &mut Trace::default()).unwrap();
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

#[test]
fn every_set_of_a_few_nodes_is_told() {
    let machine = Machine::new().sockets(4).cores(2).threads(1).build();
    let Host { inventory, settings, mut allocations } = Host::new(machine, HintsSettings::default());
    let mut trace = crate::place::Trace::wanted();
    let request = pod("a", vec![container("c", 2000, GIB)]);
    crate::place::admit(&inventory, &settings, &mut allocations, &request, &mut trace).unwrap();
    let (candidates, _) = trace.into_parts();
    let places: std::collections::BTreeSet<_> = candidates.iter().map(|c| c.place.as_str()).collect();
    assert_eq!((candidates.len(), places.len()), (15, 15), "{places:?}");
    assert_eq!(candidates.iter().filter(|candidate| candidate.chosen).count(), 1);
}

/// One step of a random sequence.
#[derive(Debug, Clone)]
enum Step {
    Create(u8, Vec<(u8, u8, u8, u8, bool)>),
    Resize(u8, u8),
    Delete(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let one = (0..3u8, 0..12u8, 0..20u8, 0..3u8, any::<bool>());
    prop_oneof![
        4 => (0..30u8, prop::collection::vec(one, 1..4)).prop_map(|(pod, containers)| Step::Create(pod, containers)),
        1 => (0..30u8, 1..9u8).prop_map(|(pod, cpus)| Step::Resize(pod, cpus)),
        3 => (0..30u8).prop_map(Step::Delete),
    ]
}

fn request(name: u8, containers: &[(u8, u8, u8, u8, bool)]) -> PodRequest {
    let kinds = [ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::App];
    let mut containers: Vec<_> = containers
        .iter()
        .enumerate()
        .map(|(index, (kind, halves, gib, gpus, limits))| {
            let request = container(&format!("c{index}"), u64::from(*halves) * 500, u64::from(*gib) * GIB)
                .kind(kinds[*kind as usize])
                .device("v.com/gpu", u64::from(*gpus));
            if *limits { request } else { request.without_limits() }
        })
        .collect();
    containers.sort_by_key(|container| container.kind == ContainerKind::App);
    pod(&format!("p{name}"), containers)
}

/// What must hold whenever nothing is being placed.
fn check(host: &Host) {
    let mut seen = CpuSet::new();
    let mut units = std::collections::BTreeSet::new();
    let taken = host.allocations.exclusive_cpus();
    for (holder, grant) in host.allocations.iter() {
        assert!(seen.is_disjoint(&grant.exclusive), "{holder}: {}", grant.exclusive);
        seen.extend(&grant.exclusive);
        assert!(grant.exclusive.is_disjoint(&host.inventory.reserved_cpus), "{holder}");
        assert!(!grant.cpus(&taken).is_empty(), "{holder} has no CPU");
        assert_eq!(memory_nodes::fault(host, grant), None, "{holder}");
        for claim in &grant.memory {
            assert_eq!(claim.by_node.values().sum::<u64>(), claim.bytes, "{holder}");
            assert!(claim.zone.is_subset(&grant.mems), "{holder}");
        }
        for (resource, ids) in &grant.devices {
            for id in ids {
                assert!(units.insert((resource.clone(), id.clone())), "{holder}: {id}");
            }
        }
        if let Some(shared) = &grant.shared {
            assert!(shared.scope.is_disjoint(&host.inventory.isolated_cpus), "{holder}");
        }
    }
    let account = ZoneAccount::new(&host.inventory, &host.allocations, |_| false);
    assert_eq!(account.overcommitted(MemoryResource::Memory), []);
}

/// Grants fulfil the request.
fn check_sums(host: &Host, pod: &PodRequest) {
    for request in &pod.containers {
        let grant = host.allocations.get(&Holder::new(pod.name.clone(), request.name.clone()));
        let Some(grant) = grant else { continue };
        let whole = super::demand::exclusive_cpus(request, pod.qos);
        assert_eq!(grant.exclusive.len(), whole);
        assert_eq!(grant.shared.is_some(), whole == 0);
        for (resource, count) in &request.devices {
            assert_eq!(grant.devices.get(resource).map_or(0, Vec::len) as u64, *count);
        }
        if pod.qos == crate::workload::QosClass::Guaranteed {
            let promised: u64 = grant.memory.iter().map(|claim| claim.bytes).sum();
            assert_eq!(promised, request.requests.memory_bytes.unwrap_or(0));
        }
    }
}

fn settings(choice: u8) -> HintsSettings {
    let policies = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
        TopologyPolicy::NumaManager,
        TopologyPolicy::NumaManagerBestEffort,
    ];
    HintsSettings {
        policy: policies[choice as usize % 6],
        scope: if (choice / 6).is_multiple_of(2) { Scope::Container } else { Scope::Pod },
        strict_memory_groups: choice / 12 % 2 == 1,
        distribute_cpus_across_numa: choice / 24 % 2 == 1,
        full_pcpus_only: choice / 48 % 2 == 1,
        ..HintsSettings::default()
    }
}

/// What everybody shares.
fn shared(allocations: &Allocations) -> Vec<(Holder, Option<SharedCpus>)> {
    allocations.iter().map(|(holder, grant)| (holder.clone(), grant.shared.clone())).collect()
}

fn run(host: &mut Host, steps: &[Step]) -> Vec<String> {
    let mut said = Vec::new();
    for step in steps {
        let before = host.allocations.clone();
        let name = |name: &u8| PodName::new("default", format!("p{name}"));
        match step {
            Step::Create(pod, containers) => {
                let request = request(*pod, containers);
                match host.admit(&request) {
                    Ok(admission) => {
                        check_sums(host, &request);
                        said.push(format!("{admission:?}"));
                        for container in &request.containers {
                            if container.kind == ContainerKind::Init {
                                let holder = Holder::new(request.name.clone(), container.name.clone());
                                host.allocations.release(&holder);
                            }
                        }
                        bring_home(&mut host.allocations);
                        let mut without = host.allocations.clone();
                        remove(&mut without, &request.name);
                        assert_eq!(shared(&without), shared(&before), "{}", request.name);
                    }
                    Err(rejection) => {
                        assert_eq!(host.allocations, before);
                        said.push(rejection.to_string());
                    }
                }
            }
            Step::Resize(pod, cpus) => {
                let mut request = request(*pod, &[(2, cpus * 2, 2, 0, true)]);
                request.containers[0].name = "c0".into();
                let Host { inventory, settings, allocations } = host;
                let outcome = resize(inventory, settings, allocations, &request, &mut Trace::default());
                match outcome {
                    Ok(_) => check_sums(host, &request),
                    Err(rejection) => {
                        assert_eq!(host.allocations, before);
                        said.push(rejection.to_string());
                    }
                }
            }
            Step::Delete(pod) => {
                let pod = name(pod);
                remove(&mut host.allocations, &pod);
                assert!(host.allocations.of_pod(&pod).next().is_none());
            }
        }
        check(host);
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_thousand_random_steps_keep_every_invariant(
        choice in 0..96u8,
        steps in prop::collection::vec(any_step(), 1000),
    ) {
        let gpus = devices("v.com/gpu", &["0", "1", "1", "2,3", "3", ""]);
        let machine = || Machine::new().sockets(2).nodes_per_socket(2).cores(4).isolated("3,19").build();
        let mut host = Host::with(machine(), gpus.clone(), reserved("0,16", settings(choice)));
        let said = run(&mut host, &steps);
        // The same steps say the same again: a plan depends on nothing but its inputs.
        let mut again = Host::with(machine(), gpus, reserved("0,16", settings(choice)));
        prop_assert_eq!(said, run(&mut again, &steps));
        prop_assert_eq!(&host.allocations, &again.allocations);
        let pods: std::collections::BTreeSet<_> =
            host.allocations.iter().map(|(holder, _)| holder.pod().clone()).collect();
        // Whoever goes first: what is left is the same.
        let (half, rest) = pods.iter().partition::<Vec<_>, _>(|pod| pod.name.len() % 2 == 0);
        for pod in &half {
            remove(&mut host.allocations, pod);
        }
        for pod in half.iter().rev() {
            remove(&mut again.allocations, pod);
        }
        prop_assert_eq!(&host.allocations, &again.allocations);
        for pod in &rest {
            remove(&mut host.allocations, pod);
        }
        prop_assert_eq!(host.allocations, Allocations::default());
    }

    #[test]
    fn single_numa_node_means_one_node(
        containers in prop::collection::vec((2..3u8, 1..9u8, 1..9u8, 0..2u8, Just(true)), 1..4),
    ) {
        let gpus = devices("v.com/gpu", &["0", "1", "1", "2,3", "3"]);
        let machine = Machine::new().sockets(2).nodes_per_socket(2).cores(4).build();
        let mut host = Host::with(machine, gpus, reserved("0,16", single()));
        let containers: Vec<_> = containers.iter().map(|(k, halves, gib, gpus, l)| (*k, halves * 2, *gib, *gpus, *l)).collect();
        let request = request(0, &containers);
        if host.admit(&request).is_ok() {
            for (_, grant) in host.allocations.iter() {
                let cpus: NodeSet = host.inventory.machine.nodes_of(&grant.exclusive);
                prop_assert_eq!(cpus.len(), 1);
                prop_assert_eq!(&cpus, &grant.mems);
            }
        }
    }
}
