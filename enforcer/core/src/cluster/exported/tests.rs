use std::collections::BTreeMap;

use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
    synth::Machine,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use super::*;
use crate::{
    cluster::observed::{
        ApiPod, CpuAssignments, ListedContainerResources, ListedPodResources, MemoryAmounts,
        MemoryAssignments, SourceRead, tests::Kubelet,
    },
    owner::MemoryBlock,
};

const GIB: u64 = 1 << 30;
const RESERVED: ReservedAmounts = ReservedAmounts { milli_cpus: Some(500), memory_bytes: Some(2348 << 20) };

fn export(kubelet: &Kubelet, kind: ExportedKind) -> Result<Value, ExportFault> {
    let state = kubelet.state();
    let inputs = ExportInputs {
        state: &state,
        machine: &kubelet.machine,
        observation: &kubelet.seen,
        api: &kubelet.api,
        reserved: Some(&RESERVED),
    };
    kind.content(inputs).map(Value::Object)
}

fn zones(kubelet: &Kubelet) -> Value {
    export(kubelet, ExportedKind::Nrt).unwrap()["zones"].take()
}

/// Capacity, allocatable and available of a resource in a zone.
fn amounts(zones: &Value, zone: usize, resource: &str) -> Option<[u64; 3]> {
    let of = zones[zone]["resources"].as_array()?.iter().find(|one| one["name"] == resource)?;
    Some(["capacity", "allocatable", "available"].map(|name| of[name].as_str().unwrap().parse().unwrap()))
}

fn attribute(kubelet: &Kubelet, name: &str) -> Option<String> {
    let object = export(kubelet, ExportedKind::Nrt).unwrap();
    let found = object["attributes"].as_array()?.iter().find(|one| one["name"] == name)?;
    Some(found["value"].as_str()?.to_owned())
}

/// The example of NRT's specification: 2 NUMA nodes with 16 CPUs each, 2 reserved on node 0, and a pod with 4
/// CPUs and 8 GiB on node 1.
#[test]
fn minimal_object_has_the_amounts_of_the_specification() {
    let mut it = Kubelet::new();
    it.machine = Machine::new().sockets(2).cores(8).build();
    let nodes: Vec<_> = it.machine.nodes.iter().map(|node| node.cpus.clone()).collect();
    let first =
        |set: &CpuSet, from: usize, count: usize| set.iter().skip(from).take(count).collect::<CpuSet>();
    let (reserved, held) = (first(&nodes[0], 0, 2), first(&nodes[1], 0, 4));
    let all = nodes[0].union(&nodes[1]);
    it.offered().cpus = all.difference(&reserved);
    it.offered().devices.clear();
    it.seen.devices = SourceRead::Absent;
    it.api.device_capacity = None;
    it.cpus().default_cpus = all.difference(&held);
    it.cpus().containers =
        BTreeMap::from([("a".to_owned(), BTreeMap::from([("main".to_owned(), held.clone())]))]);
    let total = 67_108_864_000;
    for (node, reserved, taken) in [(0, 67_108_864_000 - 64_424_509_440, 0), (1, 0, 8 * GIB)] {
        let account = it.account(node);
        account.assignments = u64::from(taken > 0);
        let allocatable = total - reserved;
        let amounts = MemoryAmounts {
            total,
            system_reserved: reserved,
            allocatable,
            reserved: taken,
            free: allocatable - taken,
        };
        account.amounts.insert("memory".into(), amounts);
    }
    let block = MemoryBlock {
        kind: "memory".into(),
        nodes: [NodeId(1)].into_iter().collect::<NodeSet>(),
        bytes: 8 * GIB,
    };
    it.memory().containers =
        BTreeMap::from([("a".to_owned(), BTreeMap::from([("main".to_owned(), vec![block.clone()])]))]);
    let offered = |node, bytes| MemoryBlock {
        kind: "memory".into(),
        nodes: [NodeId(node)].into_iter().collect(),
        bytes,
    };
    it.offered().memory = vec![offered(0, 64_424_509_440), offered(1, total)];
    let container = ListedContainerResources {
        name: "main".into(),
        cpus: held,
        memory: vec![block],
        ..Default::default()
    };
    it.seen.listed = SourceRead::Read(vec![ListedPodResources {
        namespace: "default".into(),
        name: "nginx".into(),
        containers: vec![container],
    }]);
    it.profile.topology_scope = "pod".into();
    let amount = |name: &str, [capacity, allocatable, available]: [&str; 3]| json!({"name": name, "capacity": capacity, "allocatable": allocatable, "available": available});
    let cost = |to: u32, value: u32| json!({"name": format!("node-{to}"), "value": value});
    let distance = it.machine.distances[0][1].unwrap();
    assert_eq!(
        export(&it, ExportedKind::Nrt).unwrap(),
        json!({
            "attributes": [
                {"name": "topologyManagerPolicy", "value": "single-numa-node"},
                {"name": "topologyManagerScope", "value": "pod"},
                {"name": "nodeTopologyPodsFingerprint", "value": "pfp0v0016a5a78cfbc52d821"},
                {"name": "nodeTopologyPodsFingerprintMethod", "value": "with-exclusive-resources"},
            ],
            "zones": [
                {
                    "name": "node-0", "type": "Node", "costs": [cost(0, 10), cost(1, distance)],
                    "resources": [
                        amount("cpu", ["16", "14", "14"]),
                        amount("memory", ["67108864000", "64424509440", "64424509440"]),
                    ],
                },
                {
                    "name": "node-1", "type": "Node", "costs": [cost(0, distance), cost(1, 10)],
                    "resources": [
                        amount("cpu", ["16", "16", "12"]),
                        amount("memory", ["67108864000", "67108864000", "58518929408"]),
                    ],
                },
            ],
        })
    );
}

