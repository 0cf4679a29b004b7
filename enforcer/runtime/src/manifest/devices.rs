//! The file behind `--devices`: what a device plugin would say.
//!
//! ```yaml
//! - { resource: vendor.com/nic, id: eth0, numa_nodes: 0 }
//! - { resource: vendor.com/gpu, id: gpu, numa_nodes: "0-1", count: 4 }
//! ```
//!
//! With `count` there are as many, `gpu-0` to `gpu-3`. Where the node of a device is not known, `numa_nodes`
//! is absent, or -1 as the kernel and drivers have it.

use std::collections::BTreeSet;

use numa_placement::DeviceUnit;
use numa_topology::{
    id::{Id, NodeId},
    set::NodeSet,
};

use super::{
    source::ManifestProblem,
    tree::{ManifestValue, TreeNode, cut},
};

/// Most devices of one machine.
const DEVICES_LIMIT: usize = 10_000;

/// Most bytes of a resource's name and of an id; each device has its own copy.
const NAME_LIMIT: usize = 253;

/// The devices of some documents, on a machine with these nodes.
pub(super) fn devices(documents: &[TreeNode], nodes: &NodeSet) -> Result<Vec<DeviceUnit>, ManifestProblem> {
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    for document in documents {
        let list = match &document.value {
            ManifestValue::Map(_) => {
                document.only("a file of devices", &["devices"])?;
                document.must("a file of devices", "devices")?
            }
            _ => document,
        };
        for node in list.list("a file of devices")? {
            node.only("a device", &["resource", "id", "numa_nodes", "count"])?;
            let resource = node.must("a device", "resource")?.scalar("resource")?;
            let id = node.must("a device", "id")?.scalar("id")?;
            if resource.len() > NAME_LIMIT || id.len() > NAME_LIMIT {
                let problem = format!("device `{}`: a name has at most {NAME_LIMIT} bytes", cut(&id));
                return Err(ManifestProblem::new(node.at, problem));
            }
            let near = node.get("numa_nodes").map_or_else(|| Ok(NodeSet::new()), numa_nodes)?;
            if let Some(elsewhere) = near.difference(nodes).first() {
                return Err(ManifestProblem::new(
                    node.at,
                    format!("device `{}`: the machine has no NUMA node {elsewhere}, only {nodes}", cut(&id)),
                ));
            }
            let names: Vec<String> = match node.get("count") {
                None => vec![id.clone().into_owned()],
                Some(count) => {
                    let number = count.count("count")?.min(DEVICES_LIMIT as u64 + 1);
                    (0..number).map(|number| format!("{id}-{number}")).collect()
                }
            };
            for id in names {
                if !ids.insert((resource.to_string(), id.clone())) {
                    let problem = format!("device `{}` of {} is there twice", cut(&id), cut(&resource));
                    return Err(ManifestProblem::new(node.at, problem));
                }
                found.push(DeviceUnit { resource: resource.to_string(), id, nodes: near.clone() });
            }
            if found.len() > DEVICES_LIMIT {
                return Err(ManifestProblem::new(node.at, format!("more than {DEVICES_LIMIT} devices")));
            }
        }
    }
    Ok(found)
}

/// `NUMA_NO_NODE` of the kernel: it is not known.
const NO_NODE: &str = "-1";

/// `0`, `"0-1"` or `[0, 1]`; -1 is none.
fn numa_nodes(node: &TreeNode) -> Result<NodeSet, ManifestProblem> {
    let expected = "a node, a list of nodes like \"0-1\", or [0, 1]; -1 where it is not known";
    let unknown = |node: &TreeNode| node.scalar("numa_nodes").is_ok_and(|text| text.trim() == NO_NODE);
    match &node.value {
        ManifestValue::List(nodes) if !nodes.is_empty() && nodes.iter().all(unknown) => Ok(NodeSet::new()),
        _ if unknown(node) => Ok(NodeSet::new()),
        ManifestValue::List(nodes) => {
            let mut set = NodeSet::new();
            for element in nodes {
                let id = element.count("numa_nodes")?;
                let id = u32::try_from(id).ok().filter(|id| *id <= NodeId::GREATEST);
                set.insert(NodeId(id.ok_or_else(|| element.not("numa_nodes", expected))?));
            }
            Ok(set)
        }
        _ => node.scalar("numa_nodes")?.parse().map_err(|_not_a_list| node.not("numa_nodes", expected)),
    }
}
