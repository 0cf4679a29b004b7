//! Equal parts from several nodes: `distribute-cpus-across-numa`.
//!
//! [`shares`] computes the number of single CPUs or whole cores of each node. Within a node the packed order
//! selects them: first the even part, then the remainder group by group.

use super::{CpuOptions, packed, shares, stock::Stock};
use crate::layout::Level;
use numa_topology::set::CpuSet;

/// The needed CPUs in equal parts from as few nodes as possible, but at least `at_least` if possible; none if
/// no equal parts exist.
pub(super) fn across_nodes(stock: &Stock<'_>, at_least: usize, options: CpuOptions) -> Option<CpuSet> {
    let layout = stock.layout();
    let group = if options.full_pcpus_only { layout.threads_per_core() } else { 1 };
    if !stock.needed().is_multiple_of(group) {
        return None;
    }
    let nodes = packed::nodes(stock);
    let free: Vec<usize> = nodes.iter().map(|node| stock.count(Level::Node, *node)).collect();
    let shares = shares::find(&free, stock.needed() / group, group, at_least)?;
    let mut cpus = CpuSet::new();
    for (node, share) in nodes.into_iter().zip(shares).filter(|(_, share)| share.even + share.extra > 0) {
        let of_node = stock.free().intersection(layout.members(Level::Node, node));
        let mut of_node = Stock::new(layout, &of_node, CpuSet::new(), share.even * group);
        packed::assign(&mut of_node, options);
        for _ in 0..share.extra {
            of_node.need(group);
            packed::assign(&mut of_node, options);
        }
        cpus.extend(&of_node.into_taken());
    }
    Some(cpus)
}
