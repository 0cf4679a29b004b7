//! A node with a kubelet that admits pods one by one, with the engine under the kubelet's rules.
//!
//! It knows nothing of schedulers. What it publishes is what a daemon on it would: the whole state with the
//! pods that it has admitted and refused, or the free amounts of each NUMA node.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use enforcer_core::cluster::{
    model::NodeModel,
    state::{
        CoveredPods, HeldContainer, HeldMemory, HeldPod, KubeletProfile, MachineNode, MachineState,
        MemorySupply, NodeState, RejectedPod, Revision, limits,
    },
};
use numa_placement::{Allocations, PodRequest, admit, remove};
use numa_topology::{
    MemoryKind,
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

use crate::workload::GIB_PER_CPU;

/// Cores of a NUMA node, with two threads each.
const CORES: u32 = 8;
/// NUMA nodes.
const ZONES: u32 = 2;

/// Free amounts of one NUMA node, or what a container wants of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZoneAmounts {
    /// Whole CPUs.
    pub cpus: u64,
    /// Bytes.
    pub memory: u64,
}

/// The kubelet of one node.
#[derive(Debug)]
pub struct SimulatedKubelet {
    model: NodeModel,
    held: Allocations,
    /// Its state without any pod.
    empty: NodeState,
    rejected: Vec<RejectedPod>,
    counter: i64,
}

/// The CPUs of a NUMA node: cores one after another, then their second threads.
fn cpus_of(zone: u32) -> CpuSet {
    let cores = zone * CORES..(zone + 1) * CORES;
    cores.flat_map(|core| [core, core + ZONES * CORES]).map(CpuId).collect()
}

/// State of an empty node: two NUMA nodes of 16 CPUs, one core of which is reserved.
pub fn empty_state(topology_policy: &str) -> NodeState {
    let zones: Vec<CpuSet> = (0..ZONES).map(cpus_of).collect();
    let reserved: CpuSet = [0, ZONES * CORES].into_iter().map(CpuId).collect();
    let cores = (0..ZONES * CORES).map(|core| [core, core + ZONES * CORES].into_iter().map(CpuId).collect());
    let node = |(id, cpus): (usize, &CpuSet)| MachineNode {
        id: NodeId(u32::try_from(id).unwrap_or_default()),
        cpus: cpus.clone(),
        kind: MemoryKind::Dram,
    };
    let memory = |zone: u32| {
        let bytes = i64::from(4 * CORES) * (GIB_PER_CPU.cast_signed() << 30);
        MemorySupply {
            node: NodeId(zone),
            resource: "memory".into(),
            allocatable: bytes,
            free: bytes,
            assignments: 0,
            cells: NodeSet::from_iter([NodeId(zone)]),
        }
    };
    NodeState {
        revision: Revision { epoch: 1, counter: 0 },
        exact: true,
        kubelet: KubeletProfile {
            version: "v1.36.2".into(),
            cpu_policy: "static".into(),
            memory_policy: "Static".into(),
            topology_policy: topology_policy.into(),
            topology_scope: "container".into(),
            ..KubeletProfile::default()
        },
        machine: MachineState {
            hash: "machine".into(),
            nodes: zones.iter().enumerate().map(node).collect(),
            distances: vec![vec![10, 21], vec![21, 10]],
            sockets: zones.clone(),
            cores: cores.collect(),
            caches: zones.clone(),
        },
        shared_cpus: zones.iter().fold(CpuSet::new(), |all, zone| all.union(zone)),
        reserved_cpus: reserved,
        memory: (0..ZONES).map(memory).collect(),
        ..NodeState::default()
    }
}

impl SimulatedKubelet {
    /// A kubelet without pods.
    ///
    /// # Errors
    /// If its state has no model.
    pub fn new(topology_policy: &str) -> Result<Self> {
        let empty = empty_state(topology_policy);
        let model = NodeModel::new(&empty).context("model of the simulated node")?;
        Ok(Self { held: model.allocations.clone(), model, empty, rejected: Vec::new(), counter: 0 })
    }

    /// Admits a pod; its NUMA nodes, or the reason of the kubelet.
    ///
    /// # Errors
    /// If the pod has no place: the reason in its status.
    pub fn admit(&mut self, pod: &PodRequest) -> Result<NodeSet, String> {
        self.counter += 1;
        let request = self.model.request_of(pod);
        match admit(&self.model.inventory, &self.model.settings, &mut self.held, &request) {
            Ok(admission) => {
                let cpus = admission.grants.iter().flat_map(|grant| grant.grant.exclusive.iter());
                let cpus: CpuSet = cpus.collect();
                let nodes = self.empty.machine.nodes.iter().filter(|node| !node.cpus.is_disjoint(&cpus));
                Ok(nodes.map(|node| node.id).collect())
            }
            Err(rejection) => {
                let reason = rejection.reason.as_str().to_owned();
                self.rejected.push(RejectedPod {
                    uid: pod.name.uid.clone(),
                    reason: reason.clone(),
                    at: self.counter,
                });
                if self.rejected.len() > limits::REJECTED {
                    self.rejected.remove(0);
                }
                Err(reason)
            }
        }
    }

    /// Frees what a pod holds, which has ended.
    pub fn end(&mut self, pod: &PodRequest) {
        self.counter += 1;
        remove(&mut self.held, &pod.name);
    }

