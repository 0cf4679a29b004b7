//! Machines with more nodes than a mask has bits, as windows onto parts of them.
//!
//! Problem: a mask names 64 nodes, and the kernel knows up to 1,024. Nodes beyond a mask's end must not be
//! pinned to memory of others, nor lie idle. Idea: the machine is cut into windows of at most 64 nodes, CPU
//! nodes in order of their ids with the memory that is local to them. A pod is placed in the first window
//! that aligns it, else in the first that admits it. Only what no window holds is placed on the whole
//! machine, where nodes beyond the 64th are used as they come, with their own memory.
//!
//! Invariants: each node is in one window. In a window nothing of other windows is seen, promises across
//! windows count in full in each.
//! Cost: up to one placement for each window, and one more where none aligns the pod. The windows themselves
//! are computed once.

use std::sync::{Arc, OnceLock};

use super::{Mask, NodeIndex};
use crate::{
    id::NodeId,
    place::{Inventory, pools::MachinePools},
    set::{CpuSet, NodeSet},
    topology::Locality,
};

/// The windows of an inventory, computed when the first pod asks. Nothing is in them that is not in the
/// inventory, so they make no difference between two.
#[derive(Debug, Clone, Default)]
pub struct Windows(OnceLock<Option<Arc<[Inventory]>>>);

impl PartialEq for Windows {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Windows {
    /// Those of this inventory, which holds this value; none where a mask can name all nodes.
    pub(super) fn of<'a>(&'a self, inventory: &Inventory) -> Option<&'a [Inventory]> {
        self.0.get_or_init(|| cut(inventory).map(Arc::from)).as_deref()
    }
}

fn cut(inventory: &Inventory) -> Option<Vec<Inventory>> {
    const _: () = assert!(NodeIndex::LARGEST == Mask::BITS as usize);
    if inventory.nodes.len() <= NodeIndex::LARGEST {
        return None;
    }
    let groups = groups(inventory);
    let mut windows: Vec<NodeSet> = Vec::new();
    for group in groups {
        match windows.last_mut().filter(|last| last.len() + group.len() <= NodeIndex::LARGEST) {
            Some(last) => last.extend(&group),
            None => windows.push(group),
        }
    }
    Some(windows.iter().map(|window| restricted(inventory, window)).collect())
}

/// Each CPU node with the memory-only nodes that are local to it, of several the first; then the nodes that
/// are local to none, with the last.
fn groups(inventory: &Inventory) -> Vec<NodeSet> {
    let (machine, locality) = (&inventory.machine, &inventory.locality);
    let mut groups: Vec<(NodeId, NodeSet)> =
        machine.cpu_nodes().iter().map(|id| (id, std::iter::once(id).collect())).collect();
    for node in machine.nodes.iter().filter(|node| node.cpus.is_empty()) {
        let home = locality.near_cpu_nodes(node.id).first();
        let at = groups.iter().position(|(id, _)| Some(*id) == home);
        let at = at.unwrap_or(groups.len().saturating_sub(1));
        if let Some((_, group)) = groups.get_mut(at).filter(|(_, group)| group.len() < NodeIndex::LARGEST) {
            group.insert(node.id);
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The machine as if it had these nodes only.
fn restricted(inventory: &Inventory, nodes: &NodeSet) -> Inventory {
    let cpus: CpuSet = inventory.machine.cpus_of(nodes);
    let mut machine = inventory.machine.clone();
    let kept: Vec<bool> = machine.nodes.iter().map(|node| nodes.contains(node.id)).collect();
    let is_kept = |at: usize| kept.get(at).copied().unwrap_or(false);
    machine.nodes.retain(|node| nodes.contains(node.id));
    let rows = machine.distances.iter().enumerate().filter(|(at, _)| is_kept(*at));
    let row = |row: &Vec<Option<u32>>| {
        row.iter().enumerate().filter(|(at, _)| is_kept(*at)).map(|(_, distance)| *distance).collect()
    };
    machine.distances = rows.map(|(_, of_node)| row(of_node)).collect();
    Inventory {
        locality: Locality::new(&machine),
        machine,
        allowed_cpus: inventory.allowed_cpus.intersection(&cpus),
        reserved_cpus: inventory.reserved_cpus.intersection(&cpus),
        isolated_cpus: inventory.isolated_cpus.intersection(&cpus),
        nodes: inventory.nodes.iter().filter(|node| nodes.contains(node.id)).cloned().collect(),
        layout: inventory.layout.clone(),
        devices: inventory.devices.clone(),
        pools: MachinePools::default(),
        windows: Windows::default(),
    }
}
