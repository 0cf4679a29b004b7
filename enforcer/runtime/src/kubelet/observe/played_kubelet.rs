//! A kubelet for tests: it places pods by the engine, and writes its files one write at a time, in the order
//! of the real one.
//!
//! For each container: devices; then the default set of CPUs before the entry; then the accounts of NUMA
//! nodes before the blocks. Back: the entry before the default set, the blocks before the accounts. After
//! each write the test may look.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use enforcer_core::cluster::{
    model::NodeModel,
    observed::{ApiContainer, ApiPod, ApiRejection, NodeInApi, NodeInputs, NodeObservation, NodeStateSource},
    state::KubeletProfile,
};
use numa_placement::{
    Allocations, ContainerKind, ContainerRequest, Grant, Holder, PodName, PodRequest, admit, remove,
};
use numa_topology::{Topology, set::CpuSet, synth::Machine};
use serde_json::{Value, json};

use super::super::{
    CPU_STATE, DEVICE_STATE, MEMORY_STATE,
    checksum::{fnv32a, map},
    podresources::{
        AllocatableResourcesResponse, ContainerDevices, ContainerMemory, ContainerResources,
        ListPodResourcesResponse, NumaNode, PodOfList, PodResourcesAnswer, TopologyInfo, listed, offered,
    },
};

pub(super) const GPU: &str = "v.com/gpu";
const GIB: u64 = 1 << 30;
/// Memory of a NUMA node for pods.
const ALLOCATABLE: u64 = 15 * GIB;
/// Devices near each NUMA node.
const GPUS: u32 = 3;

/// A moment between two writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// A write has been made and its counterpart has not, or a pod has some of its containers only.
    Torn,
    /// Nothing is missing; an ended pod may still hold a part of what it had.
    Whole,
}

/// Memory of a container: NUMA nodes and bytes of each block.
type Blocks = Vec<(Vec<u32>, u64)>;

/// Account of one NUMA node.
#[derive(Debug, Clone, Default)]
struct Account {
    assignments: u64,
    reserved: u64,
    cells: Vec<u32>,
}

pub(super) struct PlayedKubelet {
    dir: tempfile::TempDir,
    pub(super) machine: Topology,
    pub(super) profile: KubeletProfile,
    /// Empty node: what the engine places on.
    pub(super) base: NodeModel,
    /// What pods hold.
    pub(super) truth: Allocations,
    pub(super) api: NodeInApi,
    /// Admitted pods in order.
    pub(super) pods: Vec<PodRequest>,
    shared: CpuSet,
    cpus: BTreeMap<(String, String), CpuSet>,
    accounts: BTreeMap<u32, Account>,
    memory: BTreeMap<(String, String), Blocks>,
    devices: BTreeMap<(String, String), Vec<String>>,
}

impl PlayedKubelet {
    /// A kubelet on two NUMA nodes of 8 CPUs, CPUs 0 and 8 are reserved.
    pub(super) fn new(policy: &str) -> Self {
        let machine = Machine::new().sockets(2).cores(4).build();
        let profile = KubeletProfile {
            version: "v1.36.2".into(),
            started_at: Some(1),
            cpu_policy: "static".into(),
            memory_policy: "Static".into(),
            topology_policy: policy.into(),
            topology_scope: "container".into(),
            ..KubeletProfile::default()
        };
        let accounts = [0, 1].map(|id| (id, Account { cells: vec![id], ..Account::default() }));
        let capacity = BTreeMap::from([(GPU.to_owned(), u64::from(GPUS) * 2)]);
        let mut kubelet = Self {
            dir: tempfile::tempdir().unwrap(),
            base: model_of_nothing(&machine, &profile),
            truth: Allocations::default(),
            api: NodeInApi {
                pods: Some(Vec::new()),
                device_capacity: Some(capacity),
                ..NodeInApi::default()
            },
            machine,
            profile,
            pods: Vec::new(),
            shared: "0-15".parse().unwrap(),
            cpus: BTreeMap::new(),
            accounts: accounts.into(),
            memory: BTreeMap::new(),
            devices: BTreeMap::new(),
        };
        kubelet.write_cpus();
        kubelet.write_memory();
        kubelet.write_devices();
        kubelet.base = NodeModel::new(&kubelet.state(&kubelet.observation())).unwrap();
        assert_eq!(kubelet.base.inexact, []);
        kubelet.truth = kubelet.base.allocations.clone();
        kubelet
    }

