//! Amounts that would have fitted, for the text of a rejection.
//!
//! Problem: a rejection is useful only if it states which smaller request would have had a place. Idea: the
//! engine knows the free amount of each resource on any set of nodes. Two figures are reported for every
//! resource, in both engines: the maximum of a single node, and the total of all considered nodes. Each is
//! for that resource alone.
//!
//! Invariant: the figures never overstate: the amount of a zone is computed for the zone, not added up.

use std::cmp::Reverse;

use crate::{size_units::SizeUnits, words};
use numa_topology::{
    Topology,
    id::NodeId,
    set::{CpuSet, NodeSet},
    text::printable,
};

/// Amount of one resource that would have fitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittingAmount {
    resource: String,
    /// Whether amounts are in thousandths of a CPU.
    milli: bool,
    /// Maximum of a single node; `None` if only the nodes together were considered.
    one: Option<(NodeId, u64)>,
    /// The considered nodes, and their total; `None` if only one node counts.
    all: Option<(NodeSet, u64)>,
    /// Whether the amount is unknown.
    unknown: bool,
}

impl FittingAmount {
    /// Computes the figures from the free amount on a set of nodes.
    pub fn new(resource: &str, nodes: &NodeSet, free: impl Fn(&NodeSet) -> u64) -> Self {
        let of_one = |node: NodeId| (node, free(&std::iter::once(node).collect()));
        Self {
            resource: resource.to_owned(),
            milli: false,
            one: nodes.iter().map(of_one).min_by_key(|(node, amount)| (Reverse(*amount), *node)),
            all: Some((nodes.clone(), free(nodes))),
            unknown: false,
        }
    }

    /// Marks the resource as unknown on these nodes.
    #[must_use]
    pub(crate) fn without_sizes_of(self, nodes: &NodeSet, resource: &str) -> Self {
        let one = self.one.map(|(node, _)| NodeSet::from_iter([node]));
        let own = self.all.as_ref().map(|(all, _)| all.clone()).or(one).unwrap_or_default();
        let unknown = self.resource == resource && !own.is_empty() && own.is_subset(nodes);
        Self { unknown, ..self }
    }

    /// Room for CPUs, given the free ones.
    pub fn of_cpus(machine: &Topology, nodes: &NodeSet, free: &CpuSet) -> Self {
        let count = |nodes: &NodeSet| free.common(&machine.cpus_of(nodes));
        Self::new("cpu", nodes, |nodes| u64::try_from(count(nodes)).unwrap_or(u64::MAX))
    }

    /// A resource with only a total for all nodes.
    pub fn together(resource: &str, nodes: NodeSet, amount: u64) -> Self {
        Self { one: None, all: Some((nodes, amount)), ..Self::new(resource, &NodeSet::new(), |_| 0) }
    }

    /// Keeps only the figure of a single node.
    #[must_use]
    pub fn on_one_node(self) -> Self {
        let all = self.all.filter(|_| self.one.is_none());
        Self { all, ..self }
    }

    /// The node with the maximum, and its amount.
    pub const fn best(&self) -> Option<(NodeId, u64)> {
        self.one
    }

    /// The largest reported amount, and the resource.
    pub fn largest(&self) -> (String, u64) {
        let amounts = [self.one.map(|(_, amount)| amount), self.all.as_ref().map(|(_, amount)| *amount)];
        (self.resource.clone(), amounts.into_iter().flatten().max().unwrap_or(0))
    }

    /// Amounts in thousandths of a CPU.
    #[must_use]
    pub(crate) fn in_thousandths(self) -> Self {
        Self { milli: true, ..self }
    }
}

/// `at most 6 cpu on node 0 and 14 on nodes 0-1, 16 GiB memory on node 0 would fit`; `None` without
/// resources.
pub fn would_fit(rooms: &[FittingAmount], units: &SizeUnits) -> Option<String> {
    let rooms: Vec<String> = rooms.iter().map(|room| room.text(units)).collect();
    (!rooms.is_empty()).then(|| format!("at most {} would fit", rooms.join(", ")))
}

