mod api_pods;

use std::collections::BTreeMap;

use numa_placement::{ContainerKind, ContainerRequest, PodName, PodRequest, admit};
use numa_topology::{
    Topology,
    id::NodeId,
    set::{CpuSet, NodeSet},
    synth::Machine,
};

use super::*;
use crate::{
    cluster::{
        model::NodeModel,
        state::{MAX_BYTES, Revision},
    },
    owner::MemoryBlock,
};

const GIB: u64 = 1 << 30;
const GPU: &str = "v.com/gpu";

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn nodes(list: &str) -> NodeSet {
    list.parse().unwrap()
}

fn block(list: &str, bytes: u64) -> MemoryBlock {
    MemoryBlock { kind: "memory".into(), nodes: nodes(list), bytes }
}

/// Two NUMA nodes of 8 CPUs in 4 cores; CPUs 0 and 8 are reserved, and 1 GiB of each node. Pod `a` holds two
/// CPUs, 2 GiB and a device of node 0.
pub(in crate::cluster) struct Kubelet {
    pub(in crate::cluster) machine: Topology,
    pub(in crate::cluster) profile: KubeletProfile,
    pub(in crate::cluster) seen: NodeObservation,
    pub(in crate::cluster) api: NodeInApi,
}

impl Kubelet {
    pub(in crate::cluster) fn new() -> Self {
        let account = |id: u32, reserved: u64| {
            let amounts = MemoryAmounts {
                total: 16 * GIB,
                system_reserved: GIB,
                allocatable: 15 * GIB,
                reserved,
                free: 15 * GIB - reserved,
            };
            let amounts = BTreeMap::from([("memory".to_owned(), amounts)]);
            (
                NodeId(id),
                NumaMemoryAccount {
                    assignments: u64::from(reserved > 0),
                    amounts,
                    cells: [NodeId(id)].into_iter().collect(),
                },
            )
        };
        let gpus: BTreeMap<String, NodeSet> =
            [("g0", "0"), ("g1", "0"), ("g2", "1")].map(|(id, near)| (id.to_owned(), nodes(near))).into();
        let of = |value| BTreeMap::from([("a".to_owned(), BTreeMap::from([("main".to_owned(), value)]))]);
        let seen = NodeObservation {
            cpus: SourceRead::Read(CpuAssignments {
                policy: "static".into(),
                default_cpus: cpus("0,2-8,10-15"),
                containers: BTreeMap::from([(
                    "a".to_owned(),
                    BTreeMap::from([("main".to_owned(), cpus("1,9"))]),
                )]),
                ..CpuAssignments::default()
            }),
            memory: SourceRead::Read(MemoryAssignments {
                policy: "Static".into(),
                nodes: [account(0, 2 * GIB), account(1, 0)].into(),
                containers: of(vec![block("0", 2 * GIB)]),
                ..MemoryAssignments::default()
            }),
            devices: SourceRead::Read(DeviceAssignments {
                grants: vec![DeviceGrant {
                    pod: "a".into(),
                    container: "main".into(),
                    resource: GPU.into(),
                    devices: [("g0".to_owned(), nodes("0"))].into(),
                }],
                registered: [(GPU.to_owned(), gpus.keys().cloned().collect())].into(),
                ..DeviceAssignments::default()
            }),
            offered: SourceRead::Read(OfferedResources {
                cpus: cpus("1-7,9-15"),
                memory: vec![block("0", 15 * GIB), block("1", 15 * GIB)],
                devices: [(GPU.to_owned(), gpus)].into(),
            }),
            listed: SourceRead::Read(vec![ListedPodResources {
                namespace: "shop".into(),
                name: "web".into(),
                containers: vec![ListedContainerResources {
                    name: "main".into(),
                    cpus: cpus("1,9"),
                    memory: vec![block("0", 2 * GIB)],
                    devices: [(GPU.to_owned(), [("g0".to_owned(), nodes("0"))].into())].into(),
                }],
            }]),
            torn: None,
        };
        Self {
            machine: Machine::new().sockets(2).cores(4).build(),
            profile: KubeletProfile {
                version: "v1.36.2".into(),
                started_at: Some(1_000),
                cpu_policy: "static".into(),
                memory_policy: "Static".into(),
                topology_policy: "single-numa-node".into(),
                topology_scope: "container".into(),
                ..KubeletProfile::default()
            },
            seen,
            api: NodeInApi { device_capacity: Some([(GPU.to_owned(), 3)].into()), ..NodeInApi::default() },
        }
    }

