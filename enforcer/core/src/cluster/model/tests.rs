use super::*;
use crate::cluster::state::{
    DeviceCount, DeviceSupply, HeldContainer, HeldMemory, HeldPod, KubeletProfile, MachineNode, MachineState,
    MemorySupply,
};
use numa_placement::{ContainerRequest, PodName, admit};
use numa_topology::{MemoryKind, id::NodeId, set::CpuSet};

const GIB: i64 = 1 << 30;

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Two nodes of 8 CPUs in 4 cores and 16 GiB; CPU 0 and its sibling are reserved.
pub(in crate::cluster) fn state() -> NodeState {
    let node = |id: u32, list: &str| MachineNode { id: NodeId(id), cpus: cpus(list), kind: MemoryKind::Dram };
    let memory = |id: u32| MemorySupply {
        node: NodeId(id),
        resource: "memory".into(),
        allocatable: 16 * GIB,
        free: 16 * GIB,
        assignments: 0,
        cells: [NodeId(id)].into_iter().collect(),
    };
    NodeState {
        exact: true,
        kubelet: KubeletProfile {
            version: "v1.36.2".into(),
            cpu_policy: "static".into(),
            memory_policy: "Static".into(),
            topology_policy: "single-numa-node".into(),
            topology_scope: "container".into(),
            ..KubeletProfile::default()
        },
        machine: MachineState {
            hash: String::new(),
            nodes: vec![node(0, "0-3,8-11"), node(1, "4-7,12-15")],
            distances: vec![vec![10, 21], vec![21, 10]],
            sockets: vec![cpus("0-3,8-11"), cpus("4-7,12-15")],
            cores: (0..8).map(|core| cpus(&format!("{core},{}", core + 8))).collect(),
            caches: vec![cpus("0-3,8-11"), cpus("4-7,12-15")],
        },
        reserved_cpus: cpus("0,8"),
        shared_cpus: cpus("0-15"),
        memory: vec![memory(0), memory(1)],
        ..NodeState::default()
    }
}

/// The same after its kubelet has given this.
pub(in crate::cluster) fn state_of(allocations: &Allocations, counter: i64) -> NodeState {
    let mut state = state();
    state.revision.counter = counter;
    hold(&mut state, allocations);
    state
}

/// Gives this to the pods of a state that has none.
pub(in crate::cluster) fn hold(state: &mut NodeState, allocations: &Allocations) {
    let mut taken = CpuSet::new();
    // Devices that are not healthy have a holder without a uid.
    for (holder, grant) in allocations.iter().filter(|(holder, _)| !holder.pod().uid.is_empty()) {
        let memory = grant.memory.iter().map(|claim| HeldMemory {
            nodes: claim.zone.clone(),
            resource: claim.resource.to_string(),
            bytes: claim.bytes.cast_signed(),
        });
        let memory: Vec<_> = memory.collect();
        for held in &memory {
            let on = held.nodes.first().unwrap();
            state.memory.iter_mut().find(|supply| supply.node == on).unwrap().free -= held.bytes;
        }
        taken.extend(&grant.exclusive);
        let container = HeldContainer {
            name: holder.name().into(),
            cpus: grant.exclusive.clone(),
            memory,
            ..HeldContainer::default()
        };
        if let Some(held) = state.pods.iter_mut().find(|held| held.uid == holder.pod().uid) {
            held.containers.push(container);
            continue;
        }
        state.pods.push(HeldPod {
            uid: holder.pod().uid.clone(),
            namespace: holder.pod().namespace.clone(),
            name: holder.pod().name.clone(),
            mirror_of: None,
            containers: vec![container],
        });
    }
    state.shared_cpus = state.shared_cpus.difference(&taken);
}

fn pod(uid: &str, container: HeldContainer) -> HeldPod {
    HeldPod {
        uid: uid.into(),
        namespace: "default".into(),
        name: uid.into(),
        mirror_of: None,
        containers: vec![HeldContainer { name: "main".into(), ..container }],
    }
}

fn asks(name: &str, cpus: u64, gib: u64) -> PodRequest {
    let container = ContainerRequest::guaranteed("main", cpus * 1000, gib << 30);
    PodRequest::new(PodName::new("default", name).with_uid(name), vec![container])
}

fn answer(state: &NodeState, pod: &PodRequest) -> String {
    let model = NodeModel::new(state).unwrap();
    let mut allocations = model.allocations.clone();
    let admission = admit(&model.inventory, &model.settings, &mut allocations, &model.request_of(pod));
    match admission {
        Ok(admission) => format!("{} {}", admission.grants[0].grant.exclusive, admission.grants[0].mems),
        Err(rejection) => rejection.reason.as_str().to_owned(),
    }
}