/// Is this resource counted in bytes?
pub(crate) fn is_in_bytes(resource: &str) -> bool {
    resource == "memory" || resource.starts_with("hugepages-")
}

impl FittingAmount {
    fn text(&self, units: &SizeUnits) -> String {
        let amount = |value: u64| match units.get(&self.resource) {
            _ if self.unknown => "unknown".to_owned(),
            Some(unit) => unit.show(value),
            None if self.milli && !value.is_multiple_of(1000) => format!("{value}m"),
            None if self.milli => (value / 1000).to_string(),
            None => value.to_string(),
        };
        let all = self.all.as_ref();
        // A total that adds nothing, and a node with nothing, are left out. One node may have more than all
        // together: huge pages that others may take on any node.
        let one = self.one.filter(|(_, most)| all.is_none() || *most > 0);
        let all = all.filter(|(_, sum)| one.is_none_or(|(_, most)| *sum > most));
        let resource = printable(&self.resource);
        match (one, all) {
            (Some((node, most)), all) => {
                let all = all.map(|(nodes, sum)| format!(" and {} on {}", amount(*sum), words::nodes(nodes)));
                format!("{} {resource} on node {node}{}", amount(most), all.unwrap_or_default())
            }
            (None, Some((nodes, sum))) if !nodes.is_empty() => {
                format!("{} {resource} on {}", amount(*sum), words::nodes(nodes))
            }
            (None, _) => format!("{} {resource}", amount(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::rejection::units_of, *};

    #[test]
    fn the_best_node_and_all_of_them_are_told_where_they_differ() {
        let nodes = |list: &str| list.parse::<NodeSet>().unwrap();
        let room = |list: &str, amounts: [u64; 3], sum: u64| {
            FittingAmount::new("cpu", &nodes(list), |nodes| match nodes.len() {
                1 => nodes.first().map_or(0, |node| amounts[node.0 as usize]),
                _ => sum,
            })
        };
        for (room, text) in [
            (room("0-1", [3, 6, 0], 9), "6 cpu on node 1 and 9 on nodes 0-1"),
            (room("0-1", [6, 6, 0], 6), "6 cpu on node 0"),
            (room("1", [3, 6, 0], 6), "6 cpu on node 1"),
            (room("0-2", [0, 0, 0], 0), "0 cpu on nodes 0-2"),
            (room("0-1", [3, 6, 0], 4), "6 cpu on node 1"),
            (room("0-1", [0, 0, 0], 2), "2 cpu on nodes 0-1"),
            (room("0-1", [3, 6, 0], 9).on_one_node(), "6 cpu on node 1"),
            (room("0-1", [0, 0, 0], 0).on_one_node(), "0 cpu on node 0"),
            (room("0-1", [300, 600, 0], 900).in_thousandths(), "600m cpu on node 1 and 900m on nodes 0-1"),
            (room("0-1", [0, 2000, 0], 3500).in_thousandths(), "2 cpu on node 1 and 3500m on nodes 0-1"),
            (room("0", [0, 0, 0], 0).in_thousandths(), "0 cpu on node 0"),
            (FittingAmount::together("memory", nodes("0-1"), 1 << 40), "1024 GiB memory on nodes 0-1"),
            (FittingAmount::together("v.com/\u{1b}", nodes("0"), 1), "1 v.com/\\u{1b} on node 0"),
            (FittingAmount::new("cpu", &NodeSet::new(), |_| 0), "0 cpu"),
        ] {
            assert_eq!(room.text(&units_of(&[], std::slice::from_ref(&room))), text);
        }
        let rooms = [room("0", [3, 0, 0], 3), FittingAmount::together("hugepages-2Mi", nodes("1"), 0)];
        let said = "at most 3 cpu on node 0, 0 B hugepages-2Mi on node 1 would fit";
        assert_eq!(would_fit(&rooms, &units_of(&[], &rooms)).as_deref(), Some(said));
        assert_eq!(would_fit(&[], &SizeUnits::default()), None);
    }
}
