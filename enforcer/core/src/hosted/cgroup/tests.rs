use proptest::prelude::*;

use super::*;
use crate::{policy::placement::MemoryTypes, sample::NodeBytes};
use numa_placement::MemoryClaim;
use numa_topology::{MemoryKind, Topology, id::CpuId, synth::Machine};

const GIB: u64 = 1 << 30;

/// Node 0 has CPUs 0-3 and 8-11, node 1 has 4-7 and 12-15; CPU n and n+8 are one core.
fn machine() -> Topology {
    Machine::new().sockets(2).build()
}

fn inventory(machine: Topology) -> Inventory {
    Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap()
}

fn path() -> CgroupPath {
    CgroupPath::new("/a")
}

fn request(cgroup: &CgroupPath, cpus: u32) -> CgroupRequest<'_> {
    CgroupRequest {
        cgroup,
        cpus,
        memory_bytes: None,
        now: None,
        nodes: None,
        bounds: None,
        available_bytes: BTreeMap::new(),
        avoids: CpuSet::new(),
        wished: None,
    }
}

fn figures(cpus: &str, mems: &str, gib: &[(u32, u64)]) -> WorkloadModel {
    let bytes =
        gib.iter().map(|(node, gib)| (NodeId(*node), NodeBytes { anon: gib * GIB, ..NodeBytes::default() }));
    WorkloadModel {
        cpus: Some(cpus.parse().unwrap()),
        mems: Some(mems.parse().unwrap()),
        bytes_by_node: Some(bytes.collect()),
        ..WorkloadModel::default()
    }
}

fn given(list: &[(&str, &str, u32, u64)]) -> Allocations {
    let mut allocations = Allocations::default();
    for (name, cpus, node, gib) in list {
        let zone = NodeSet::from_iter([NodeId(*node)]);
        let claim = MemoryClaim {
            resource: MemoryResource::Memory,
            zone: zone.clone(),
            bytes: gib * GIB,
            by_node: BTreeMap::from([(NodeId(*node), gib * GIB)]),
        };
        let grant =
            Grant { exclusive: cpus.parse().unwrap(), mems: zone, memory: vec![claim], ..Grant::default() };
        allocations.give(Holder::cgroup(&CgroupPath::new(name)), grant);
    }
    allocations
}

fn place(machine: &Topology, allocations: &Allocations, request: &CgroupRequest<'_>) -> String {
    match request.place(&inventory(machine.clone()), &mut allocations.clone()) {
        Ok(Grant { exclusive, mems, .. }) => format!("{exclusive} on {mems}"),
        Err(rejection) => rejection.to_string(),
    }
}

#[test]
fn whole_cores_of_one_node() {
    let path = path();
    for (cpus, placed) in [(1, "0 on 0"), (2, "0,8 on 0"), (4, "0-1,8-9 on 0"), (8, "0-3,8-11 on 0")] {
        assert_eq!(place(&machine(), &Allocations::default(), &request(&path, cpus)), placed, "{cpus} CPUs");
    }
    let half = given(&[("/b", "0", 0, 0), ("/c", "4-7,12-15", 1, 0)]);
    assert_eq!(place(&machine(), &half, &request(&path, 1)), "8 on 0", "the half of a core that is left");
}

#[test]
fn it_goes_where_its_memory_is() {
    let path = path();
    let on = |gib: &[(u32, u64)]| {
        let now = figures("0-15", "0-1", gib);
        let request = CgroupRequest { now: Some(&now), ..request(&path, 2) };
        place(&machine(), &Allocations::default(), &request)
    };
    assert_eq!(on(&[(0, 1), (1, 2)]), "4,12 on 1");
    assert_eq!(on(&[(0, 2), (1, 2)]), "0,8 on 0");
}

