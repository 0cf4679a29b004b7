//! What was read of a node, and the state that the node publishes from it.
//!
//! Problem: a kubelet decides from its own memory, and tells it in pieces: three files, two answers of a
//! socket, its settings, the machine. Each may be missing, damaged, older than the others or of a version
//! that is not known. Idea: the readers hand over every piece as a value ([`NodeObservation`]);
//! [`contradictions`] compares the pieces; [`NodeStateSource`] joins them into a [`NodeState`] and gives it a
//! revision when it differs from the last one.
//!
//! Invariants: a state is `exact` only if every piece was read and none contradicts another, if every setting
//! has a translation, and if the reader's own model of the state finds nothing to name. `exact` is set if
//! and only if `inexact` is empty. A state is never refused by its readers: it keeps the limits of its schema
//! and its size, and content that the model refuses is left out.
//!
//! Cost: one model of the state for each observation that differs from the last one, and one more for each
//! part that a too large state loses.

mod api;
mod contradictions;
mod devices;
mod empty;
mod fingerprint;
mod limits;
mod locality;
mod machine;
mod own_engine;
mod pods;
mod revision;
mod sources;
#[cfg(test)]
pub(in crate::cluster) mod tests;

pub(in crate::cluster) use self::fingerprint::of_pods as pods_fingerprint;
pub(super) use self::pods::ADMISSION;
pub use self::{
    api::{ApiContainer, ApiPod, ApiRejection, NodeInApi, PodSequence},
    contradictions::contradictions,
    devices::RememberedDevices,
    empty::{answers_of_files, empty_node},
    locality::LocalitySteps,
    revision::NodeStateSource,
    sources::{
        CpuAssignments, DeviceAssignments, DeviceGrant, DeviceNodes, ListedContainerResources,
        ListedPodResources, MemoryAmounts, MemoryAssignments, NumaMemoryAccount, OfferedResources,
        SourceRead,
    },
};

use std::collections::BTreeSet;

use numa_topology::{Topology, set::CpuSet};

use self::{
    contradictions::{CPU_FILE, DEVICE_FILE, MEMORY_FILE, SOCKET, is_static_memory, online, reserved},
    devices::CountedDevices,
};
use super::{
    own_engine::OwnPart,
    state::{
        CoveredPods, InexactSource, KubeletProfile, MeasuredLocality, MemorySupply, NodeState, RejectedPod,
    },
};

/// What was read of a kubelet at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeObservation {
    /// `cpu_manager_state`.
    pub cpus: SourceRead<CpuAssignments>,
    /// `memory_manager_state`.
    pub memory: SourceRead<MemoryAssignments>,
    /// `kubelet_internal_checkpoint`; absent until a plugin has registered.
    pub devices: SourceRead<DeviceAssignments>,
    /// The socket's answer to `GetAllocatableResources`.
    pub offered: SourceRead<OfferedResources>,
    /// The socket's answer to `List`.
    pub listed: SourceRead<Vec<ListedPodResources>>,
    /// Why the sources are not of one moment, if they are not.
    pub torn: Option<String>,
}

/// Everything that a published state is made from.
#[derive(Debug, Clone, Copy)]
pub struct NodeInputs<'a> {
    /// The machine as its kernel shows it.
    pub machine: &'a Topology,
    /// Effective settings of the kubelet.
    pub kubelet: &'a KubeletProfile,
    /// What else makes it inexact: settings of the kubelet that are not known, a prediction that was wrong.
    pub inexact: &'a [InexactSource],
    /// The kubelet's files and socket.
    pub observation: &'a NodeObservation,
    /// What the API says.
    pub api: &'a NodeInApi,
    /// This daemon's engine, if it places containers.
    pub engine: OwnPart<'a>,
    /// What the daemon measures of workloads, if it does.
    pub measured: Option<MeasuredLocality>,
}

/// What of a node's past is in its state.
#[derive(Debug, Clone, Copy)]
struct NodePast<'a> {
    /// Devices that were once offered.
    pub devices: &'a RememberedDevices,
    /// The last refused pods.
    pub rejected: &'a [RejectedPod],
    /// Pods that the API has shown while they held something, by uid in the kubelet.
    pub shown: &'a BTreeSet<String>,
}

