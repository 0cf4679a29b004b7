//! Tables of real machines, and properties of any machine.

use proptest::prelude::*;

use super::*;
use crate::{Hmat, synth::Machine};

fn set(text: &str) -> NodeSet {
    text.parse().unwrap()
}

/// A machine of `rows.len()` nodes with these distances, CPUs only on `cpus`, and memory of unknown kind on
/// all other nodes.
fn machine(rows: &[&[u32]], cpus: &str) -> Topology {
    let mut machine = Machine::new().sockets(u32::try_from(rows.len()).unwrap()).cores(1).threads(1).build();
    machine.distances = rows.iter().map(|row| row.iter().copied().map(Some).collect()).collect();
    let with_cpus = set(cpus);
    for node in machine.nodes.iter_mut().filter(|node| !with_cpus.contains(node.id)) {
        node.cpus = "".parse().unwrap();
        node.kind = MemoryKind::Unknown;
    }
    machine.cpus.retain(|cpu| cpu.node.is_some_and(|node| with_cpus.contains(node)));
    machine.memory_tiers.clear();
    machine
}

const ALIKE: [&[u32]; 3] = [&[10, 21, 21], &[21, 10, 21], &[21, 21, 10]];

#[test]
fn memory_of_a_socket_without_cpus_is_local_to_none() {
    let near = |rows: &[&[u32]], cpus| machine(rows, cpus).near_cpu_nodes(NodeId(2)).to_string();
    for (rows, cpus, expected) in [
        (&ALIKE[..], "0-1", ""),
        // One of them is nearer, and as far as the other socket.
        (&[&[10, 21, 21], &[21, 10, 31], &[21, 31, 10]], "0-1", ""),
        (&[&[10, 21, 31], &[21, 10, 41], &[31, 41, 10]], "0-1", ""),
        // Nearer than the other socket: the second node of a socket, and one between two sockets.
        (&[&[10, 21, 12], &[21, 10, 21], &[12, 21, 10]], "0-1", "0"),
        (&[&[10, 21, 17], &[21, 10, 17], &[17, 17, 10]], "0-1", "0-1"),
        // There is no other CPU node at any distance.
        (&ALIKE, "0", "0"),
        (&ALIKE, "0-2", "2"),
    ] {
        assert_eq!(near(rows, cpus), expected, "{rows:?} {cpus}");
    }
}

#[test]
fn slower_memory_belongs_to_the_nearest_cpus_at_any_distance() {
    for (kind, rows, expected) in [
        (MemoryKind::Cxl, [&[10, 21, 50][..], &[21, 10, 60], &[50, 60, 10]], "0"),
        (MemoryKind::Pmem, [&[10, 21, 28], &[21, 10, 17], &[28, 17, 10]], "1"),
        (MemoryKind::Cxl, ALIKE, "0-1"),
        (MemoryKind::Hbm, ALIKE, "0-1"),
    ] {
        let mut machine = machine(&rows, "0-1");
        machine.nodes[2].kind = kind;
        assert_eq!(machine.near_cpu_nodes(NodeId(2)).to_string(), expected, "{kind:?} {rows:?}");
    }
}

#[test]
fn initiators_go_before_distances_and_distances_choose_among_them() {
    let with = |rows: &[&[u32]], initiators: &str| {
        let mut machine = machine(rows, "0-1");
        machine.nodes[2].hmat = Some(Hmat {
            access_class: 1,
            initiators: set(initiators),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
            write_bandwidth_mbps: None,
        });
        machine.near_cpu_nodes(NodeId(2)).to_string()
    };
    let nearer_to_1: [&[u32]; 3] = [&[10, 21, 28], &[21, 10, 17], &[28, 17, 10]];
    assert_eq!(with(&ALIKE, "0"), "0");
    assert_eq!(with(&ALIKE, "0-1"), "0-1");
    assert_eq!(with(&nearer_to_1, "0"), "0");
    assert_eq!(with(&nearer_to_1, "0-1"), "1");
    assert_eq!(with(&ALIKE, "2"), "", "an initiator with offline CPUs does not count");
}

#[test]
fn memory_of_a_gpu_is_neither_near_nor_far() {
    let mut machine = machine(&ALIKE, "0-1");
    machine.nodes[2].kind = MemoryKind::Gpu;
    assert_eq!(machine.near_cpu_nodes(NodeId(2)), set("0-1"), "no PCI device says where it is");
    machine.nodes[2].closest_cpu_node = Some(NodeId(1));
    assert_eq!(machine.near_cpu_nodes(NodeId(2)), set("1"));
    let locality = Locality::new(&machine);
    for cpus in ["", "0", "1", "0-1", "2"] {
        let cpus = set(cpus);
        assert!(!locality.is_near(NodeId(2), &cpus) && !locality.is_far(NodeId(2), &cpus), "{cpus}");
    }
    assert_eq!(locality.homes(&set("0,2")), set("0"));
    assert_eq!(machine.ordinary_memory_nodes(), set("0-1"));
    assert_eq!(machine.near_memory_nodes(&set("0-2")), set("0-1"));
    assert_eq!(machine.memory_rank(NodeId(2)), None);
}

