//! Explains what was short where, when the policy does not accept the best place.
//!
//! Problem: "cannot be aligned" is no help. Idea: for every resource, compare the request with the best
//! nodes, as many as an empty machine would need. If one resource is short by itself, that is the cause. If
//! each fits somewhere but all of them nowhere, the result names the nodes on which fewest are short, and
//! their shortages. If one resource needs more nodes than another may have, the nodes that the other would
//! take are short.

use std::cmp::Reverse;

use super::{Mask, NodeIndex, Offers, positions, question::accepts};
use crate::{Rejection, RejectionProblem, RejectionReason, Shortage, room::FittingAmount, words};
use numa_topology::{MemoryKind, Node, Topology, set::NodeSet};

/// One resource: the request, and the amounts of nodes by position.
#[derive(Debug, Clone)]
pub(super) struct ResourceFit {
    pub(super) resource: String,
    pub(super) wanted: u64,
    pub(super) free: Vec<u64>,
    pub(super) capacity: Vec<u64>,
    /// Amount available at any place, for a resource without known nodes.
    pub(super) anywhere: Option<u64>,
    /// Amount that would have been possible.
    pub(super) room: FittingAmount,
}

impl ResourceFit {
    fn sum(amounts: &[u64], mask: Mask) -> u64 {
        positions(mask).filter_map(|at| amounts.get(at)).fold(0, |sum, amount| sum.saturating_add(*amount))
    }

    fn available(&self, mask: Mask) -> u64 {
        self.anywhere.unwrap_or_else(|| Self::sum(&self.free, mask))
    }

    /// Is it short on every set of nodes?
    fn is_short_anywhere(&self) -> bool {
        self.anywhere.is_some_and(|available| available < self.wanted)
    }

    fn is_short(&self, mask: Mask) -> bool {
        self.available(mask) < self.wanted
    }

    /// Missing share of the request in thousandths.
    fn missing(&self, mask: Mask) -> u128 {
        let missing = u128::from(self.wanted.saturating_sub(self.available(mask)));
        (missing * 1000).checked_div(u128::from(self.wanted)).unwrap_or(0)
    }

    /// The nodes with most of it.
    fn richest(amounts: &[u64], width: usize) -> Mask {
        let mut order: Vec<(Reverse<u64>, usize)> =
            amounts.iter().enumerate().map(|(at, amount)| (Reverse(*amount), at)).collect();
        order.sort_unstable();
        order.iter().take(width).fold(0, |mask, (_, at)| mask | 1 << at)
    }

    /// Number of nodes that an empty machine would need; none if all of them are too few.
    fn width(&self) -> Option<usize> {
        let does = |width: &usize| {
            self.anywhere.is_some()
                || Self::sum(&self.capacity, Self::richest(&self.capacity, *width)) >= self.wanted
        };
        (1..=self.capacity.len()).find(does)
    }

    fn shortage(&self, nodes: &NodeIndex, mask: Mask) -> Shortage {
        Shortage {
            resource: self.resource.clone(),
            nodes: nodes.nodes(mask),
            wanted: self.wanted,
            available: self.available(mask),
        }
    }
}

/// Rejection of a pod that cannot be aligned.
pub(super) fn not_aligned(
    nodes: &NodeIndex,
    single_node: bool,
    lines: &[ResourceFit],
    offers: &Offers,
) -> Rejection {
    let widest = |line: &ResourceFit| match line.anywhere {
        Some(_) => nodes.len(),
        None if single_node => 1,
        None => line.width().unwrap_or(nodes.len()),
    };
    let own = lines.iter().map(|line| (line, ResourceFit::richest(&line.free, widest(line))));
    let short: Vec<Shortage> = own
        .filter(|(line, mask)| line.is_short(*mask))
        .map(|(line, mask)| line.shortage(nodes, mask))
        .collect();
    let shortages = if short.is_empty() { conflict(nodes, single_node, lines) } else { short };
    let rejection = Rejection::new(RejectionReason::TopologyAffinityError, RejectionProblem::NotAligned);
    let rejection = rejection.short_of(shortages, &rooms(single_node, lines));
    match narrowest_with_room(nodes, lines, offers) {
        Some(mask) => {
            let fits = format!("all of it fits on {}, but not aligned", words::nodes(&nodes.nodes(mask)));
            Rejection { fits: Some(fits), ..rejection }
        }
        None => rejection,
    }
}

