//! Sets of nodes for a pod, and the holders that would have to leave each.
//!
//! Problem: a trial is a whole placement, and there are many sets of holders. Idea: figures rule out most of
//! them. A set must free what is missing on the pod's nodes. A holder that was on a single node must find one
//! again with enough room, including what the set frees there. Holders that free nothing make way only if the
//! others would have no room otherwise.
//!
//! The figures never rule out what a placement would allow: freed memory counts on every node, because
//! promises of others may shift. Cost: O([`NEAR`]^3) additions per set of nodes.

use std::cmp::Reverse;

use super::{EXACT, MoveSearch, count, promised};
use crate::{Grant, Holder, MemoryResource, QosClass, memory::ZoneAccount};
use numa_topology::{
    id::NodeId,
    set::{CpuSet, NodeSet},
};

/// Maximum number of holders that are combined on each set of nodes.
const NEAR: usize = 64;
/// Maximum number of holders elsewhere, which only make way.
const NEAR_BY: usize = 16;
/// Maximum number of sets of nodes.
const PLACES: usize = 256;

/// A set of nodes for the pod, what is missing there, and the holders that could leave.
pub(super) struct CandidateNodes<'a> {
    /// The pod's request there.
    wanted: NodeAmounts,
    missing: NodeAmounts,
    leaving: Vec<LeavingHolder<'a>>,
    /// Free amounts of each node of the machine.
    rooms: Vec<NodeAmounts>,
    /// Index of its node, if it is a single one.
    at: Option<usize>,
}

/// A holder that could leave, and the amounts that frees there: nothing for one that is elsewhere.
struct LeavingHolder<'a> {
    holder: &'a Holder,
    frees: NodeAmounts,
    bytes: u64,
    /// Amounts that it needs on one node again, because it was on one.
    needs_on_one_node: Option<NodeAmounts>,
    /// Exclusive CPUs that it frees, by node.
    cpus_by_node: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct NodeAmounts {
    pub(super) cpus: u64,
    pub(super) memory: u64,
}

impl NodeAmounts {
    fn plus(self, other: Self) -> Self {
        Self { cpus: self.cpus.saturating_add(other.cpus), memory: self.memory.saturating_add(other.memory) }
    }

    const fn minus(self, other: Self) -> Self {
        Self { cpus: self.cpus.saturating_sub(other.cpus), memory: self.memory.saturating_sub(other.memory) }
    }

    const fn covers(self, other: Self) -> bool {
        self.cpus >= other.cpus && self.memory >= other.memory
    }
}

