use proptest::prelude::*;

use super::*;
use crate::{
    model::WorkloadModel,
    sample::NodeBytes,
    topology::{MemoryKind, synth::Machine},
};

const GIB: u64 = 1 << 30;

/// Node 0 has CPUs 0-3 and 8-11, node 1 has 4-7 and 12-15; CPU n and n+8 are one core.
fn machine() -> Topology {
    Machine::new().sockets(2).build()
}

fn path() -> CgroupPath {
    CgroupPath::new("/a")
}

fn request(workload: &CgroupPath, cpus: u32) -> Request<'_> {
    Request {
        workload,
        cpus,
        memory_bytes: None,
        now: None,
        nodes: None,
        bounds: None,
        available_bytes: BTreeMap::new(),
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

fn given(list: &[(&str, &str, &str, u64)]) -> Allocations {
    let mut allocations = Allocations::default();
    for (name, cpus, mems, gib) in list {
        let assignment = Assignment {
            cpus: cpus.parse().unwrap(),
            mems: mems.parse().unwrap(),
            memory_bytes: gib * GIB,
            reason: String::new(),
        };
        allocations.give(CgroupPath::new(name), assignment);
    }
    allocations
}

fn place(machine: &Topology, allocations: &Allocations, request: &Request<'_>) -> String {
    match NearestFit.place(machine, allocations, request) {
        Ok(Assignment { cpus, mems, .. }) => format!("{cpus} on {mems}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn whole_cores_first_then_the_smallest_rest() {
    let path = path();
    for (cpus, placed) in
        [(1, "0 on 0"), (2, "0,8 on 0"), (3, "0-1,8 on 0"), (4, "0-1,8-9 on 0"), (8, "0-3,8-11 on 0")]
    {
        assert_eq!(place(&machine(), &Allocations::default(), &request(&path, cpus)), placed, "{cpus} CPUs");
    }
    // CPU 8 is the half that is left of the core of CPU 0: a single CPU goes there.
    let half = given(&[("/b", "0", "0", 0), ("/c", "4-7,12-15", "1", 0)]);
    assert_eq!(place(&machine(), &half, &request(&path, 1)), "8 on 0");
    assert_eq!(place(&machine(), &half, &request(&path, 2)), "1,9 on 0");
}

#[test]
fn one_cache_before_two() {
    let mut machine = Machine::new().threads(1).cores(8).build();
    let llc = |cpus: &str| crate::topology::Llc { level: 3, size_bytes: None, cpus: cpus.parse().unwrap() };
    machine.llcs = vec![llc("0-3"), llc("4-7")];
    let path = path();
    for (taken, cpus, placed) in [
        ("0", 4, "4-7 on 0"),
        ("0", 3, "1-3 on 0"),
        ("0-1", 2, "2-3 on 0"),
        ("0,4", 4, "1-3,5 on 0"),
        ("", 6, "0-5 on 0"),
    ] {
        let allocations = given(&[("/b", taken, "0", 0)]);
        assert_eq!(place(&machine, &allocations, &request(&path, cpus)), placed, "{cpus} without {taken}");
    }
}

#[test]
fn memory_decides_then_the_least_left_over_then_the_id() {
    let path = path();
    let on = |gib: &[(u32, u64)], allocations: &Allocations| {
        let now = figures("0-15", "0-1", gib);
        let request = Request { now: Some(&now), ..request(&path, 2) };
        NearestFit.place(&machine(), allocations, &request).unwrap().mems.to_string()
    };
    assert_eq!(on(&[(0, 1), (1, 2)], &Allocations::default()), "1");
    assert_eq!(on(&[(0, 2), (1, 2)], &Allocations::default()), "0");
    assert_eq!(on(&[], &given(&[("/b", "4-6", "1", 0)])), "1", "fewer CPUs are left over there");
    assert_eq!(on(&[(0, 2)], &given(&[("/b", "4-6", "1", 0)])), "0", "memory counts for more");
    assert_eq!(on(&[(0, 2)], &given(&[("/a", "4-5", "1", 0)])), "1", "it was given a place before");
}

#[test]
fn cpus_that_it_has_stay() {
    let path = path();
    let now = figures("6-9", "0-1", &[(1, 2)]);
    for (cpus, placed) in [(1, "6 on 1"), (2, "6-7 on 1"), (3, "6-7,14 on 1")] {
        let request = Request { now: Some(&now), ..request(&path, cpus) };
        assert_eq!(place(&machine(), &Allocations::default(), &request), placed);
    }
}

#[test]
fn isolated_cpus_and_memory_only_nodes_are_not_given_out() {
    let machine = Machine::new()
        .sockets(2)
        .isolated("0,8")
        .memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1))
        .build();
    let path = path();
    assert_eq!(place(&machine, &Allocations::default(), &request(&path, 2)), "1,9 on 0");
    let large = Request { memory_bytes: Some(32 * GIB), ..request(&path, 2) };
    assert_eq!(
        place(&machine, &Allocations::default(), &large),
        "no node has room for 2 CPUs and 32 GiB memory: the closest is node 0, where 16 GiB of 32 GiB memory can \
         be had; 6 CPUs and 16 GiB memory would fit"
    );
}

#[test]
fn refusals_say_what_is_short_and_what_would_fit() {
    let path = path();
    assert_eq!(
        place(&machine(), &given(&[("/b", "0-5", "0", 0)]), &request(&path, 9)),
        "no node has room for 9 CPUs: the closest is node 1, where 6 of 9 CPUs are free; 6 CPUs and 16 GiB memory \
         would fit"
    );
    let full = given(&[("/b", "0-3,8-11", "0", 16), ("/c", "4-7,12-15", "1", 16)]);
    let both = Request { memory_bytes: Some(GIB), ..request(&path, 1) };
    assert_eq!(
        place(&machine(), &full, &both),
        "no node has room for 1 CPUs and 1024 MiB memory: the closest is node 0, where 0 of 1 CPUs are free and \
         0 B of 1024 MiB memory can be had"
    );
    let nodes = "7".parse().unwrap();
    let elsewhere = Request { nodes: Some(&nodes), ..request(&path, 1) };
    assert_eq!(
        place(&machine(), &Allocations::default(), &elsewhere),
        "no node that it may use has both CPUs and memory: numa_nodes of its rule is 7"
    );
    let bare = Topology::default();
    assert_eq!(
        NearestFit.place(&bare, &Allocations::default(), &request(&path, 1)),
        Err(PlacementError::NoNode)
    );
}

#[test]
fn memory_is_what_can_be_had_now_and_what_was_not_promised() {
    let path = path();
    let on = |available: &[(u32, u64)], allocations: &Allocations| {
        let available_bytes = available.iter().map(|(node, gib)| (NodeId(*node), gib * GIB)).collect();
        let request = Request { memory_bytes: Some(8 * GIB), available_bytes, ..request(&path, 1) };
        NearestFit
            .place(&machine(), allocations, &request)
            .map(|one| one.mems.to_string())
            .unwrap_or_default()
    };
    assert_eq!(on(&[], &Allocations::default()), "0");
    assert_eq!(on(&[(0, 7), (1, 8)], &Allocations::default()), "1");
    assert_eq!(on(&[(0, 7), (1, 7)], &Allocations::default()), "");
    assert_eq!(on(&[], &given(&[("/b", "1", "0", 9)])), "1");
    assert_eq!(on(&[], &given(&[("/a", "1", "0", 9)])), "0", "its own promise does not count against it");
}

#[test]
fn a_size_that_is_not_known_is_not_enough() {
    let mut machine = machine();
    machine.nodes[0].mem_total_bytes = None;
    let path = path();
    let asks = Request { memory_bytes: Some(GIB), ..request(&path, 1) };
    assert_eq!(place(&machine, &Allocations::default(), &asks), "4 on 1");
    machine.nodes.truncate(1);
    let error = place(&machine, &Allocations::default(), &asks);
    assert!(error.contains("the size of its memory is not known"), "{error}");
    assert_eq!(place(&machine, &Allocations::default(), &request(&path, 1)), "0 on 0");
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
        let request = Request { now: Some(&now), ..request(&path, 2) };
        let allocations = given(&[("/b", others, "1", 0)]);
        let found = NearestFit.keep(&machine(), &allocations, &request);
        assert_eq!(found.is_some(), kept, "{cpus} on {mems} with {others} taken");
        if let Some(assignment) = found {
            assert_eq!(
                (assignment.cpus.to_string(), assignment.mems.to_string()),
                (cpus.into(), mems.into())
            );
        }
    }
}

