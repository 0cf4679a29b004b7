//! `Numatopology` v1alpha1: CPUs by id, as Volcano's plugin `numaaware` reads them.
//!
//! What its reader needs, and what follows for each field:
//! - `numares` has CPUs alone. `allocatable` is the set that is free now: under a static CPU manager
//!   without the reserved ones, because no other field tells which these are.
//! - `resReserved` is a sum of settings, not of measured amounts: the reader picks as many CPUs itself.
//! - `cpuDetail` has the kernel's own ids of cores and sockets. A field that is 0 is left out, as by
//!   Volcano's own writer, so an unknown id would read as 0: then the whole field is absent.
//! - `podAllocations` are the exclusive CPUs of containers. The reader matches pods by uid, else by name.
//! - The annotation `timestamp` of Volcano's own writer is not written: the object changes when the node
//!   does.

use std::collections::BTreeMap;

use numa_topology::Topology;
use serde::{Deserialize, Serialize};

use super::{
    ExportFault, ExportInputs,
    quantity::{of_bytes, of_milli_cpus},
};
use crate::cluster::state::HeldPod;

const CPU: &str = "cpu";

/// The object beside `apiVersion`, `kind` and `metadata`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numatopology {
    /// Its content.
    pub spec: NumatopologySpec,
}

/// Content of the object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NumatopologySpec {
    /// `CPUManagerPolicy` and `TopologyManagerPolicy`, in the kubelet's spelling.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, String>,
    /// Quantities that the kubelet's settings reserve, by resource.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub res_reserved: BTreeMap<String, String>,
    /// What is free, by resource.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub numares: BTreeMap<String, NumaResource>,
    /// Where each CPU is, by its id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cpu_detail: BTreeMap<String, CpuDetail>,
    /// Pods with exclusive CPUs, in order of uid.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_allocations: Vec<PodAllocation>,
}

/// Free units of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaResource {
    /// Ids that are free, as a list of the kernel.
    pub allocatable: String,
    /// Number of all units.
    pub capacity: i64,
}

/// Where a CPU is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuDetail {
    /// NUMA node.
    #[serde(skip_serializing_if = "is_zero")]
    pub numa: u32,
    /// `physical_package_id`.
    #[serde(skip_serializing_if = "is_zero")]
    pub socket: u32,
    /// `core_id`, unique within a socket.
    #[serde(skip_serializing_if = "is_zero")]
    pub core: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Exclusive resources of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAllocation {
    /// Its uid in the API.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Its name; absent if only the uid is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace; absent if only the uid is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its containers.
    pub container_allocations: Vec<ContainerAllocation>,
}

/// Exclusive resources of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerAllocation {
    /// Its name.
    pub name: String,
    /// Lists of ids by resource.
    pub allocations: BTreeMap<String, String>,
}

/// The object of a node.
///
/// # Errors
/// If the sources contradict each other.
pub fn numatopology(inputs: ExportInputs<'_>) -> Result<Numatopology, ExportFault> {
    inputs.check()?;
    let pods = inputs.state.pods.iter().filter(|pod| !inputs.has_ended(pod));
    Ok(Numatopology {
        spec: NumatopologySpec {
            policies: policies(inputs),
            res_reserved: reserved(inputs),
            numares: numares(inputs),
            cpu_detail: cpu_detail(inputs.machine).unwrap_or_default(),
            pod_allocations: pod_allocations(pods),
        },
    })
}

fn policies(inputs: ExportInputs<'_>) -> BTreeMap<String, String> {
    let kubelet = &inputs.state.kubelet;
    let cpu = Some(kubelet.cpu_policy.as_str()).filter(|policy| !policy.is_empty()).or(inputs.cpu_policy());
    let topology = Some(kubelet.topology_policy.as_str()).filter(|policy| !policy.is_empty());
    let both = [("CPUManagerPolicy", cpu), ("TopologyManagerPolicy", topology)];
    both.into_iter().filter_map(|(name, policy)| Some((name.to_owned(), policy?.to_owned()))).collect()
}

fn reserved(inputs: ExportInputs<'_>) -> BTreeMap<String, String> {
    let Some(amounts) = inputs.reserved else { return BTreeMap::new() };
    let both = [(CPU, amounts.milli_cpus.map(of_milli_cpus)), ("memory", amounts.memory_bytes.map(of_bytes))];
    both.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount?))).collect()
}

fn numares(inputs: ExportInputs<'_>) -> BTreeMap<String, NumaResource> {
    let free = match inputs.cpu_policy() {
        // Nothing is exclusive, so every CPU is free.
        Some("none") => Some(inputs.state.shared_cpus.clone()).filter(|cpus| !cpus.is_empty()),
        _ => inputs.free_exclusive_cpus(),
    };
    let Some(free) = free else { return BTreeMap::new() };
    let all: usize = inputs.state.machine.nodes.iter().map(|node| node.cpus.len()).sum();
    let capacity = i64::try_from(all).unwrap_or(i64::MAX);
    BTreeMap::from([(CPU.to_owned(), NumaResource { allocatable: free.to_string(), capacity })])
}

/// Where each CPU is; `None` if that of one is not known.
fn cpu_detail(machine: &Topology) -> Option<BTreeMap<String, CpuDetail>> {
    let details = machine.cpus.iter().map(|cpu| {
        let id = |id: Option<i32>| u32::try_from(id?).ok();
        let detail = CpuDetail { numa: cpu.node?.0, socket: id(cpu.package)?, core: id(cpu.core)? };
        Some((cpu.id.to_string(), detail))
    });
    details.collect()
}

fn pod_allocations<'a>(pods: impl Iterator<Item = &'a HeldPod>) -> Vec<PodAllocation> {
    let allocations = pods.map(|pod| {
        let exclusive = pod.containers.iter().filter(|container| !container.cpus.is_empty());
        let containers = exclusive.map(|container| ContainerAllocation {
            name: container.name.clone(),
            allocations: BTreeMap::from([(CPU.to_owned(), container.cpus.to_string())]),
        });
        PodAllocation {
            uid: pod.uid.clone(),
            name: pod.name.clone(),
            namespace: pod.namespace.clone(),
            container_allocations: containers.collect(),
        }
    });
    let mut allocations: Vec<_> = allocations.filter(|pod| !pod.container_allocations.is_empty()).collect();
    allocations.sort_by(|one, other| one.uid.cmp(&other.uid));
    allocations
}