impl MoveSearch<'_> {
    /// Sets of nodes that would be wide enough for the largest container, with what is missing there.
    pub(super) fn places<'a>(&self, movable: &[(&'a Holder, &'a Grant)]) -> Vec<CandidateNodes<'a>> {
        let wanted = self.largest();
        let account = ZoneAccount::new(self.inventory, self.allocations, |_| false);
        let free = self.free_cpus();
        let room = |node: &NodeId| {
            let alone: NodeSet = std::iter::once(*node).collect();
            NodeAmounts {
                cpus: count(free.common(&self.inventory.machine.cpus_of(&alone))),
                memory: account.free(&alone, MemoryResource::Memory),
            }
        };
        let nodes: Vec<NodeId> = self.inventory.cpu_nodes().iter().collect();
        let capacity = |place: &NodeSet| NodeAmounts {
            cpus: count(self.inventory.allowed_cpus.common(&self.inventory.machine.cpus_of(place))),
            memory: account.capacity(place, MemoryResource::Memory),
        };
        let sets = (1..=nodes.len())
            .map(|width| combinations(&nodes, width))
            .find(|sets| sets.iter().any(|place| capacity(place).covers(wanted)));
        let places = sets.unwrap_or_default().into_iter().filter(|place| capacity(place).covers(wanted));
        let one_node_holds = |needs: NodeAmounts| {
            nodes.iter().any(|node| capacity(&std::iter::once(*node).collect()).covers(needs))
        };
        let rooms: Vec<NodeAmounts> = nodes.iter().map(room).collect();
        places
            .map(|place| {
                let cpus = self.inventory.machine.cpus_of(&place).intersection(&self.inventory.allowed_cpus);
                let missing = NodeAmounts {
                    cpus: wanted.cpus.saturating_sub(count(cpus.common(&free))),
                    memory: wanted.memory.saturating_sub(account.free(&place, MemoryResource::Memory)),
                };
                let mut leaving: Vec<LeavingHolder<'a>> = movable
                    .iter()
                    .map(|(holder, grant)| {
                        self.leaving(holder, grant, &nodes, (&cpus, &place), &one_node_holds)
                    })
                    .collect();
                leaving.sort_by_key(|leaving| (leaving.bytes, leaving.holder));
                let alone = place.first().filter(|_| place.len() == 1);
                let at = alone.and_then(|node| nodes.iter().position(|other| *other == node));
                CandidateNodes { wanted, missing, leaving, rooms: rooms.clone(), at }
            })
            .collect()
    }

    fn leaving<'a>(
        &self,
        holder: &'a Holder,
        grant: &Grant,
        nodes: &[NodeId],
        (cpus, place): (&CpuSet, &NodeSet),
        one_node_holds: &dyn Fn(NodeAmounts) -> bool,
    ) -> LeavingHolder<'a> {
        let own = |node: &NodeId| {
            let alone: NodeSet = std::iter::once(*node).collect();
            count(grant.exclusive.common(&self.inventory.machine.cpus_of(&alone)))
        };
        // Its new place must be no worse: as few nodes as an empty machine would need.
        let aligned = grant.hint.as_ref().is_some_and(|hint| hint.preferred);
        let guaranteed = grant.qos == Some(QosClass::Guaranteed);
        let needs = NodeAmounts {
            cpus: count(grant.exclusive.len()),
            memory: if guaranteed { grant.memory_by_node().values().sum() } else { 0 },
        };
        LeavingHolder {
            holder,
            frees: NodeAmounts { cpus: count(grant.exclusive.common(cpus)), memory: memory_on(grant, place) },
            bytes: promised(grant),
            needs_on_one_node: (aligned && one_node_holds(needs)).then_some(needs),
            cpus_by_node: nodes.iter().map(own).collect(),
        }
    }
}

impl LeavingHolder<'_> {
    fn only_makes_way(&self) -> bool {
        self.frees == NodeAmounts::default()
    }
}

