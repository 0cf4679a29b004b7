//! Pages of containers that are displaced from home.
//!
//! Problem: a container runs on other nodes while other containers have its shared CPUs. It keeps its promise
//! at home, so its memory nodes are both, and nothing would move its pages to its CPUs. Idea: the pages
//! follow as far as the nodes near its CPUs have room, those of the farthest nodes first; when it returns,
//! its memory nodes are those of its home again, and the pages go with them.
//!
//! Anonymous memory follows, and shared memory that processes map ([`own_bytes`]). Unmapped files stay, of
//! tmpfs as well, and page cache is no reason to begin: it comes anew where it is read again. File pages that
//! only one process maps come along even so, so room is requested for them too ([`room_bytes`]).
//!
//! Terminology: a promise is *open* as far as its memory is not in use yet. The *room* of a node is what may
//! be taken there while all open promises can still be kept, by the available memory and by the amount that
//! can be promised at all. Memory of displaced containers beyond their promises takes as much of the latter.
//!
//! Pages on a node that a displaced container must leave go near its CPUs too, as far as there is room, and
//! the others go home, where they use its own open promise ([`RoomAway::leave`]).
//!
//! Invariants: all containers of a decision together send a node at most its room, beside what returns to the
//! container's own promises. Only pages that must leave and exceed those (all of them, if the container has
//! no promise) come without room, because the kernel moves them in any case. While a node has room for
//! [`LEAST_PART`](super::parts::LEAST_PART), no pages stay away for want of it, in parts and on several nodes
//! if need be. Cost: two accounts of memory for each decision with a displaced container that has pages at
//! home, a look at both for each part, and two more accounts for each container whose pages return home.

use std::{
    cell::OnceCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    order::Gathering,
    parts::{HasRoom, PagePart, WithoutRoom, split},
};
use crate::{
    model::{WorkloadModel, kept_bytes, own_bytes, room_bytes},
    sample::{NodeSample, Sample},
    turn::Inputs,
    workload::{CgroupPath, Workload},
};
use numa_placement::{Allocations, Grant, Holder, Inventory, MemoryClaim, MemoryResource, ZoneAccount};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Remaining room of each node while containers take of it in turn.
pub(super) struct RoomAway<'a> {
    inputs: &'a Inputs<'a>,
    allocations: &'a Allocations,
    taken: &'a CpuSet,
    room: OnceCell<Room>,
}

impl<'a> RoomAway<'a> {
    /// Room of all nodes; `taken` are the exclusive CPUs of all.
    pub(super) fn new(inputs: &'a Inputs<'a>, allocations: &'a Allocations, taken: &'a CpuSet) -> Self {
        Self { inputs, allocations, taken, room: OnceCell::new() }
    }

    /// Targets of a container's pages; empty for a container at home, or without pages that could follow.
    pub(super) fn follows(&mut self, grant: &Grant, figures: Option<&WorkloadModel>) -> Vec<Gathering> {
        let Some((away, near)) = self.away(grant, figures) else { return Vec::new() };
        let (inputs, allocations) = (self.inputs, self.allocations);
        self.room.get_or_init(|| Room::of(inputs, allocations));
        let Some(room) = self.room.get_mut() else { return Vec::new() };
        let parts = split(away, &near, room, WithoutRoom::Stay);
        let gathering = |PagePart { to, from, most_bytes }| Gathering {
            from: from.into_keys().collect(),
            to,
            most_bytes,
        };
        parts.into_iter().map(gathering).collect()
    }

    /// Bytes that each node takes of the pages that a displaced container must move, with so many bytes on
    /// each of the nodes that it leaves. `None` for a container at home, or without such pages.
    pub(super) fn leave(
        &mut self,
        holder: &Holder,
        grant: &Grant,
        leaving: &BTreeMap<NodeId, u64>,
    ) -> Option<BTreeMap<NodeId, u64>> {
        grant.shared.as_ref()?.fallback_cpus.as_ref()?;
        if leaving.is_empty() {
            return None;
        }
        let mems = grant.mems(self.taken);
        let promised_on: NodeSet = ordinary_claims(grant).flat_map(|claim| claim.zone.iter()).collect();
        let home = promised_on.intersection(&mems);
        let near = self.near(grant, &mems).1.difference(&home);
        let (inputs, allocations) = (self.inputs, self.allocations);
        self.room.get_or_init(|| Room::of(inputs, allocations));
        let room = self.room.get_mut()?;
        let without_room = if home.is_empty() { WithoutRoom::Go } else { WithoutRoom::Stay };
        let mut takes = BTreeMap::<NodeId, u64>::new();
        let mut rest = leaving.values().fold(0u64, |all, bytes| all.saturating_add(*bytes));
        for part in split(leaving.iter().map(|(node, bytes)| (*node, *bytes)), &near, room, without_room) {
            let bytes = part.from.values().fold(0u64, |all, bytes| all.saturating_add(*bytes));
            *takes.entry(part.to).or_default() += bytes;
            rest = rest.saturating_sub(bytes);
        }
        if rest > 0 && !home.is_empty() {
            takes.extend(room.return_home(inputs.inventory, holder, &home, rest));
        }
        Some(takes)
    }