#[test]
fn numatopology_has_free_cpus_and_what_pods_hold() {
    let object = export(&Kubelet::new(), ExportedKind::Numatopology).unwrap();
    let spec = &object["spec"];
    assert_eq!(
        spec["policies"],
        json!({"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"})
    );
    assert_eq!(spec["resReserved"], json!({"cpu": "500m", "memory": "2348Mi"}));
    assert_eq!(
        spec["numares"],
        json!({"cpu": {"allocatable": "2-7,10-15", "capacity": 16}}),
        "without 1 and 9, which a pod holds, and without 0 and 8, which are reserved"
    );
    let pods = json!([{
        "uid": "a", "name": "web", "namespace": "shop",
        "containerAllocations": [{"name": "main", "allocations": {"cpu": "1,9"}}],
    }]);
    assert_eq!(spec["podAllocations"], pods);
    let detail = spec["cpuDetail"].as_object().unwrap();
    assert_eq!(detail.len(), 16);
    assert_eq!(detail["0"], json!({}), "a zero is left out");
    let cpu = &Kubelet::new().machine.cpus[12];
    let of = |name: &str| detail["12"].get(name).and_then(Value::as_i64).unwrap_or(0);
    assert_eq!((of("numa"), of("socket")), (1, 1));
    assert_eq!(of("core"), i64::from(cpu.core.unwrap()));
}

