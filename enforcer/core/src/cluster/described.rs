//! Nodes that are described, and not asked: what they would publish without pods.
//!
//! Problem: a plan for a cluster that does not exist yet, or for machines of which only a capture is at hand,
//! needs states that no daemon has published. Idea: an observation as an empty kubelet with known settings
//! gives it ([`empty_node`]), and the same path from there to the state as on a node.
//!
//! Invariant: every assumption is a field of [`DescribedKubelet`], so that it can be told.

use std::collections::BTreeMap;

use numa_placement::{
    ContainerKind, ContainerRequest, MemoryResource, PodName, PodRequest, Resources, device_counts,
};
use numa_topology::{Topology, set::CpuSet};

use super::{
    model::StateFault,
    objects::{NodeObject, PodArrival, PodObject, PodPhase, PodScheduling, StateObject, StateOrigin},
    observed::{NodeInApi, NodeInputs, NodeObservation, NodeStateSource, empty_node},
    plan::{Amounts, CPU, PODS},
    state::{GROUP, HeldContainer, HeldPod, InexactSource, KubeletProfile, NodeState, VERSION},
};

/// Bytes that a kubelet keeps from pods unless it is told otherwise: its threshold of hard eviction
/// (`pkg/kubelet/eviction/defaults_linux.go`). They are taken off the first node with memory.
pub const RESERVED_BYTES: u64 = 100 << 20;
/// Pods that a kubelet takes unless it is told otherwise.
const MAX_PODS: u32 = 110;

/// Assumptions about the kubelet of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedKubelet {
    /// Its settings.
    pub profile: KubeletProfile,
    /// CPUs that no pod gets exclusively; `None` for the first CPU with its siblings.
    pub reserved_cpus: Option<CpuSet>,
    /// Most pods.
    pub max_pods: u32,
}

impl Default for DescribedKubelet {
    fn default() -> Self {
        let profile = KubeletProfile {
            version: "v1.36.2".into(),
            cpu_policy: "static".into(),
            memory_policy: "Static".into(),
            topology_policy: "single-numa-node".into(),
            topology_scope: "container".into(),
            ..KubeletProfile::default()
        };
        Self { profile, reserved_cpus: None, max_pods: MAX_PODS }
    }
}

impl DescribedKubelet {
    /// The CPUs that it reserves on a machine; none without the static policy.
    pub fn reserved_cpus(&self, machine: &Topology) -> CpuSet {
        if self.profile.cpu_policy != "static" {
            return CpuSet::new();
        }
        let first = machine.cpus.iter().min_by_key(|cpu| cpu.id);
        let first = || first.map(|cpu| cpu.siblings.clone()).unwrap_or_default();
        self.reserved_cpus.clone().unwrap_or_else(first)
    }

    /// The objects of a node without pods.
    ///
    /// # Errors
    /// If the machine exceeds the limits of a state.
    pub fn empty(&self, name: &str, machine: &Topology) -> Result<(NodeObject, StateObject), StateFault> {
        let observation = empty_node(machine, &self.profile, &self.reserved_cpus(machine));
        self.objects(name, machine, &observation, &[])
    }

    /// The objects of a node that was observed so.
    ///
    /// # Errors
    /// If the machine exceeds the limits of a state.
    pub fn objects(
        &self,
        name: &str,
        machine: &Topology,
        observation: &NodeObservation,
        inexact: &[InexactSource],
    ) -> Result<(NodeObject, StateObject), StateFault> {
        let api = NodeInApi::default();
        let inputs = NodeInputs {
            machine,
            kubelet: &self.profile,
            inexact,
            observation,
            api: &api,
            engine: super::own_engine::OwnPart::None,
            measured: None,
        };
        let mut source = NodeStateSource::new(0);
        let state = source.observe(inputs)?.clone();
        let node = NodeObject {
            name: name.to_owned(),
            kubelet_version: self.profile.version.clone(),
            is_ready: true,
            allocatable: self.allocatable(machine, &state),
            ..NodeObject::default()
        };
        let state = StateObject {
            name: name.to_owned(),
            api_version: format!("{GROUP}/{VERSION}"),
            origin: StateOrigin::default(),
            writers: Vec::new(),
            unknown_fields: Vec::new(),
            state: Ok(state),
        };
        Ok((node, state))
    }

