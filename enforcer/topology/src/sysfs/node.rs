//! NUMA nodes from `/sys/devices/system/node` (Documentation/ABI/stable/sysfs-devices-node,
//! Documentation/admin-guide/mm/numaperf.rst).
//!
//! Ids, lists and distances stay as the kernel gives them: sparse ids, asymmetric distances, nodes
//! without CPUs or without memory. Only offline CPUs are taken off the lists. A kernel without NUMA
//! gets one node 0 with everything in it.

use std::{collections::BTreeMap, path::Path};

use crate::{
    Cpu, Hmat, Hugepages, MemoryKind, Node,
    id::{CpuId, NodeId},
    parse::{
        meminfo::{Meminfo, meminfo},
        scalar,
    },
    set::{CpuSet, NodeSet},
};

use super::source::{Source, SourceEffect};

/// `MAX_NUMNODES` of the largest configuration (`NODES_SHIFT` 10).
const NODE_LIMIT: usize = 1024;

const NUMA: SourceEffect =
    SourceEffect { source: "numa", effect: "which node a CPU belongs to may be incomplete" };
const NO_NUMA: SourceEffect =
    SourceEffect { source: "numa", effect: "the host is treated as one NUMA node with all CPUs and memory" };
const DISTANCE: SourceEffect =
    SourceEffect { source: "numa-distance", effect: "distances between some nodes are not known" };
const MEMORY: SourceEffect =
    SourceEffect { source: "node-memory", effect: "memory sizes of some nodes are not known" };
const HUGEPAGES: SourceEffect =
    SourceEffect { source: "hugepages", effect: "huge pages of some nodes are not known" };
const HMAT: SourceEffect =
    SourceEffect { source: "hmat", effect: "performance of some nodes' memory is not known" };

type Distances = Vec<Vec<Option<u32>>>;

/// The nodes and their distances; each CPU gets its node.
pub(super) fn read(source: &mut Source<'_>, online: &CpuSet, cpus: &mut [Cpu]) -> (Vec<Node>, Distances) {
    let dir = source.files.sys().join("devices/system/node");
    let mut ids: Vec<NodeId> = source.numbered(&NUMA, &dir, "node").into_iter().map(NodeId).collect();
    if ids.len() > NODE_LIMIT {
        source.lost(&NUMA, format_args!("{}: {} nodes, {NODE_LIMIT} are read", dir.display(), ids.len()));
        ids.truncate(NODE_LIMIT);
    }
    if ids.is_empty() {
        source.lost(&NO_NUMA, format_args!("{}: no node", dir.display()));
        let node = only_node(source, online);
        for cpu in cpus {
            cpu.node = Some(node.id);
        }
        return (vec![node], vec![vec![Some(10)]]);
    }
    let normal = source.value(&NUMA, &dir.join("has_normal_memory"), scalar::list::<NodeId>);
    let nodes: Vec<Node> = ids.iter().map(|&id| read_node(source, id, online, normal.as_ref())).collect();
    assign(source, &nodes, cpus);
    let distances = read_distances(source, &ids);
    (nodes, distances)
}

/// The node of a kernel without NUMA.
fn only_node(source: &mut Source<'_>, online: &CpuSet) -> Node {
    let memory = source.value(&MEMORY, &source.files.proc().join("meminfo"), meminfo).unwrap_or_default();
    let hugepages = read_hugepages(source, &source.files.sys().join("kernel/mm/hugepages"));
    Node { cpus: online.clone(), hugepages, ..bare_node(NodeId(0), memory) }
}

fn bare_node(id: NodeId, memory: Meminfo) -> Node {
    Node {
        id,
        cpus: CpuSet::new(),
        mem_total_bytes: memory.total_bytes,
        mem_free_bytes: memory.free_bytes,
        hugepages: Vec::new(),
        kind: MemoryKind::Unknown,
        kind_evidence: Vec::new(),
        normal_memory: None,
        hmat: None,
        closest_cpu_node: None,
    }
}

fn read_node(source: &mut Source<'_>, id: NodeId, online: &CpuSet, normal: Option<&NodeSet>) -> Node {
    let dir = source.files.sys().join(format!("devices/system/node/node{id}"));
    let memory = source.value(&MEMORY, &dir.join("meminfo"), meminfo);
    if memory.is_some_and(|memory| memory.total_bytes.is_none()) {
        source.lost(&MEMORY, format_args!("{}: no MemTotal", dir.join("meminfo").display()));
    }
    Node {
        cpus: node_cpus(source, &dir).intersection(online),
        hugepages: read_hugepages(source, &dir.join("hugepages")),
        normal_memory: normal.map(|normal| normal.contains(id)),
        hmat: [1, 0].into_iter().find_map(|class| read_hmat(source, &dir, class)),
        ..bare_node(id, memory.unwrap_or_default())
    }
}