    pub(super) fn paths(&self) -> [PathBuf; 3] {
        [CPU_STATE, MEMORY_STATE, DEVICE_STATE].map(|name| self.dir.path().join(name))
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Places a pod, and writes as the kubelet does; returns whether it was admitted.
    pub(super) fn admit(&mut self, pod: &PodRequest, mut look: impl FnMut(&Self, Moment)) -> bool {
        let uid = pod.name.uid.clone();
        let admitted = admit(&self.base.inventory, &self.base.settings, &mut self.truth, pod);
        self.api
            .pods
            .as_mut()
            .unwrap()
            .push(api_pod(pod, admitted.as_ref().err().map(|refused| refused.reason.as_str())));
        let Ok(admission) = admitted else {
            look(self, Moment::Whole);
            return false;
        };
        self.pods.push(pod.clone());
        for container in &pod.containers {
            let given = admission.grants.iter().find(|one| one.holder.name() == container.name);
            let grant = given.map(|one| one.grant.clone()).unwrap_or_default();
            self.give((uid.clone(), container.name.clone()), &grant, &mut look);
        }
        look(self, Moment::Whole);
        true
    }

    fn give(&mut self, key: (String, String), grant: &Grant, look: &mut impl FnMut(&Self, Moment)) {
        if let Some(ids) = grant.devices.get(GPU).filter(|ids| !ids.is_empty()) {
            self.devices.insert(key.clone(), ids.clone());
            self.write_devices();
            look(self, Moment::Torn);
        }
        if !grant.exclusive.is_empty() {
            self.shared = self.shared.difference(&grant.exclusive);
            self.write_cpus();
            look(self, Moment::Torn);
            self.cpus.insert(key.clone(), grant.exclusive.clone());
            self.write_cpus();
            // Memory follows.
            look(self, Moment::Torn);
        }
        let blocks: Blocks = grant
            .memory
            .iter()
            .map(|claim| (claim.zone.iter().map(|node| node.0).collect(), claim.bytes))
            .collect();
        if blocks.is_empty() {
            return;
        }
        for (nodes, bytes) in &blocks {
            let mut left = *bytes;
            for node in nodes {
                let account = self.accounts.get_mut(node).unwrap();
                account.assignments += 1;
                account.cells.clone_from(nodes);
                let part = left.min(ALLOCATABLE - account.reserved);
                account.reserved += part;
                left -= part;
            }
            assert_eq!(left, 0, "the engine gave more memory than there is");
        }
        self.write_memory();
        look(self, Moment::Torn);
        self.memory.insert(key, blocks);
        self.write_memory();
    }

    /// Ends a pod, and writes as the kubelet's managers do when they notice it.
    pub(super) fn end(&mut self, at: usize, mut look: impl FnMut(&Self, Moment)) {
        let pod = self.pods.remove(at);
        remove(&mut self.truth, &pod.name);
        self.api.pods.as_mut().unwrap().retain(|known| known.uid != pod.name.uid);
        look(self, Moment::Whole);
        let keys = pod.containers.iter().map(|container| (pod.name.uid.clone(), container.name.clone()));
        let keys: Vec<_> = keys.collect();
        for key in &keys {
            if let Some(cpus) = self.cpus.remove(key) {
                self.write_cpus();
                let kept = self.cpus.iter().filter(|((uid, _), _)| *uid == key.0);
                let kept = kept.fold(CpuSet::new(), |all, (_, cpus)| all.union(cpus));
                let back = cpus.difference(&kept);
                look(self, if back.is_empty() { Moment::Whole } else { Moment::Torn });
                self.shared.extend(&back);
                self.write_cpus();
                look(self, Moment::Whole);
            }
        }
        for key in &keys {
            if let Some(blocks) = self.memory.remove(key) {
                self.write_memory();
                look(self, Moment::Torn);
                self.release(&blocks);
                self.write_memory();
                look(self, Moment::Whole);
            }
        }
        for key in &keys {
            if self.devices.remove(key).is_some() {
                self.write_devices();
                look(self, Moment::Whole);
            }
        }
    }

    fn release(&mut self, blocks: &Blocks) {
        for (nodes, bytes) in blocks {
            let mut left = *bytes;
            for node in nodes {
                let account = self.accounts.get_mut(node).unwrap();
                account.assignments -= 1;
                if account.assignments == 0 {
                    account.cells = vec![*node];
                }
                let part = left.min(account.reserved);
                account.reserved -= part;
                left -= part;
            }
        }
    }

    /// The socket's answers.
    pub(super) fn answers(&self) -> (ListPodResourcesResponse, AllocatableResourcesResponse) {
        let pods = self.pods.iter().map(|pod| {
            let shown = pod.containers.iter().filter(|container| container.kind != ContainerKind::Init);
            PodOfList {
                name: pod.name.name.clone(),
                namespace: pod.name.namespace.clone(),
                containers: shown.map(|one| self.resources(&pod.name.uid, &one.name)).collect(),
            }
        });
        let ids = [0, 1].map(|node| (0..GPUS).map(move |number| format!("{node:02}-{number:05}")));
        let offered = AllocatableResourcesResponse {
            cpu_ids: (1..8).chain(9..16).collect(),
            memory: [0, 1].map(|node| memory_of(&[node], ALLOCATABLE)).into(),
            devices: ids.into_iter().flatten().map(|id| device_of(&id)).collect(),
        };
        (ListPodResourcesResponse { pods: pods.collect() }, offered)
    }

    /// The same as the socket's client hands it on.
    pub(super) fn answer(&self) -> PodResourcesAnswer {
        let (list, allocatable) = self.answers();
        PodResourcesAnswer { listed: listed(list), offered: Ok(offered(&allocatable)) }
    }

    fn resources(&self, uid: &str, container: &str) -> ContainerResources {
        let key = (uid.to_owned(), container.to_owned());
        let cpus = self.cpus.get(&key).into_iter().flat_map(CpuSet::iter);
        let blocks = self.memory.get(&key).into_iter().flatten();
        let ids = self.devices.get(&key).into_iter().flatten();
        ContainerResources {
            name: container.into(),
            cpu_ids: cpus.map(|cpu| i64::from(cpu.0)).collect(),
            memory: blocks.map(|(nodes, bytes)| memory_of(nodes, *bytes)).collect(),
            devices: ids.map(|id| device_of(id)).collect(),
        }
    }

    /// One look at the files and the answers.
    pub(super) fn observation(&self) -> NodeObservation {
        let pace = super::LookPace { most: 1, pause: std::time::Duration::ZERO };
        super::observe(&self.paths(), pace, &self.machine, &self.profile, || Ok(self.answer()))
    }

    pub(super) fn inputs<'a>(&'a self, observation: &'a NodeObservation) -> NodeInputs<'a> {
        let Self { machine, profile, api, .. } = self;
        NodeInputs {
            machine,
            kubelet: profile,
            inexact: &[],
            observation,
            api,
            engine: enforcer_core::cluster::own_engine::OwnPart::None,
            measured: None,
        }
    }

    pub(super) fn state(&self, observation: &NodeObservation) -> enforcer_core::cluster::state::NodeState {
        NodeStateSource::new(0).observe(self.inputs(observation)).unwrap().clone()
    }

    fn write_cpus(&self) {
        let mut entries = BTreeMap::<&str, BTreeMap<&str, String>>::new();
        for ((uid, container), cpus) in &self.cpus {
            entries.entry(uid).or_default().insert(container, cpus.to_string());
        }
        let printed =
            entries.iter().map(|(uid, of)| (*uid, map(of.iter().map(|(name, cpus)| (*name, cpus.clone())))));
        let printed = map(printed.collect::<Vec<_>>());
        let text = format!(
            "(*state.CPUManagerCheckpoint){{PolicyName:(string)static DefaultCPUSet:(string){} \
             Entries:(map[string]map[string]string){printed} Checksum:(checksum.Checksum)0}}",
            self.shared
        );
        let mut file = json!({
            "policyName": "static", "defaultCpuSet": self.shared.to_string(), "checksum": fnv32a(&text),
        });
        if !entries.is_empty() {
            file["entries"] = json!(entries);
        }
        self.replace(CPU_STATE, &file);
    }

    fn write_memory(&self) {
        let block = |(nodes, bytes): &(Vec<u32>, u64)| {
            (
                json!({"numaAffinity": nodes, "type": "memory", "size": bytes}),
                format!(
                    "{{NUMAAffinity:([]int){} Type:(v1.ResourceName)memory Size:(uint64){bytes}}}",
                    list(nodes)
                ),
            )
        };
        let mut entries = BTreeMap::<&str, BTreeMap<&str, Vec<Value>>>::new();
        let mut printed = BTreeMap::<&str, BTreeMap<&str, String>>::new();
        for ((uid, container), blocks) in &self.memory {
            let (values, texts): (Vec<_>, Vec<_>) = blocks.iter().map(block).unzip();
            entries.entry(uid).or_default().insert(container, values);
            printed.entry(uid).or_default().insert(container, list(&texts));
        }
        let printed = map(printed.into_iter().map(|(uid, of)| (uid, map(of))));
        let mut nodes = serde_json::Map::new();
        let mut tables = Vec::new();
        for (id, Account { assignments, reserved, cells }) in &self.accounts {
            let free = ALLOCATABLE - reserved;
            let amounts = json!({
                "total": 16 * GIB, "systemReserved": GIB, "allocatable": ALLOCATABLE, "reserved": reserved, "free": free,
            });
            nodes.insert(
                id.to_string(),
                json!({"numberOfAssignments": assignments, "memoryMap": {"memory": amounts}, "cells": cells}),
            );
            let text = format!(
                "<*>{{NumberOfAssignments:(int){assignments} MemoryMap:(map[v1.ResourceName]*state.MemoryTable)\
                 map[memory:<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){GIB} \
                 Allocatable:(uint64){ALLOCATABLE} Reserved:(uint64){reserved} Free:(uint64){free}}}] \
                 Cells:([]int){}}}",
                16 * GIB,
                list(cells)
            );
            tables.push((id.to_string(), text));
        }
        let tables = map(tables.iter().map(|(id, text)| (id.as_str(), text.clone())));
        let text = format!(
            "(*state.MemoryManagerCheckpoint){{PolicyName:(string)Static MachineState:(state.NUMANodeMap){tables} \
             Entries:(state.ContainerMemoryAssignments){printed} Checksum:(checksum.Checksum)0}}"
        );
        let file = json!({
            "policyName": "Static", "machineState": nodes, "entries": entries, "checksum": fnv32a(&text),
        });
        self.replace(MEMORY_STATE, &file);
    }

    fn write_devices(&self) {
        let (mut entries, mut printed) = (Vec::new(), Vec::new());
        for ((uid, container), ids) in &self.devices {
            let mut near = BTreeMap::<&str, Vec<&str>>::new();
            for id in ids {
                near.entry(node_of(id)).or_default().push(id);
            }
            let text = map(near.iter().map(|(node, ids)| (*node, list(ids))));
            printed.push(format!(
                "{{PodUID:(string){uid} ContainerName:(string){container} ResourceName:(string){GPU} \
                 DeviceIDs:(checkpoint.DevicesPerNUMA){text} AllocResp:([]uint8)[1 255]}}"
            ));
            entries.push(json!({
                "PodUID": uid, "ContainerName": container, "ResourceName": GPU, "DeviceIDs": near, "AllocResp": "Af8=",
            }));
        }
        let ids = [0, 1].map(|node| (0..GPUS).map(move |number| format!("{node:02}-{number:05}")));
        let ids: Vec<String> = ids.into_iter().flatten().collect();
        let text = format!(
            "(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){} \
             RegisteredDevices:(map[string][]string)map[{GPU}:{}]}}",
            list(&printed),
            list(&ids)
        );
        let entries = json!({"PodDeviceEntries": entries, "RegisteredDevices": {GPU: ids}});
        self.replace(DEVICE_STATE, &json!({"Data": entries, "Checksum": fnv32a(&text)}));
    }

    /// Replaces a file as a whole.
    fn replace(&self, name: &str, file: &Value) {
        let temporary = self.dir.path().join("new");
        fs::write(&temporary, file.to_string()).unwrap();
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(temporary, self.dir.path().join(name)).unwrap();
    }
}

/// Until the files are there: a model that nothing is asked of.
fn model_of_nothing(machine: &Topology, profile: &KubeletProfile) -> NodeModel {
    let observation = NodeObservation::default();
    let api = NodeInApi::default();
    let inputs = NodeInputs {
        machine,
        kubelet: profile,
        inexact: &[],
        observation: &observation,
        api: &api,
        engine: enforcer_core::cluster::own_engine::OwnPart::None,
        measured: None,
    };
    NodeModel::new(NodeStateSource::new(0).observe(inputs).unwrap()).unwrap()
}

fn api_pod(pod: &PodRequest, refused: Option<&str>) -> ApiPod {
    let containers = pod.containers.iter().map(|container| ApiContainer {
        name: container.name.clone(),
        kind: container.kind,
        exclusive_cpus: Some(container.whole_cpus().unwrap_or(0)),
        has_ended: false,
        devices: container.devices.clone(),
    });
    ApiPod {
        uid: pod.name.uid.clone(),
        namespace: pod.name.namespace.clone(),
        name: pod.name.name.clone(),
        containers: containers.collect(),
        request: Some(Arc::new(pod.clone())),
        rejection: refused.map(|reason| ApiRejection { reason: reason.into(), at: 1 }),
        ..ApiPod::default()
    }
}

/// NUMA node of a device, which its id begins with.
fn node_of(id: &str) -> &'static str {
    if id.starts_with("00") { "0" } else { "1" }
}

