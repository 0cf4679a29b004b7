//! Captured machines against what another tool saw in them, and trees of nonsense.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use enforcer_core::{
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
    topology::{MemoryKind, Node, Topology},
};
use serde::Deserialize;
use tempfile::TempDir;

use super::*;

#[derive(Deserialize)]
struct Facts {
    packages: usize,
    pus: CpuSet,
    numa: BTreeMap<NodeId, NodeFacts>,
}

#[derive(Debug, Deserialize)]
struct NodeFacts {
    cpus: CpuSet,
    local_memory: u64,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/machines")
}

/// A new directory in memory where there is one: ten thousands of small files are slow on a disk.
fn tempdir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Unpacks the archive whose folder has this name. Links are made as they are in the archive, and
/// nothing is written through them or outside of the directory.
fn unpack(archive: &Path) -> (String, TempDir) {
    let dir = tempdir();
    let bytes = bzip2::read::BzDecoder::new(fs::File::open(archive).unwrap());
    for entry in tar::Archive::new(bytes).entries().unwrap() {
        let mut entry = entry.unwrap();
        entry.set_preserve_mtime(false);
        assert!(entry.unpack_in(dir.path()).unwrap(), "{archive:?} leaves its directory");
    }
    let names = crate::host::list_dir(dir.path()).unwrap().unwrap();
    assert_eq!(names.len(), 1, "{archive:?}");
    (names[0].clone(), dir)
}

fn read_tree(dir: &Path) -> (Topology, Vec<Degraded>) {
    read_topology(&HostRoot::captured(dir)).unwrap()
}

fn machine(archive: &str) -> (Topology, Vec<Degraded>) {
    let (folder, dir) = unpack(&fixtures().join(format!("{archive}.tar.bz2")));
    read_tree(&dir.path().join(folder))
}

/// Where the kernel's files and `lstopo` disagree: folder, nodes that only the kernel has, and why.
const KERNEL_WINS: [(&str, &str, &str); 1] = [(
    "8em64t-2s2ca2c-buggynuma",
    "1-7",
    "each of its 8 nodes lists all CPUs; lstopo takes the table for broken and keeps the first node, \
     we report what the kernel has (its memory is there) and a degraded entry per overlap",
)];

#[test]
fn all_captured_machines_agree_with_their_facts() {
    let facts = fs::read_to_string(fixtures().join("facts.json")).unwrap();
    let mut facts: BTreeMap<String, Facts> = serde_json::from_str(&facts).unwrap();
    for name in crate::host::list_dir(&fixtures()).unwrap().unwrap() {
        if !name.ends_with(".tar.bz2") {
            continue;
        }
        let (folder, dir) = unpack(&fixtures().join(&name));
        let (topology, _) = read_tree(&dir.path().join(&folder));
        let facts = facts.remove(&folder).unwrap_or_else(|| panic!("no facts for {folder}"));
        assert_eq!(topology.packages.len(), facts.packages, "{folder}");
        assert_eq!(topology.online_cpus(), facts.pus, "{folder}");
        let ours = KERNEL_WINS.iter().find(|(name, ..)| *name == folder).map_or("", |(_, nodes, _)| nodes);
        let ours: NodeSet = ours.parse().unwrap();
        let seen: BTreeMap<NodeId, (CpuSet, Option<u64>)> = topology
            .nodes
            .iter()
            .filter(|node| !ours.contains(node.id))
            .map(|node| (node.id, (cpus_or_closest(&topology, node), node.mem_total_bytes)))
            .collect();
        let expected: BTreeMap<_, _> =
            facts.numa.into_iter().map(|(id, node)| (id, (node.cpus, Some(node.local_memory)))).collect();
        assert_eq!(seen, expected, "{folder}");
    }
    assert!(facts.is_empty(), "no archive for {:?}", facts.keys());
}

/// What `lstopo` shows as the CPUs of a node.
fn cpus_or_closest(topology: &Topology, node: &Node) -> CpuSet {
    match node.closest_cpu_node.and_then(|id| topology.node(id)) {
        Some(closest) => closest.cpus.clone(),
        None => node.cpus.clone(),
    }
}

fn sources(degraded: &[Degraded]) -> Vec<&str> {
    degraded.iter().map(|entry| entry.source.as_str()).collect()
}

#[test]
fn distances_survive_the_loss_of_a_node_directory() {
    let (topology, degraded) = machine("offline-cpu0-node0");
    assert_eq!(topology.distances, [[Some(10)]]);
    assert_eq!(topology.offline_cpus.to_string(), "0-3,21-23");
    assert_eq!(sources(&degraded), ["numa"]);
    assert!(degraded[0].reason.contains("CPUs 4,6,8,10,12,14,16,18,20 "), "{}", degraded[0].reason);
}

#[test]
fn sparse_ids_and_their_distances_stay_as_they_are() {
    let (topology, degraded) = machine("48amd64-4pa2n6c-sparse");
    assert_eq!(topology.cpu_nodes().to_string(), "0-2,33-34,45,72-73");
    assert_eq!(topology.distance(NodeId(0), NodeId(33)), Some(22));
    assert_eq!(topology.distance(NodeId(73), NodeId(72)), Some(16));
    assert_eq!(degraded, []);
}

#[test]
fn a_kernel_without_numa_is_one_node() {
    let (topology, degraded) = machine("2arm-2c");
    assert_eq!(topology.nodes.len(), 1);
    assert_eq!(topology.nodes[0].cpus.to_string(), "0-1");
    assert_eq!(sources(&degraded), ["numa", "cache"]);
}

#[test]
fn memory_kinds_have_evidence() {
    let (topology, _) = machine("fakeheteromemtiers");
    let kind = |id| topology.node(NodeId(id)).map(|node| node.kind);
    assert_eq!(kind(0), Some(MemoryKind::Dram));
    assert_eq!(kind(4), Some(MemoryKind::Hbm));
    for id in [6, 8, 9] {
        assert_eq!(kind(id), Some(MemoryKind::Pmem), "{id}");
        let node = topology.node(NodeId(id)).unwrap();
        assert!(node.kind_evidence[0].contains("ndbus0"), "{:?}", node.kind_evidence);
    }
    assert_eq!(topology.local_nodes(&"1".parse().unwrap()).to_string(), "1,4,6");
}

#[test]
fn an_impossible_root_is_an_error_with_the_places() {
    let error = read_topology(&HostRoot::captured(Path::new("/no/such"))).unwrap_err().to_string();
    assert_eq!(
        error,
        "no CPU found: looked in /no/such/sys/devices/system/cpu, /no/such/proc/stat and /no/such/proc/cpuinfo"
    );
}

#[test]
fn the_json_of_captured_machines() {
    for archive in ["32em64t-2n8c+dax+nvme+mic+dimms", "fakeheteromemtiers", "offline-cpu0-node0"] {
        insta::assert_json_snapshot!(archive.replace('+', "-"), machine(archive).0);
    }
}
