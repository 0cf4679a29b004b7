//! Machines of the tests.

use super::{CpuSet, GB, Topology};
use numa_topology::{Cpu, Llc, MemoryKind, Node, Package, id::NodeId};

/// A node: its package, its CPUs (none for memory only), its bytes and their kind.
struct NodeOf(i32, &'static str, u64, MemoryKind);

/// `sibling` returns the core of a CPU: the lowest CPU of it.
fn machine(
    nodes: &[NodeOf],
    sibling: impl Fn(u32) -> u32,
    distance: impl Fn(usize, usize) -> u32,
) -> Topology {
    let ids = 0..u32::try_from(nodes.len()).unwrap();
    let set = |of: &NodeOf| of.1.parse::<CpuSet>().unwrap();
    let mut cpus = Vec::new();
    for (id, of) in ids.clone().zip(nodes) {
        let own = set(of);
        cpus.extend(own.iter().map(|cpu| Cpu {
            id: cpu,
            node: Some(NodeId(id)),
            package: Some(of.0),
            die: Some(0),
            cluster: None,
            core: i32::try_from(sibling(cpu.0)).ok(),
            siblings: own.iter().filter(|other| sibling(other.0) == sibling(cpu.0)).collect(),
        }));
    }
    cpus.sort_by_key(|cpu: &Cpu| cpu.id);
    let mut packages: Vec<i32> = nodes.iter().filter(|of| !of.1.is_empty()).map(|of| of.0).collect();
    packages.dedup();
    packages.sort_unstable();
    packages.dedup();
    let packages: Vec<Package> = packages
        .into_iter()
        .map(|package| Package {
            id: package,
            cpus: cpus.iter().filter(|cpu| cpu.package == Some(package)).map(|cpu| cpu.id).collect(),
            nodes: ids
                .clone()
                .zip(nodes)
                .filter(|(_, of)| of.0 == package && !of.1.is_empty())
                .map(|(id, _)| NodeId(id))
                .collect(),
        })
        .collect();
    let node = |(id, of): (u32, &NodeOf)| Node {
        id: NodeId(id),
        cpus: set(of),
        mem_total_bytes: Some(of.2),
        mem_free_bytes: None,
        hugepages: Vec::new(),
        kind: of.3,
        kind_evidence: Vec::new(),
        normal_memory: Some(true),
        hmat: None,
        closest_cpu_node: None,
    };
    let row = |from: usize| (0..nodes.len()).map(|to| Some(distance(from, to))).collect();
    Topology {
        llcs: packages.iter().map(|p| Llc { level: 3, size_bytes: None, cpus: p.cpus.clone() }).collect(),
        cpu_kinds: Vec::new(),
        nodes: ids.zip(nodes).map(node).collect(),
        distances: (0..nodes.len()).map(row).collect(),
        packages,
        cpus,
        ..Topology::default()
    }
}

use MemoryKind::{Cxl, Dram, Hbm, Pmem};

/// Two packages of two nodes of two cores of two threads: node k has CPUs 4k to 4k+3.
pub(super) fn n4c16() -> Topology {
    let nodes =
        [(0, "0-3"), (0, "4-7"), (1, "8-11"), (1, "12-15")].map(|(p, cpus)| NodeOf(p, cpus, 2 * GB, Dram));
    machine(
        &nodes,
        |cpu| cpu & !1,
        |a, b| {
            if a == b {
                10
            } else if a / 2 == b / 2 {
                11
            } else {
                21
            }
        },
    )
}

/// The same with 16 cores of two threads in each node, and a cache for eight CPUs each.
pub(super) fn n4c128() -> Topology {
    let nodes = [(0, "0-31"), (0, "32-63"), (1, "64-95"), (1, "96-127")]
        .map(|(p, cpus)| NodeOf(p, cpus, 2 * GB, Dram));
    let mut machine = machine(
        &nodes,
        |cpu| cpu & !1,
        |a, b| {
            if a == b {
                10
            } else if a / 2 == b / 2 {
                11
            } else {
                21
            }
        },
    );
    let caches = (0u32..128).step_by(8).map(|first| format!("{first}-{}", first + 7));
    machine.llcs =
        caches.map(|cpus| Llc { level: 3, size_bytes: None, cpus: cpus.parse().unwrap() }).collect();
    machine
}

/// Two packages of four CPUs, each with DRAM, HBM and CXL memory.
pub(super) fn n6() -> Topology {
    let nodes = [
        NodeOf(0, "0-3", 2 * GB, Dram),
        NodeOf(1, "4-7", 2 * GB, Dram),
        NodeOf(0, "", GB, Hbm),
        NodeOf(1, "", GB, Hbm),
        NodeOf(0, "", 4 * GB, Cxl),
        NodeOf(1, "", 4 * GB, Cxl),
    ];
    machine(
        &nodes,
        |cpu| cpu,
        |a, b| match (a == b, a % 2 == b % 2, a.max(b)) {
            (true, ..) => 10,
            (_, true, 0..=3) => 15,
            (_, true, _) => 60,
            (_, false, 0..=1) => 20,
            (_, false, 2..=3) => 25,
            (_, false, _) => 70,
        },
    )
}

/// Four packages of one CPU; the PMEM of nodes 4 to 7 is beside nodes 2, 3, 0 and 1.
pub(super) fn c4pmem4() -> Topology {
    let dram = (0..4).map(|p| NodeOf(p, ["0", "1", "2", "3"][p.unsigned_abs() as usize], 2 * GB, Dram));
    let nodes: Vec<NodeOf> = dram.chain([2, 3, 0, 1].map(|p| NodeOf(p, "", 4 * GB, Pmem))).collect();
    let beside = |node: usize| if node < 4 { node } else { (node - 2) % 4 };
    machine(
        &nodes,
        |cpu| cpu,
        |a, b| match (a == b, beside(a) == beside(b), a < 4 && b < 4) {
            (true, ..) => 10,
            (_, true, _) => 17,
            (_, _, true) => 21,
            _ => 28,
        },
    )
}

/// Two sockets of two nodes of 14 cores of two threads, some isolated; nodes 0 and 2 are in socket 0,
/// PMEM 4 is beside node 0 and PMEM 5 beside node 2.
pub(super) fn server() -> Topology {
    let nodes = [
        NodeOf(0, "0-13,56-69", 31 * GB, Dram),
        NodeOf(1, "28-41,84-97", 31 * GB, Dram),
        NodeOf(0, "14-27,70-83", 31 * GB, Dram),
        NodeOf(1, "42-55,98-111", 31 * GB, Dram),
        NodeOf(0, "", 124 * GB, Pmem),
        NodeOf(0, "", 124 * GB, Pmem),
    ];
    let beside = |node: usize| [0, 1, 2, 3, 0, 2][node];
    let distance = move |a: usize, b: usize| match (a == b, beside(a) == beside(b), a < 4 && b < 4) {
        (true, ..) => 10,
        (_, true, _) => 17,
        (_, _, true) if a % 2 == b % 2 => 11,
        (_, _, true) => 21,
        _ => 28,
    };
    let mut machine = machine(&nodes, |cpu| cpu % 56, distance);
    machine.isolated_cpus = "4-7,60-63".parse().unwrap();
    machine
}
