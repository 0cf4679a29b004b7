//! Pods of a node in its published form: what each holds, joined from the three files, and its name.
//!
//! The files name pods by uid. The API has the names; without it a pod is joined with the socket's list by
//! what it alone can have, its exclusive CPUs or devices.
//!
//! An admission of several containers may wait between two of them, as for a device plugin. What each
//! container is to have tells whether it has ended: its CPUs and devices in the API, or the entries of a
//! static memory manager. Where neither is known, a state is not exact with device plugins, or with a pod of
//! which a container may still get CPUs ([`unknown_pods`]).

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::ContainerKind;

use super::{
    ApiContainer, ApiPod, DeviceGrant, ListedPodResources, MemoryAssignments, NodeInApi, NodeObservation,
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
    let held = held(observation, devices, &by_uid);
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

fn held(
    observation: &NodeObservation,
    counted: &CountedDevices,
    by_uid: &BTreeMap<&str, &ApiPod>,
) -> HeldByPod {
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
    // A container that uses a device of an init container again has it too, and it is one device.
    let mut grants: Vec<&DeviceGrant> =
        observation.devices.content().into_iter().flat_map(|devices| &devices.grants).collect();
    grants.sort_by_key(|grant| {
        let containers = by_uid.get(grant.pod.as_str()).into_iter().flat_map(|pod| &pod.containers);
        let kind = containers.into_iter().find(|one| one.name == grant.container).map(|one| one.kind);
        match kind {
            Some(ContainerKind::Init) => 2,
            Some(ContainerKind::Sidecar) => 1,
            Some(ContainerKind::App) | None => 0,
        }
    });
    let mut counted_ids = BTreeSet::new();
    for grant in grants {
        let (pod, resource) = (grant.pod.as_str(), grant.resource.as_str());
        let ids = grant.devices.keys().filter(|id| counted_ids.insert((pod, resource, id.as_str())));
        let by_nodes = counted.by_nodes(resource, ids);
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
pub(in crate::cluster) const ADMISSION: &str = "kubelet:admission";
/// Name of the API's pods in reasons.
const API_PODS: &str = "api:pods";
/// Longest reason, in characters.
const REASON: usize = 300;

/// A pod whose admission has not ended: one of its containers has not all that its pod gets. One is enough to
/// make a state inexact.
pub(super) fn unfinished_admissions(
    observation: &NodeObservation,
    pods: Option<&[ApiPod]>,
) -> Vec<InexactSource> {
    let found = without_cpus_or_devices(observation, pods).or_else(|| without_memory(observation));
    found.into_iter().collect()
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

/// Why the pods of the API have to be known, and are not: the first reason.
///
/// A static pod has another uid there, so a reader would count it twice. And where no memory manager tells of
/// an admission that waits, a pod that has a part of its CPUs or devices looks like one that has all. The
/// kubelet may be ahead of the watch, so all this counts for each pod that was never shown; one that was is
/// gone from the API, and the kubelet has not cleared it yet.
pub(super) fn unknown_pods(
    observation: &NodeObservation,
    held: &[HeldPod],
    api: &NodeInApi,
    shown: &BTreeSet<String>,
) -> Option<InexactSource> {
    let is_known = |pod: &HeldPod| {
        let mut pods = api.pods.iter().flatten();
        pods.any(|known| known.uid == pod.uid) || shown.contains(&pod.uid)
    };
    let held: Vec<&HeldPod> = held.iter().filter(|pod| !is_known(pod)).collect();
    if held.is_empty() {
        return None;
    }
    // Any of those that could not be read may be the one.
    if let Some(reason) = api.left_out.first() {
        return Some(InexactSource::new(API_PODS, reason.chars().take(REASON).collect::<String>()));
    }
    let is_config_hash = |uid: &str| uid.len() == 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(pod) = held.iter().find(|pod| is_config_hash(&pod.uid)) {
        let reason = match api.pods {
            None => format!("not known, and so is the uid there of the static pod {}", pod.uid),
            Some(_) => format!("the mirror of the static pod {} is not among them", pod.uid),
        };
        return Some(InexactSource::new(API_PODS, reason));
    }
    let has_plugins = observation.devices.content().is_some_and(|devices| !devices.registered.is_empty());
    let is_static = observation.memory.content().is_some_and(|memory| is_static_memory(&memory.policy));
    if is_static {
        return None;
    }
    let with_all_cpus = with_all_cpus(observation);
    // Without a list the state is inexact already.
    let may_get_cpus =
        |pod: &HeldPod| with_all_cpus.as_ref().is_some_and(|whole| !whole.contains(pod.uid.as_str()));
    let is_doubtful = |pod: &&&HeldPod| has_plugins || may_get_cpus(pod);
    let uid = &held.iter().find(is_doubtful)?.uid;
    let all = if has_plugins { "all of its CPUs and devices" } else { "all of its CPUs" };
    let reason = match api.pods {
        None => format!("not known, and so is whether pod {uid} has {all}"),
        Some(_) => format!("pod {uid} is not among them, so it is not known whether it has {all}"),
    };
    Some(InexactSource::new(API_PODS, reason))
}

/// Uids in the kubelet of listed pods of which each container has exclusive CPUs: none can still get some.
/// Init containers, which are not listed, get theirs first. `None` if there is no list or no manager of CPUs.
fn with_all_cpus(observation: &NodeObservation) -> Option<BTreeSet<&str>> {
    let by_cpus = by_cpus(observation.cpus.content().filter(|cpus| cpus.policy == "static")?);
    let whole = observation.listed.content()?.iter();
    let whole = whole.filter(|pod| pod.containers.iter().all(|one| !one.cpus.is_empty()));
    let uid = |pod: &ListedPodResources| {
        pod.containers.iter().find_map(|one| by_cpus.get(&(one.name.as_str(), &one.cpus)).copied())
    };
    Some(whole.filter_map(uid).collect())
}

/// Uids in the kubelet of pods with an entry in one of its files.
pub(super) fn holders(observation: &NodeObservation) -> BTreeSet<&str> {
    let NodeObservation { cpus, memory, devices, .. } = observation;
    let grants = devices.content().into_iter().flat_map(|devices| &devices.grants);
    let with_cpus = cpus.content().into_iter().flat_map(|cpus| cpus.containers.keys());
    let with_memory = memory.content().into_iter().flat_map(|memory| memory.containers.keys());
    with_cpus.chain(with_memory).chain(grants.map(|grant| &grant.pod)).map(String::as_str).collect()
}

/// The first pod of the API that holds something, and of which a container has not all of its CPUs or devices
/// yet.
fn without_cpus_or_devices(observation: &NodeObservation, pods: Option<&[ApiPod]>) -> Option<InexactSource> {
    let cpus = observation.cpus.content();
    let devices = observation.devices.content();
    let mut granted = BTreeMap::<(&str, &str, &str), u64>::new();
    for grant in devices.into_iter().flat_map(|devices| &devices.grants) {
        let key = (grant.pod.as_str(), grant.container.as_str(), grant.resource.as_str());
        *granted.entry(key).or_default() += grant.devices.len() as u64;
    }
    let holders = holders(observation);
    let is_registered =
        |resource: &str| devices.is_some_and(|devices| devices.registered.contains_key(resource));
    let with_cpus = cpus.filter(|cpus| cpus.policy == "static");
    let lacks_cpus = |uid: &str, container: &ApiContainer| {
        let (Some(cpus), Some(asked)) = (with_cpus, container.exclusive_cpus) else { return false };
        let has = cpus.containers.get(uid).and_then(|of| of.get(&container.name));
        has.map_or(0, |cpus| cpus.len() as u64) != asked
    };
    let lacks_devices = |uid: &str, container: &ApiContainer| {
        container.devices.iter().any(|(resource, asked)| {
            let has = granted.get(&(uid, container.name.as_str(), resource.as_str()));
            is_registered(resource) && has.copied().unwrap_or(0) < *asked
        })
    };
    let open =
        |pod: &&ApiPod| !pod.is_finished && pod.rejection.is_none() && holders.contains(pod.kubelet_uid());
    pods?.iter().filter(open).find_map(|pod| {
        let uid = pod.kubelet_uid();
        let part_of = if pod.containers.iter().any(|one| lacks_cpus(uid, one)) {
            "CPUs"
        } else if pod.containers.iter().any(|one| lacks_devices(uid, one)) {
            "devices"
        } else {
            return None;
        };
        let reason = format!("pod {}/{} holds a part of its {part_of} only", pod.namespace, pod.name);
        Some(InexactSource::new(ADMISSION, reason))
    })
}