    /// Nodes of the CPUs that a container has now, and those of its memory nodes that are near these.
    fn near(&self, grant: &Grant, mems: &NodeSet) -> (NodeSet, NodeSet) {
        let machine = &self.inputs.inventory.machine;
        let cpu_nodes = machine.nodes_of(&grant.cpus(self.taken));
        let near = self.inputs.inventory.locality.near_memory_nodes(machine, &cpu_nodes).intersection(mems);
        (cpu_nodes, near)
    }

    /// Nodes with pages of a container that are far from the CPUs that it has now, the farthest first, with
    /// the bytes that may come from there, and the nodes near these CPUs.
    fn away(&self, grant: &Grant, figures: Option<&WorkloadModel>) -> Option<(Vec<(NodeId, u64)>, NodeSet)> {
        grant.shared.as_ref()?.fallback_cpus.as_ref()?;
        let bytes = figures?.bytes_by_node.as_ref()?;
        let mems = grant.mems(self.taken);
        let machine = &self.inputs.inventory.machine;
        let (cpu_nodes, near) = self.near(grant, &mems);
        let far = mems.difference(&near).difference(&machine.gpu_memory_nodes());
        let held = bytes.iter().filter(|(node, bytes)| far.contains(**node) && own_bytes(bytes) > 0);
        let all = held.clone().fold(0u64, |all, (_, bytes)| all.saturating_add(own_bytes(bytes)));
        if all == 0 || all < self.inputs.policy.thresholds.min_memory.0 {
            return None;
        }
        let mut away: Vec<(NodeId, u64)> = held.map(|(node, bytes)| (*node, room_bytes(bytes))).collect();
        let distance = |node: NodeId| {
            let distances = cpu_nodes.iter().filter_map(|from| machine.distance(from, node));
            distances.min().unwrap_or(u32::MAX)
        };
        away.sort_by_key(|(node, bytes)| (Reverse(distance(*node)), Reverse(*bytes), *node));
        Some((away, near))
    }
}

/// Memory that may be taken of each node.
struct Room {
    /// Open promises, beside available memory.
    now: ZoneAccount,
    /// All promises, beside the amount that may be promised at all.
    promised: ZoneAccount,
    /// The open promises of each holder.
    open: BTreeMap<Holder, Vec<MemoryClaim>>,
    /// Available bytes of each node.
    left: BTreeMap<NodeId, u64>,
}

