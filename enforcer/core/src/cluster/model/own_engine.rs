//! The model of a node where this daemon places containers: its inputs, unpacked.

use std::sync::Arc;

use numa_placement::Inventory;
use numa_topology::set::CpuSet;

use super::{NodeModel, StateFault, covered, named_by_node};
use crate::cluster::{
    own_engine::{EngineInputs, UnusableInputs},
    state::{DecidedBy, InexactSource, NodeState},
};

/// Name of the field among the sources that make a state inexact.
const FIELD: &str = "ownEngine";

/// The model of a state that this daemon's engine decides about.
///
/// # Errors
/// If the inputs are damaged or contradict the state. Inputs of an unknown form, or none, make it inexact.
pub(super) fn model(state: &NodeState) -> Result<NodeModel, StateFault> {
    let (inputs, mut inexact) = match state.own_engine.as_ref().map(EngineInputs::unpacked) {
        Some(Ok(inputs)) => (inputs, Vec::new()),
        Some(Err(UnusableInputs::Format(format))) => {
            let reason = UnusableInputs::Format(format).to_string();
            (EngineInputs::default(), vec![InexactSource::new(FIELD, reason)])
        }
        Some(Err(fault)) => return Err(StateFault::Engine(fault)),
        None => {
            let reason = "numa-enforcer places containers there, and its inputs are not in the state";
            (EngineInputs::default(), vec![InexactSource::new(FIELD, reason)])
        }
    };
    if inexact.is_empty() {
        agrees(state, &inputs)?;
    }
    let EngineInputs { machine, settings, allocations } = inputs;
    let (inventory, unfit) = Inventory::or_whole(machine, &settings);
    if unfit.is_none() && inventory.reserved_cpus != state.reserved_cpus && inexact.is_empty() {
        let value = state.reserved_cpus.to_string();
        return Err(StateFault::Unknown { field: "reservedCpus", value });
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

/// The packed inputs must be of the machine and the pods that the rest of the state shows.
fn agrees(state: &NodeState, inputs: &EngineInputs) -> Result<(), StateFault> {
    let shown = state.machine.nodes.iter().map(|node| (node.id, &node.cpus));
    if !shown.eq(inputs.machine.nodes.iter().map(|node| (node.id, &node.cpus))) {
        return Err(StateFault::OtherMachine);
    }
    let mut given = CpuSet::new();
    for (holder, grant) in inputs.allocations.iter() {
        let twice = grant.exclusive.intersection(&given);
        if !twice.is_empty() {
            let pod = holder.to_string();
            return Err(StateFault::HeldCpus { pod, cpus: twice, why: "another pod's" });
        }
        given.extend(&grant.exclusive);
    }
    Ok(())
}
