//! A resource of which a node has too little, by its sums or on its NUMA nodes.

use numa_placement::MemoryResource;
use numa_topology::set::NodeSet;
use schemars::JsonSchema;
use serde::Serialize;

/// A resource of which too little is free. Amounts are thousandths of CPUs, bytes, or numbers of devices and
/// pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceShortage {
    /// Its name: `cpu`, `memory`, `hugepages-2Mi`, `vendor.com/device`, `pods`.
    pub resource: String,
    /// Container that wants it; `null` for the pod as a whole.
    pub container: Option<String>,
    /// NUMA nodes on which it has to be free together; `null` for the sum of the node.
    pub numa_nodes: Option<NodeSet>,
    /// Wanted amount.
    pub wanted: u64,
    /// Free amount.
    pub free: u64,
}

impl ResourceShortage {
    /// Are its amounts bytes?
    pub fn is_in_bytes(&self) -> bool {
        MemoryResource::of_name(&self.resource).is_some()
    }
}
