//! Sets of nodes with enough CPUs for a container.
//!
//! A set of nodes is suitable if its free and reusable CPUs suffice and include all reusable ones, which
//! would otherwise be lost. It is preferred if an empty machine would not need fewer nodes, and with
//! `align-by-socket` also if it is on as few sockets as that many nodes need.
//!
//! Cost: O(2^N) sets of N nodes where they are listed; elsewhere O(N) for a threshold, which is equivalent
//! except for the sockets of `align-by-socket`.

use std::slice;

use super::CpuOptions;
use crate::{
    CpuLayout,
    hints::{Mask, MaskHint, Need, NodeIndex, Offer, Table, Threshold, narrowest::narrowest},
    layout::Level,
};
use numa_topology::set::CpuSet;

/// CPUs available to one container.
#[derive(Debug, Clone, Copy)]
pub struct CpuStock<'a> {
    /// CPUs that no holder has and that are not reserved.
    pub available: &'a CpuSet,
    /// CPUs of ended init containers of the same pod.
    pub reusable: &'a CpuSet,
    /// CPUs that the container holds already.
    pub allocated: Option<&'a CpuSet>,
    /// CPUs that would be available if the machine had no other containers, including reserved ones; all of
    /// the machine when absent.
    pub usable: Option<&'a CpuSet>,
}

/// Offer of CPUs for a request of whole CPUs, which is 0 without exclusive CPUs.
pub fn offer(
    layout: &CpuLayout,
    nodes: &NodeIndex,
    stock: &CpuStock<'_>,
    request: usize,
    options: CpuOptions,
) -> Offer {
    if request == 0 {
        return Offer::NoPreference;
    }
    let none = CpuSet::new();
    let (free, reusable) = match stock.allocated {
        None => (stock.available, stock.reusable),
        Some(held) if held.len() == request => (held, &none),
        Some(_) => return Offer::Listed(Vec::new()),
    };
    let free = free.union(reusable);
    let of_nodes = |count: &dyn Fn(&CpuSet) -> usize| -> Vec<u64> {
        nodes.ids().iter().map(|node| layout.node_cpus(*node).map_or(0, count) as u64).collect()
    };
    let amount = request as u64;
    let usable = |cpus: &CpuSet| stock.usable.map_or_else(|| cpus.len(), |usable| cpus.common(usable));
    let capacity = Need { free: of_nodes(&usable), amount };
    let need = Need { free: of_nodes(&|cpus| cpus.common(&free)), amount };
    let must = (0..).zip(of_nodes(&|cpus| cpus.common(reusable)));
    let must =
        must.filter(|(_, count)| *count > 0).fold(0, |mask, (position, _): (u32, _)| mask | 1 << position);
    let width =
        narrowest(slice::from_ref(&capacity)).unwrap_or(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    if !nodes.is_listed() {
        return Offer::Threshold(Threshold { needs: vec![need], width, must });
    }
    let sockets = options.align_by_socket.then(|| Sockets::new(layout, nodes, width)).flatten();
    let (had, has) = (Table::of_sums(&need.free), Table::of_sums(&capacity.free));
    let hint = |mask: Mask| {
        let preferred =
            mask.count_ones() == width || sockets.as_ref().is_some_and(|sockets| sockets.are_fewest(mask));
        let score = if stock.allocated.is_some() { 0 } else { in_use(had.at(mask), has.at(mask)) };
        MaskHint { mask: Some(mask), preferred, score }
    };
    let masks =
        crate::nodes::by_width(nodes.len()).filter(|mask| mask & must == must && had.at(*mask) >= amount);
    Offer::Listed(masks.map(hint).collect())
}

/// Use of the nodes in percent, from 1 to 100.
fn in_use(free: u64, capacity: u64) -> u8 {
    let used = capacity.saturating_sub(free).saturating_mul(99).checked_div(capacity).unwrap_or(0);
    u8::try_from(used).unwrap_or(99) + 1
}

/// Nodes of the sockets, and the minimum number of sockets.
#[derive(Debug)]
struct Sockets {
    /// Nodes of each socket.
    nodes: Vec<Mask>,
    fewest: usize,
}

impl Sockets {
    /// None if a socket is not wider than a node.
    fn new(layout: &CpuLayout, nodes: &NodeIndex, width: u32) -> Option<Self> {
        let sockets = layout.count(Level::Socket);
        let per_socket = nodes.len().checked_div(sockets).filter(|nodes| *nodes > 0)?;
        let mut of_socket = vec![0; sockets];
        for (node, cpus) in &layout.nodes {
            let Some(position) = nodes.position(*node) else { continue };
            for group_index in cpus.iter().filter_map(|cpu| layout.group_index(cpu)) {
                of_socket[group_index.group(Level::Socket)] |= 1 << position;
            }
        }
        Some(Self { nodes: of_socket, fewest: (width as usize).div_ceil(per_socket) })
    }

    fn are_fewest(&self, mask: Mask) -> bool {
        self.nodes.iter().filter(|nodes| *nodes & mask != 0).count() == self.fewest
    }
}