    pub(in crate::cluster) fn cpus(&mut self) -> &mut CpuAssignments {
        let SourceRead::Read(cpus) = &mut self.seen.cpus else { panic!() };
        cpus
    }

    pub(in crate::cluster) fn memory(&mut self) -> &mut MemoryAssignments {
        let SourceRead::Read(memory) = &mut self.seen.memory else { panic!() };
        memory
    }

    pub(in crate::cluster) fn account(&mut self, node: u32) -> &mut NumaMemoryAccount {
        self.memory().nodes.get_mut(&NodeId(node)).unwrap()
    }

    fn devices(&mut self) -> &mut DeviceAssignments {
        let SourceRead::Read(devices) = &mut self.seen.devices else { panic!() };
        devices
    }

    pub(in crate::cluster) fn offered(&mut self) -> &mut OfferedResources {
        let SourceRead::Read(offered) = &mut self.seen.offered else { panic!() };
        offered
    }

    fn listed(&mut self) -> &mut ListedContainerResources {
        let SourceRead::Read(listed) = &mut self.seen.listed else { panic!() };
        &mut listed[0].containers[0]
    }

    /// Lists a second container of the pod, which has nothing of its own.
    fn list_second(&mut self) {
        let SourceRead::Read(listed) = &mut self.seen.listed else { panic!() };
        let second =
            ListedContainerResources { name: "second".into(), ..ListedContainerResources::default() };
        listed[0].containers.push(second);
    }

    fn api_pod(&mut self, pod: ApiPod) {
        self.api.pods.get_or_insert_default().push(pod);
    }

    fn inputs(&self) -> NodeInputs<'_> {
        let Self { machine, profile, seen, api } = self;
        NodeInputs {
            machine,
            kubelet: profile,
            inexact: &[],
            observation: seen,
            api,
            engine: OwnPart::None,
            measured: None,
        }
    }

    pub(in crate::cluster) fn state(&self) -> NodeState {
        let state = NodeStateSource::new(5).observe(self.inputs()).unwrap().clone();
        let model = NodeModel::new(&state).unwrap();
        assert_eq!(model.is_exact(), state.exact, "{:?} {:?}", model.inexact, state.inexact);
        assert_eq!(state.exact, state.inexact.is_empty());
        state
    }

    /// The sources that a change makes inexact.
    fn with(change: impl FnOnce(&mut Self)) -> Vec<String> {
        let mut kubelet = Self::new();
        change(&mut kubelet);
        kubelet.state().inexact.into_iter().map(|one| format!("{}: {}", one.source, one.reason)).collect()
    }
}

fn web() -> ApiPod {
    ApiPod {
        uid: "a".into(),
        namespace: "shop".into(),
        name: "web".into(),
        containers: vec![ApiContainer {
            name: "main".into(),
            kind: ContainerKind::Sidecar,
            exclusive_cpus: Some(2),
            has_ended: false,
            devices: [(GPU.to_owned(), 1)].into(),
        }],
        ..ApiPod::default()
    }
}

#[test]
fn a_whole_observation_is_an_exact_state() {
    let state = Kubelet::new().state();
    assert_eq!(state.inexact, []);
    assert!(state.exact);
    assert_eq!(
        (state.reserved_cpus.to_string(), state.shared_cpus.to_string()),
        ("0,8".into(), "0,2-8,10-15".into())
    );
    let memory: Vec<_> =
        state.memory.iter().map(|one| (one.free >> 30, one.assignments, one.cells.to_string())).collect();
    assert_eq!(memory, [(13, 1, "0".to_owned()), (15, 0, "1".to_owned())]);
    let gpus: Vec<_> = state.devices[0]
        .by_nodes
        .iter()
        .map(|one| (one.nodes.to_string(), one.total, one.healthy, one.free))
        .collect();
    assert_eq!(gpus, [("0".to_owned(), 2, 2, 1), ("1".to_owned(), 1, 1, 1)]);
    let pod = &state.pods[0];
    assert_eq!(
        (pod.uid.as_str(), pod.namespace.as_str(), pod.name.as_str()),
        ("a", "shop", "web"),
        "by its CPUs"
    );
    let container = &pod.containers[0];
    assert_eq!((container.cpus.to_string(), container.memory[0].bytes >> 30), ("1,9".into(), 2));
    assert_eq!(container.devices[GPU], BTreeMap::from([("0".to_owned(), 1)]));
    assert_eq!((state.covered.count, state.covered.fingerprint.len()), (1, 24));
    assert_eq!((state.machine.cores.len(), state.machine.cores[0].to_string()), (8, "0,8".into()));
    assert_eq!(state.revision, Revision { epoch: 1_000_000_000_000, counter: 0 });
    assert!(state.hash.len() == 16 && state.machine.hash.len() == 16);
}