proptest! {
    /// An assignment has the CPUs asked for, free ones of one node, and memory that suffices; and
    /// whatever is placed may be kept.
    #[test]
    fn what_is_placed_is_valid(
        (sockets, cores, threads) in (1u32..4, 1u32..5, 1u32..3),
        taken in prop::collection::btree_set(0u32..32, 0..16),
        wanted in 1u32..12,
        gib in 0u64..20,
    ) {
        let machine = Machine::new().sockets(sockets).cores(cores).threads(threads).build();
        let taken: CpuSet = taken.into_iter().map(crate::id::CpuId).collect();
        let allocations = given(&[("/b", &taken.to_string(), "0", 5)]);
        let path = path();
        let asks = Request { memory_bytes: Some(gib * GIB), ..request(&path, wanted) };
        let placed = NearestFit.place(&machine, &allocations, &asks);
        prop_assert_eq!(&placed, &NearestFit.place(&machine, &allocations, &asks));
        match placed {
            Ok(one) => {
                prop_assert_eq!(one.cpus.len(), wanted as usize);
                prop_assert!(one.cpus.is_disjoint(&taken));
                prop_assert_eq!(machine.nodes_of(&one.cpus), one.mems.clone());
                let now = figures(&one.cpus.to_string(), &one.mems.to_string(), &[]);
                let again = Request { now: Some(&now), ..asks };
                prop_assert_eq!(NearestFit.keep(&machine, &allocations, &again).unwrap().cpus, one.cpus);
            }
            Err(error) => {
                let fits = |node: &crate::topology::Node| {
                    let promised = if node.id == NodeId(0) { 5 } else { 0 };
                    node.cpus.difference(&taken).len() >= wanted as usize && gib <= 16 - promised
                };
                prop_assert!(!machine.nodes.iter().any(fits), "{error}");
            }
        }
    }
}
