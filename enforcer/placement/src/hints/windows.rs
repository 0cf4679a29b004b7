//! Windows onto parts of machines with more nodes than a mask has bits.
//!
//! Problem: a mask names 64 nodes, and the kernel supports up to 1,024. Nodes outside a mask must neither be
//! pinned to remote memory nor stay unused. Idea: the machine is divided into windows of at most 64 nodes:
//! CPU nodes in order of their ids, with the memory local to them. A pod is placed in the first window that
//! aligns it, else in the first that admits it. Only a pod that fits in no window is placed on the whole
//! machine, where nodes after the 64th are used in order, with their own memory.
//!
//! Invariants: each node is in one window. A window sees nothing of other windows, and promises across
//! windows count in full in each.
//! Cost: up to one placement for each window, and one more if none aligns the pod. The windows are computed
//! once.

use std::sync::{Arc, OnceLock};

use super::{Mask, NodeIndex};
use crate::{Inventory, pools::MachinePools};
use numa_topology::{
    Locality,
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// The windows of an inventory, computed for the first pod. They derive from the inventory, so they are
/// ignored in comparisons.
#[derive(Debug, Clone, Default)]
pub struct Windows(OnceLock<Option<Arc<[Inventory]>>>);

impl PartialEq for Windows {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Windows {
    /// The windows of the inventory that contains this value; `None` if a mask can name all nodes.
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

/// Each CPU node with the memory-only nodes local to it (the first of several CPU nodes); nodes that are
/// local to none are with the last group.
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

/// The machine restricted to these nodes.
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