#[test]
fn the_engine_continues_from_the_state() {
    let mut asks = PodRequest::new(
        PodName::new("shop", "next").with_uid("b"),
        vec![ContainerRequest::guaranteed("main", 4_000, GIB)],
    );
    asks.containers[0].devices.insert(GPU.into(), 1);
    let model = NodeModel::new(&Kubelet::new().state()).unwrap();
    let mut allocations = model.allocations.clone();
    let given = admit(&model.inventory, &model.settings, &mut allocations, &asks).unwrap();
    assert_eq!(given.grants[0].grant.exclusive.to_string(), "2-3,10-11");
    asks.name = PodName::new("shop", "third").with_uid("c");
    let given = admit(&model.inventory, &model.settings, &mut allocations, &asks).unwrap();
    assert_eq!(given.grants[0].grant.exclusive.to_string(), "4-5,12-13", "node 0 is full");
}

#[test]
fn a_source_that_is_missing_or_damaged_is_named() {
    type Change = fn(&mut Kubelet);
    let cases: [(Change, &[&str]); 8] = [
        (|_| {}, &[]),
        (|it| it.seen.cpus = SourceRead::Absent, &["kubelet:cpu_manager_state: it does not exist"]),
        (|it| it.seen.memory = SourceRead::Unusable("no".into()), &["kubelet:memory_manager_state: no"]),
        (
            |it| it.seen.devices = SourceRead::Absent,
            &["kubelet:kubelet_internal_checkpoint: it does not exist, and the socket offers devices"],
        ),
        (
            |it| it.seen.devices = SourceRead::Unusable("no".into()),
            &["kubelet:kubelet_internal_checkpoint: no"],
        ),
        (|it| it.seen.offered = SourceRead::Absent, &["kubelet:podresources: it does not exist"]),
        (|it| it.seen.listed = SourceRead::Unusable("late".into()), &["kubelet:podresources: late"]),
        (|it| it.seen.torn = Some("files change".into()), &["inconsistent: files change"]),
    ];
    for (change, expected) in cases {
        let found = Kubelet::with(change);
        for expected in expected {
            assert!(found.iter().any(|one| one.starts_with(expected)), "{expected}: {found:?}");
        }
        assert_eq!(found.is_empty(), expected.is_empty(), "{found:?}");
    }
    let without = Kubelet::with(|it| {
        it.seen.devices = SourceRead::Absent;
        it.offered().devices.clear();
        it.listed().devices.clear();
        it.api.device_capacity = None;
    });
    assert!(without.is_empty(), "a node without plugins has no checkpoint: {without:?}");
}