    /// What the kubelet would report as `status.allocatable`.
    fn allocatable(&self, machine: &Topology, state: &NodeState) -> Amounts {
        let cpus = machine.cpus.len().saturating_sub(state.reserved_cpus.len());
        let mut amounts = Amounts::from([
            (CPU.to_owned(), u64::try_from(cpus).unwrap_or(u64::MAX).saturating_mul(1_000)),
            (PODS.to_owned(), u64::from(self.max_pods)),
        ]);
        let mut bytes = BTreeMap::<String, u64>::new();
        if state.memory.is_empty() {
            for node in &machine.nodes {
                let pages = node.hugepages.iter().map(|pages| (pages.size_bytes, pages.total));
                let mut left = node.mem_total_bytes.unwrap_or(0);
                for (size, count) in pages {
                    let size_bytes = size.saturating_mul(count);
                    left = left.saturating_sub(size_bytes);
                    let name = MemoryResource::Hugepages(size).to_string();
                    add(&mut bytes, name, size_bytes);
                }
                add(&mut bytes, "memory".to_owned(), left);
            }
            if let Some(memory) = bytes.get_mut("memory") {
                *memory = memory.saturating_sub(RESERVED_BYTES);
            }
        }
        for supply in &state.memory {
            add(&mut bytes, supply.resource.clone(), supply.allocatable.max(0).cast_unsigned());
        }
        amounts.extend(bytes);
        for supply in &state.devices {
            let healthy = supply.by_nodes.iter().map(|count| u64::from(count.healthy)).sum();
            amounts.insert(supply.resource.clone(), healthy);
        }
        amounts
    }
}

fn add(bytes: &mut BTreeMap<String, u64>, resource: String, more: u64) {
    let sum = bytes.entry(resource).or_default();
    *sum = sum.saturating_add(more);
}

/// The pods that a state covers, as far as it tells what they asked for: for a node whose pods no API lists.
pub fn pods_of_state(node: &str, state: &NodeState) -> Vec<PodObject> {
    let pod = |held: &HeldPod| {
        let containers = held.containers.iter().map(container_of).collect();
        let name = PodName::new(held.namespace.clone(), held.name.clone()).with_uid(held.uid.clone());
        PodObject {
            uid: held.uid.clone(),
            mirror_of: held.mirror_of.clone(),
            node: Some(node.to_owned()),
            phase: PodPhase::Running,
            arrival: PodArrival::default(),
            ended_at: None,
            ended_init: Vec::new(),
            scheduling: PodScheduling::default(),
            counted: None,
            request: PodRequest::new(name, containers),
        }
    };
    state.pods.iter().map(pod).collect()
}

fn container_of(held: &HeldContainer) -> ContainerRequest {
    let mut amounts = Amounts::new();
    let cpus = u64::try_from(held.cpus.len()).unwrap_or(u64::MAX);
    amounts.insert(CPU.to_owned(), cpus.saturating_mul(1_000));
    for memory in &held.memory {
        let bytes = amounts.entry(memory.resource.clone()).or_default();
        *bytes = bytes.saturating_add(memory.bytes.max(0).cast_unsigned());
    }
    for (resource, by_nodes) in &held.devices {
        amounts.insert(resource.clone(), by_nodes.values().map(|count| u64::from(*count)).sum());
    }
    ContainerRequest {
        name: held.name.clone(),
        kind: held.kind.unwrap_or(ContainerKind::App),
        devices: device_counts(&amounts),
        requests: Resources::of_amounts(&amounts),
        limits: Resources::of_amounts(&amounts),
        ..ContainerRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use numa_topology::synth::Machine;

    use super::*;
    use crate::cluster::model::NodeModel;

    fn described(line: &str, kubelet: &DescribedKubelet) -> (NodeObject, NodeState) {
        let machine = line.parse::<Machine>().unwrap().build();
        let (node, state) = kubelet.empty("a", &machine).unwrap();
        (node, state.state.unwrap())
    }

    #[test]
    fn an_empty_node_is_exact_and_has_everything_but_what_is_reserved() {
        let line = "sockets:2 cores:4 threads:2 memory:8GiB hugepages-2Mi:512";
        let (node, state) = described(line, &DescribedKubelet::default());
        assert!(state.exact, "{:?}", state.inexact);
        assert_eq!((state.reserved_cpus.to_string(), state.shared_cpus.len()), ("0,8".into(), 16));
        assert!(NodeModel::new(&state).unwrap().is_exact());
        let memory = (7 << 30) + (7 << 30) - RESERVED_BYTES;
        let expected = [("cpu", 14_000), ("hugepages-2Mi", 2 << 30), ("memory", memory), ("pods", 110)];
        let expected: Amounts =
            expected.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
        assert_eq!(node.allocatable, expected);
    }

    #[test]
    fn every_policy_gives_an_exact_state() {
        for (cpus, memory, options) in [
            ("none", "None", ""),
            ("static", "None", ""),
            ("none", "Static", ""),
            ("static", "Static", "strict-cpu-reservation"),
        ] {
            let mut kubelet = DescribedKubelet::default();
            (kubelet.profile.cpu_policy, kubelet.profile.memory_policy) = (cpus.into(), memory.into());
            if !options.is_empty() {
                kubelet.profile.cpu_options.insert(options.into(), "true".into());
            }
            let (node, state) = described("sockets:2 cores:2 cxl:4GiB", &kubelet);
            assert!(state.exact, "{cpus} {memory}: {:?}", state.inexact);
            assert!(NodeModel::new(&state).unwrap().is_exact());
            assert_eq!(node.allocatable["memory"], (40 << 30) - RESERVED_BYTES, "{cpus} {memory}");
        }
    }
}