#[test]
fn it_goes_where_its_memory_is_on_a_machine_of_many_nodes() {
    let path = path();
    let machine = Machine::new().sockets(60).build();
    let now = figures("40-47", "5", &[(0, 1), (13, 2)]);
    let request = CgroupRequest { now: Some(&now), ..request(&path, 2) };
    let grant = request.place(&inventory(machine), &mut Allocations::default()).unwrap();
    assert_eq!(grant.mems.to_string(), "13", "{}", grant.reason);
}

#[test]
fn what_it_was_given_before_does_not_wander() {
    let path = path();
    let now = figures("0-15", "0-1", &[(0, 2)]);
    let request = CgroupRequest { now: Some(&now), memory_bytes: Some(GIB), ..request(&path, 2) };
    let mut allocations = Allocations::default();
    let first = request.place(&inventory(machine()), &mut allocations).unwrap();
    let now = figures("0-15", "0-1", &[(1, 2)]);
    let request = CgroupRequest { now: Some(&now), ..request };
    assert_eq!(request.place(&inventory(machine()), &mut allocations).unwrap().exclusive, first.exclusive);
}

#[test]
fn isolated_cpus_are_not_given_out() {
    let machine = Machine::new().sockets(2).isolated("0,8").build();
    let path = path();
    let all = place(&machine, &given(&[("/b", "4-7,12-15", 1, 0)]), &request(&path, 5));
    assert_eq!(all, "2-3,9-11 on 0", "one that is not isolated stays shared");
}

#[test]
fn memory_only_nodes_are_memory_of_the_cpus_that_they_are_local_to() {
    let machine = Machine::new().sockets(2).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build();
    let path = path();
    let of = |gib: u64, allowed: Option<&str>, above: Option<&str>, available: &[(u32, u64)]| {
        let nodes = allowed.map(|nodes| nodes.parse().unwrap());
        let mems = above.map(|nodes| nodes.parse().unwrap());
        let bounds = Some(CgroupBounds { cgroup: CgroupPath::new("/s"), cpus: None, mems });
        let available_bytes = available.iter().map(|(node, gib)| (NodeId(*node), gib * GIB)).collect();
        let wants = request(&path, 2);
        let memory_bytes = Some(gib * GIB);
        let wants = CgroupRequest { memory_bytes, nodes: nodes.as_ref(), bounds, available_bytes, ..wants };
        place(&machine, &Allocations::default(), &wants)
    };
    assert_eq!(of(8, None, None, &[]), "0,8 on 0", "memory of the socket comes first");
    assert_eq!(of(32, None, None, &[]), "4,12 on 1-2");
    let now = [(0, 4), (1, 4), (2, 60)];
    assert_eq!(of(8, None, None, &now), "4,12 on 1-2", "what others use without a promise is not there");
    assert!(of(65, None, None, &now).contains("64 GiB of 65 GiB memory on nodes 1-2"));
    assert!(of(32, Some("1"), None, &[]).contains("memory on node 1"), "its rule names the socket alone");
    assert_eq!(of(32, None, Some("2"), &[]), "4,12 on 2", "the cgroup above leaves it nothing else");
    assert!(of(32, None, Some("0"), &[]).contains("16 GiB of 32 GiB memory on node 0"));
}

