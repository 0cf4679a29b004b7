//! Chooses CPUs near the nodes of the merge.
//!
//! CPUs of these nodes come first; missing ones come from other nodes, so that a container that is admitted
//! regardless gets all of its CPUs. With `align-by-socket` the whole sockets of the nodes count as near.

use super::{
    CpuError, CpuOptions,
    assign::{assign_across, check_whole_cores},
};
use crate::{CpuLayout, layout::Level};
use numa_topology::set::{CpuSet, NodeSet};

/// CPUs that one container may get.
#[derive(Debug, Clone, Copy)]
pub struct CpuPick<'a> {
    /// CPUs that no holder has and that are not reserved.
    pub available: &'a CpuSet,
    /// Reserved CPUs, which are never given; cores with one of them are not whole.
    pub reserved: &'a CpuSet,
    /// CPUs of ended init containers of the same pod, which may be given too.
    pub reusable: &'a CpuSet,
    /// The chosen nodes; `None` without a choice.
    pub affinity: Option<&'a NodeSet>,
    /// Number of CPUs.
    pub count: usize,
}

/// Chooses the CPUs of one container.
///
/// # Errors
/// If too few CPUs are free, or the options do not allow the amount.
pub fn assign_near(layout: &CpuLayout, pick: &CpuPick<'_>, options: CpuOptions) -> Result<CpuSet, CpuError> {
    let pool = layout.known(&pick.available.union(pick.reusable)).difference(pick.reserved);
    let beside_reserved = layout.closure(Level::Core, pick.reserved);
    check_whole_cores(layout, pick.count, &pool.difference(&beside_reserved), options)?;
    if pick.count > pool.len() {
        return Err(CpuError::NotEnough { requested: pick.count, available: pool.len() });
    }
    let near = pick.affinity.map_or_else(CpuSet::new, |nodes| near(layout, nodes, options));
    let near = near.intersection(&pool);
    let nodes = pick.affinity.map_or(1, NodeSet::len);
    let mut chosen = assign_across(layout, &near, pick.count.min(near.len()), nodes, options)?;
    let rest = pool.difference(&chosen);
    chosen.extend(&assign_across(layout, &rest, pick.count - chosen.len(), 1, options)?);
    Ok(chosen)
}

fn near(layout: &CpuLayout, nodes: &NodeSet, options: CpuOptions) -> CpuSet {
    let mut cpus = CpuSet::new();
    nodes.iter().filter_map(|node| layout.node_cpus(node)).for_each(|of_node| cpus.extend(of_node));
    if options.align_by_socket { layout.closure(Level::Socket, &cpus) } else { cpus }
}