#[test]
fn cpus_without_memory_have_the_nearest_memory() {
    // An LPAR: all memory is on memory-only nodes.
    let rows: [&[u32]; 4] = [&[10, 20, 40, 40], &[20, 10, 40, 40], &[40, 40, 10, 20], &[40, 40, 20, 10]];
    let mut lpar = machine(&rows, "0,3");
    for node in [0, 3] {
        lpar.nodes[node].mem_total_bytes = Some(0);
        lpar.nodes[node].kind = MemoryKind::None;
    }
    let near = |cpus: &str| lpar.near_memory_nodes(&set(cpus)).to_string();
    assert_eq!([near("0"), near("3"), near("0,3"), near("1"), near("")], ["1", "2", "1-2", "", ""]);

    // CPUs beside the memory of another socket, which stays local to that socket.
    let mut machine = machine(&ALIKE, "0-2");
    machine.nodes[0].mem_total_bytes = Some(0);
    assert_eq!(machine.near_memory_nodes(&set("0")), set("1-2"));
    assert_eq!(machine.near_memory_nodes(&set("1")), set("1"));
    assert_eq!(machine.near_cpu_nodes(NodeId(1)), set("1"));
}

#[test]
fn fast_memory_comes_first() {
    let machine = Machine::new().sockets(2).cores(1);
    let machine = machine.memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(0));
    let machine = machine.memory_only(NodeId(3), 8, MemoryKind::Hbm, NodeId(0));
    let mut machine = machine.memory_only(NodeId(4), 64, MemoryKind::Gpu, NodeId(0)).build();
    assert_eq!(machine.near_memory_nodes(&set("0")), set("0,2-3"));
    assert_eq!(machine.near_memory_nodes(&set("1")), set("1"));
    let order =
        |machine: &Topology| machine.fastest_first(&set("0-4")).iter().map(|n| n.0).collect::<Vec<_>>();
    assert_eq!(order(&machine), [3, 0, 1, 2]);
    machine.memory_tiers.clear();
    assert_eq!(order(&machine), [3, 0, 1, 2]);
}

fn kinds() -> impl Strategy<Value = MemoryKind> {
    prop_oneof![
        Just(MemoryKind::Dram),
        Just(MemoryKind::Pmem),
        Just(MemoryKind::Cxl),
        Just(MemoryKind::Hbm),
        Just(MemoryKind::Gpu),
        Just(MemoryKind::None),
        Just(MemoryKind::Unknown),
    ]
}

proptest! {
    /// Renaming the nodes renames the answer: ids never decide.
    #[test]
    fn near_cpu_nodes_do_not_depend_on_ids(
        distances in proptest::collection::vec(prop_oneof![Just(17u32), Just(21), Just(28)], 25),
        cpus in 1u32..32,
        kinds in proptest::collection::vec(kinds(), 5),
        memory in proptest::collection::vec(prop_oneof![Just(None), Just(Some(0)), Just(Some(1u64 << 30))], 5),
        order in Just((0usize..5).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let build = |order: &[usize]| {
            let mut machine = Machine::new().sockets(5).cores(1).threads(1).build();
            for (at, of) in order.iter().copied().enumerate() {
                if cpus & (1 << of) == 0 {
                    machine.nodes[at].cpus = "".parse().unwrap();
                }
                machine.nodes[at].kind = kinds[of];
                machine.nodes[at].mem_total_bytes = memory[of];
                machine.distances[at] =
                    order.iter().map(|to| Some(if *to == of { 10 } else { distances[of * 5 + to] })).collect();
            }
            machine
        };
        let plain: Vec<usize> = (0..5).collect();
        let (one, other) = (build(&plain), build(&order));
        let cpu_nodes = one.cpu_nodes();
        for (at, of) in order.iter().copied().enumerate() {
            let id = |number: usize| NodeId(u32::try_from(number).unwrap());
            let renamed: NodeSet =
                other.near_cpu_nodes(id(at)).iter().map(|n| id(order[usize::try_from(n.0).unwrap()])).collect();
            let near = one.near_cpu_nodes(id(of));
            prop_assert_eq!(&near, &renamed);
            prop_assert!(near.is_subset(&cpu_nodes));
        }
        let ordinary = one.ordinary_memory_nodes();
        for cpus in cpu_nodes.iter() {
            let near = one.near_memory_nodes(&NodeSet::from_iter([cpus]));
            prop_assert!(near.is_subset(&ordinary));
            prop_assert!(ordinary.is_empty() || !near.is_empty(), "all CPUs have some memory that is nearest");
            prop_assert!(!ordinary.contains(cpus) || near.contains(cpus));
        }
    }
}