#[test]
fn cpus_without_memory_of_their_own_have_that_of_the_nearest_node() {
    // CPUs on nodes 0 and 2, their memory on 1 and 3.
    let mut machine = Machine::new().sockets(2).node_ids(&[0, 2]);
    for (memory, beside) in [(1, 0), (3, 2)] {
        machine = machine.memory_only(NodeId(memory), 16, MemoryKind::Dram, NodeId(beside));
    }
    let mut machine = machine.build();
    for node in &mut machine.nodes {
        if !node.cpus.is_empty() {
            node.mem_total_bytes = Some(0);
            node.kind = MemoryKind::None;
        }
    }
    let path = path();
    let large = CgroupRequest { memory_bytes: Some(8 * GIB), ..request(&path, 2) };
    assert_eq!(place(&machine, &Allocations::default(), &large), "0,8 on 1");
    let now = figures("0-15", "1,3", &[(1, 1), (3, 2)]);
    let held = CgroupRequest { now: Some(&now), ..request(&path, 2) };
    assert_eq!(place(&machine, &Allocations::default(), &held), "4,12 on 3", "where its memory is");
    for named in ["2", "3", "2-3"] {
        let nodes = named.parse().unwrap();
        let named = CgroupRequest { nodes: Some(&nodes), ..large.clone() };
        assert_eq!(place(&machine, &Allocations::default(), &named), "4,12 on 3");
    }
    for (cpus, mems, kept) in [("4,12", "3", true), ("4,12", "1", false), ("4,12", "1,3", false)] {
        let now = figures(cpus, mems, &[(3, 1)]);
        let has = CgroupRequest { now: Some(&now), ..request(&path, 2) };
        let found = has.keep(&inventory(machine.clone()), &Allocations::default());
        assert_eq!(found.is_some(), kept, "{cpus} on {mems}");
    }
}

#[test]
fn refusals_say_what_is_short_and_which_bound_excludes() {
    let path = path();
    let refusal = place(&machine(), &given(&[("/b", "0-5", 0, 0)]), &request(&path, 9));
    assert!(refusal.contains("6 of 9 cpu on node 1"), "{refusal}");
    let nodes = "7".parse().unwrap();
    let bounds = CgroupBounds { cgroup: CgroupPath::new("/s"), cpus: None, mems: Some("0".parse().unwrap()) };
    let elsewhere = CgroupRequest { nodes: Some(&nodes), bounds: Some(bounds), ..request(&path, 1) };
    let refusal = place(&machine(), &Allocations::default(), &elsewhere);
    let why = "both CPUs and memory: numa_nodes of its rule is 7, cpuset.mems.effective of /s is 0";
    assert!(refusal.contains(why), "{refusal}");
    assert!(refusal.ends_with(": 0 of 1 cpu on node 7; at most 0 cpu on node 7 would fit"), "{refusal}");
    let refusal = place(&Topology::default(), &Allocations::default(), &request(&path, 1));
    assert!(refusal.contains("the machine has none"), "{refusal}");
}

#[test]
fn memory_is_what_can_be_had_now_and_what_was_not_promised() {
    let path = path();
    let on = |available: &[(u32, u64)], allocations: &Allocations| {
        let available_bytes = available.iter().map(|(node, gib)| (NodeId(*node), gib * GIB)).collect();
        let request = CgroupRequest { memory_bytes: Some(8 * GIB), available_bytes, ..request(&path, 1) };
        place(&machine(), allocations, &request)
    };
    assert_eq!(on(&[], &Allocations::default()), "0 on 0");
    assert_eq!(on(&[(0, 7), (1, 8)], &Allocations::default()), "4 on 1");
    assert_eq!(on(&[], &given(&[("/b", "1", 0, 9)])), "4 on 1");
    assert_eq!(on(&[], &given(&[("/a", "1", 0, 9)])), "1 on 0", "its own promise does not count against it");
    let neither = on(&[(0, 7), (1, 7)], &Allocations::default());
    assert!(neither.contains("7168 MiB of 8192 MiB memory on node 0"), "{neither}");
    assert!(neither.contains("; at most 7168 MiB memory on node 0 would fit"), "{neither}");
}

