//! The NUMA nodes of the machine that the tests run on.

use std::fs;

use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

/// The first CPU of each of the first two nodes that have CPUs.
pub(crate) fn two_nodes() -> Option<[(CpuId, NodeId); 2]> {
    let nodes = |file: &str| fs::read_to_string(format!("/sys/devices/system/node/{file}")).ok();
    let with_cpus: NodeSet = nodes("has_cpu")?.trim().parse().unwrap();
    let first_cpu = |node: NodeId| -> CpuId {
        let cpus: CpuSet = nodes(&format!("node{node}/cpulist")).unwrap().trim().parse().unwrap();
        cpus.first().unwrap()
    };
    let mut nodes = with_cpus.iter().map(|node| (first_cpu(node), node));
    Some([nodes.next()?, nodes.next()?])
}

/// Node of every CPU as sysfs has it.
pub(crate) fn node_of_sysfs(cpu: CpuId) -> NodeId {
    let mut entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).unwrap().flatten();
    let number = |name: &str| name.strip_prefix("node")?.parse().ok();
    NodeId(entries.find_map(|entry| number(&entry.file_name().to_string_lossy())).unwrap())
}
