//! The model of a node where this daemon places containers: its inputs, unpacked.

use std::sync::Arc;

use numa_placement::{Allocations, Holder, Inventory};
use numa_topology::set::CpuSet;

use super::{NodeModel, StateFault, covered, named_by_node};
use crate::cluster::{
    own_engine::{EngineInputs, SOURCE, UnusableInputs},
    state::{DecidedBy, InexactSource, NodeState},
};

/// The model of a state that this daemon's engine decides about.
///
/// # Errors
/// If the inputs are damaged or contradict the state. Inputs of an unknown form, or none, make it inexact.
pub(super) fn model(state: &NodeState) -> Result<NodeModel, StateFault> {
    let (inputs, mut inexact) = match state.own_engine.as_ref().map(EngineInputs::unpacked) {
        Some(Ok(inputs)) => (inputs, Vec::new()),
        Some(Err(UnusableInputs::Format(format))) => {
            let reason = UnusableInputs::Format(format).to_string();
            (EngineInputs::default(), vec![InexactSource::new(SOURCE, reason)])
        }
        Some(Err(fault)) => return Err(StateFault::Engine(fault)),
        None => {
            let reason = "numa-enforcer places containers there, and its inputs are not in the state";
            (EngineInputs::default(), vec![InexactSource::new(SOURCE, reason)])
        }
    };
    let is_packed = inexact.is_empty();
    let EngineInputs { machine, settings, allocations } = inputs;
    let (inventory, _) = Inventory::or_whole(machine, &settings);
    if is_packed {
        agrees(state, &inventory, &allocations)?;
    }
    inexact.extend(named_by_node(state, inexact.is_empty()));
    Ok(NodeModel {
        revision: state.revision,
        covered: covered(state),
        inventory: Arc::new(inventory),
        settings: Arc::new(settings),
        allocations,
        inexact,
        decided_by: DecidedBy::NumaEnforcer,
        gives_cpus: true,
    })
}

/// The packed inputs must tell of the machine and the pods what the rest of the state shows.
fn agrees(state: &NodeState, inventory: &Inventory, allocations: &Allocations) -> Result<(), StateFault> {
    let shown = state.machine.nodes.iter().map(|node| (node.id, &node.cpus));
    if !shown.eq(inventory.machine.nodes.iter().map(|node| (node.id, &node.cpus))) {
        return Err(StateFault::OtherMachine);
    }
    let mut given = CpuSet::new();
    for (holder, grant) in allocations.iter() {
        for (wrong, why) in [
            (grant.exclusive.difference(&inventory.layout.all()), "not online"),
            (grant.exclusive.intersection(&given), "another pod's"),
        ] {
            if !wrong.is_empty() {
                return Err(StateFault::HeldCpus { pod: holder.to_string(), cpus: wrong, why });
            }
        }
        given.extend(&grant.exclusive);
    }
    let shared = inventory.allowed_cpus.difference(&given);
    for (field, shown, packed) in [
        ("reservedCpus", &state.reserved_cpus, &inventory.reserved_cpus),
        ("sharedCpus", &state.shared_cpus, &shared),
    ] {
        if shown != packed {
            return Err(StateFault::Differs { field, shown: shown.clone(), packed: packed.clone() });
        }
    }
    for pod in &state.pods {
        for container in &pod.containers {
            let uid = pod.mirror_of.as_ref().unwrap_or(&pod.uid);
            let is_it = |holder: &Holder| holder.pod().uid == *uid && holder.name() == container.name;
            let grant = allocations.iter().find(|(holder, _)| is_it(holder)).map(|(_, grant)| grant);
            let packed = grant.map(|grant| grant.exclusive.clone()).unwrap_or_default();
            if packed != container.cpus {
                let (field, shown) = ("pods.containers.cpus", container.cpus.clone());
                return Err(StateFault::Differs { field, shown, packed });
            }
        }
    }
    Ok(())
}
