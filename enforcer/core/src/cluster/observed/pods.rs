//! Pods of a node in its published form: what each holds, joined from the three files, and its name.
//!
//! The files name pods by uid. The API has the names; without it a pod is joined with the socket's list by
//! what it alone can have, its exclusive CPUs or devices.
//!
//! Limit: without the pods of the API and without a static memory manager, an admission of several containers
//! that waits between two of them, as for a device plugin, looks like one that has ended.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ApiContainer, ApiPod, ListedPodResources, MemoryAssignments, NodeObservation,
    contradictions::{by_cpus, is_static_memory},
    devices::CountedDevices,
};
use crate::{
    cluster::state::{HeldContainer, HeldMemory, HeldPod, InexactSource},
    owner::MemoryBlock,
};

/// What containers hold, by uid of the pod in the kubelet and name of the container. The name is empty for
/// what a pod holds as a whole.
type HeldByPod = BTreeMap<String, BTreeMap<String, HeldContainer>>;

/// Pods that hold something, in order of their uid in the kubelet.
pub(super) fn held_pods(
    observation: &NodeObservation,
    devices: &CountedDevices,
    pods: Option<&[ApiPod]>,
) -> Vec<HeldPod> {
    let listed = ListedNames::new(observation);
    let by_uid: BTreeMap<&str, &ApiPod> =
        pods.into_iter().flatten().map(|pod| (pod.kubelet_uid(), pod)).collect();
    let held = held(observation, devices);
    let named = held.into_iter().map(|(uid, containers)| {
        let mut containers: Vec<HeldContainer> = containers
            .into_iter()
            .map(|(name, container)| HeldContainer { name, ..container })
            .filter(|one| !(one.cpus.is_empty() && one.memory.is_empty() && one.devices.is_empty()))
            .collect();
        let Some(pod) = by_uid.get(uid.as_str()) else {
            let (namespace, name) = listed.name_of(&uid).unwrap_or_default();
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            return HeldPod { uid, namespace, name, mirror_of: None, containers };
        };
        for container in &mut containers {
            let known = pod.containers.iter().find(|known| known.name == container.name);
            container.kind = known.map(|known| known.kind);
        }
        HeldPod {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            mirror_of: (uid != pod.uid).then_some(uid),
            containers,
        }
    });
    named.filter(|pod| !pod.containers.is_empty()).collect()
}

fn held(observation: &NodeObservation, counted: &CountedDevices) -> HeldByPod {
    let mut held = HeldByPod::new();
    let whole = String::new();
    if let Some(cpus) = observation.cpus.content() {
        let of_containers = cpus.containers.iter().flat_map(|(pod, of)| of.iter().map(move |one| (pod, one)));
        for (pod, (container, cpus)) in
            of_containers.chain(cpus.pods.iter().map(|(pod, set)| (pod, (&whole, set))))
        {
            container_of(&mut held, pod, container).cpus = cpus.clone();
        }
    }
    if let Some(memory) = observation.memory.content() {
        let of_containers =
            memory.containers.iter().flat_map(|(pod, of)| of.iter().map(move |one| (pod, one)));
        let of_pods = memory.pods.iter().map(|(pod, blocks)| (pod, (&whole, blocks)));
        for (pod, (container, blocks)) in of_containers.chain(of_pods) {
            container_of(&mut held, pod, container).memory = blocks.iter().map(held_memory).collect();
        }
    }
    for grant in observation.devices.content().into_iter().flat_map(|devices| &devices.grants) {
        let by_nodes = counted.by_nodes(&grant.resource, grant.devices.keys());
        if !by_nodes.is_empty() {
            let of = &mut container_of(&mut held, &grant.pod, &grant.container).devices;
            let counts = of.entry(grant.resource.clone()).or_default();
            for (nodes, count) in by_nodes {
                *counts.entry(nodes).or_default() += count;
            }
        }
    }
    held
}

fn container_of<'a>(held: &'a mut HeldByPod, pod: &str, container: &str) -> &'a mut HeldContainer {
    held.entry(pod.to_owned()).or_default().entry(container.to_owned()).or_default()
}

fn held_memory(block: &MemoryBlock) -> HeldMemory {
    // Accounts with more than the greatest signed number are a contradiction, and blocks are within them.
    let bytes = i64::try_from(block.bytes).unwrap_or(i64::MAX);
    HeldMemory { nodes: block.nodes.clone(), resource: block.kind.clone(), bytes }
}

/// Names of pods by what the socket's list says that they have.
struct ListedNames<'a>(BTreeMap<&'a str, (&'a str, &'a str)>);