/// Nodes with memory that was not counted, with the reason; `counted` are the others.
pub(crate) fn left_out(machine: &Topology, counted: &NodeSet) -> Option<String> {
    let of = |why: &str, is: &dyn Fn(&Node) -> bool| {
        let nodes: NodeSet = machine.nodes.iter().filter(|node| is(node)).map(|node| node.id).collect();
        (!nodes.is_empty()).then(|| format!("{} {why}", words::nodes(&nodes)))
    };
    let reasons = [
        of("left out: memory of a GPU", &|node| node.kind == MemoryKind::Gpu),
        of("left out: no memory", &|node| node.mem_total_bytes == Some(0)),
        of("left out: size not known", &|node| {
            node.mem_total_bytes.is_none() && node.takes_ordinary_memory()
        }),
        of("left out: not allowed, or local to none of these", &|node| {
            node.mem_total_bytes.is_some() && node.takes_ordinary_memory() && !counted.contains(node.id)
        }),
    ];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Each resource fits somewhere, but not all of them together: shortages on the nodes where fewest are short.
fn conflict(nodes: &NodeIndex, single_node: bool, lines: &[ResourceFit]) -> Vec<Shortage> {
    let widths = || lines.iter().filter_map(ResourceFit::width).filter(|_| !single_node);
    let short = |mask: Mask| lines.iter().filter(move |line| line.is_short(mask));
    let worst = |mask: Mask| short(mask).map(|line| line.missing(mask)).sum::<u128>();
    let best_of = |width: usize| {
        let candidates = lines.iter().map(|line| ResourceFit::richest(&line.free, width));
        candidates
            .min_by_key(|mask| (short(*mask).count(), worst(*mask), *mask))
            .unwrap_or_else(|| nodes.all())
    };
    let widest = best_of(widths().max().unwrap_or(1));
    // If the richest nodes have everything, one resource wants fewer nodes than another needs.
    let best = if short(widest).next().is_none() { best_of(widths().min().unwrap_or(1)) } else { widest };
    let found: Vec<Shortage> = short(best).map(|line| line.shortage(nodes, best)).collect();
    if found.is_empty() {
        // The sums suffice, but other promises of the resource must be on these nodes or may not mix.
        lines.iter().map(|line| line.shortage(nodes, best)).collect()
    } else {
        found
    }
}

/// Amounts of each resource that would have been possible.
fn rooms(single_node: bool, lines: &[ResourceFit]) -> Vec<FittingAmount> {
    let room = |line: &ResourceFit| {
        let room = line.room.clone();
        if single_node && line.anywhere.is_none() { room.on_one_node() } else { room }
    };
    lines.iter().map(room).collect()
}

/// A narrow set of nodes with room for everything: adds the node that leaves the least missing each time.
fn narrowest_with_room(nodes: &NodeIndex, lines: &[ResourceFit], offers: &Offers) -> Option<Mask> {
    if lines.iter().any(ResourceFit::is_short_anywhere) {
        return None;
    }
    let missing = |mask: Mask| lines.iter().map(|line| line.missing(mask)).sum::<u128>();
    let mut mask = 0;
    while !(mask != 0 && offers.iter().all(|(_, offer)| accepts(offer, mask))) {
        let others = positions(nodes.all() & !mask);
        mask |= 1 << others.min_by_key(|at| (missing(mask | 1 << at), *at))?;
    }
    Some(mask)
}
