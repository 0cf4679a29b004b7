//! Which sets of nodes have enough CPUs for a container.
//!
//! A set of nodes will do when its free and reusable CPUs are enough and it has every reusable one,
//! which would be lost otherwise; it is preferred when an empty machine could not do with fewer nodes,
//! and with `align-by-socket` also when it is on as few sockets as that many nodes need.
//!
//! Cost: O(2^N) sets of N nodes where they are listed; elsewhere that a threshold, which says the same in
//! O(N) except for the sockets of `align-by-socket`.

use std::slice;

use super::CpuOptions;
use crate::{
    place::{
        CpuLayout,
        hints::{Mask, MaskHint, Need, NodeIndex, Offer, Table, Threshold, masks, narrowest::narrowest},
        layout::Level,
    },
    set::CpuSet,
};

/// What can be had for one container.
#[derive(Debug, Clone, Copy)]
pub struct CpuStock<'a> {
    /// CPUs that nobody holds and that are not reserved.
    pub available: &'a CpuSet,
    /// CPUs of ended init containers of the same pod.
    pub reusable: &'a CpuSet,
    /// CPUs that the container holds already.
    pub allocated: Option<&'a CpuSet>,
    /// CPUs that there would be for it were nobody else there, reserved ones included; all of the
    /// machine when absent.
    pub usable: Option<&'a CpuSet>,
}

/// What the CPUs say to a request for whole CPUs; 0 when no CPUs of its own are asked for.
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
    let masks = masks::by_width(nodes.len()).filter(|mask| mask & must == must && had.at(*mask) >= amount);
    Offer::Listed(masks.map(hint).collect())
}

/// How full the nodes are, from 1 to 100.
fn in_use(free: u64, capacity: u64) -> u8 {
    let used = capacity.saturating_sub(free).saturating_mul(99).checked_div(capacity).unwrap_or(0);
    u8::try_from(used).unwrap_or(99) + 1
}

/// Where the sockets are, and how few of them would do.
#[derive(Debug)]
struct Sockets {
    /// Nodes of each socket.
    nodes: Vec<Mask>,
    fewest: usize,
}

impl Sockets {
    /// None where a socket is not wider than a node.
    fn new(layout: &CpuLayout, nodes: &NodeIndex, width: u32) -> Option<Self> {
        let sockets = layout.count(Level::Socket);
        let per_socket = nodes.len().checked_div(sockets).filter(|nodes| *nodes > 0)?;
        let mut of_socket = vec![0; sockets];
        for (node, cpus) in &layout.nodes {
            let Some(position) = nodes.position(*node) else { continue };
            for seat in cpus.iter().filter_map(|cpu| layout.seat(cpu)) {
                of_socket[seat.group(Level::Socket)] |= 1 << position;
            }
        }
        Some(Self { nodes: of_socket, fewest: (width as usize).div_ceil(per_socket) })
    }

    fn are_fewest(&self, mask: Mask) -> bool {
        self.nodes.iter().filter(|nodes| *nodes & mask != 0).count() == self.fewest
    }
}
