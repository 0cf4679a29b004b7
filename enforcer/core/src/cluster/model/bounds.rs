//! Limits of a published state: those of its schema, checked again, because a state may come from a file.

use super::StateFault;
use crate::cluster::state::NodeState;

/// Maximum number of NUMA nodes.
pub(super) const NODES: usize = 64;
/// Maximum number of devices of one resource; more have no place in one machine.
pub(super) const DEVICES: usize = 4_096;

/// Checks the lengths of all lists and the signs of all numbers.
///
/// # Errors
/// The first that exceeds its limit.
pub(super) fn check(state: &NodeState) -> Result<(), StateFault> {
    let machine = &state.machine;
    let fits = |field: &'static str, length: usize, limit: usize| {
        if length > limit { Err(StateFault::TooLong { field, length, limit }) } else { Ok(()) }
    };
    let positive = |field: &'static str, value: i64| {
        if value < 0 { Err(StateFault::Negative { field, value }) } else { Ok(()) }
    };
    positive("revision.epoch", state.revision.epoch)?;
    positive("revision.counter", state.revision.counter)?;
    fits("inexact", state.inexact.len(), 16)?;
    fits("machine.nodes", machine.nodes.len(), NODES)?;
    fits("machine.distances", machine.distances.len(), NODES)?;
    fits("machine.sockets", machine.sockets.len(), 64)?;
    fits("machine.cores", machine.cores.len(), 1_024)?;
    fits("machine.caches", machine.caches.len(), 256)?;
    fits("memory", state.memory.len(), 512)?;
    fits("devices", state.devices.len(), 64)?;
    fits("pods", state.pods.len(), 1_024)?;
    fits("rejected", state.rejected.len(), 16)?;
    fits("kubelet.cpuOptions", state.kubelet.cpu_options.len(), 16)?;
    fits("kubelet.topologyOptions", state.kubelet.topology_options.len(), 16)?;
    for supply in &state.memory {
        fits("memory.resource", supply.resource.len(), 64)?;
        positive("memory.allocatable", supply.allocatable)?;
        positive("memory.free", supply.free)?;
    }
    for supply in &state.devices {
        fits("devices.resource", supply.resource.len(), 253)?;
        fits("devices.byNodes", supply.by_nodes.len(), 64)?;
        let total = supply.by_nodes.iter().map(|count| count.total as usize).sum();
        fits("devices.byNodes.total", total, DEVICES)?;
    }
    for pod in &state.pods {
        fits("pods.uid", pod.uid.len(), 64)?;
        fits("pods.namespace", pod.namespace.len(), 63)?;
        fits("pods.name", pod.name.len(), 253)?;
        fits("pods.containers", pod.containers.len(), 128)?;
        for container in &pod.containers {
            fits("pods.containers.name", container.name.len(), 63)?;
            fits("pods.containers.memory", container.memory.len(), 16)?;
            fits("pods.containers.devices", container.devices.len(), 16)?;
            for memory in &container.memory {
                positive("pods.containers.memory.bytes", memory.bytes)?;
            }
            for by_nodes in container.devices.values() {
                fits("pods.containers.devices", by_nodes.len(), 64)?;
            }
        }
    }
    Ok(())
}
