//! Choosing CPUs near the nodes that the merge has chosen.
//!
//! CPUs of these nodes come first, as many as there are; what is missing comes from the rest, so that
//! a container that is admitted anyway gets all of its CPUs. With `align-by-socket` the whole sockets
//! of the nodes count as near.

use super::{
    CpuError, CpuOptions,
    assign::{assign, check_whole_cores},
};
use crate::{
    place::{CpuLayout, layout::Level},
    set::{CpuSet, NodeSet},
};

/// What may be taken for one container.
#[derive(Debug, Clone, Copy)]
pub struct Pick<'a> {
    /// CPUs that nobody holds and that are not reserved.
    pub available: &'a CpuSet,
    /// CPUs that are never given away; whole cores next to them are not to be had.
    pub reserved: &'a CpuSet,
    /// CPUs of ended init containers of the same pod, which may be given away too.
    pub reusable: &'a CpuSet,
    /// The chosen nodes; none when there is no choice.
    pub affinity: Option<&'a NodeSet>,
    /// CPUs wanted.
    pub count: usize,
}

/// The CPUs of one container.
pub fn take_near(layout: &CpuLayout, pick: &Pick<'_>, options: CpuOptions) -> Result<CpuSet, CpuError> {
    let pool = layout.known(&pick.available.union(pick.reusable)).difference(pick.reserved);
    let beside_reserved = layout.closure(Level::Core, pick.reserved);
    check_whole_cores(layout, pick.count, &pool.difference(&beside_reserved), options)?;
    if pick.count > pool.len() {
        return Err(CpuError::NotEnough { requested: pick.count, available: pool.len() });
    }
    let near = pick.affinity.map_or_else(CpuSet::new, |nodes| near(layout, nodes, options));
    let near = near.intersection(&pool);
    let nodes = pick.affinity.map_or(1, NodeSet::len);
    let mut chosen = assign(layout, &near, pick.count.min(near.len()), nodes, options)?;
    let rest = pool.difference(&chosen);
    chosen.extend(&assign(layout, &rest, pick.count - chosen.len(), 1, options)?);
    Ok(chosen)
}

fn near(layout: &CpuLayout, nodes: &NodeSet, options: CpuOptions) -> CpuSet {
    let mut cpus = CpuSet::new();
    nodes.iter().filter_map(|node| layout.node_cpus(node)).for_each(|of_node| cpus.extend(of_node));
    if options.align_by_socket { layout.closure(Level::Socket, &cpus) } else { cpus }
}