fn near(nodes: &[u32]) -> TopologyInfo {
    TopologyInfo { nodes: nodes.iter().map(|id| NumaNode { id: i64::from(*id) }).collect() }
}

fn device_of(id: &str) -> ContainerDevices {
    let topology = Some(near(&[node_of(id).parse().unwrap()]));
    ContainerDevices { resource_name: GPU.into(), device_ids: vec![id.into()], topology }
}

fn memory_of(nodes: &[u32], size: u64) -> ContainerMemory {
    ContainerMemory { memory_type: "memory".into(), size, topology: Some(near(nodes)) }
}

fn list<T: ToString>(elements: &[T]) -> String {
    format!("[{}]", elements.iter().map(T::to_string).collect::<Vec<_>>().join(" "))
}

/// A request of a pod with containers of these kinds, CPUs, GiB and devices.
pub(super) fn pod(uid: &str, containers: &[(ContainerKind, u64, u64, u64)]) -> PodRequest {
    let containers = containers.iter().enumerate().map(|(at, (kind, cpus, gib, gpus))| {
        let mut container = ContainerRequest::guaranteed(format!("c{at}"), cpus * 1_000, gib * GIB);
        container.kind = *kind;
        if *gpus > 0 {
            container.devices.insert(GPU.into(), *gpus);
        }
        container
    });
    PodRequest::new(PodName::new("shop", format!("pod-{uid}")).with_uid(uid), containers.collect())
}

