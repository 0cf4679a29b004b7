//! Whether the managers of a node have a say about a pod at all.
//!
//! A pod without exclusive CPUs, without memory of its own and without devices that have a NUMA node is
//! admitted whatever is free, so it costs no admission.

use numa_placement::{
    PodRequest, QosClass,
    settings::{MemoryManagerPolicy, TopologyPolicy},
};

use crate::cluster::{model::NodeModel, state::DecidedBy};

/// Does the pod ask for CPUs, memory or devices that the node's managers give by NUMA node?
pub(in crate::cluster) fn concerns(model: &NodeModel, pod: &PodRequest) -> bool {
    if model.decided_by == DecidedBy::NumaEnforcer {
        // Shared containers have a scope and a promise there.
        return true;
    }
    let hints = &model.settings.hints;
    let is_guaranteed = pod.qos == QosClass::Guaranteed;
    let gives_memory = hints.memory_manager_policy == MemoryManagerPolicy::Static;
    pod.containers.iter().any(|container| {
        let exclusive = model.gives_cpus() && container.whole_cpus().is_some_and(|cpus| cpus > 0);
        let memory = gives_memory
            && (container.requests.memory_bytes.is_some_and(|bytes| bytes > 0)
                || !container.requests.hugepages.is_empty());
        let devices = container.devices.iter().any(|(resource, count)| {
            *count > 0 && hints.policy != TopologyPolicy::None && model.has_near_devices(resource)
        });
        is_guaranteed && (exclusive || memory) || devices
    })
}

/// May managers of any node have a say about the pod, whatever their settings are?
pub(in crate::cluster) fn may_concern(pod: &PodRequest) -> bool {
    pod.qos == QosClass::Guaranteed || pod.containers.iter().any(|container| !container.devices.is_empty())
}