/// The list, else the mask, else the links `cpuM` in the node's directory.
fn node_cpus(source: &mut Source<'_>, dir: &Path) -> CpuSet {
    if let Some(cpus) = source.ids(&NUMA, dir, &["cpulist"], &["cpumap"]) {
        return cpus;
    }
    let links = source.numbered(&NUMA, dir, "cpu").into_iter().map(CpuId).collect();
    source.lost(
        &NUMA,
        format_args!("{}: neither cpulist nor cpumap, its links name CPUs `{links}`", dir.display()),
    );
    links
}

/// Each CPU belongs to the first node that lists it.
fn assign(source: &mut Source<'_>, nodes: &[Node], cpus: &mut [Cpu]) {
    let mut owner: BTreeMap<CpuId, NodeId> = BTreeMap::new();
    for node in nodes {
        let mut shared = CpuSet::new();
        for cpu in node.cpus.iter() {
            if *owner.entry(cpu).or_insert(node.id) != node.id {
                shared.insert(cpu);
            }
        }
        if !shared.is_empty() {
            let id = node.id;
            source.lost(&NUMA, format_args!("node{id}/cpulist: CPUs {shared} are in an earlier node too"));
        }
    }
    for cpu in &mut *cpus {
        cpu.node = owner.get(&cpu.id).copied();
    }
    let homeless: CpuSet = cpus.iter().filter(|cpu| cpu.node.is_none()).map(|cpu| cpu.id).collect();
    if !homeless.is_empty() {
        source.lost(&NUMA, format_args!("CPUs {homeless} are online and in no node's cpulist"));
    }
}

fn read_hugepages(source: &mut Source<'_>, dir: &Path) -> Vec<Hugepages> {
    let mut pages = Vec::new();
    for name in source.names(&HUGEPAGES, dir) {
        let size = name.strip_prefix("hugepages-").and_then(|name| name.strip_suffix("kB"));
        let size = size.and_then(|kib| scalar::unsigned(kib).ok()?.checked_mul(1024));
        let mut count = |file| source.value(&HUGEPAGES, &dir.join(&name).join(file), scalar::unsigned);
        if let (Some(size_bytes), Some(total)) = (size, count("nr_hugepages"))
            && let Some(free) = count("free_hugepages")
        {
            pages.push(Hugepages { size_bytes, total, free });
        }
    }
    pages.sort_unstable_by_key(|pages| pages.size_bytes);
    pages
}

/// Zero is what the kernel prints for a figure that firmware does not give.
fn read_hmat(source: &mut Source<'_>, node: &Path, access_class: u8) -> Option<Hmat> {
    let dir = node.join(format!("access{access_class}/initiators"));
    let names = source.numbered(&HMAT, &dir, "node");
    let mut figure = |name| source.value(&HMAT, &dir.join(name), scalar::unsigned).filter(|&n| n > 0);
    let hmat = Hmat {
        access_class,
        initiators: names.into_iter().map(NodeId).collect(),
        read_latency_ns: figure("read_latency"),
        write_latency_ns: figure("write_latency"),
        read_bandwidth_mbps: figure("read_bandwidth"),
        write_bandwidth_mbps: figure("write_bandwidth"),
    };
    let figures =
        [hmat.read_latency_ns, hmat.write_latency_ns, hmat.read_bandwidth_mbps, hmat.write_bandwidth_mbps];
    (!hmat.initiators.is_empty() || figures.iter().any(Option::is_some)).then_some(hmat)
}

/// One row per node. A row holds one value per online node, so its length must be that of a known
/// set of nodes; otherwise nothing says which value belongs to which node, and the row is unknown.
fn read_distances(source: &mut Source<'_>, ids: &[NodeId]) -> Distances {
    let dir = source.files.sys().join("devices/system/node");
    let mut columns: Vec<Vec<NodeId>> = vec![ids.to_vec()];
    let mut distances = Vec::new();
    for id in ids {
        let path = dir.join(format!("node{id}/distance"));
        let row = source.value(&DISTANCE, &path, scalar::distances);
        if columns.len() == 1 && row.as_ref().is_some_and(|row| row.len() != ids.len()) {
            // A copy may lack directories of nodes that were there.
            for name in ["online", "possible"] {
                let listed = source.value(&DISTANCE, &dir.join(name), scalar::list::<NodeId>);
                columns.extend(listed.map(|set| set.iter().take(NODE_LIMIT).collect()));
            }
        }
        let column = row.as_ref().and_then(|row| columns.iter().find(|column| column.len() == row.len()));
        if let Some((row, column)) = row.as_ref().zip(column) {
            let known: BTreeMap<NodeId, u32> = column.iter().copied().zip(row.iter().copied()).collect();
            distances.push(ids.iter().map(|to| known.get(to).copied()).collect());
            continue;
        }
        if let Some(row) = row {
            let (path, given, count) = (path.display(), row.len(), ids.len());
            source.lost(&DISTANCE, format_args!("{path}: {given} values for {count} nodes"));
        } else if ids.len() > 1 {
            source.lost(&DISTANCE, format_args!("{}: no distances", path.display()));
        }
        distances.push(vec![None; ids.len()]);
    }
    distances
}