/// The state of a node before its limits: without a revision, a hash and what a reader's model finds.
fn whole_state(inputs: NodeInputs<'_>, past: NodePast<'_>) -> NodeState {
    let NodePast { devices: remembered, rejected, shown } = past;
    let NodeInputs { machine, kubelet, inexact: named, observation, api, engine, measured } = inputs;
    if engine != OwnPart::None && own_engine::decides(kubelet) {
        return own_engine::state(inputs, rejected);
    }
    let (machine_state, mut inexact) = machine::machine_state(machine, kubelet);
    inexact.extend(named.iter().cloned());
    inexact.extend(unread_sources(observation).map(|unread| unread.inexact));
    inexact.extend(observation.torn.iter().map(|reason| InexactSource::new("inconsistent", reason.clone())));
    inexact.extend(contradictions(machine, kubelet, observation));
    let capacity = api.device_capacity.as_ref();
    let devices = CountedDevices::new(machine, observation, remembered, capacity);
    inexact.extend(devices.inexact.iter().cloned());
    let known = api.pods.as_deref();
    inexact.extend(pods::unfinished_admissions(observation, known));
    let pods = pods::held_pods(observation, &devices, known);
    inexact.extend(pods::unknown_pods(observation, &pods, api, shown));
    let (reserved_cpus, shared_cpus) = cpus(machine, observation);
    NodeState {
        inexact,
        kubelet: kubelet.clone(),
        machine: machine_state,
        reserved_cpus,
        shared_cpus,
        memory: observation.memory.content().map(supplies).unwrap_or_default(),
        devices: devices.supplies,
        measured,
        covered: covered(&pods),
        pods,
        rejected: rejected.to_vec(),
        ..NodeState::default()
    }
}

/// A source that was not read.
struct UnreadSource {
    inexact: InexactSource,
    /// It is there and cannot be used.
    is_unusable: bool,
}

/// The sources that were not read, in the order of the kubelet's managers; of the socket's answers one.
fn unread_sources(observation: &NodeObservation) -> impl Iterator<Item = UnreadSource> {
    fn of<T>(source: &str, read: &SourceRead<T>) -> Option<UnreadSource> {
        let (reason, is_unusable) = match read {
            SourceRead::Read(_) => return None,
            SourceRead::Absent => ("it does not exist".to_owned(), false),
            SourceRead::Unusable(reason) => (reason.clone(), true),
        };
        Some(UnreadSource { inexact: InexactSource::new(source, reason), is_unusable })
    }
    let NodeObservation { cpus, memory, devices, offered, listed, torn: _ } = observation;
    // The file of devices is absent until a plugin has registered.
    let devices = of(DEVICE_FILE, devices).filter(|unread| unread.is_unusable);
    let socket = of(SOCKET, offered).or_else(|| of(SOCKET, listed));
    [of(CPU_FILE, cpus), of(MEMORY_FILE, memory), devices, socket].into_iter().flatten()
}

/// The first source that is there and cannot be used.
pub(super) fn unusable(observation: &NodeObservation) -> Option<InexactSource> {
    unread_sources(observation).find(|unread| unread.is_unusable).map(|unread| unread.inexact)
}

/// Reserved and shared CPUs; empty where they are not known.
fn cpus(machine: &Topology, observation: &NodeObservation) -> (CpuSet, CpuSet) {
    let Some(cpus) = observation.cpus.content() else { return Default::default() };
    if cpus.policy != "static" {
        return (CpuSet::new(), online(machine));
    }
    let reserved =
        observation.offered.content().map(|offered| reserved(machine, offered)).unwrap_or_default();
    let shared = cpus.default_cpus.union(&reserved);
    (reserved, shared)
}

fn supplies(memory: &MemoryAssignments) -> Vec<MemorySupply> {
    if !is_static_memory(&memory.policy) {
        return Vec::new();
    }
    let all = memory.nodes.iter().flat_map(|(id, account)| {
        let amounts = account.amounts.iter();
        amounts.map(move |(resource, amounts)| (*id, account, resource, amounts))
    });
    // A size of huge pages that the node has none of decides nothing.
    let all = all.filter(|(_, _, resource, amounts)| *resource == "memory" || amounts.total > 0);
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    all.map(|(node, account, resource, amounts)| MemorySupply {
        node,
        resource: resource.clone(),
        allocatable: signed(amounts.allocatable),
        free: signed(amounts.free),
        assignments: u32::try_from(account.assignments).unwrap_or(u32::MAX),
        cells: account.cells.clone(),
    })
    .collect()
}

fn covered(pods: &[super::state::HeldPod]) -> CoveredPods {
    let is_known = pods.iter().all(|pod| !pod.name.is_empty());
    let names = pods.iter().map(|pod| (pod.namespace.as_str(), pod.name.as_str()));
    let containers = pods.iter().flat_map(|pod| &pod.containers);
    let exclusive = containers.map(|container| container.cpus.len()).sum::<usize>();
    CoveredPods {
        exclusive_cpus: u32::try_from(exclusive).unwrap_or(u32::MAX),
        count: u32::try_from(pods.len()).unwrap_or(u32::MAX),
        fingerprint: if is_known { fingerprint::of_pods(names) } else { String::new() },
    }
}
