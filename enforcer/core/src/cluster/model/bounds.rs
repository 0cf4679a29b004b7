//! Limits of a published state: those of its schema, checked again, because a state may come from a file.

use super::StateFault;
use crate::cluster::state::{NodeState, limits};

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
    fits("inexact", state.inexact.len(), limits::INEXACT)?;
    fits("machine.nodes", machine.nodes.len(), limits::NODES)?;
    fits("machine.distances", machine.distances.len(), limits::NODES)?;
    fits("machine.sockets", machine.sockets.len(), limits::SOCKETS)?;
    fits("machine.cores", machine.cores.len(), limits::CORES)?;
    fits("machine.caches", machine.caches.len(), limits::CACHES)?;
    fits("memory", state.memory.len(), limits::MEMORY_SUPPLIES)?;
    fits("devices", state.devices.len(), limits::DEVICE_RESOURCES)?;
    fits("pods", state.pods.len(), limits::PODS)?;
    fits("rejected", state.rejected.len(), limits::REJECTED)?;
    fits("kubelet.cpuOptions", state.kubelet.cpu_options.len(), limits::OPTIONS)?;
    fits("kubelet.topologyOptions", state.kubelet.topology_options.len(), limits::OPTIONS)?;
    for supply in &state.memory {
        fits("memory.resource", supply.resource.len(), limits::WORD)?;
        positive("memory.allocatable", supply.allocatable)?;
        positive("memory.free", supply.free)?;
    }
    for supply in &state.devices {
        fits("devices.resource", supply.resource.len(), limits::NAME)?;
        fits("devices.byNodes", supply.by_nodes.len(), limits::DEVICE_GROUPS)?;
        let total = supply.by_nodes.iter().map(|count| count.total as usize).sum();
        fits("devices.byNodes.total", total, limits::DEVICES)?;
    }
    for pod in &state.pods {
        fits("pods.uid", pod.uid.len(), limits::WORD)?;
        fits("pods.namespace", pod.namespace.len(), limits::LABEL)?;
        fits("pods.name", pod.name.len(), limits::NAME)?;
        fits("pods.containers", pod.containers.len(), limits::CONTAINERS)?;
        for container in &pod.containers {
            fits("pods.containers.name", container.name.len(), limits::LABEL)?;
            fits("pods.containers.memory", container.memory.len(), limits::CONTAINER_RESOURCES)?;
            fits("pods.containers.devices", container.devices.len(), limits::CONTAINER_RESOURCES)?;
            for memory in &container.memory {
                positive("pods.containers.memory.bytes", memory.bytes)?;
            }
            for by_nodes in container.devices.values() {
                fits("pods.containers.devices", by_nodes.len(), limits::DEVICE_GROUPS)?;
            }
        }
    }
    Ok(())
}
