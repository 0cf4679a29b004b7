//! The engine on the machines of the reference's tests, with the outcomes that those expect.

mod classes;
mod exclusive;
mod local_memory;
mod machines;
mod memory;
mod sequences;

use std::collections::BTreeMap;

use super::documents;
use crate::{
    Admission, Allocations, ContainerKind, ContainerRequest, DeviceUnit, Grant, Holder, Inventory, PodName,
    PodRequest, Rejection, Resources, TopologyHint, Trace, admit_traced, remove, resize, samples,
    settings::PlacementSettings,
};
use numa_topology::{
    Topology,
    set::{CpuSet, NodeSet},
};

const MB: u64 = 1_000_000;
const GB: u64 = 1000 * MB;

/// A machine, its settings, and its allocations.
struct Node {
    inventory: Inventory,
    settings: PlacementSettings,
    allocations: Allocations,
    warnings: Vec<String>,
}

impl Node {
    /// The settings are the part below `[placement]`.
    fn new(machine: Topology, settings: &str) -> Self {
        Self::with_devices(machine, settings, Vec::new())
    }

    fn with_devices(machine: Topology, settings: &str, devices: Vec<DeviceUnit>) -> Self {
        let settings: PlacementSettings = toml::from_str(&format!("engine = 'pools'\n{settings}")).unwrap();
        let inventory = Inventory::new(machine, devices, &settings).unwrap();
        Self { inventory, settings, allocations: Allocations::default(), warnings: Vec::new() }
    }

    fn create(&mut self, pod: &PodRequest) -> Result<Admission, Rejection> {
        let mut trace = Trace::wanted();
        let outcome = admit_traced(&self.inventory, &self.settings, &mut self.allocations, pod, &mut trace);
        self.warnings = trace.into_parts().1;
        outcome
    }

    fn resize(&mut self, pod: &PodRequest) -> Result<Admission, Rejection> {
        resize(&self.inventory, &self.settings, &mut self.allocations, pod)
    }

    fn delete(&mut self, pod: &str) {
        let name = PodName::new("default", pod);
        remove(&mut self.allocations, &name);
    }

    /// Creates a pod of one container and returns its name.
    #[expect(clippy::needless_pass_by_value, reason = "a pod is made where it is run")]
    fn run(&mut self, pod: Pod) -> String {
        let pod = pod.build();
        self.create(&pod).unwrap_or_else(|rejection| panic!("{}: {rejection}", pod.name));
        format!("{}/{}", pod.name.name, pod.containers[0].name)
    }

    /// By `POD/CONTAINER`.
    fn grant(&self, name: &str) -> &Grant {
        let (pod, container) = name.split_once('/').unwrap();
        let grants = self.allocations.iter();
        let mut found = grants.filter(|(holder, _)| holder.pod().name == pod && holder.name() == container);
        found.next().unwrap_or_else(|| panic!("{name} has nothing")).1
    }

    fn cpus(&self, name: &str) -> CpuSet {
        self.grant(name).cpus(&self.allocations.exclusive_cpus())
    }

    fn mems(&self, name: &str) -> String {
        self.grant(name).mems.to_string()
    }

    fn pool(&self, name: &str) -> &str {
        self.grant(name).pool.as_deref().unwrap()
    }

    /// Nodes of the CPUs that it runs on.
    fn nodes(&self, name: &str) -> String {
        self.inventory.machine.nodes_of(&self.cpus(name)).to_string()
    }
}

fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap()
}

fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn disjoint(sets: &[CpuSet]) -> bool {
    sets.iter().enumerate().all(|(index, one)| sets[..index].iter().all(|other| one.is_disjoint(other)))
}

/// A pod under construction.
#[derive(Clone)]
struct Pod {
    namespace: String,
    name: String,
    annotations: BTreeMap<String, String>,
    containers: Vec<ContainerRequest>,
}

impl Pod {
    fn new(name: &str) -> Self {
        Self {
            namespace: "default".into(),
            name: name.into(),
            annotations: BTreeMap::new(),
            containers: Vec::new(),
        }
    }

    fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    fn container(mut self, requests: Resources, limits: Resources) -> Self {
        self.containers.push(ContainerRequest {
            name: format!("c{}", self.containers.len()),
            requests,
            limits,
            ..ContainerRequest::default()
        });
        self
    }

    /// A container with requests equal to limits.
    fn guaranteed(self, milli: u64, memory: u64) -> Self {
        let amounts = amounts(Some(milli), Some(memory));
        self.container(amounts.clone(), amounts)
    }

    fn burstable(self, milli: u64, limit: Option<u64>, memory: u64) -> Self {
        self.container(amounts(Some(milli), Some(memory)), amounts(limit, Some(memory)))
    }

    fn best_effort(self) -> Self {
        self.container(Resources::default(), Resources::default())
    }

    fn last(mut self, change: impl FnOnce(&mut ContainerRequest)) -> Self {
        change(self.containers.last_mut().unwrap());
        self
    }

    fn hint(self, provider: &str, nodes: &str) -> Self {
        let nodes = nodes.parse().unwrap();
        self.last(|container| {
            container.topology_hints.push(TopologyHint {
                provider: provider.into(),
                cpus: CpuSet::new(),
                nodes,
                packages: Vec::new(),
            });
        })
    }

    fn build(&self) -> PodRequest {
        PodRequest {
            name: PodName::new(self.namespace.clone(), self.name.clone()),
            documents: documents(&self.annotations, |text| serde_json::from_str(text)),
            annotations: self.annotations.clone(),
            ..samples::pod(&self.name, self.containers.clone())
        }
    }
}

fn amounts(milli_cpus: Option<u64>, memory_bytes: Option<u64>) -> Resources {
    Resources { milli_cpus, memory_bytes, hugepages: BTreeMap::new() }
}