#[test]
fn each_contradiction_of_cpus_is_named() {
    type Change = fn(&mut Kubelet);
    let strict = |it: &mut Kubelet| {
        it.profile.cpu_options.insert("strict-cpu-reservation".into(), "true".into());
        it.cpus().default_cpus = cpus("2-7,10-15");
    };
    assert!(Kubelet::with(strict).is_empty());
    let cases: [(Change, &str); 14] = [
        (|it| it.cpus().default_cpus = cpus("0,3-8,11-15"), "CPUs 2,10 are neither shared nor exclusive"),
        (|it| it.cpus().default_cpus = cpus("0-8,10-15"), "CPUs 1 are shared and exclusive"),
        (|it| it.cpus().default_cpus.extend(&cpus("16")), "CPUs 16 are not online"),
        (|it| it.cpus().containers.clear(), "CPUs 1,9 are neither shared nor exclusive"),
        (
            |it| drop(it.cpus().containers.insert("b".into(), BTreeMap::from([("x".to_owned(), cpus("9"))]))),
            "CPUs 9 belong to two pods",
        ),
        (|it| it.offered().cpus = cpus("2-7,9-15"), "CPUs 1 are reserved and exclusive"),
        (|it| it.offered().cpus = cpus("1-7,9-16"), "CPUs 16 are offered and not online"),
        (|it| it.offered().cpus = CpuSet::new(), "it offers no CPU under the static policy"),
        (|it| it.cpus().policy = "none".into(), "its policy is \"none\", that of the settings is \"static\""),
        (
            |it| it.profile.cpu_policy = "none".into(),
            "its policy is \"static\", that of the settings is \"none\"",
        ),
        (
            |it| it.cpus().unknown_fields.push("sharedPools".into()),
            "its field \"sharedPools\" is of an unknown",
        ),
        (|it| drop(it.cpus().pods.insert("a".into(), cpus("1,9"))), "whole pods have CPUs"),
        (
            |it| it.listed().cpus = cpus("2,10"),
            "CPUs 2,10 of container \"main\" of shop/web are not in the file",
        ),
        (
            |it| {
                it.profile.cpu_options.insert("strict-cpu-reservation".into(), "true".into());
            },
            "CPUs 0,8 are reserved and shared",
        ),
    ];
    for (change, expected) in cases {
        let found = Kubelet::with(change);
        assert!(found.iter().any(|one| one.contains(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn each_contradiction_of_memory_is_named() {
    type Change = fn(&mut Kubelet);
    let amounts = |it: &mut Kubelet| {
        let account = it.account(0);
        account.amounts.get_mut("memory").unwrap().clone_from(&MemoryAmounts::default());
    };
    assert!(!Kubelet::with(amounts).is_empty());
    let cases: [(Change, &str); 14] = [
        (
            |it| it.account(0).amounts.get_mut("memory").unwrap().free += 1,
            "\"memory\" of NUMA node 0 does not add up",
        ),
        (|it| it.account(0).amounts.get_mut("memory").unwrap().total = GIB, "does not add up"),
        (|it| it.account(0).amounts.get_mut("memory").unwrap().total = u64::MAX, "does not add up"),
        (
            |it| it.account(1).amounts.extend([("swap".to_owned(), MemoryAmounts::default())]),
            "\"swap\" of NUMA node 1",
        ),
        (|it| it.account(0).assignments = 2, "NUMA node 0 counts 2 blocks, containers have 1"),
        (|it| it.account(1).cells = nodes("0-1"), "NUMA node 1 is in the group 0-1"),
        (|it| it.account(1).cells = NodeSet::new(), "NUMA node 1 is in the group"),
        (|it| it.memory().containers.clear(), "NUMA node 0 counts 1 blocks, containers have 0"),
        (
            |it| it.memory().containers.get_mut("a").unwrap().get_mut("main").unwrap()[0].bytes = GIB,
            "2147483648 bytes of \"memory\" are taken on NUMA nodes 0, containers hold 1073741824",
        ),
        (
            |it| {
                it.memory().containers.get_mut("a").unwrap().get_mut("main").unwrap()[0].nodes = nodes("0-1");
            },
            "\"memory\" is held on NUMA nodes 0-1, which are no group with it",
        ),
        (|it| drop(it.memory().nodes.remove(&NodeId(1))), "it has no account of NUMA node 1"),
        (|it| it.offered().memory[1].bytes = GIB, "it offers 1073741824 bytes of \"memory\" on NUMA nodes 1"),
        (|it| it.memory().policy = "None".into(), "its policy is \"None\""),
        (
            |it| {
                it.memory().containers.clear();
                let account = it.account(0);
                (account.assignments, account.amounts) = (0, account.amounts.clone());
                let amounts = account.amounts.get_mut("memory").unwrap();
                (amounts.reserved, amounts.free) = (0, 15 * GIB);
                it.listed().memory.clear();
            },
            "container \"main\" of shop/web has CPUs and no memory yet",
        ),
    ];
    for (change, expected) in cases {
        let found = Kubelet::with(change);
        assert!(found.iter().any(|one| one.contains(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn each_contradiction_of_devices_is_named() {
    type Change = fn(&mut Kubelet);
    let cases: [(Change, &str); 6] = [
        (
            |it| {
                let second = DeviceGrant { pod: "b".into(), ..it.devices().grants[0].clone() };
                it.devices().grants.push(second);
            },
            "device \"g0\" of \"v.com/gpu\" belongs to two pods",
        ),
        (
            |it| drop(it.devices().registered.get_mut(GPU).unwrap().pop_last()),
            "its devices of \"v.com/gpu\" are not those that the socket offers",
        ),
        (|it| it.devices().grants.clear(), "devices of container \"main\" of shop/web are not in the file"),
        (|it| it.api.device_capacity = None, "api:node.status.capacity: not known"),
        (
            |it| it.api.device_capacity = Some(BTreeMap::new()),
            "0 devices of \"v.com/gpu\", the nodes of 3 are known",
        ),
        (
            |it| drop(it.offered().devices.get_mut(GPU).unwrap().insert("g2".into(), nodes("7"))),
            "are near NUMA nodes that the machine does not have",
        ),
    ];
    for (change, expected) in cases {
        let found = Kubelet::with(change);
        assert!(found.iter().any(|one| one.contains(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn managers_without_a_policy_are_exact_too() {
    let mut kubelet = Kubelet::new();
    (kubelet.profile.cpu_policy, kubelet.profile.memory_policy) = ("none".into(), "None".into());
    kubelet.seen.cpus =
        SourceRead::Read(CpuAssignments { policy: "none".into(), ..CpuAssignments::default() });
    kubelet.seen.memory =
        SourceRead::Read(MemoryAssignments { policy: "None".into(), ..MemoryAssignments::default() });
    kubelet.offered().cpus = CpuSet::new();
    kubelet.offered().memory.clear();
    let listed = kubelet.listed();
    (listed.cpus, listed.memory) = (CpuSet::new(), Vec::new());
    kubelet.api_pod(web());
    let state = kubelet.state();
    assert_eq!(state.inexact, []);
    assert_eq!((state.reserved_cpus.len(), state.shared_cpus.len(), state.memory.len()), (0, 16, 0));
    assert_eq!(state.pods[0].containers[0].devices[GPU], BTreeMap::from([("0".to_owned(), 1)]));
}

#[test]
fn cpus_that_an_ended_init_container_holds_stay_held() {
    let mut kubelet = Kubelet::new();
    let init = cpus("2,10");
    kubelet.cpus().default_cpus = cpus("0,3-8,11-15");
    kubelet.cpus().containers.get_mut("a").unwrap().insert("init".into(), init.clone());
    let mut pod = web();
    let kind = ContainerKind::Init;
    pod.containers.push(ApiContainer {
        name: "init".into(),
        kind,
        exclusive_cpus: Some(2),
        ..ApiContainer::default()
    });
    kubelet.api_pod(pod);
    let state = kubelet.state();
    assert_eq!(state.inexact, [], "its memory has returned, and the list does not show it");
    let held: Vec<_> = state.pods[0].containers.iter().map(|one| (one.kind, one.cpus.to_string())).collect();
    let sidecar = (Some(ContainerKind::Sidecar), "1,9".to_owned());
    assert_eq!(held, [(Some(kind), init.to_string()), sidecar]);
}

#[test]
fn settings_without_a_translation_make_the_state_inexact() {
    let found = Kubelet::with(|it| it.profile.version = String::new());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("kubelet:version: "), "{found:?}");
    let found = Kubelet::with(|it| it.profile.gates.extend([("PodLevelResourceManagers".to_owned(), true)]));
    assert!(found[0].starts_with("kubelet:featureGates.PodLevelResourceManagers"), "{found:?}");
    let mut kubelet = Kubelet::new();
    kubelet.profile.cpu_options = (0..40).map(|n| (format!("option-{n}"), "x".repeat(2_000))).collect();
    kubelet.profile.cpu_policy = "é".repeat(3_000);
    let state = kubelet.state();
    assert!(!state.exact && state.inexact.len() <= 16);
    assert!(state.kubelet.cpu_policy.len() <= 32 && state.kubelet.cpu_options.len() <= 16);
    let given = [InexactSource::new("kubelet:configz", "refused")];
    let kubelet = Kubelet::new();
    let inputs = NodeInputs { inexact: &given, ..kubelet.inputs() };
    assert_eq!(NodeStateSource::new(0).observe(inputs).unwrap().inexact, given);
}

#[test]
fn contradictory_content_is_left_out_and_the_rest_stays_readable() {
    let mut kubelet = Kubelet::new();
    let second = BTreeMap::from([("x".repeat(200), cpus("1,9"))]);
    kubelet.cpus().containers.insert("b".into(), second);
    let state = kubelet.state();
    assert!(state.pods.is_empty() && state.memory.is_empty() && !state.exact);
    assert_eq!(state.machine.nodes.len(), 2);
    assert_eq!(state.inexact[0].source, "state");
    assert!(state.inexact.iter().any(|one| one.reason.contains("belong to two pods")), "{:?}", state.inexact);
}

#[test]
fn a_pod_whose_admission_has_not_ended_is_named() {
    let mut kubelet = Kubelet::new();
    let mut pod = web();
    kubelet.api_pod(pod.clone());
    let state = kubelet.state();
    assert!(state.exact, "{:?}", state.inexact);
    assert_eq!(state.pods[0].containers[0].kind, Some(ContainerKind::Sidecar));
    pod.containers.push(ApiContainer {
        name: "second".into(),
        exclusive_cpus: Some(1),
        ..ApiContainer::default()
    });
    for (is_finished, rejection, is_exact) in
        [(false, None, false), (true, None, true), (false, Some(ApiRejection::default()), true)]
    {
        kubelet.api.pods = Some(vec![ApiPod { is_finished, rejection, ..pod.clone() }]);
        assert_eq!(kubelet.state().exact, is_exact, "{is_finished}");
    }
    pod.containers[1].exclusive_cpus = Some(0);
    kubelet.api.pods = Some(vec![pod]);
    assert!(kubelet.state().exact);
}

/// A device plugin takes its time for the second container, and the API's pods are not known.
#[test]
fn a_listed_pod_with_a_container_without_memory_is_named() {
    let second = |memory| {
        let mut kubelet = Kubelet::new();
        let SourceRead::Read(listed) = &mut kubelet.seen.listed else { panic!() };
        let name = "second".into();
        listed[0].containers.push(ListedContainerResources {
            name,
            memory,
            ..ListedContainerResources::default()
        });
        kubelet
    };
    let reasons = |kubelet: &Kubelet| -> Vec<String> {
        let inexact = kubelet.state().inexact.into_iter();
        inexact.map(|one| format!("{}: {}", one.source, one.reason)).collect()
    };
    let expected = "kubelet:admission: container \"second\" of shop/web has no memory yet";
    let mut kubelet = second(Vec::new());
    assert_eq!(reasons(&kubelet), [expected]);
    // An entry without blocks is one too.
    kubelet.memory().containers.get_mut("a").unwrap().insert("second".into(), Vec::new());
    assert_eq!(reasons(&kubelet), [""; 0]);
    // Without exclusive CPUs the list says which container has memory.
    let without_cpus = |kubelet: &mut Kubelet| {
        kubelet.cpus().containers.clear();
        kubelet.cpus().default_cpus = cpus("0-15");
        kubelet.listed().cpus = CpuSet::new();
    };
    let mut kubelet = second(Vec::new());
    without_cpus(&mut kubelet);
    assert_eq!(reasons(&kubelet), [expected]);
    kubelet.listed().memory.clear();
    assert_eq!(reasons(&kubelet), [""; 0], "a Burstable pod");
}

#[test]
fn a_static_pod_is_named_where_its_mirror_is_not_known() {
    let mut kubelet = Kubelet::new();
    let hash = "0123456789abcdef0123456789abcdef";
    let cpus = kubelet.cpus().containers.remove("a").unwrap();
    kubelet.cpus().containers.insert(hash.into(), cpus);
    let memory = kubelet.memory().containers.remove("a").unwrap();
    kubelet.memory().containers.insert(hash.into(), memory);
    kubelet.devices().grants[0].pod = hash.into();
    let inexact = kubelet.state().inexact;
    assert_eq!(inexact.len(), 1, "{inexact:?}");
    assert!(inexact[0].source == "api:pods" && inexact[0].reason.contains(hash), "{inexact:?}");
    kubelet.api_pod(ApiPod { uid: "mirror".into(), config_hash: Some(hash.into()), ..web() });
    assert_eq!(kubelet.state().inexact, []);
}

#[test]
fn a_static_pod_has_the_uid_of_its_mirror() {
    let mut kubelet = Kubelet::new();
    kubelet.api_pod(ApiPod { uid: "mirror".into(), config_hash: Some("a".into()), ..web() });
    let state = kubelet.state();
    assert_eq!((state.pods[0].uid.as_str(), state.pods[0].mirror_of.as_deref()), ("mirror", Some("a")));
    assert!(NodeModel::new(&state).unwrap().covered.contains("a"));
}

#[test]
fn a_pod_without_a_name_has_no_fingerprint() {
    let mut kubelet = Kubelet::new();
    kubelet.seen.listed = SourceRead::Read(Vec::new());
    let state = kubelet.state();
    assert!(
        state.exact,
        "a pod that has ended holds its place until the next admission: {:?}",
        state.inexact
    );
    assert_eq!((state.pods[0].name.as_str(), state.covered.fingerprint.as_str()), ("", ""));
}

#[test]
fn a_device_that_became_unhealthy_counts_in_the_total() {
    let mut kubelet = Kubelet::new();
    let mut source = NodeStateSource::new(0);
    let counts = |source: &mut NodeStateSource, kubelet: &Kubelet| {
        let state = source.observe(kubelet.inputs()).unwrap();
        let of = state.devices.iter().flat_map(|one| &one.by_nodes);
        let of: Vec<_> = of.map(|one| (one.nodes.to_string(), one.total, one.healthy, one.free)).collect();
        (of, state.exact)
    };
    let near = |node: &str, total, healthy, free| (node.to_owned(), total, healthy, free);
    counts(&mut source, &kubelet);
    let lose = |kubelet: &mut Kubelet, id: &str| {
        kubelet.offered().devices.get_mut(GPU).unwrap().remove(id);
        kubelet.devices().registered.get_mut(GPU).unwrap().remove(id);
    };
    lose(&mut kubelet, "g2");
    assert_eq!(counts(&mut source, &kubelet), (vec![near("0", 2, 2, 1), near("1", 1, 0, 0)], true));
    let start = kubelet.profile.started_at.take();
    assert_eq!(counts(&mut source, &kubelet).0.len(), 2, "an unknown start is not another kubelet");
    kubelet.profile.started_at = start;
    assert_eq!(counts(&mut source, &kubelet).0.len(), 2, "the same kubelet");
    let after_restart = counts(&mut NodeStateSource::new(0), &kubelet);
    assert_eq!(after_restart, (vec![near("0", 2, 2, 1)], false), "the nodes of one are not known");
    lose(&mut kubelet, "g0");
    assert_eq!(
        counts(&mut source, &kubelet),
        (vec![near("0", 2, 1, 1), near("1", 1, 0, 0)], true),
        "held, unhealthy"
    );
    kubelet.api.device_capacity = Some([(GPU.to_owned(), 2)].into());
    assert!(!counts(&mut source, &kubelet).1, "one of three is gone, and which is not known");
    kubelet.api.device_capacity = Some([(GPU.to_owned(), 1)].into());
    let of_one = (vec![near("0", 1, 1, 1)], true);
    assert_eq!(counts(&mut source, &kubelet), of_one, "a pod holds one that its plugin no longer has");
    kubelet.devices().grants.clear();
    kubelet.listed().devices.clear();
    assert_eq!(counts(&mut source, &kubelet), of_one, "the others are gone");
    kubelet.profile.started_at = Some(2_000);
    kubelet.seen.offered = SourceRead::Absent;
    assert_eq!(counts(&mut source, &kubelet).0, vec![], "another kubelet process");
}

#[test]
fn a_revision_follows_the_content() {
    let mut kubelet = Kubelet::new();
    kubelet.profile.started_at = Some(1);
    let mut source = NodeStateSource::new(7_000_000_000);
    let mut revision = |kubelet: &Kubelet| {
        let state = source.observe(kubelet.inputs()).unwrap();
        (state.revision.epoch, state.revision.counter, state.hash.clone())
    };
    let first = revision(&kubelet);
    assert_eq!((first.0, first.1), (7_000_000_000, 1));
    assert_eq!(revision(&kubelet), first);
    kubelet.api_pod(web());
    let second = revision(&kubelet);
    assert_eq!((second.0, second.1), (7_000_000_000, 2));
    assert_ne!(second.2, first.2);
    kubelet.profile.started_at = Some(9);
    let third = revision(&kubelet);
    assert_eq!((third.0, third.1), (9_000_000_000, 0));
    kubelet.profile.started_at = None;
    let last = revision(&kubelet);
    assert_eq!((last.0, last.1), (9_000_000_000, 1), "the epoch does not go back");
}

#[test]
fn a_source_continues_after_the_state_of_another_program() {
    let kubelet = Kubelet::new();
    let mut source = NodeStateSource::new(5);
    let of = |source: &mut NodeStateSource| source.observe(kubelet.inputs()).unwrap().revision;
    let first = of(&mut source);
    source.continue_after(first.epoch - 1);
    assert_eq!(of(&mut source), first, "it is newer already");
    let theirs = first.epoch + 100;
    source.continue_after(theirs);
    let next = of(&mut source);
    assert!(next.epoch > theirs, "{next:?}");
    assert_eq!(of(&mut source), next, "equal content keeps it");
}

#[test]
fn the_last_refused_pods_are_kept() {
    let mut kubelet = Kubelet::new();
    let mut source = NodeStateSource::new(0);
    for at in 0..20 {
        let rejection = ApiRejection { reason: "TopologyAffinityError".into(), at: 100 - at };
        let uid = format!("r{at}");
        kubelet.api.pods = Some(vec![ApiPod { uid, rejection: Some(rejection), ..ApiPod::default() }]);
        source.observe(kubelet.inputs()).unwrap();
    }
    kubelet.api.pods = Some(Vec::new());
    let state = source.observe(kubelet.inputs()).unwrap();
    let uids: Vec<&str> = state.rejected.iter().map(|pod| pod.uid.as_str()).collect();
    assert_eq!((uids.len(), uids[0], uids[15]), (16, "r15", "r0"), "the oldest by their time go");
    assert!(NodeModel::new(state).unwrap().covered.contains("r3"));
}

/// A machine of 8 NUMA nodes and 512 CPUs with this many pods, one CPU and 1 GiB each.
fn large(pods: u32, name: usize) -> Kubelet {
    let mut kubelet = Kubelet::new();
    kubelet.machine = Machine::new().sockets(8).cores(32).memory_gib(512).build();
    kubelet.profile.topology_policy = "best-effort".into();
    kubelet.seen.devices = SourceRead::Absent;
    kubelet.offered().devices.clear();
    kubelet.api =
        NodeInApi { pods: Some(Vec::new()), device_capacity: Some(BTreeMap::new()), ..NodeInApi::default() };
    kubelet.offered().cpus = cpus("1-255,257-511");
    kubelet.offered().memory.clear();
    kubelet.seen.listed = SourceRead::Read(Vec::new());
    kubelet.cpus().containers.clear();
    kubelet.memory().containers.clear();
    let mut shared = cpus("0-511");
    for at in 0..pods {
        let (uid, cpu) = (format!("{at:08}-0000-4000-8000-000000000000"), 1 + at + at / 255);
        let own = cpus(&cpu.to_string());
        shared = shared.difference(&own);
        let node = (cpu % 256 / 32).to_string();
        kubelet.cpus().containers.insert(uid.clone(), [("main".to_owned(), own)].into());
        kubelet
            .memory()
            .containers
            .insert(uid.clone(), [("main".to_owned(), vec![block(&node, GIB)])].into());
        kubelet.api_pod(ApiPod { uid, namespace: "default".into(), name: format!("{at:0name$}"), ..web() });
    }
    for pod in kubelet.api.pods.iter_mut().flatten() {
        pod.containers[0].exclusive_cpus = Some(1);
    }
    kubelet.cpus().default_cpus = shared;
    let mut counts = BTreeMap::<u32, u64>::new();
    let blocks: Vec<MemoryBlock> =
        kubelet.memory().containers.values().flat_map(BTreeMap::values).flatten().cloned().collect();
    for block in &blocks {
        *counts.entry(block.nodes.first().unwrap().0).or_default() += 1;
    }
    kubelet.memory().nodes = (0..8)
        .map(|id| {
            let reserved = counts.get(&id).copied().unwrap_or(0);
            let amounts = MemoryAmounts {
                total: 512 * GIB,
                system_reserved: 0,
                allocatable: 512 * GIB,
                reserved: reserved * GIB,
                free: (512 - reserved) * GIB,
            };
            let cells = [NodeId(id)].into_iter().collect();
            let account = NumaMemoryAccount {
                assignments: reserved,
                amounts: [("memory".to_owned(), amounts)].into(),
                cells,
            };
            (NodeId(id), account)
        })
        .collect();
    kubelet
}

#[test]
fn a_state_that_is_too_large_loses_what_is_least_needed() {
    let size = |state: &NodeState| serde_json::to_vec(state).unwrap().len();
    let full = large(110, 40).state();
    assert_eq!(full.inexact, []);
    assert!(full.pods.iter().all(|pod| pod.name.len() == 40 && pod.containers[0].kind.is_some()));
    // More pods than fit with their names.
    let unnamed = large(140, 60).state();
    assert_eq!((unnamed.exact, unnamed.pods.len()), (true, 140), "{:?}", unnamed.inexact);
    assert!(unnamed.pods.iter().all(|pod| pod.name.is_empty()));
    assert_eq!(unnamed.covered.fingerprint.len(), 24, "the fingerprint is that of the names");
    let mut kubelet = large(480, 8);
    for at in 0..16 {
        let rejection = Some(ApiRejection { reason: "x".into(), at });
        kubelet.api_pod(ApiPod { uid: format!("r{at}"), rejection, ..ApiPod::default() });
    }
    let bare = kubelet.state();
    assert_eq!((bare.exact, bare.pods.len(), bare.rejected.len()), (false, 0, 0));
    assert!(bare.inexact.iter().any(|one| one.reason.starts_with("pods are left out")), "{:?}", bare.inexact);
    for state in [full, unnamed, bare] {
        assert!(size(&state) < MAX_BYTES - 1_000, "{}", size(&state));
    }
}

#[test]
fn a_machine_beyond_the_limits_has_no_state() {
    let mut kubelet = Kubelet::new();
    kubelet.machine = Machine::new().sockets(2).cores(600).threads(1).build();
    let error = NodeStateSource::new(0).observe(kubelet.inputs()).unwrap_err();
    assert!(error.to_string().contains("machine.cores has 1200 entries"), "{error}");
}
