//! What the kubelet gave away, as claims on workloads: the same content as in the files and in the socket's
//! list, by pod and container.

use enforcer_core::{
    cluster::observed::{CpuAssignments, ListedPodResources, MemoryAssignments},
    owner::{Claim, ClaimedPod, MemoryBlock},
};
use numa_topology::set::CpuSet;

/// Claims of the CPU manager's file, those of whole pods first.
pub(super) fn of_cpus(state: &CpuAssignments, source: &str) -> Vec<Claim> {
    let claim = |pod: &String, container: Option<&String>, cpus: &CpuSet| Claim {
        cpus: cpus.clone(),
        ..claim_of(pod, container, source)
    };
    let of_pods = state.pods.iter().map(|(pod, cpus)| claim(pod, None, cpus));
    let of_containers = state
        .containers
        .iter()
        .flat_map(|(pod, of)| of.iter().map(move |(container, cpus)| claim(pod, Some(container), cpus)));
    of_pods.chain(of_containers).filter(|claim| !claim.cpus.is_empty()).collect()
}

/// Claims of the memory manager's file, those of whole pods first. Memory without nodes claims none.
pub(super) fn of_memory(state: &MemoryAssignments, source: &str) -> Vec<Claim> {
    let claim = |pod: &String, container: Option<&String>, blocks: &[MemoryBlock]| Claim {
        memory: blocks.iter().filter(|block| !block.nodes.is_empty()).cloned().collect(),
        ..claim_of(pod, container, source)
    };
    let of_pods = state.pods.iter().map(|(pod, blocks)| claim(pod, None, blocks));
    let of_containers = state
        .containers
        .iter()
        .flat_map(|(pod, of)| of.iter().map(move |(container, blocks)| claim(pod, Some(container), blocks)));
    of_pods.chain(of_containers).filter(|claim| !claim.memory.is_empty()).collect()
}

fn claim_of(pod: &str, container: Option<&String>, source: &str) -> Claim {
    let pod = ClaimedPod::Uid(pod.to_owned());
    Claim { pod, container: container.cloned(), source: source.to_owned(), ..Claim::default() }
}

/// Claims of the socket's list.
pub(super) fn of_list(pods: &[ListedPodResources], source: &str) -> Vec<Claim> {
    let all = pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)));
    let claims = all.map(|(pod, container)| Claim {
        pod: ClaimedPod::Named { namespace: pod.namespace.clone(), name: pod.name.clone() },
        container: Some(container.name.clone()),
        cpus: container.cpus.clone(),
        memory: container.memory.clone(),
        devices: container.devices.iter().map(|(resource, ids)| (resource.clone(), ids.len())).collect(),
        source: source.to_owned(),
    });
    claims
        .filter(|claim| !(claim.cpus.is_empty() && claim.memory.is_empty() && claim.devices.is_empty()))
        .collect()
}