/// What each container holds: CPUs, memory and devices, as text. A device that a container uses again
/// after an init container is that of the later one.
pub(super) fn told(allocations: &Allocations) -> Vec<String> {
    let mut counted = BTreeSet::new();
    let held = |(holder, grant): (&Holder, &Grant)| {
        let memory =
            grant.memory.iter().map(|claim| format!("{}:{}:{}", claim.resource, claim.zone, claim.bytes));
        let mut devices = BTreeMap::<&str, usize>::new();
        for id in grant.devices.values().flatten() {
            if !counted.insert((holder.pod().uid.clone(), id.clone())) {
                continue;
            }
            *devices.entry(node_of(id)).or_default() += 1;
        }
        let memory: Vec<String> = memory.collect();
        let is_empty = grant.exclusive.is_empty() && memory.is_empty() && devices.is_empty();
        let uid = &holder.pod().uid;
        (!is_empty && !uid.is_empty()).then(|| {
            format!("{uid}/{}: CPUs {} memory {memory:?} devices {devices:?}", holder.name(), grant.exclusive)
        })
    };
    let mut all: Vec<_> = allocations.iter().collect();
    all.sort_by(|one, other| other.0.name().cmp(one.0.name()));
    let mut told: Vec<String> = all.into_iter().filter_map(held).collect();
    told.sort();
    told
}
