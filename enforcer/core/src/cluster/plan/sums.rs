//! What a scheduler counts for a whole node: CPU time, memory, pods, extended resources.
//!
//! These sums are the scheduler's own rule and say nothing of NUMA nodes; a plan that ignored them would put
//! pods where no scheduler would.

use std::collections::BTreeMap;

use numa_placement::{ContainerRequest, MemoryResource, PodRequest};

use super::NodeRefusal;
use crate::cluster::shortage::ResourceShortage;

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

    /// Resources that are too short for these amounts: by name those that the node has, then extended ones
    /// that it does not have at all.
    pub(in crate::cluster) fn shortages(&self, amounts: &Amounts) -> impl Iterator<Item = ResourceShortage> {
        shortages(&self.allocatable, &self.used, amounts)
    }

    /// The same without pods of these amounts.
    pub(in crate::cluster) fn without<'a>(&self, gone: impl Iterator<Item = &'a Amounts>) -> Self {
        let mut sums = self.clone();
        gone.for_each(|amounts| sums.remove(amounts));
        sums
    }

    /// Why no scheduler puts the pod on the node, whatever its NUMA nodes have.
    pub(in crate::cluster) fn too_full(&self, amounts: &Amounts) -> Option<NodeRefusal> {
        too_full(&self.allocatable, &self.used, amounts)
    }

    /// No longer counts a pod.
    pub fn remove(&mut self, amounts: &Amounts) {
        for (resource, amount) in amounts {
            if let Some(used) = self.used.get_mut(resource) {
                *used = used.saturating_sub(*amount);
            }
        }
    }

    /// Counts a pod.
    pub fn add(&mut self, amounts: &Amounts) {
        for (resource, amount) in amounts {
            let used = self.used.entry(resource.clone()).or_default();
            *used = used.saturating_add(*amount);
        }
    }

    /// CPU time that no pod has requested, in thousandths.
    pub(in crate::cluster) fn free_milli_cpus(&self) -> u64 {
        let of = |amounts: &Amounts| amounts.get(CPU).copied().unwrap_or(0);
        of(&self.allocatable).saturating_sub(of(&self.used))
    }
}

/// Why no scheduler puts a pod of these amounts on a node that has the first amounts, of which pods use the
/// second.
pub(in crate::cluster) fn too_full(
    allocatable: &Amounts,
    used: &Amounts,
    amounts: &Amounts,
) -> Option<NodeRefusal> {
    let short = shortages(allocatable, used, amounts).next()?;
    if short.resource == PODS {
        return Some(NodeRefusal::plain("Too many pods"));
    }
    Some(NodeRefusal::plain(&format!("Insufficient {}", short.resource)))
}

fn shortages(
    allocatable: &Amounts,
    used: &Amounts,
    amounts: &Amounts,
) -> impl Iterator<Item = ResourceShortage> {
    let asked = |resource: &String| amounts.get(resource).copied().unwrap_or(0);
    let shortage = move |resource: &String, free| ResourceShortage {
        resource: resource.clone(),
        container: None,
        numa_nodes: None,
        wanted: asked(resource),
        free,
    };
    let known = allocatable.iter().filter_map(move |(resource, allocatable)| {
        let used = used.get(resource).copied().unwrap_or(0);
        let free = allocatable.saturating_sub(used);
        (asked(resource) > free).then(|| shortage(resource, free))
    });
    let is_missing = |resource: &&String| resource.contains('/') && !allocatable.contains_key(*resource);
    known.chain(amounts.keys().filter(is_missing).map(move |resource| shortage(resource, 0)))
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