impl<'a> CandidateNodes<'a> {
    pub(super) fn holder(&self, at: usize) -> Option<&'a Holder> {
        self.leaving.get(at).map(|leaving| leaving.holder)
    }

    /// Calls `found` for every set of `count` holders that frees what is missing and may find room elsewhere,
    /// with the bytes that would move.
    pub(super) fn sets(&self, count: usize, mut found: impl FnMut(u64, &[usize])) {
        let of_kind = |makes_way: bool, limit: usize| {
            let all =
                (0..self.leaving.len()).filter(move |at| self.leaving[*at].only_makes_way() == makes_way);
            all.take(limit).collect::<Vec<usize>>()
        };
        let (freeing, others) = (of_kind(false, NEAR), of_kind(true, NEAR_BY));
        for leave in 1..=count {
            choose(&freeing, leave, &mut Vec::new(), &mut |members| {
                if !self.sum(members).0.covers(self.missing) {
                    return;
                }
                if leave == count {
                    if self.has_room_for(members) {
                        found(self.sum(members).1, members);
                    }
                } else if !self.has_room_for(members) {
                    choose(&others, count, &mut members.to_vec(), &mut |members| {
                        if self.has_room_for(members) {
                            found(self.sum(members).1, members);
                        }
                    });
                }
            });
        }
    }

    fn sum(&self, members: &[usize]) -> (NodeAmounts, u64) {
        let chosen = members.iter().filter_map(|at| self.leaving.get(*at));
        chosen.fold((NodeAmounts::default(), 0), |(frees, bytes), one| {
            (frees.plus(one.frees), bytes.saturating_add(one.bytes))
        })
    }

    /// Could all members that need one node find one, beside the pod?
    fn has_room_for(&self, members: &[usize]) -> bool {
        let chosen = || members.iter().filter_map(|at| self.leaving.get(*at));
        let memory = chosen().fold(0u64, |sum, one| sum.saturating_add(one.bytes));
        let room = |(node, room): (usize, &NodeAmounts)| {
            let left = chosen().filter_map(|one| one.cpus_by_node.get(node));
            let freed = NodeAmounts { cpus: left.sum(), memory };
            let taken = if self.at == Some(node) { self.wanted } else { NodeAmounts::default() };
            room.plus(freed).minus(taken)
        };
        let mut rooms: Vec<NodeAmounts> = self.rooms.iter().enumerate().map(room).collect();
        let mut needs: Vec<NodeAmounts> = chosen().filter_map(|one| one.needs_on_one_node).collect();
        needs.sort_by_key(|needs| Reverse((needs.cpus, needs.memory)));
        can_be_seated(&needs, &mut rooms)
    }

    /// The holders that free most of what is missing, until nothing is missing.
    pub(super) fn greedy(&self) -> Option<Vec<&'a Holder>> {
        let mut order: Vec<(usize, &LeavingHolder<'a>)> =
            self.leaving.iter().enumerate().filter(|(_, leaving)| !leaving.only_makes_way()).collect();
        let share = |part: u64, whole: u64| {
            (u128::from(part.min(whole)) * 1000).checked_div(u128::from(whole)).unwrap_or(0)
        };
        order.sort_by_key(|(_, leaving)| {
            let frees = share(leaving.frees.cpus, self.missing.cpus)
                + share(leaving.frees.memory, self.missing.memory);
            (Reverse(frees), leaving.bytes, leaving.holder)
        });
        let mut freed = NodeAmounts::default();
        let mut chosen = Vec::new();
        for (at, leaving) in order {
            if freed.covers(self.missing) {
                break;
            }
            freed = freed.plus(leaving.frees);
            chosen.push(at);
        }
        let possible = chosen.len() > EXACT || self.has_room_for(&chosen);
        let holders = || chosen.iter().filter_map(|at| self.holder(*at)).collect();
        (freed.covers(self.missing) && possible).then(holders)
    }
}

/// Calls `found` for every extension of `members` to `count` with the candidates. Depth of the recursion: at
/// most [`EXACT`].
fn choose(candidates: &[usize], count: usize, members: &mut Vec<usize>, found: &mut dyn FnMut(&[usize])) {
    if members.len() >= count {
        found(members);
        return;
    }
    for (at, member) in candidates.iter().enumerate() {
        members.push(*member);
        choose(&candidates[at + 1..], count, members, found);
        members.pop();
    }
}

/// Can each have a node for its needs? Ends early if there is plenty of room; depth of the recursion: at most
/// [`EXACT`].
fn can_be_seated(needs: &[NodeAmounts], rooms: &mut [NodeAmounts]) -> bool {
    let Some((first, rest)) = needs.split_first() else { return true };
    for node in 0..rooms.len() {
        let had = rooms[node];
        if had.covers(*first) {
            rooms[node] = had.minus(*first);
            if can_be_seated(rest, rooms) {
                return true;
            }
            rooms[node] = had;
        }
    }
    false
}

/// Sets of `width` nodes, lowest first; at most [`PLACES`].
fn combinations(nodes: &[NodeId], width: usize) -> Vec<NodeSet> {
    let mut sets = vec![(NodeSet::new(), 0)];
    for _ in 0..width {
        let longer = sets.iter().flat_map(|(set, first)| {
            nodes.iter().enumerate().skip(*first).map(move |(at, node)| {
                let mut set = set.clone();
                set.insert(*node);
                (set, at + 1)
            })
        });
        sets = longer.take(PLACES).collect();
    }
    sets.into_iter().map(|(set, _)| set).collect()
}

fn memory_on(grant: &Grant, place: &NodeSet) -> u64 {
    let on = grant.memory_by_node().into_iter().filter(|(node, _)| place.contains(*node));
    on.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
}
