//! Request of a container for memory, and the account it is checked against.

use super::groups::Groups;
use crate::{
    MemoryResource, QosClass, Resources,
    hints::{Mask, NodeIndex, Table, positions},
    memory::ZoneAccount,
};
use numa_topology::set::NodeSet;

/// Bytes by kind of memory, none of them zero.
pub type WantedMemory = Vec<(MemoryResource, u64)>;

/// The memory account, by nodes that take part in hints.
#[derive(Debug)]
pub struct MemoryStock<'a> {
    pub(super) account: &'a ZoneAccount,
    pub(super) nodes: &'a NodeIndex,
    /// Groups under the kubelet's rule.
    pub(super) groups: Option<Groups>,
    /// Mask of the account for the memory of each position of `nodes`.
    masks: Vec<Mask>,
    /// Whether each position has at most one node, and no two positions the same.
    is_plain: bool,
}

/// Memory to promise to a container, or to a pod as a whole: everything for a Guaranteed pod; for others only
/// if all classes are aligned.
pub fn wanted(requests: &Resources, qos: QosClass, align_all_qos: bool) -> WantedMemory {
    if qos != QosClass::Guaranteed && !align_all_qos {
        return WantedMemory::new();
    }
    let memory = requests.memory_bytes.map(|bytes| (MemoryResource::Memory, bytes));
    let hugepages = requests.hugepages.iter().map(|(size, bytes)| (MemoryResource::Hugepages(*size), *bytes));
    memory.into_iter().chain(hugepages).filter(|(_, bytes)| *bytes > 0).collect()
}

impl<'a> MemoryStock<'a> {
    /// The account on these nodes. `strict_groups` is the kubelet's rule.
    pub fn new(account: &'a ZoneAccount, nodes: &'a NodeIndex, strict_groups: bool) -> Self {
        let masks = nodes.ids().iter().map(|id| account.nodes().position(*id).map_or(0, |at| 1 << at));
        Self::of_masks(account, nodes, masks.collect(), strict_groups)
    }

    /// The account, with the memory zone of each node by position.
    pub(crate) fn of_zones(
        account: &'a ZoneAccount,
        nodes: &'a NodeIndex,
        zones: &[NodeSet],
        strict_groups: bool,
    ) -> Self {
        let masks = zones.iter().map(|zone| account.nodes().mask(zone)).collect();
        Self::of_masks(account, nodes, masks, strict_groups)
    }

    fn of_masks(account: &'a ZoneAccount, nodes: &'a NodeIndex, masks: Vec<Mask>, strict: bool) -> Self {
        let groups = strict.then(|| Groups::of(account));
        let all = masks.iter().fold(0, |all, mask| all | mask);
        let is_single = masks.iter().all(|mask| mask.count_ones() <= 1);
        let count = masks.iter().map(|mask| mask.count_ones()).sum::<u32>();
        Self { account, nodes, groups, masks, is_plain: is_single && count == all.count_ones() }
    }

    /// Memory of a position that no lower position has, so that amounts can be added.
    pub(super) fn apart(&self, position: usize) -> Mask {
        let before = self.masks.iter().take(position).fold(0, |before, mask| before | mask);
        self.masks.get(position).copied().unwrap_or(0) & !before
    }

    /// Does the rule for groups allow these nodes?
    pub fn allows(&self, mask: Mask) -> bool {
        self.allowed(mask)
    }

    /// Are amounts of single nodes sufficient to judge sets of nodes?
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    /// The account's mask of the same nodes.
    pub(super) fn zone(&self, mask: Mask) -> Mask {
        positions(mask).filter_map(|position| self.masks.get(position)).fold(0, |zone, node| zone | node)
    }

    /// Mask of the account's zone; none if the zone has other nodes too.
    pub(super) fn mask(&self, zone: Mask) -> Option<Mask> {
        let inside = |(_, node): &(usize, &Mask)| **node & zone != 0;
        let mask =
            self.masks.iter().enumerate().filter(inside).fold(0, |mask, (position, _)| mask | 1 << position);
        (self.zone(mask) == zone).then_some(mask)
    }

    /// Amount that can be promised on each set of nodes; for few nodes only.
    pub(super) fn free_on_sets(&self, resource: MemoryResource) -> Table {
        if self.is_plain {
            return self.account.free_on_sets(&self.masks, resource);
        }
        let sets = 0..1 << self.nodes.len();
        Table::of_amounts(sets.map(|set| self.account.free_on(self.zone(set), resource)).collect())
    }

    /// Capacity of each set of nodes; for few nodes only.
    pub(super) fn capacity_on_sets(&self, resource: MemoryResource) -> Table {
        if self.is_plain {
            let of_node = |mask: &Mask| self.account.capacity_on(*mask, resource);
            return Table::of_sums(&self.masks.iter().map(of_node).collect::<Vec<_>>());
        }
        let sets = 0..1 << self.nodes.len();
        Table::of_amounts(sets.map(|set| self.account.capacity_on(self.zone(set), resource)).collect())
    }

    /// Can all of it be promised there?
    pub(super) fn fits(&self, mask: Mask, wanted: &[(MemoryResource, u64)]) -> bool {
        let zone = self.zone(mask);
        wanted.iter().all(|(resource, bytes)| self.account.fits_on(zone, *resource, *bytes))
    }

    /// Does the rule for groups allow these nodes?
    pub(super) fn allowed(&self, mask: Mask) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.allow(self.zone(mask)))
    }
}

/// Room of a zone on an empty machine.
pub(super) fn when_empty(stock: &MemoryStock<'_>, zone: Mask, resource: MemoryResource) -> u64 {
    stock.account.capacity_on(zone, resource)
}

/// Room of a zone now.
pub(super) fn now(stock: &MemoryStock<'_>, zone: Mask, resource: MemoryResource) -> u64 {
    stock.account.left_on(zone, resource)
}
