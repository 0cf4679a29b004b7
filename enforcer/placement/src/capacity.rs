//! Rejects pods that would not fit even on an empty machine.
//!
//! Containers that share CPUs or overcommit memory are admitted even if little is left, as the kernel would
//! run them. But a pod that requests more than the whole machine has was scheduled to the wrong node, and no
//! placement helps.

use super::{
    Inventory, MemoryResource, PodRequest, Rejection, RejectionProblem, RejectionReason, Shortage,
    room::FittingAmount,
};
use numa_topology::set::NodeSet;

/// Rejects a pod that requests more CPU time or memory than all nodes have together. Memory is not checked if
/// the size of a node is unknown; GPU memory counts only for a kubelet.
///
/// # Errors
/// If the machine does not have that much.
pub fn check(inventory: &Inventory, pod: &PodRequest, is_kubelet: bool) -> Result<(), Rejection> {
    let millis = pod.peak(|container| container.requests.milli_cpus.unwrap_or(0));
    let bytes = pod.peak(|container| container.requests.memory_bytes.unwrap_or(0));
    let cpus = u64::try_from(inventory.allowed_cpus.len()).unwrap_or(u64::MAX);
    let ordinary = inventory.machine.ordinary_memory_nodes();
    let memory = inventory
        .nodes
        .iter()
        .filter(|node| is_kubelet || ordinary.contains(node.id))
        .fold(0u64, |sum, node| sum.saturating_add(node.allocatable(MemoryResource::Memory)));
    let sizes_known = inventory.machine.nodes.iter().all(|node| node.mem_total_bytes.is_some());
    let amounts = [("cpu", millis.div_ceil(1000), cpus, true), ("memory", bytes, memory, sizes_known)];
    let nodes: NodeSet = inventory.nodes.iter().map(|node| node.id).collect();
    let short = || amounts.iter().filter(|(_, wanted, available, known)| *known && wanted > available);
    if short().next().is_none() {
        return Ok(());
    }
    let shortages = short().map(|(resource, wanted, available, _)| Shortage {
        resource: (*resource).to_owned(),
        nodes: nodes.clone(),
        wanted: *wanted,
        available: *available,
    });
    let rooms = short()
        .map(|(resource, _, available, _)| FittingAmount::together(resource, nodes.clone(), *available));
    let rejection =
        Rejection::new(RejectionReason::UnexpectedAdmissionError, RejectionProblem::AboveCapacity);
    Err(rejection.short_of(shortages.collect(), &rooms.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Allocations, QosClass, admit, samples,
        settings::{PlacementEngine, PlacementSettings},
    };
    use numa_topology::synth::Machine;

    #[test]
    fn what_no_empty_machine_holds_is_rejected_by_either_engine() {
        for engine in [PlacementEngine::Hints, PlacementEngine::Pools] {
            let settings = PlacementSettings { engine, ..PlacementSettings::default() };
            let inventory = Inventory::new(Machine::new().sockets(2).build(), Vec::new(), &settings).unwrap();
            let admitted = |milli, gib: u64| {
                let mut pod = samples::pod("p", vec![samples::container("c", milli, gib << 30)]);
                pod.qos = QosClass::Burstable;
                let mut allocations = Allocations::default();
                admit(&inventory, &settings, &mut allocations, &pod)
                    .map_err(|rejection| (rejection.to_string(), allocations == Allocations::default()))
            };
            assert!(admitted(16_000, 1).is_ok());
            let (text, untouched) = admitted(100_000_000, 1).unwrap_err();
            assert!(text.contains("16 of 100000 cpu on nodes 0-1"), "{text}");
            assert!(untouched);
            let (text, _) = admitted(1000, 33).unwrap_err();
            assert!(text.contains("32 GiB of 33 GiB memory on nodes 0-1"), "{text}");
        }
    }
}