#[test]
fn cpus_are_counted_where_they_are_when_no_node_has_the_memory() {
    let path = path();
    let available_bytes = BTreeMap::from([(NodeId(0), 7 * GIB), (NodeId(1), 6 * GIB)]);
    let of = |cpus: u32, nodes: Option<&NodeSet>, others: &[(&str, &str, u32, u64)]| {
        let memory_bytes = Some(20 * GIB);
        let available_bytes = available_bytes.clone();
        let request = CgroupRequest { memory_bytes, nodes, available_bytes, ..request(&path, cpus) };
        place(&machine(), &given(others), &request)
    };
    let problem = "none of the nodes that it may use has the memory that it needs";
    let both = "7 GiB of 20 GiB memory on node 0, 6 GiB of 20 GiB memory on node 1";
    let memory = "at most 7 GiB memory on node 0 would fit";
    for (cpus, others, short, room) in [
        (3, &[][..], "", "8 cpu on node 0"),
        (8, &[], "", "8 cpu on node 0"),
        (200, &[], ", 8 of 200 cpu on node 0", "8 cpu on node 0"),
        (
            8,
            &[("/b", "0-3", 0, 0), ("/c", "4", 1, 0)],
            ", 7 of 8 cpu on node 1 (CPU 4 exclusive to /c)",
            "7 cpu on node 1",
        ),
        (
            1,
            &[("/b", "0-15", 0, 0)],
            ", 0 of 1 cpu on node 0 (CPUs 0-3,8-11 exclusive to /b)",
            "0 cpu on node 0",
        ),
        (4, &[("/a", "0-15", 0, 0)], "", "8 cpu on node 0"),
    ] {
        let said = of(cpus, None, others);
        assert_eq!(said, format!("{problem}: {both}{short}; {memory}; at most {room} would fit"));
    }
    let said = of(9, Some(&"1".parse().unwrap()), &[]);
    assert!(said.contains("8 of 9 cpu on node 1") && !said.contains("node 0"), "{said}");
}

#[test]
fn reasons_of_pods_are_not_named_outside_pods() {
    let path = path();
    let nowhere: NodeSet = "7".parse().unwrap();
    let memory_bytes = Some(20 * GIB);
    for request in [
        request(&path, 9),
        request(&path, 900),
        CgroupRequest { nodes: Some(&nowhere), ..request(&path, 1) },
        CgroupRequest { memory_bytes, ..request(&path, 1) },
        CgroupRequest { avoids: "0-15".parse().unwrap(), ..request(&path, 1) },
    ] {
        for allocations in [Allocations::default(), given(&[("/a", "0", 0, 0)])] {
            let said = place(&machine(), &allocations, &request);
            assert!(!said.contains("Error:") && !said.contains("container"), "{said}");
        }
    }
}

#[test]
fn keep_accepts_only_what_is_valid() {
    let path = path();
    for (cpus, mems, others, kept) in [
        ("6-7", "1", "", true),
        ("6-7", "0-1", "", false),
        ("6-7", "0", "", false),
        ("6-8", "1", "", false),
        ("6", "1", "", false),
        ("3-4", "0", "", false),
        ("6-7", "1", "7", false),
    ] {
        let now = figures(cpus, mems, &[(1, 1)]);
        let request = CgroupRequest { now: Some(&now), ..request(&path, 2) };
        let found = request.keep(&inventory(machine()), &given(&[("/b", others, 1, 0)]));
        let found = found.map(|grant| (grant.exclusive.to_string(), grant.mems.to_string()));
        assert_eq!(found, kept.then(|| (cpus.into(), mems.into())), "{cpus} on {mems} with {others} taken");
    }
}