impl<'a> ListedNames<'a> {
    fn new(observation: &'a NodeObservation) -> Self {
        let by_cpus = observation.cpus.content().map(by_cpus).unwrap_or_default();
        let grants = observation.devices.content().into_iter().flat_map(|devices| &devices.grants);
        let by_device: BTreeMap<(&str, &str, &str), &str> = grants
            .flat_map(|grant| {
                let of = |id: &'a String| (grant.container.as_str(), grant.resource.as_str(), id.as_str());
                grant.devices.keys().map(move |id| (of(id), grant.pod.as_str()))
            })
            .collect();
        let mut names = BTreeMap::new();
        for pod in observation.listed.content().into_iter().flatten() {
            for container in &pod.containers {
                let name = container.name.as_str();
                let devices = container.devices.iter();
                let mut ids =
                    devices.flat_map(|(resource, ids)| ids.keys().map(move |id| (resource.as_str(), id)));
                let of_device =
                    |(resource, id): (&'a str, &'a String)| by_device.get(&(name, resource, id.as_str()));
                let uid = by_cpus.get(&(name, &container.cpus)).or_else(|| ids.find_map(of_device));
                if let Some(uid) = uid {
                    names.insert(*uid, (pod.namespace.as_str(), pod.name.as_str()));
                }
            }
        }
        Self(names)
    }

    fn name_of(&self, uid: &str) -> Option<(&'a str, &'a str)> {
        self.0.get(uid).copied()
    }
}

/// Name of admissions in reasons.
const ADMISSION: &str = "kubelet:admission";

/// A pod whose admission has not ended: one of its containers has not all that its pod gets. One is enough to
/// make a state inexact.
pub(super) fn unfinished_admissions(
    observation: &NodeObservation,
    pods: Option<&[ApiPod]>,
) -> Vec<InexactSource> {
    let mut found = without_cpus(observation, pods);
    if found.is_empty() {
        found.extend(without_memory(observation));
    }
    found
}

/// The first listed pod that is Guaranteed, because it has exclusive CPUs or memory, and of which a container
/// has no entry in the file of a static memory manager. The manager makes one for each.
fn without_memory(observation: &NodeObservation) -> Option<InexactSource> {
    let memory = observation.memory.content().filter(|memory| is_static_memory(&memory.policy))?;
    let by_cpus = observation.cpus.content().map(by_cpus).unwrap_or_default();
    observation.listed.content()?.iter().find_map(|pod| {
        let mut uids = pod.containers.iter().filter_map(|one| by_cpus.get(&(one.name.as_str(), &one.cpus)));
        let container = container_without_memory(pod, memory, uids.next().copied())?;
        let reason = format!("container {container:?} of {}/{} has no memory yet", pod.namespace, pod.name);
        Some(InexactSource::new(ADMISSION, reason))
    })
}

/// Where the uid of the pod is not known, the list itself says what its containers have.
fn container_without_memory<'a>(
    pod: &'a ListedPodResources,
    memory: &MemoryAssignments,
    uid: Option<&str>,
) -> Option<&'a str> {
    let is_guaranteed = pod.containers.iter().any(|one| !one.cpus.is_empty() || !one.memory.is_empty());
    if pod.containers.len() < 2 || !is_guaranteed {
        return None;
    }
    let missing = pod.containers.iter().find(|one| match uid {
        Some(uid) => memory.containers.get(uid).is_none_or(|of| !of.contains_key(&one.name)),
        None => one.memory.is_empty(),
    });
    missing.map(|one| one.name.as_str())
}

/// The first static pod that holds something while the pods of the API are not known: its mirror pod has
/// another uid there, so a reader would count it twice.
pub(super) fn unknown_mirror(held: &[HeldPod], pods: Option<&[ApiPod]>) -> Option<InexactSource> {
    let is_config_hash = |uid: &str| uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let found = held.iter().find(|pod| pods.is_none() && is_config_hash(&pod.uid))?;
    let reason = format!("not known, and so is the uid there of the static pod {}", found.uid);
    Some(InexactSource::new("api:pods", reason))
}

/// The first pod of the API that holds something, and of which a container has not all of its CPUs yet.
fn without_cpus(observation: &NodeObservation, pods: Option<&[ApiPod]>) -> Vec<InexactSource> {
    let Some(cpus) = observation.cpus.content().filter(|cpus| cpus.policy == "static") else {
        return Vec::new();
    };
    let memory = observation.memory.content();
    let mut holders: BTreeSet<&str> = cpus.containers.keys().map(String::as_str).collect();
    holders.extend(memory.into_iter().flat_map(|memory| memory.containers.keys().map(String::as_str)));
    holders.extend(
        observation.devices.content().into_iter().flat_map(|of| of.grants.iter().map(|one| one.pod.as_str())),
    );
    let pods = pods.into_iter().flatten();
    let open =
        pods.filter(|pod| !pod.is_finished && pod.rejection.is_none() && holders.contains(pod.kubelet_uid()));
    let misses = |pod: &&ApiPod| {
        let of = cpus.containers.get(pod.kubelet_uid());
        let has = |container: &ApiContainer| {
            of.and_then(|of| of.get(&container.name)).map_or(0, |cpus| cpus.len() as u64)
        };
        pod.containers.iter().any(|one| one.exclusive_cpus.is_some_and(|cpus| cpus != has(one)))
    };
    let found = open.filter(misses).map(|pod| {
        let reason = format!("pod {}/{} holds a part of its CPUs only", pod.namespace, pod.name);
        InexactSource::new(ADMISSION, reason)
    });
    found.take(1).collect()
}