#[test]
fn the_engine_continues_where_the_pods_of_a_state_are() {
    let mut state = state();
    assert_eq!(answer(&state, &asks("a", 4, 1)), "1-2,9-10 0");
    let held = HeldMemory { nodes: "0".parse().unwrap(), resource: "memory".into(), bytes: 15 * GIB };
    let first = HeldContainer { cpus: cpus("1-2,9-10"), memory: vec![held], ..HeldContainer::default() };
    state.pods.push(pod("a", first));
    state.shared_cpus = cpus("0,3-8,11-15");
    (state.memory[0].free, state.memory[0].assignments) = (GIB, 1);
    assert!(NodeModel::new(&state).unwrap().is_exact());
    assert_eq!(answer(&state, &asks("b", 2, 2)), "4,12 1", "no memory on node 0");
    assert_eq!(answer(&state, &asks("b", 2, 1)), "3,11 0");
    assert_eq!(answer(&state, &asks("b", 9, 1)), "TopologyAffinityError");
}

/// Both ways in which a kubelet may count the nodes of devices give the same answers, or it is named.
#[test]
fn nodes_without_devices_matter_only_where_sets_that_are_not_preferred_are_accepted() {
    for (policy, is_named) in [("single-numa-node", false), ("restricted", false), ("best-effort", true)] {
        let mut state = state();
        state.kubelet.version = "v1.35.4".into();
        state.kubelet.topology_policy = policy.into();
        let by_nodes = vec![DeviceCount { nodes: "1".parse().unwrap(), total: 4, healthy: 4, free: 4 }];
        state.devices.push(DeviceSupply { resource: "v.com/gpu".into(), by_nodes });
        let model = NodeModel::new(&state).unwrap();
        let named: Vec<_> = model.inexact.iter().map(|one| one.source.as_str()).collect();
        assert_eq!(named, if is_named { &["kubelet:version"][..] } else { &[] }, "{policy}");
        let mut newer = (*model.settings).clone();
        newer.hints.kubelet_device_hints = KubeletDeviceHints::DeviceNodes;
        let mut differences = 0;
        for (first, second) in (1..9).flat_map(|first| (1..14).map(move |second| (first, second))) {
            let answers = [&*model.settings, &newer].map(|settings| {
                let mut allocations = model.allocations.clone();
                let mut near_devices = asks("b", second, 1);
                near_devices.containers[0].devices.insert("v.com/gpu".into(), 1);
                let pods = [asks("a", first, 1), near_devices];
                let given = pods.map(|pod| {
                    let admitted = admit(&model.inventory, settings, &mut allocations, &pod);
                    admitted.map(|given| format!("{:?}", given.grants)).map_err(|refused| refused.reason)
                });
                format!("{given:?}")
            });
            differences += usize::from(answers[0] != answers[1]);
        }
        assert_eq!(differences > 0, is_named, "{policy}: {differences}");
    }
    let mut state = state();
    state.kubelet.version = "v1.35.4".into();
    state.kubelet.topology_policy = "best-effort".into();
    let near = |node: &str| DeviceCount { nodes: node.parse().unwrap(), total: 1, healthy: 1, free: 1 };
    state.devices = vec![DeviceSupply { resource: "v.com/gpu".into(), by_nodes: vec![near("0"), near("1")] }];
    assert!(NodeModel::new(&state).unwrap().is_exact(), "every node has devices");
}

#[test]
fn devices_that_are_not_free_are_not_given() {
    let mut state = state();
    let near = |node: &str, total: u32, free: u32| DeviceCount {
        nodes: node.parse().unwrap(),
        total,
        healthy: total,
        free,
    };
    state.devices =
        vec![DeviceSupply { resource: "v.com/gpu".into(), by_nodes: vec![near("0", 2, 0), near("1", 2, 1)] }];
    let mut asks = asks("a", 2, 1);
    asks.containers[0].devices.insert("v.com/gpu".into(), 1);
    assert_eq!(answer(&state, &asks), "4,12 1", "node 0 has no free device");
    asks.containers[0].devices.insert("v.com/gpu".into(), 2);
    assert_eq!(answer(&state, &asks), "TopologyAffinityError");
    state.devices[0].by_nodes[0].free = 2;
    assert_eq!(answer(&state, &asks), "1,9 0");
    let holds = [("v.com/gpu".to_owned(), [("0".to_owned(), 1)].into())].into();
    state.pods.push(pod("b", HeldContainer { devices: holds, ..HeldContainer::default() }));
    state.devices[0].by_nodes[0].free = 1;
    assert_eq!(answer(&state, &asks), "TopologyAffinityError", "one of the two is held");
}

#[test]
fn a_cpu_manager_without_a_policy_gives_no_cpus() {
    let mut state = state();
    state.kubelet.cpu_policy = "none".into();
    assert_eq!(answer(&state, &asks("a", 14, 1)), " 0", "memory alone decides");
}

