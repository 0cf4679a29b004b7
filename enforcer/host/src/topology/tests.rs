//! Captured machines against what another tool saw in them, and trees of nonsense.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use numa_topology::{
    CoreType, EnergyPreference, MemoryKind, Node, Topology,
    degraded::Degraded,
    id::NodeId,
    set::{CpuSet, NodeSet},
};
use proptest::prelude::*;
use serde::Deserialize;
use tempfile::TempDir;

use super::*;
use crate::recording::FileCapture;

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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/machines")
}

/// A new directory in memory where there is one: ten thousands of small files are slow on a disk.
fn tempdir() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Unpacks the archive of this name. Links are made as they are in the archive, and
/// nothing is written through them or outside of the directory.
fn unpack(archive: &Path) -> (String, TempDir) {
    let dir = tempdir();
    let bytes = bzip2::read::BzDecoder::new(fs::File::open(archive).unwrap());
    for entry in tar::Archive::new(bytes).entries().unwrap() {
        let mut entry = entry.unwrap();
        entry.set_preserve_mtime(false);
        assert!(entry.unpack_in(dir.path()).unwrap(), "{archive:?} leaves its directory");
    }
    let names = HostRoot::live().at(dir.path()).list_dir().unwrap().unwrap();
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
    for name in HostRoot::live().at(fixtures()).list_dir().unwrap().unwrap() {
        if !name.ends_with(".tar.bz2") {
            continue;
        }
        let (folder, dir) = unpack(&fixtures().join(&name));
        let (topology, _) = read_tree(&dir.path().join(&folder));
        if !KERNEL_WINS.iter().any(|(name, ..)| *name == folder) {
            assert_sound(&topology);
        }
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

#[test]
fn a_hybrid_machine_shows_its_frequencies() {
    let (topology, degraded) = machine("20em64t-hybrid-1p6c2t+2ca4co1t");
    let kinds: Vec<_> = topology
        .cpu_kinds
        .iter()
        .map(|kind| {
            (kind.cpus.to_string(), kind.base_frequency_khz.unwrap(), kind.max_frequency_khz.unwrap())
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("0-3,6-7,10-11".to_owned(), 1_900_000, 5_000_000),
            ("4-5,8-9".to_owned(), 1_900_000, 5_200_000),
            ("12-19".to_owned(), 1_400_000, 3_900_000),
        ]
    );
    assert!(topology.cpu_kinds.iter().all(|kind| kind.energy_preference == Some(EnergyPreference(128))));
    assert!(!sources(&degraded).contains(&"cpufreq"), "{degraded:?}");
}

/// Paths below `/sys` and their texts.
type Files<'a> = &'a [(&'a str, &'a str)];

/// Four CPUs without threads, and these files; what their kinds are, and what is degraded.
fn kinds_of(files: Files<'_>) -> (Vec<String>, Vec<Degraded>) {
    let dir = tempdir();
    let directories = (0..4).map(|cpu| format!("devices/system/cpu/cpu{cpu}/online")).collect::<Vec<_>>();
    let online = directories.iter().map(|path| (path.as_str(), "1\n"));
    for (path, text) in online.chain(files.iter().copied()) {
        let path = dir.path().join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let (topology, degraded) = read_tree(dir.path());
    assert_eq!(topology.check(), Ok(()));
    let of_kinds = |entry: &Degraded| ["cpufreq", "core-types"].contains(&entry.source.as_str());
    let shown = topology.cpu_kinds.iter().map(|kind| {
        let core_type = kind.core_type.map_or("?", |core_type| match core_type {
            CoreType::Performance => "P",
            CoreType::Efficiency => "E",
        });
        let numbers = [kind.capacity.map(u64::from), kind.base_frequency_khz, kind.max_frequency_khz];
        let numbers: Vec<String> =
            numbers.iter().map(|number| number.map_or("-".into(), |number| number.to_string())).collect();
        format!("{} {core_type} {}", kind.cpus, numbers.join(" "))
    });
    (shown.collect(), degraded.into_iter().filter(of_kinds).collect())
}

#[test]
fn types_of_cores_come_from_event_sources_types_or_capacity() {
    const CPU: &str = "devices/system/cpu";
    let core = ("devices/cpu_core/cpus", "0-1\n");
    let capacity = |cpu: u32| format!("{CPU}/cpu{cpu}/cpu_capacity");
    let names: Vec<String> = (0..4).map(capacity).collect();
    let capacities: Vec<(&str, &str)> =
        names.iter().map(String::as_str).zip(["1024\n", "446\n", "800\n", "446\n"]).collect();
    let cases: [(Files<'_>, &[&str]); 8] = [
        (&[], &[]),
        (&[core, ("devices/cpu_atom/cpus", "2-3\n")], &["0-1 P - - -", "2-3 E - - -"]),
        (&[core], &["0-1 P - - -", "2-3 E - - -"]),
        (&[("devices/cpu_atom/cpus", "3\n")], &["0-2 P - - -", "3 E - - -"]),
        (
            &[core, ("devices/cpu_atom/cpus", "2\n"), ("devices/cpu_lowpower/cpus", "3\n")],
            &["0-1 P - - -", "2-3 E - - -"],
        ),
        (
            &[
                ("devices/system/cpu/types/intel_core_0/cpulist", "0\n"),
                ("devices/system/cpu/types/intel_atom_0/cpumap", "e\n"),
            ],
            &["0 P - - -", "1-3 E - - -"],
        ),
        (&capacities, &["0 P 1024 - -", "1,3 E 446 - -", "2 P 800 - -"]),
        // Offline CPUs are of no kind.
        (&[("devices/cpu_core/cpus", "0-7\n")], &["0-3 P - - -"]),
    ];
    for (files, kinds) in cases {
        let (seen, degraded) = kinds_of(files);
        assert_eq!(seen, kinds, "{files:?}");
        assert_eq!(degraded, [], "{files:?}");
    }
}

#[test]
fn designs_of_cores_or_the_largest_gap_of_capacities_tell_their_types() {
    let seen = |capacities: [&str; 4], designs: [&str; 4]| {
        let path = |cpu: usize, name: &str| format!("devices/system/cpu/cpu{cpu}/{name}");
        let files: Vec<(String, &str)> = (0..4)
            .flat_map(|cpu| {
                [
                    (path(cpu, "cpu_capacity"), capacities[cpu]),
                    (path(cpu, "regs/identification/midr_el1"), designs[cpu]),
                ]
            })
            .filter(|(_, text)| !text.is_empty())
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (kinds, degraded) = kinds_of(&files);
        assert_eq!(degraded, []);
        kinds.join(", ").replace(" - -", "")
    };
    let (little, middle, big) = ("0x00000000410fd871\n", "0x00000000410fd0b0\n", "0x00000000410fd850\n");
    let grown = ["718\n", "731\n", "997\n", "1024\n"];
    let none = [""; 4];
    assert_eq!(seen(grown, [little, little, big, big]), "0 E 718, 1 E 731, 2 P 997, 3 P 1024");
    assert_eq!(seen(grown, none), "0 E 718, 1 E 731, 2 P 997, 3 P 1024");
    assert_eq!(seen(grown, [little, middle, middle, big]), "0 E 718, 1 P 731, 2 P 997, 3 P 1024");
    assert_eq!(seen(grown, [big; 4]), "0 ? 718, 1 ? 731, 2 ? 997, 3 ? 1024", "binned cores of one design");
    assert_eq!(seen(grown, [little, little, big, ""]), "0 E 718, 1 E 731, 2 P 997, 3 P 1024");
    assert_eq!(seen(["1024\n"; 4], none), "0-3 ? 1024");
}

#[test]
fn siblings_may_have_core_numbers_of_their_own() {
    let dir = tempdir();
    let put = |path: &str, text: &str| {
        let path = dir.path().join("sys/devices/system/cpu").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (cpu, siblings, core) in [(0, "0-1", "0"), (1, "0-1", "1"), (2, "2-3", "2"), (3, "2-3", "2")] {
        put(&format!("cpu{cpu}/topology/thread_siblings_list"), siblings);
        put(&format!("cpu{cpu}/topology/core_id"), core);
    }
    let (topology, _) = read_tree(dir.path());
    let cores: Vec<_> = topology.cpus.iter().map(|cpu| cpu.core).collect();
    assert_eq!(cores, [Some(0), Some(1), Some(2), Some(2)]);
}

#[test]
fn a_cache_map_of_zeros_falls_back_to_the_core() {
    for (list, map) in [(None, "00000000\n"), (Some("\n"), "0\n"), (None, "0,0\n")] {
        let dir = tempdir();
        let put = |path: &str, text: &str| {
            let path = dir.path().join("sys/devices/system/cpu").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for cpu in 0..4 {
            put(&format!("cpu{cpu}/topology/thread_siblings_list"), if cpu < 2 { "0-1" } else { "2-3" });
            put(&format!("cpu{cpu}/cache/index2/level"), "2\n");
            put(&format!("cpu{cpu}/cache/index2/shared_cpu_map"), map);
            if let Some(list) = list {
                put(&format!("cpu{cpu}/cache/index2/shared_cpu_list"), list);
            }
        }
        let (topology, _) = read_tree(dir.path());
        let caches: Vec<String> = topology.llcs.iter().map(|llc| llc.cpus.to_string()).collect();
        assert_eq!(caches, ["0-1", "2-3"], "{list:?} {map:?}");
    }
}

/// Two sockets, and node 5 which is memory of the GPU 0000:19:00.0, as far from both.
fn with_gpu(files: &[(&str, &str)]) -> Topology {
    let gpu = "../../bus/pci/devices/0000:19:00.0";
    let class = format!("{gpu}/class");
    let status = "../../../proc/driver/nvidia/gpus/0000:19:00.0/numa_status";
    let of_gpu: Vec<(String, &str)> =
        files.iter().map(|(name, text)| (format!("{gpu}/{name}"), *text)).collect();
    let mut all = vec![(class.as_str(), "0x030200\n"), (status, "Node: 5\nStatus: online\n")];
    all.extend(of_gpu.iter().map(|(path, text)| (path.as_str(), *text)));
    read_tree(tree(&all).path()).0
}

#[test]
fn memory_of_a_gpu_is_at_the_node_of_its_device() {
    for (files, device, memory) in [
        ([("numa_node", "1\n"), ("local_cpulist", "1\n")], Some(1), Some(1)),
        // The node of the device is its own memory.
        ([("numa_node", "5\n"), ("local_cpulist", "1\n")], Some(5), Some(1)),
        ([("irq", "7\n"), ("local_cpulist", "1\n")], Some(1), Some(1)),
        ([("irq", "7\n"), ("local_cpus", "00000000,00000001\n")], Some(0), Some(0)),
        ([("irq", "7\n"), ("local_cpulist", "0-1\n")], None, None),
        ([("numa_node", "-1\n"), ("local_cpulist", "0-1\n")], None, None),
    ] {
        let topology = with_gpu(&files);
        let node = topology.node(NodeId(5)).unwrap();
        assert_eq!(node.kind, MemoryKind::Gpu);
        assert_eq!(topology.devices[0].node, device.map(NodeId), "{files:?}");
        assert_eq!(node.closest_cpu_node, memory.map(NodeId), "{files:?}");
        assert_eq!(topology.ordinary_memory_nodes().to_string(), "0-1");
    }
}

#[test]
fn a_policy_answers_for_all_its_cpus_and_nonsense_is_degraded() {
    const CPUFREQ: &str = "devices/system/cpu/cpu0/cpufreq";
    let file = |name: &str| format!("{CPUFREQ}/{name}");
    let (base, max, related, preference) = (
        file("base_frequency"),
        file("cpuinfo_max_freq"),
        file("related_cpus"),
        file("energy_performance_preference"),
    );
    let files = [(base.as_str(), "0\n"), (max.as_str(), "800000\n"), (related.as_str(), "0 1 7 \n")];
    assert_eq!(kinds_of(&files), (vec!["0-1 ? - - 800000".to_owned()], Vec::new()));
    for (files, said) in [
        (
            [(max.as_str(), "fast\n")].as_slice(),
            "cpuinfo_max_freq: an unsigned number expected, found `fast`",
        ),
        (&[(base.as_str(), "-1\n")], "base_frequency: an unsigned number expected, found `-1`"),
        (&[(related.as_str(), "0 x\n")], "related_cpus: a list of ids expected, found `x`"),
        (&[(preference.as_str(), "fastest\n")], "found `fastest`"),
        (&[("devices/cpu_core/cpus", "3-1\n")], "cpus: a list of ids expected, found `3-1`"),
        (
            &[("devices/cpu_core/cpus", "0-3\n"), ("devices/cpu_atom/cpus", "0-3\n")],
            "CPUs 0-3 are listed with two types of cores",
        ),
    ] {
        let (kinds, degraded) = kinds_of(files);
        assert_eq!(kinds, Vec::<String>::new(), "{files:?}");
        assert!(matches!(degraded.as_slice(), [one] if one.reason.contains(said)), "{said}: {degraded:?}");
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
    for id in [4, 6] {
        assert_eq!(topology.node(NodeId(id)).unwrap().closest_cpu_node, Some(NodeId(1)), "{id}");
    }
}

#[test]
fn a_capture_reads_like_the_machine() {
    for archive in
        ["fakeheteromemtiers", "40intel64-2g2n4c+pcilocality", "16em64t-4s2c2t-offlines", "2arm-2c"]
    {
        let (folder, dir) = unpack(&fixtures().join(format!("{archive}.tar.bz2")));
        let root = HostRoot::captured(&dir.path().join(folder));
        let (machine, recording) = FileCapture::of(&root, |root| read_topology(root).unwrap().0);
        let copy = dir.path().join("copy");
        recording.write(&root, &copy).unwrap();
        assert_eq!(read_tree(&copy).0, machine, "{archive}");
    }
}

#[test]
fn a_capture_of_this_host_reads_like_this_host() {
    let dir = tempdir();
    let live = HostRoot::live();
    let (machine, recording) = FileCapture::of(&live, |live| read_topology(live).unwrap().0);
    recording.write(&live, dir.path()).unwrap();
    assert_eq!(read_tree(dir.path()).0, machine);
}

#[test]
fn a_large_machine_takes_few_reads() {
    let (folder, dir) = unpack(&fixtures().join("256ppc-8n8s4t.tar.bz2"));
    let root = HostRoot::captured(&dir.path().join(folder));
    let (_, recording) = FileCapture::of(&root, |root| read_topology(root).unwrap());
    let written = recording.write(&root, &dir.path().join("copy")).unwrap();
    assert!(written.files < 1500, "{written:?}");
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

/// Files that readers look at, with ids that meet now and then.
fn any_path() -> impl Strategy<Value = String> {
    let cpu = "sys/devices/system/cpu/(online|present|isolated|nohz_full|cpu[0-3]/online)";
    let core = "sys/devices/system/cpu/cpu[0-3]/topology/(physical_package_id|die_id|cluster_id|core_id|\
                thread_siblings(_list)?|core_siblings(_list)?|cluster_cpus(_list)?)";
    let cache = "sys/devices/system/cpu/cpu[0-3]/cache/index[0-3]/(level|type|size|shared_cpu_(map|list))";
    let node = "sys/devices/system/node/(online|possible|has_normal_memory|node(0|2|70)/(cpulist|cpumap|\
                meminfo|distance|access[01]/initiators/(node[02]/x|read_latency|read_bandwidth)|\
                hugepages/hugepages-(2048|x)kB/(nr|free)_hugepages))";
    let rest = "sys/devices/virtual/memory_tiering/memory_tier[0-9]/nodelist|proc/(stat|cpuinfo|cmdline|meminfo)|\
                sys/bus/pci/devices/0000:00:0[0-3]\\.0/(class|numa_node|net/eth0/x)|\
                sys/devices/pci0000:00/0000:00:0[0-3]\\.0/(class|numa_node)|\
                proc/driver/nvidia/gpus/[a-b]/numa_status";
    proptest::string::string_regex(&format!("({cpu}|{core}|{cache}|{node}|{rest})")).unwrap()
}

/// Values of the right form more often than not, so that the nonsense gets past the first check.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[0-3](-[0-9]{1,2})?(,[0-9]{1,3}){0,2}\n".prop_map(String::into_bytes),
        "(-1|0|1|2|10 20|10 20 20|0x010802|Unified|32K|f|0000000f,00000001)\n".prop_map(String::into_bytes),
        "(Node 0 )?MemTotal: [0-9]{1,20} kB\n".prop_map(String::into_bytes),
        "(isolcpus=|cpu|processor : |Node: )[0-9\\-]{1,4}\n".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_tree_of_nonsense_is_a_sound_topology_or_an_error(
        files in proptest::collection::vec((any_path(), any_value()), 0..40),
    ) {
        let dir = tempdir();
        for (path, value) in files {
            let path = dir.path().join(path);
            // A name may be a file in one entry and a directory in another.
            if fs::create_dir_all(path.parent().unwrap()).is_ok() {
                let _ = fs::write(path, value);
            }
        }
        if let Ok((topology, _)) = read_topology(&HostRoot::captured(dir.path())) {
            assert_sound(&topology);
        }
    }
}

fn assert_sound(topology: &Topology) {
    let online = topology.online_cpus();
    assert!(!online.is_empty() && !topology.nodes.is_empty());
    assert!(online.is_disjoint(&topology.offline_cpus));
    assert!(topology.nodes.is_sorted_by(|a, b| a.id < b.id));
    assert!(topology.nodes.iter().all(|node| node.cpus.is_subset(&online)));
    assert_eq!(topology.distances.len(), topology.nodes.len());
    assert!(topology.distances.iter().all(|row| row.len() == topology.nodes.len()));
    for cpu in &topology.cpus {
        assert!(cpu.siblings.contains(cpu.id) && cpu.siblings.is_subset(&online));
        assert!(cpu.node.is_none_or(|id| topology.node(id).unwrap().cpus.contains(cpu.id)));
    }
    let partitions: [Vec<&CpuSet>; 2] = [
        topology.packages.iter().map(|p| &p.cpus).collect(),
        topology.llcs.iter().map(|l| &l.cpus).collect(),
    ];
    for groups in partitions {
        let union = groups.iter().fold(CpuSet::new(), |all, group| all.union(group));
        assert_eq!(union.len(), groups.iter().map(|group| group.len()).sum::<usize>());
        assert!(union.is_subset(&online));
    }
    let json = serde_json::to_string(topology).unwrap();
    assert_eq!(&serde_json::from_str::<Topology>(&json).unwrap(), topology);
}

#[test]
fn nonsense_is_named_with_file_and_value() {
    let dir = tempdir();
    let node = dir.path().join("sys/devices/system/node/node0");
    fs::create_dir_all(&node).unwrap();
    fs::create_dir_all(dir.path().join("sys/devices/system/cpu/cpu0")).unwrap();
    fs::write(node.join("cpulist"), "3-1\n").unwrap();
    let (topology, degraded) = read_tree(dir.path());
    assert_eq!(topology.cpus[0].node, None);
    let reason = format!("{}: a list of ids expected, found `3-1`", node.join("cpulist").display());
    assert!(degraded.iter().any(|entry| entry.reason == reason), "{degraded:#?}");
}

/// A tree of three nodes, one CPU in the first two each, from paths and texts.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let dir = tempdir();
    let defaults = [
        ("cpu/cpu0/topology/core_id", "0\n"),
        ("cpu/cpu1/topology/core_id", "1\n"),
        ("node/node0/cpulist", "0\n"),
        ("node/node1/cpulist", "1\n"),
        ("node/node5/cpulist", "\n"),
        ("node/node0/distance", "10 21 17\n"),
        ("node/node1/distance", "31 10 17\n"),
        ("node/node5/distance", "17 17 10\n"),
    ];
    for (path, text) in defaults.iter().chain(files) {
        let path = dir.path().join("sys/devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

#[test]
fn asymmetric_distances_are_kept_and_odd_rows_are_unknown() {
    let (topology, _) = read_tree(tree(&[]).path());
    let distance = |from, to| topology.distance(NodeId(from), NodeId(to));
    assert_eq!([distance(0, 1), distance(1, 0), distance(1, 5)], [Some(21), Some(31), Some(17)]);

    for odd in ["10 21\n", "10 21 17 17\n", "10 x 17\n", ""] {
        let (topology, degraded) = read_tree(tree(&[("node/node0/distance", odd)]).path());
        assert_eq!(topology.distance(NodeId(0), NodeId(1)), None, "{odd:?}");
        assert_eq!(topology.distance(NodeId(1), NodeId(0)), Some(31), "{odd:?}");
        let entry = degraded.iter().find(|entry| entry.source == "numa-distance").unwrap();
        assert!(entry.reason.contains("node0/distance"), "{}", entry.reason);
    }
}

#[test]
fn a_memory_only_node_is_beside_its_initiator_or_the_nearest_cpus() {
    let closest =
        |files: &[(&str, &str)]| read_tree(tree(files).path()).0.node(NodeId(5)).unwrap().closest_cpu_node;
    assert_eq!(closest(&[]), None, "it is as near to both");
    assert_eq!(closest(&[("node/node1/distance", "31 10 14\n")]), Some(NodeId(1)));
    assert_eq!(closest(&[("node/node5/access0/initiators/node1/cpulist", "1\n")]), Some(NodeId(1)));
    let nothing =
        ["node/node0/distance", "node/node1/distance", "node/node5/distance"].map(|path| (path, "\n"));
    assert_eq!(closest(&nothing), None);
}

#[test]
fn access_by_cpus_goes_before_access_by_any_initiator() {
    let hmat = |files: &[(&str, &str)]| read_tree(tree(files).path()).0.node(NodeId(5)).unwrap().hmat.clone();
    let any = ("node/node5/access0/initiators/read_latency", "90\n");
    let cpus = ("node/node5/access1/initiators/read_latency", "350\n");
    let figures = |hmat: Option<numa_topology::Hmat>| hmat.map(|h| (h.access_class, h.read_latency_ns));
    assert_eq!(figures(hmat(&[any, cpus])), Some((1, Some(350))));
    assert_eq!(figures(hmat(&[any])), Some((0, Some(90))));
    assert_eq!(figures(hmat(&[])), None);
}

#[test]
fn complaints_of_one_kind_are_counted_after_the_first_few() {
    let dir = tempdir();
    for cpu in 0..100 {
        let path = dir.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("core_id"), "many\n").unwrap();
    }
    let (_, degraded) = read_tree(dir.path());
    assert!(degraded.len() < 8, "{degraded:?}");
    assert!(degraded.iter().any(|entry| entry.reason.ends_with("; 99 more like this")), "{degraded:?}");
}