proptest! {
    /// A grant has the requested number of free CPUs on one node, and enough memory; a placed cgroup may be
    /// kept; and a refusal is right.
    #[test]
    fn what_is_placed_is_valid(
        (sockets, cores, threads) in (1u32..4, 1u32..5, 1u32..3),
        taken in prop::collection::btree_set(0u32..32, 0..16),
        wanted in 1u32..12,
        gib in 0u64..20,
    ) {
        let machine = Machine::new().sockets(sockets).cores(cores).threads(threads).build();
        let taken: CpuSet = taken.into_iter().map(CpuId).collect();
        let allocations = given(&[("/b", &taken.to_string(), 0, 5)]);
        let inventory = inventory(machine.clone());
        let path = path();
        let asks = CgroupRequest { memory_bytes: Some(gib * GIB), ..request(&path, wanted) };
        let mut after = allocations.clone();
        match asks.place(&inventory, &mut after) {
            Ok(grant) => {
                prop_assert_eq!(grant.exclusive.len(), wanted as usize);
                prop_assert!(grant.exclusive.is_disjoint(&taken));
                prop_assert_eq!(machine.nodes_of(&grant.exclusive), grant.mems.clone());
                let now = figures(&grant.exclusive.to_string(), &grant.mems.to_string(), &[]);
                let again = CgroupRequest { now: Some(&now), ..asks };
                prop_assert_eq!(again.keep(&inventory, &after).unwrap().exclusive, grant.exclusive);
            }
            Err(rejection) => {
                prop_assert_eq!(after, allocations);
                let fits = |node: &numa_topology::Node| {
                    let promised = if node.id == NodeId(0) { 5 } else { 0 };
                    node.cpus.difference(&taken).len() >= wanted as usize && gib <= 16 - promised
                };
                prop_assert!(!machine.nodes.iter().any(fits), "{rejection}");
            }
        }
    }
}

/// Plays turns of a cgroup with wishes; each turn starts with the placement of the previous one.
fn turns(wishes: &Wishes, machine: &Topology, cpus: u32, count: usize) -> Vec<(Grant, bool)> {
    let path = path();
    let pools = PoolsSettings::default();
    let inventory = inventory(machine.clone());
    let mut allocations = Allocations::default();
    let mut now = figures("0-15", "0-1", &[]);
    let mut turns = Vec::new();
    for _ in 0..count {
        let wished = Some(Wished { wishes, unknown: &[], pools: &pools });
        let request = CgroupRequest { now: Some(&now), wished, ..request(&path, cpus) };
        let kept = request.keep(&inventory, &allocations);
        let is_kept = kept.is_some();
        let grant = kept.unwrap_or_else(|| request.place(&inventory, &mut allocations).unwrap());
        now = figures(&grant.cpus(&allocations.exclusive_cpus()).to_string(), &grant.mems.to_string(), &[]);
        turns.push((grant, is_kept));
    }
    turns
}

#[test]
fn wishes_are_granted_by_the_engine_that_knows_them_and_then_kept() {
    let machine = Machine::new().sockets(2).memory_beside_each(64 * GIB, MemoryKind::Pmem).build();
    let pools = Wishes { engine: Some(PlacementEngine::Pools), ..Wishes::default() };
    let pmem = MemoryTypes { pmem: true, ..MemoryTypes::default() };
    for (wishes, cpus, class, exclusive, mems) in [
        (Wishes { memory_types: Some(pmem), ..pools.clone() }, 2, CpuClass::Exclusive, 2, "2"),
        (Wishes { class: Some(DeclaredClass::Shared), ..pools.clone() }, 2, CpuClass::Shared, 0, "0,2"),
        (pools, 10, CpuClass::Exclusive, 10, "0-3"),
        (
            Wishes { policy: Some(TopologyPolicy::BestEffort), ..Wishes::default() },
            10,
            CpuClass::Exclusive,
            10,
            "0-1",
        ),
        (Wishes { class: Some(DeclaredClass::Shared), ..Wishes::default() }, 2, CpuClass::Shared, 0, "0"),
    ] {
        let turns = turns(&wishes, &machine, cpus, 3);
        let (first, kept) = &turns[0];
        assert_eq!((first.class, first.exclusive.len(), kept), (class, exclusive, &false), "{wishes:?}");
        assert_eq!(first.mems.to_string(), mems, "{wishes:?}");
        assert!(turns[1..].iter().all(|(grant, kept)| *kept && grant == first), "{wishes:?}: {turns:?}");
    }
}

fn with_options(list: &[&str]) -> Wishes {
    let list: Vec<String> = list.iter().map(|&option| option.to_owned()).collect();
    Wishes { options: list.try_into().unwrap(), ..Wishes::default() }
}

