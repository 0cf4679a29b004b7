//! The state of a node where this daemon places containers.
//!
//! The kubelet's files decide nothing there, so neither they nor its socket are read for the state. A pod is
//! covered once all its containers have been announced: until then a reader adds those that are missing. The
//! API tells which containers a pod has, and which of them have ended for good.
//!
//! Invariant: while the kubelet's own managers give CPUs or memory, the kubelet decides
//! ([`decides`]), because it refuses pods and the daemon does not.

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{ContainerKind, Grant, Holder, PodName, external::UNPLACED};
use numa_topology::set::NodeSet;

use super::{ApiPod, NodeInputs, covered, machine};
use crate::cluster::{
    own_engine::{AnnouncedContainer, EngineSnapshot, OwnPart, SOURCE as ENGINE},
    state::{
        DecidedBy, HeldContainer, HeldMemory, HeldPod, InexactSource, KubeletProfile, MemorySupply,
        NodeState, RejectedPod,
    },
};

/// Does this daemon decide, and not the kubelet's managers?
pub(super) fn decides(kubelet: &KubeletProfile) -> bool {
    let is_off = |policy: &str| policy.is_empty() || policy.eq_ignore_ascii_case("none");
    let refuses = !(is_off(&kubelet.topology_policy) || kubelet.topology_policy == "best-effort");
    is_off(&kubelet.cpu_policy) && is_off(&kubelet.memory_policy) && !refuses
}

/// The state without hash, and with what the reader's model has still to find.
pub(super) fn state(inputs: NodeInputs<'_>, rejected: &[RejectedPod]) -> NodeState {
    let NodeInputs { machine, kubelet, inexact: named, api, engine, measured, .. } = inputs;
    let (machine_state, mut inexact) = machine::machine_state(machine, kubelet);
    inexact.extend(named.iter().cloned());
    let OwnPart::Known(engine) = engine else {
        if let OwnPart::Unknown(reason) = engine {
            inexact.push(InexactSource::new(ENGINE, reason));
        }
        return NodeState {
            inexact,
            decided_by: DecidedBy::NumaEnforcer,
            kubelet: kubelet.clone(),
            machine: machine_state,
            measured,
            rejected: rejected.to_vec(),
            ..NodeState::default()
        };
    };
    inexact.extend(engine.unrepeatable.iter().map(|reason| InexactSource::new(ENGINE, reason.clone())));
    if api.pods.is_none() {
        let reason = "the pods of the node are not known, so it is not known which have all their containers";
        inexact.push(InexactSource::new("api:pods", reason));
    }
    inexact.extend(api.left_out.iter().map(|pod| InexactSource::new("api:pods", pod.clone())));
    let own_engine = engine.packed().inspect_err(|fault| {
        inexact.push(InexactSource::new(ENGINE, fault.to_string()));
    });
    let own_engine = own_engine.ok().cloned();
    let (inventory, _) =
        numa_placement::Inventory::or_whole(engine.inputs.machine.clone(), &engine.inputs.settings);
    let exclusive = engine.inputs.allocations.exclusive_cpus();
    let pods = held_pods(engine, api.pods.as_deref());
    NodeState {
        inexact,
        decided_by: DecidedBy::NumaEnforcer,
        own_engine,
        kubelet: kubelet.clone(),
        machine: machine_state,
        reserved_cpus: inventory.reserved_cpus.clone(),
        shared_cpus: inventory.allowed_cpus.difference(&exclusive),
        memory: supplies(&inventory, engine),
        measured,
        covered: covered(&pods),
        pods,
        rejected: rejected.to_vec(),
        ..NodeState::default()
    }
}

/// Pods of which all containers have been announced, with what each holds.
fn held_pods(engine: &EngineSnapshot, api: Option<&[ApiPod]>) -> Vec<HeldPod> {
    let mut announced = BTreeMap::<&PodName, BTreeSet<&str>>::new();
    for AnnouncedContainer { pod, container } in &engine.announced {
        announced.entry(pod).or_default().insert(container);
    }
    let by_uid: BTreeMap<&str, &ApiPod> =
        api.into_iter().flatten().map(|pod| (pod.kubelet_uid(), pod)).collect();
    let held = announced.into_iter().filter_map(|(name, containers)| {
        // A pod without a uid is none of the cluster.
        if name.uid.is_empty() {
            return None;
        }
        let in_api = by_uid.get(name.uid.as_str()).copied();
        if in_api.is_some_and(|pod| !has_all(pod, &containers)) {
            return None;
        }
        let grants = engine.inputs.allocations.of_pod(name).filter(|(_, grant)| grant.engine != UNPLACED);
        let containers = grants.filter_map(|(holder, grant)| held_container(in_api, holder, grant));
        let uid = in_api.map_or(name.uid.as_str(), |pod| pod.uid.as_str());
        Some(HeldPod {
            uid: uid.to_owned(),
            namespace: name.namespace.clone(),
            name: name.name.clone(),
            mirror_of: (uid != name.uid).then(|| name.uid.clone()),
            containers: containers.collect(),
        })
    });
    held.collect()
}

/// Has the runtime announced every container that runs beside the others? One that crashed comes again, and
/// one that has ended for good does not.
fn has_all(pod: &ApiPod, announced: &BTreeSet<&str>) -> bool {
    let mut lasting = pod.containers.iter().filter(|container| container.kind != ContainerKind::Init);
    lasting.all(|container| container.has_ended || announced.contains(container.name.as_str()))
}

/// What a container has of its own; `None` for one that only shares.
fn held_container(pod: Option<&ApiPod>, holder: &Holder, grant: &Grant) -> Option<HeldContainer> {
    let memory = grant.memory.iter().filter(|claim| claim.bytes > 0).map(|claim| HeldMemory {
        nodes: claim.zone.clone(),
        resource: claim.resource.to_string(),
        bytes: i64::try_from(claim.bytes).unwrap_or(i64::MAX),
    });
    let memory: Vec<HeldMemory> = memory.collect();
    let known = pod.into_iter().flat_map(|pod| &pod.containers).find(|known| known.name == holder.name());
    (!grant.exclusive.is_empty() || !memory.is_empty()).then(|| HeldContainer {
        name: holder.name().to_owned(),
        kind: known.map(|known| known.kind),
        cpus: grant.exclusive.clone(),
        memory,
        devices: BTreeMap::new(),
    })
}

/// Memory by node, for people: the packed inputs decide.
fn supplies(inventory: &numa_placement::Inventory, engine: &EngineSnapshot) -> Vec<MemorySupply> {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut supplies = Vec::new();
    for node in &inventory.nodes {
        for (resource, bytes) in node.allocatable.iter().filter(|(_, bytes)| **bytes > 0) {
            let claims = engine.inputs.allocations.iter().flat_map(|(_, grant)| &grant.memory);
            let on_node = claims.filter(|claim| claim.resource == *resource);
            let on_node = on_node.filter_map(|claim| claim.by_node.get(&node.id));
            let held = on_node.fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
            supplies.push(MemorySupply {
                node: node.id,
                resource: resource.to_string(),
                allocatable: signed(*bytes),
                free: signed(bytes.saturating_sub(held)),
                assignments: 0,
                cells: NodeSet::new(),
            });
        }
    }
    supplies
}