#[test]
fn what_is_not_known_is_absent() {
    type Change = fn(&mut Kubelet);
    let cases: [(&str, Change, &[&str]); 5] = [
        ("all is known", |_| {}, &["cpu", "memory", "v.com/gpu"]),
        (
            "no CPU is exclusive",
            |it| {
                it.profile.cpu_policy = "none".into();
                *it.cpus() = CpuAssignments { policy: "none".into(), ..Default::default() };
                it.offered().cpus = CpuSet::new();
                let SourceRead::Read(listed) = &mut it.seen.listed else { panic!() };
                listed[0].containers[0].cpus = CpuSet::new();
            },
            &["memory", "v.com/gpu"],
        ),
        ("no CPU file", |it| it.seen.cpus = SourceRead::Absent, &["memory", "v.com/gpu"]),
        ("no memory file", |it| it.seen.memory = SourceRead::Absent, &["cpu", "v.com/gpu"]),
        (
            "no socket",
            |it| {
                it.seen.offered = SourceRead::Absent;
                it.seen.listed = SourceRead::Absent;
            },
            &["memory", "v.com/gpu"],
        ),
    ];
    for (what, change, expected) in cases {
        let mut it = Kubelet::new();
        change(&mut it);
        let zones = zones(&it);
        let names: Vec<_> =
            zones[0]["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, expected, "{what}: {zones}");
        let has_cpus = expected.contains(&"cpu") || what == "no CPU is exclusive";
        let other = export(&it, ExportedKind::Numatopology).unwrap();
        assert_eq!(other["spec"].get("numares").is_some(), has_cpus, "{what}: {other}");
    }
    let mut it = Kubelet::new();
    it.machine.cpus[3].core = None;
    it.profile.topology_policy = String::new();
    let spec = export(&it, ExportedKind::Numatopology).unwrap()["spec"].take();
    assert_eq!(spec.get("cpuDetail"), None, "an absent id would read as core 0");
    assert_eq!(spec["policies"], json!({"CPUManagerPolicy": "static"}));
}

#[test]
fn node_without_huge_pages_has_zeros() {
    let mut it = Kubelet::new();
    let pages = MemoryAmounts { total: GIB, allocatable: GIB, free: GIB, ..MemoryAmounts::default() };
    it.account(1).amounts.insert("hugepages-1Gi".into(), pages);
    it.account(0).amounts.insert("hugepages-1Gi".into(), MemoryAmounts::default());
    let huge =
        MemoryBlock { kind: "hugepages-1Gi".into(), nodes: [NodeId(1)].into_iter().collect(), bytes: GIB };
    it.offered().memory.push(huge);
    let zones = zones(&it);
    assert_eq!(amounts(&zones, 0, "hugepages-1Gi"), Some([0, 0, 0]));
    assert_eq!(amounts(&zones, 1, "hugepages-1Gi"), Some([GIB, GIB, GIB]));
    assert_eq!(amounts(&zones, 0, "v.com/gpu"), Some([2, 2, 1]));
    assert_eq!(amounts(&zones, 1, "v.com/gpu"), Some([1, 1, 1]));
}

#[test]
fn fingerprint_covers_the_pods_that_its_method_names() {
    let shared = ListedPodResources { namespace: "ns1".into(), name: "n1".into(), containers: Vec::new() };
    let only = |it: &mut Kubelet| {
        let SourceRead::Read(listed) = &mut it.seen.listed else { panic!() };
        listed.push(shared.clone());
    };
    let mut it = Kubelet::new();
    let alone = attribute(&it, "nodeTopologyPodsFingerprint").unwrap();
    only(&mut it);
    assert_eq!(attribute(&it, "nodeTopologyPodsFingerprint"), Some(alone.clone()));
    assert_eq!(
        attribute(&it, "nodeTopologyPodsFingerprintMethod").as_deref(),
        Some("with-exclusive-resources")
    );
    it.profile.memory_policy = "None".into();
    *it.memory() = MemoryAssignments { policy: "None".into(), ..Default::default() };
    it.offered().memory.clear();
    let SourceRead::Read(listed) = &mut it.seen.listed else { panic!() };
    listed[0].containers[0].memory.clear();
    assert_eq!(attribute(&it, "nodeTopologyPodsFingerprintMethod").as_deref(), Some("all"));
    assert_ne!(attribute(&it, "nodeTopologyPodsFingerprint"), Some(alone));
    let SourceRead::Read(listed) = &mut it.seen.listed else { panic!() };
    listed.remove(0);
    it.cpus().containers.clear();
    it.cpus().default_cpus.extend(&"1,9".parse().unwrap());
    assert_eq!(attribute(&it, "nodeTopologyPodsFingerprint").as_deref(), Some("pfp0v001bb89419dce9a8948"));
    it.seen.listed = SourceRead::Absent;
    assert_eq!(attribute(&it, "nodeTopologyPodsFingerprint"), None);
    assert_eq!(attribute(&it, "nodeTopologyPodsFingerprintMethod"), None);
}

#[test]
fn attributes_have_only_what_readers_know() {
    let mut it = Kubelet::new();
    it.profile.topology_policy = "Restricted".into();
    it.profile.topology_scope = "POD".into();
    let options = [("max-allowable-numa-nodes", "16"), ("prefer-closest-numa-nodes", "true")];
    it.profile.topology_options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    for (name, value) in [
        ("topologyManagerPolicy", None),
        ("topologyManagerScope", None),
        ("topologyManagerMaxNUMANodes", Some("16")),
        ("topologyManagerOptionPreferClosestNumaNodes", Some("true")),
    ] {
        assert_eq!(attribute(&it, name).as_deref(), value, "{name}");
    }
    it.profile.topology_options.insert("max-allowable-numa-nodes".into(), "0".into());
    assert_eq!(attribute(&it, "topologyManagerMaxNUMANodes"), None);
}

#[test]
fn sources_that_contradict_each_other_make_no_object() {
    type Change = fn(&mut Kubelet);
    let cases: [(Change, &str); 4] = [
        (|it| it.seen.offered = SourceRead::Unusable("no answer".into()), "kubelet:podresources: no answer"),
        (|it| it.seen.torn = Some("files change".into()), "kubelet: files change"),
        (
            |it| it.cpus().default_cpus = "0,3-8,11-15".parse().unwrap(),
            "kubelet:cpu_manager_state: CPUs 2,10",
        ),
        (
            |it| it.account(0).amounts.get_mut("memory").unwrap().free = 99 * GIB,
            "kubelet:memory_manager_state",
        ),
    ];
    for (change, words) in cases {
        let mut it = Kubelet::new();
        change(&mut it);
        for kind in ExportedKind::iter() {
            let fault = export(&it, kind).unwrap_err().to_string();
            assert!(fault.starts_with(words), "{words}: {fault}");
        }
    }
}

/// The kubelet clears what it had with the next admission.
#[test]
fn what_an_ended_pod_had_is_free() {
    let mut it = Kubelet::new();
    let mut pod =
        ApiPod { uid: "a".into(), namespace: "shop".into(), name: "web".into(), ..ApiPod::default() };
    for (is_finished, [cpus, memory, gpus], allocations) in
        [(false, [4, 13 * GIB, 1], 1), (true, [6, 15 * GIB, 2], 0)]
    {
        pod.is_finished = is_finished;
        it.api.pods = Some(vec![pod.clone()]);
        let zones = zones(&it);
        for (resource, expected) in [("cpu", cpus), ("memory", memory), ("v.com/gpu", gpus)] {
            let [.., available] = amounts(&zones, 0, resource).unwrap();
            assert_eq!(available, expected, "{resource} {is_finished}");
        }
        let volcano = export(&it, ExportedKind::Numatopology).unwrap();
        let held = volcano["spec"]["podAllocations"].as_array().map_or(0, Vec::len);
        assert_eq!(held, allocations);
    }
}

#[test]
fn a_state_that_lost_content_makes_no_object() {
    let it = Kubelet::new();
    for (reason, is_made) in [("pods are left out, too large", false), ("refused pods are left out", true)] {
        let mut state = it.state();
        state.inexact = vec![InexactSource::new("state", reason)];
        let inputs = ExportInputs {
            state: &state,
            machine: &it.machine,
            observation: &it.seen,
            api: &it.api,
            reserved: None,
        };
        assert_eq!(node_resource_topology(inputs).is_ok(), is_made, "{reason}");
    }
}

#[test]
fn ids_with_a_gap_make_no_zones() {
    let mut it = Kubelet::new();
    let mut state = it.state();
    state.machine.nodes[1].id = NodeId(2);
    let (machine, observation, api) = (it.machine.clone(), it.seen.clone(), it.api.clone());
    let inputs = ExportInputs {
        state: &state,
        machine: &machine,
        observation: &observation,
        api: &api,
        reserved: None,
    };
    assert_eq!(node_resource_topology(inputs), Err(ExportFault::SparseNodes { next: 2 }));
    it.profile.topology_policy = "none".into();
    assert!(numatopology(inputs).is_ok(), "the other object names CPUs by id");
}

proptest! {
    /// Any CPUs of each node are reserved or held, and any memory.
    #[test]
    fn zones_add_up_to_the_node(
        reserved in proptest::collection::btree_set(0_u32..16, 1..5),
        held in proptest::collection::btree_set(0_u32..16, 0..12),
        bytes in [0..15 * GIB, 0..15 * GIB],
    ) {
        let set = |ids: &std::collections::BTreeSet<u32>| {
            ids.iter().map(|id| numa_topology::id::CpuId(*id)).collect::<CpuSet>()
        };
        let mut it = Kubelet::new();
        let all: CpuSet = it.machine.cpus.iter().map(|cpu| cpu.id).collect();
        let reserved = set(&reserved);
        let held = set(&held).difference(&reserved);
        it.offered().cpus = all.difference(&reserved);
        it.cpus().default_cpus = all.difference(&held);
        it.cpus().containers = BTreeMap::new();
        if !held.is_empty() {
            it.cpus().containers.insert("a".into(), BTreeMap::from([("main".to_owned(), held.clone())]));
        }
        let mut blocks = Vec::new();
        for (node, bytes) in (0_u32..).zip(bytes) {
            let account = it.account(node);
            account.assignments = u64::from(bytes > 0);
            let amounts = account.amounts.get_mut("memory").unwrap();
            (amounts.reserved, amounts.free) = (bytes, amounts.allocatable - bytes);
            if bytes > 0 {
                let nodes = [NodeId(node)].into_iter().collect();
                blocks.push(MemoryBlock { kind: "memory".into(), nodes, bytes });
            }
        }
        it.memory().containers = BTreeMap::new();
        for (index, block) in blocks.into_iter().enumerate() {
            let of = BTreeMap::from([("main".to_owned(), vec![block])]);
            it.memory().containers.insert(format!("m{index}"), of);
        }
        it.seen.listed = SourceRead::Read(Vec::new());

        let zones = zones(&it);
        for resource in ["cpu", "memory", "v.com/gpu"] {
            for zone in 0..2 {
                let [capacity, allocatable, available] = amounts(&zones, zone, resource).unwrap();
                prop_assert!(available <= allocatable && allocatable <= capacity, "{}", zones);
            }
        }
        let sum = |resource, of: usize| (0..2).map(|zone| amounts(&zones, zone, resource).unwrap()[of]).sum::<u64>();
        prop_assert_eq!([0, 1, 2].map(|of| sum("cpu", of)), [
            16,
            16 - reserved.len() as u64,
            16 - (reserved.len() + held.len()) as u64,
        ]);
        prop_assert_eq!(sum("memory", 1) - sum("memory", 2), bytes.iter().sum::<u64>());
        for kind in ExportedKind::iter() {
            let bytes = || export(&it, kind).unwrap().to_string();
            prop_assert_eq!(bytes(), bytes());
        }
        let other = export(&it, ExportedKind::Numatopology).unwrap();
        let free: CpuSet = other["spec"]["numares"]["cpu"]["allocatable"].as_str().unwrap().parse().unwrap();
        prop_assert_eq!(free.len() as u64, sum("cpu", 2));
    }
}