#[test]
fn declared_options_choose_cpus_and_current_ones_are_kept_only_as_they_ask() {
    // CPU n and n+8 are one core.
    let (path, pools, inventory) = (path(), PoolsSettings::default(), inventory(machine()));
    let taken = given(&[("/other", "0", 0, 0)]);
    for (options, now, kept, placed) in [
        (&["full-pcpus-only"][..], "1-2", None, "4,12"),
        (&["full-pcpus-only"], "1,9", Some("1,9"), "4,12"),
        (&["distribute-cpus-across-cores"], "1,9", None, "4-5"),
        (&["distribute-cpus-across-cores"], "2,9", Some("2,9"), "4-5"),
        (&[], "2,9", Some("2,9"), "4,12"),
    ] {
        let wishes = with_options(options);
        let now = figures(now, "0", &[]);
        let wished = Some(Wished { wishes: &wishes, unknown: &[], pools: &pools });
        let running = CgroupRequest { now: Some(&now), wished, ..request(&path, 2) };
        let is_kept = running.keep(&inventory, &taken).map(|grant| grant.exclusive.to_string());
        assert_eq!(is_kept.as_deref(), kept, "{options:?}");
        // On the node where no core is half taken.
        let nodes = NodeSet::from_iter([NodeId(1)]);
        let fresh = CgroupRequest { now: None, nodes: Some(&nodes), ..running };
        let mut allocations = taken.clone();
        let grant = fresh.place(&inventory, &mut allocations).unwrap();
        assert_eq!(grant.exclusive.to_string(), placed, "{options:?}");
        let told = options.first().is_none_or(|option| grant.reason.ends_with(&format!("options {option}")));
        assert!(told, "{}", grant.reason);
        let again = fresh.keep(&inventory, &allocations).map(|kept| kept.exclusive);
        assert_eq!(
            again,
            (!options.is_empty()).then_some(grant.exclusive),
            "without options only what runs counts"
        );
    }
}

#[test]
fn one_thread_per_core_is_met_or_refused() {
    // Two nodes of four cores; CPU n and n+8 are one core.
    let (path, pools, inventory) = (path(), PoolsSettings::default(), inventory(machine()));
    let wishes = with_options(&["distribute-cpus-across-cores"]);
    let wished = Some(Wished { wishes: &wishes, unknown: &[], pools: &pools });
    let node = NodeSet::from_iter([NodeId(1)]);
    for (taken, cpus, expected) in [
        (&[][..], 4, Some("4-7")),
        (&[("/other", "4", 0, 0)], 4, Some("5-7,12")),
        (&[("/other", "4,12", 0, 0)], 4, None),
        (&[("/other", "4,12", 0, 0)], 3, Some("5-7")),
        (&[], 5, None),
    ] {
        let request = CgroupRequest { nodes: Some(&node), wished, ..request(&path, cpus) };
        let mut allocations = given(taken);
        let placed = request.place(&inventory, &mut allocations).ok();
        let placed = placed.map(|grant| grant.exclusive.to_string());
        assert_eq!(placed.as_deref(), expected, "{cpus} CPUs beside {taken:?}");
    }
}

#[test]
fn cpus_that_are_no_whole_cores_are_refused_where_whole_cores_are_declared() {
    let (path, pools, inventory) = (path(), PoolsSettings::default(), inventory(machine()));
    let wishes = with_options(&["full-pcpus-only"]);
    let wished = Some(Wished { wishes: &wishes, unknown: &[], pools: &pools });
    let request = CgroupRequest { wished, ..request(&path, 3) };
    let refused = request.place(&inventory, &mut Allocations::default()).unwrap_err();
    assert_eq!(refused.reason, RejectionReason::SmtAlignmentError, "{refused}");
}

