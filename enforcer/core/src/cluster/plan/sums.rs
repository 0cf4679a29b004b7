//! What a scheduler counts for a whole node: CPU time, memory, pods, extended resources.
//!
//! These sums are the scheduler's own rule and say nothing of NUMA nodes; a plan that ignored them would put
//! pods where no scheduler would.

use std::collections::BTreeMap;

use numa_placement::{ContainerRequest, MemoryResource, PodRequest};

/// Name of the resource for CPU time, in thousandths.
pub const CPU: &str = "cpu";
/// Name of the resource for the number of pods.
pub const PODS: &str = "pods";

/// Amounts by resource: thousandths of a CPU, bytes, devices, pods.
pub type Amounts = BTreeMap<String, u64>;

/// Allocatable and used amounts of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeSums {
    /// `status.allocatable`; a resource that is not named is not counted.
    pub allocatable: Amounts,
    used: Amounts,
}

impl NodeSums {
    /// Sums of a node without pods.
    pub const fn new(allocatable: Amounts) -> Self {
        Self { allocatable, used: Amounts::new() }
    }

    /// The first resource that is too short for these amounts.
    pub(super) fn shortage(&self, amounts: &Amounts) -> Option<&str> {
        let short = self.allocatable.iter().find(|(resource, allocatable)| {
            let used = self.used.get(*resource).copied().unwrap_or(0);
            let asked = amounts.get(*resource).copied().unwrap_or(0);
            asked > 0 && used.saturating_add(asked) > **allocatable
        });
        short.map(|(resource, _)| resource.as_str())
    }

    /// The first extended resource that the node does not have at all.
    pub(super) fn missing<'a>(&self, amounts: &'a Amounts) -> Option<&'a str> {
        let is_missing =
            |resource: &&String| resource.contains('/') && !self.allocatable.contains_key(*resource);
        amounts.keys().find(is_missing).map(String::as_str)
    }

    /// Counts a pod.
    pub fn add(&mut self, amounts: &Amounts) {
        for (resource, amount) in amounts {
            let used = self.used.entry(resource.clone()).or_default();
            *used = used.saturating_add(*amount);
        }
    }

    /// CPU time that no pod has requested, in thousandths.
    pub(super) fn free_milli_cpus(&self) -> u64 {
        let of = |amounts: &Amounts| amounts.get(CPU).copied().unwrap_or(0);
        of(&self.allocatable).saturating_sub(of(&self.used))
    }
}

/// Amounts that a scheduler counts for a pod: the peak of its stages, and the pod itself.
pub fn amounts_of(pod: &PodRequest) -> Amounts {
    let mut amounts = Amounts::from([(PODS.to_owned(), 1)]);
    let mut put = |resource: String, of: &dyn Fn(&ContainerRequest) -> u64| {
        let peak = pod.peak(of);
        if peak > 0 {
            amounts.insert(resource, peak);
        }
    };
    put(CPU.to_owned(), &|container| container.requests.milli_cpus.unwrap_or(0));
    put(MemoryResource::Memory.to_string(), &|container| container.requests.memory_bytes.unwrap_or(0));
    for size in pod.containers.iter().flat_map(|container| container.requests.hugepages.keys()) {
        put(MemoryResource::Hugepages(*size).to_string(), &|container| {
            container.requests.hugepages.get(size).copied().unwrap_or(0)
        });
    }
    for device in pod.containers.iter().flat_map(|container| container.devices.keys()) {
        put(device.clone(), &|container| container.devices.get(device).copied().unwrap_or(0));
    }
    amounts
}