impl Room {
    fn of(inputs: &Inputs<'_>, allocations: &Allocations) -> Self {
        let figures = figures(inputs);
        let mut promised = ZoneAccount::new(inputs.inventory, allocations, |_| false);
        let mut open = BTreeMap::new();
        for (holder, grant) in allocations.iter().filter(|(holder, _)| !holder.is_apart()) {
            let mut held = figures.get(holder).map_or_else(BTreeMap::new, |(cgroup, figures)| {
                let huge = |node: &NodeId| huge_bytes(inputs.sample, cgroup, *node);
                let bytes = figures.bytes_by_node.iter().flatten();
                bytes.map(|(node, bytes)| (*node, kept_bytes(bytes).saturating_sub(huge(node)))).collect()
            });
            let claims: Vec<&MemoryClaim> = ordinary_claims(grant).collect();
            if grant.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some()) {
                let promised_on: BTreeSet<NodeId> =
                    claims.iter().flat_map(|claim| claim.zone.iter()).collect();
                for (node, bytes) in held.iter().filter(|(node, _)| !promised_on.contains(*node)) {
                    take(&mut promised, *node, *bytes);
                }
            }
            open.insert(holder.clone(), still_open(claims, &mut held));
        }
        let available = |(node, now): (&NodeId, &NodeSample)| Some((*node, now.available_bytes()?));
        let left = inputs.sample.nodes.iter().filter_map(available).collect();
        Self::beside(inputs.inventory, promised, open, left)
    }

    /// Room beside these open promises, with so many bytes available on each node.
    fn beside(
        inventory: &Inventory,
        promised: ZoneAccount,
        open: BTreeMap<Holder, Vec<MemoryClaim>>,
        left: BTreeMap<NodeId, u64>,
    ) -> Self {
        Self { now: account(inventory, &open, &left), promised, open, left }
    }

    /// Sends pages of a holder to the nodes of its promises, whose open part they use; returns the bytes that
    /// each of these nodes takes.
    fn return_home(
        &mut self,
        inventory: &Inventory,
        holder: &Holder,
        home: &NodeSet,
        bytes: u64,
    ) -> BTreeMap<NodeId, u64> {
        let own = self.open.remove(holder).unwrap_or_default();
        let others = account(inventory, &self.open, &self.left);
        let takes = others.split(home, MemoryResource::Memory, bytes);
        for (node, bytes) in &takes {
            self.left.entry(*node).and_modify(|left| *left = left.saturating_sub(*bytes));
        }
        let still_open = still_open(own.iter().collect(), &mut takes.clone());
        self.open.insert(holder.clone(), still_open);
        self.now = account(inventory, &self.open, &self.left);
        takes
    }

    fn on(&self, node: NodeId) -> u64 {
        let node = NodeSet::from_iter([node]);
        let free = |account: &ZoneAccount| account.free(&node, MemoryResource::Memory);
        free(&self.now).min(free(&self.promised))
    }
}

impl HasRoom for Room {
    fn room_on(&self, node: NodeId) -> u64 {
        self.on(node)
    }

    fn take(&mut self, node: NodeId, bytes: u64) {
        take(&mut self.now, node, bytes);
        take(&mut self.promised, node, bytes);
        self.left.entry(node).and_modify(|left| *left = left.saturating_sub(bytes));
    }
}

/// The account of open promises with so many bytes available on each node.
fn account(
    inventory: &Inventory,
    open: &BTreeMap<Holder, Vec<MemoryClaim>>,
    left: &BTreeMap<NodeId, u64>,
) -> ZoneAccount {
    let left = |node: NodeId| left.get(&node).copied().unwrap_or(0);
    ZoneAccount::of_what_is_left(inventory, open.values().flatten(), left)
}

/// Promises of ordinary memory.
fn ordinary_claims(grant: &Grant) -> impl Iterator<Item = &MemoryClaim> {
    grant.memory.iter().filter(|claim| claim.resource == MemoryResource::Memory)
}

fn take(account: &mut ZoneAccount, node: NodeId, bytes: u64) {
    let _claim = account.promise(&NodeSet::from_iter([node]), MemoryResource::Memory, bytes);
}

/// What of the promises of one container is not in use yet. What it holds is of its narrowest promises first,
/// and of one alone.
fn still_open(mut claims: Vec<&MemoryClaim>, held: &mut BTreeMap<NodeId, u64>) -> Vec<MemoryClaim> {
    claims.sort_by_key(|claim| claim.zone.len());
    let open = claims.into_iter().map(|claim| {
        let mut bytes = claim.bytes;
        for node in claim.zone.iter() {
            if let Some(held) = held.get_mut(&node) {
                let used = bytes.min(*held);
                (bytes, *held) = (bytes - used, *held - used);
            }
        }
        MemoryClaim { bytes, by_node: BTreeMap::new(), ..claim.clone() }
    });
    open.collect()
}

/// Bytes of huge pages that a cgroup uses on a node: they keep no promise of ordinary memory.
fn huge_bytes(sample: &Sample, cgroup: &CgroupPath, node: NodeId) -> u64 {
    let seen = sample.cgroups.get(cgroup);
    let by_size = seen.into_iter().flat_map(|seen| seen.hugetlb_by_file.values());
    by_size.filter_map(|by_node| by_node.get(&node)).fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// Cgroups and figures of each holder that was seen.
fn figures<'a>(inputs: &Inputs<'a>) -> BTreeMap<Holder, (&'a CgroupPath, &'a WorkloadModel)> {
    let containers: BTreeMap<_, _> = inputs.containers.cgroups().collect();
    let of = |workload: &'a Workload| {
        let cgroup = &workload.cgroup;
        let holder =
            containers.get(cgroup).map_or_else(|| Holder::cgroup(cgroup), |holder| (*holder).clone());
        Some((holder, (cgroup, inputs.model.of(workload)?)))
    };
    inputs.workloads.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests;