#[test]
fn a_restart_leaves_cpus_that_were_wished_for_where_they_are() {
    let machine = machine();
    let (path, pools) = (path(), PoolsSettings::default());
    let wishes = Wishes { engine: Some(PlacementEngine::Pools), ..Wishes::default() };
    let now = figures("6-7,14-15", "1", &[]);
    let wished = Some(Wished { wishes: &wishes, unknown: &["no eth9".to_owned()], pools: &pools });
    let request = CgroupRequest { now: Some(&now), wished, ..request(&path, 4) };
    let inventory = inventory(machine);
    let grant = request.keep(&inventory, &Allocations::default()).unwrap();
    assert_eq!((grant.exclusive.to_string().as_str(), grant.mems.to_string().as_str()), ("6-7,14-15", "1"));
    let taken = given(&[("/b", "7", 1, 0)]);
    assert_eq!(request.keep(&inventory, &taken), None, "another cgroup has one of them");
    let elsewhere = request.place(&inventory, &mut taken.clone()).unwrap();
    assert!(elsewhere.reason.ends_with("; no eth9"), "{}", elsewhere.reason);
}

#[test]
fn placed_cgroup_stays_under_every_policy_and_gets_only_allowed_nodes() {
    let (path, pools, inventory) = (path(), PoolsSettings::default(), inventory(machine()));
    let now = figures("4-5", "1", &[(1, 1)]);
    let nodes: NodeSet = "1".parse().unwrap();
    let policies = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
    ];
    for (policy, engine) in
        policies.map(|policy| (Some(policy), None)).into_iter().chain([(None, Some(PlacementEngine::Pools))])
    {
        for memory_bytes in [None, Some(GIB)] {
            let wishes = Wishes { engine, policy, ..Wishes::default() };
            let wished = Some(Wished { wishes: &wishes, unknown: &[], pools: &pools });
            let request = CgroupRequest { memory_bytes, now: Some(&now), wished, ..request(&path, 2) };
            let kept = request.keep(&inventory, &Allocations::default());
            let kept = kept.map(|grant| format!("{} on {}", grant.exclusive, grant.mems));
            assert_eq!(kept.as_deref(), Some("4-5 on 1"), "{policy:?} {engine:?} {memory_bytes:?}");
            let bound = CgroupRequest { nodes: Some(&nodes), now: None, ..request };
            let grant = bound.place(&inventory, &mut Allocations::default()).unwrap();
            assert_eq!(grant.mems.to_string(), "1", "{policy:?} {engine:?} {memory_bytes:?}");
        }
    }
}

#[test]
fn under_no_policy_cpus_and_memory_may_stay_apart_and_under_any_other_they_may_not() {
    let (path, pools, inventory) = (path(), PoolsSettings::default(), inventory(machine()));
    let now = figures("4-5", "0", &[(0, 1)]);
    for (policy, kept) in [
        (TopologyPolicy::None, Some("4-5 on 0, 1073741824 of 0")),
        (TopologyPolicy::BestEffort, None),
        (TopologyPolicy::SingleNumaNode, None),
    ] {
        let wishes = Wishes { policy: Some(policy), ..Wishes::default() };
        let wished = Some(Wished { wishes: &wishes, unknown: &[], pools: &pools });
        let request = CgroupRequest { now: Some(&now), wished, ..request(&path, 2) };
        let mut allocations = Allocations::default();
        let grant = request.keep(&inventory, &allocations);
        let said = grant.as_ref().map(|grant| {
            let claims = grant.memory.iter().map(|claim| format!("{} of {}", claim.bytes, claim.zone));
            format!("{} on {}, {}", grant.exclusive, grant.mems, claims.collect::<String>())
        });
        assert_eq!(said.as_deref(), kept, "{policy:?}");
        let Some(grant) = grant else { continue };
        allocations.give(Holder::cgroup(&path), grant.clone());
        assert_eq!(request.keep(&inventory, &allocations), Some(grant), "and stay so");
    }
}