    /// Uids of the pods that hold something.
    pub fn holders(&self) -> BTreeSet<String> {
        self.held.iter().map(|(holder, _)| holder.pod().uid.clone()).collect()
    }

    /// Amounts that pods may get of each NUMA node, and that no pod has.
    pub fn free(&self) -> Vec<ZoneAmounts> {
        let taken = self.held.iter().fold(self.empty.reserved_cpus.clone(), |mut taken, (_, grant)| {
            taken.extend(&grant.exclusive);
            taken
        });
        let zone = |node: &MachineNode| {
            let supply = self.empty.memory.iter().find(|supply| supply.node == node.id);
            let claims = self.held.iter().flat_map(|(_, grant)| &grant.memory);
            let held = claims.filter_map(|claim| claim.by_node.get(&node.id)).sum::<u64>();
            let all = supply.map_or(0, |supply| supply.allocatable.cast_unsigned());
            let cpus = node.cpus.difference(&taken).len() as u64;
            ZoneAmounts { cpus, memory: all.saturating_sub(held) }
        };
        self.empty.machine.nodes.iter().map(zone).collect()
    }

    /// The state as the node's daemon publishes it now.
    pub fn state(&self) -> NodeState {
        let mut state = self.empty.clone();
        state.revision.counter = self.counter;
        state.hash = format!("content-{}", self.counter);
        state.rejected.clone_from(&self.rejected);
        let mut taken = CpuSet::new();
        for (holder, grant) in self.held.iter() {
            let mut memory = Vec::new();
            for claim in &grant.memory {
                for (node, bytes) in &claim.by_node {
                    if let Some(supply) = state.memory.iter_mut().find(|supply| supply.node == *node) {
                        supply.free -= bytes.cast_signed();
                        supply.assignments += 1;
                    }
                }
                memory.push(HeldMemory {
                    nodes: claim.zone.clone(),
                    resource: claim.resource.to_string(),
                    bytes: claim.bytes.cast_signed(),
                });
            }
            taken.extend(&grant.exclusive);
            let container = HeldContainer {
                name: holder.name().into(),
                cpus: grant.exclusive.clone(),
                memory,
                ..HeldContainer::default()
            };
            let uid = &holder.pod().uid;
            match state.pods.iter_mut().find(|held| held.uid == *uid) {
                Some(held) => held.containers.push(container),
                None => state.pods.push(HeldPod {
                    uid: uid.clone(),
                    namespace: holder.pod().namespace.clone(),
                    name: holder.pod().name.clone(),
                    mirror_of: None,
                    containers: vec![container],
                }),
            }
        }
        state.shared_cpus = state.shared_cpus.difference(&taken);
        state.covered = CoveredPods {
            count: u32::try_from(state.pods.len()).unwrap_or(u32::MAX),
            exclusive_cpus: u32::try_from(taken.len()).unwrap_or(u32::MAX),
            ..CoveredPods::default()
        };
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::PodShape;

    fn request(name: &str, cpus: u64) -> PodRequest {
        PodShape { containers: vec![cpus] }.request(name)
    }

    #[test]
    fn kubelet_refuses_what_no_numa_node_has_free_together() {
        let mut kubelet = SimulatedKubelet::new("single-numa-node").unwrap();
        let cpus =
            |kubelet: &SimulatedKubelet| kubelet.free().iter().map(|zone| zone.cpus).collect::<Vec<_>>();
        assert_eq!(cpus(&kubelet), [14, 16]);
        assert_eq!(kubelet.admit(&request("a", 8)).unwrap().to_string(), "0");
        assert_eq!(kubelet.admit(&request("b", 12)).unwrap().to_string(), "1");
        assert_eq!(cpus(&kubelet), [6, 4]);
        assert_eq!(kubelet.admit(&request("c", 8)), Err("TopologyAffinityError".to_owned()));
        kubelet.end(&request("a", 8));
        assert_eq!(cpus(&kubelet), [14, 4]);
        assert_eq!(kubelet.holders().into_iter().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn another_policy_splits_a_pod_instead() {
        let mut kubelet = SimulatedKubelet::new("best-effort").unwrap();
        for name in ["a", "b"] {
            assert_eq!(kubelet.admit(&request(name, 8)).unwrap().len(), 1);
        }
        assert_eq!(kubelet.admit(&request("c", 12)).unwrap().to_string(), "0-1");
    }

    #[test]
    fn state_is_exact_and_has_the_same_place_left() {
        let mut kubelet = SimulatedKubelet::new("single-numa-node").unwrap();
        let pod = PodShape { containers: vec![8, 4] }.request("a");
        kubelet.admit(&pod).unwrap();
        kubelet.admit(&request("b", 12)).unwrap();
        assert!(kubelet.admit(&request("c", 16)).is_err());
        let state = kubelet.state();
        assert_eq!((state.covered.count, state.covered.exclusive_cpus), (2, 24));
        let model = NodeModel::new(&state).unwrap();
        assert!(model.is_exact(), "{:?}", model.inexact);
        assert!(["a", "b", "c"].iter().all(|uid| model.covered.contains(*uid)));
        let exclusive = |held: &Allocations| -> Vec<String> {
            held.iter().map(|(holder, grant)| format!("{holder} {}", grant.exclusive)).collect()
        };
        assert_eq!(exclusive(&model.allocations), exclusive(&kubelet.held));
    }
}