#[test]
fn a_state_that_contradicts_itself_is_refused() {
    let refused = |change: &dyn Fn(&mut NodeState)| {
        let mut state = state();
        change(&mut state);
        NodeModel::new(&state).map(|_| ()).unwrap_err().to_string()
    };
    let holds = |list: &str| HeldContainer { cpus: cpus(list), ..HeldContainer::default() };
    for (change, text) in [
        (
            &(|state: &mut NodeState| state.pods = vec![pod("a", holds("0-1"))]) as &dyn Fn(&mut NodeState),
            "pods: default/a holds CPUs 0, which are reserved",
        ),
        (
            &|state| state.pods = vec![pod("a", holds("16"))],
            "pods: default/a holds CPUs 16, which are not online",
        ),
        (
            &|state| state.pods = vec![pod("a", holds("1-2")), pod("b", holds("2-3"))],
            "pods: default/b holds CPUs 2, which are another pod's",
        ),
        (
            &|state| state.pods = vec![pod("a", holds("1")), pod("a", holds("2"))],
            "pods has two entries for \"a\"",
        ),
        (
            &|state| (state.machine.nodes, state.memory) = (Vec::new(), Vec::new()),
            "machine: a machine needs at least one NUMA node and one CPU",
        ),
        (&|state| state.machine.cores[1] = cpus("0-1"), "machine.cores: CPUs 0 are in two entries"),
        (&|state| state.memory[0].node = NodeId(7), "memory.node: \"7\" is not one of the machine's"),
        (
            &|state| state.memory[0].resource = "swap".into(),
            "memory.resource: \"swap\" is not one of the machine's",
        ),
        (&|state| state.memory[0].free = -1, "memory.free is -1, below 0"),
        (&|state| state.revision.epoch = -5, "revision.epoch is -5, below 0"),
        (
            &|state| state.reserved_cpus = cpus("99"),
            "placement.reserved.cpus = cpuset:99: CPUs 99 are not available",
        ),
        (
            &|state| state.pods = (0..1_025).map(|uid| pod(&uid.to_string(), holds(""))).collect(),
            "pods has 1025 entries or bytes, at most 1024 are allowed",
        ),
    ] {
        assert_eq!(refused(change), text);
    }
}

#[test]
fn amounts_that_do_not_add_up_make_the_model_inexact() {
    let sources = |change: &dyn Fn(&mut NodeState)| {
        let mut state = state();
        change(&mut state);
        let inexact = NodeModel::new(&state).unwrap().inexact;
        inexact.into_iter().map(|one| one.source).collect::<Vec<_>>()
    };
    assert!(sources(&|_| {}).is_empty());
    assert_eq!(sources(&|state| state.memory[0].free -= 1), ["memory.free"]);
    assert_eq!(sources(&|state| state.shared_cpus = cpus("0-14")), ["sharedCpus"]);
    assert_eq!(sources(&|state| state.exact = false), ["state"]);
    let grouped = |state: &mut NodeState| {
        state.memory[0].assignments = 1;
        state.memory[0].cells = "0-1".parse().unwrap();
    };
    assert_eq!(sources(&grouped), ["memory.cells"]);
    let devices = |state: &mut NodeState| {
        let holds = [("v.com/gpu".to_owned(), [("0".to_owned(), 1)].into())].into();
        state.pods.push(pod("b", HeldContainer { devices: holds, ..HeldContainer::default() }));
    };
    assert_eq!(sources(&devices), ["devices"]);
}

#[test]
fn the_rules_of_a_kubelet_do_not_answer_for_another_manager() {
    assert!(NodeModel::new(&state()).unwrap().is_exact());
    let placed = NodeState { decided_by: DecidedBy::NumaEnforcer, ..state() };
    let model = NodeModel::new(&placed).unwrap();
    assert_eq!(model.inexact.iter().map(|why| why.source.as_str()).collect::<Vec<_>>(), ["ownEngine"]);
}

#[test]
fn resources_that_no_plugin_has_are_passed_over_as_in_the_kubelet() {
    let mut asked = asks("a", 2, 1);
    asked.containers[0].devices.insert("v.com/dongle".into(), 1);
    assert_eq!(answer(&state(), &asked), "1,9 0");
    let gpus = DeviceCount { nodes: "1".parse().unwrap(), total: 1, healthy: 1, free: 0 };
    let dongle = DeviceSupply { resource: "v.com/dongle".into(), by_nodes: vec![gpus] };
    let taken = NodeState { devices: vec![dongle], ..state() };
    assert_eq!(answer(&taken, &asked), "TopologyAffinityError", "a plugin has it, and none is free");
}
