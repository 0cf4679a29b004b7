//! The nearest fit: one NUMA node for all CPUs and all memory of a workload.
//!
//! Problem: a workload with declared CPUs and memory should run on one node. Idea: a node fits when
//! its free CPUs (online, not isolated, not given to another workload, allowed from above) and its
//! memory (total minus what others were promised, and what can be had right now) suffice. Among the
//! fitting ones the node it was given before wins, so that an assignment does not wander; then the
//! one with most of its memory, because CPUs move at once and pages do not; then the one with the
//! fewest CPUs left over, so that large holes stay; then the lowest id.
//!
//! Terminology: *available* memory of a node is what is free or reclaimable there plus what the
//! workload itself holds there. Cost: O(nodes x CPUs) per request.
//!
//! It never splits a workload over nodes; what is too large for every node is refused with what
//! would fit. Memory-only nodes are not given out.

use std::cmp::Reverse;

use super::{Allocations, Assignment, Placement, PlacementError, Request, cpus::choose};
use crate::{
    id::NodeId,
    model::accessed_bytes,
    set::{CpuSet, NodeSet},
    topology::{Node, Topology},
    words,
};

/// Places a workload on the one node that fits it best.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NearestFit;

impl Placement for NearestFit {
    fn name(&self) -> &'static str {
        "fit"
    }

    fn keep(
        &self,
        machine: &Topology,
        allocations: &Allocations,
        request: &Request<'_>,
    ) -> Option<Assignment> {
        let has = request.now?.cpus.as_ref()?;
        let mems = request.now?.mems.as_ref()?;
        let node = mems.first().filter(|_| mems.len() == 1)?;
        let room = Room::of(machine, allocations, request).find(|room| room.node == node)?;
        let wanted = usize::try_from(request.cpus).ok()?;
        let valid = has.len() == wanted && has.is_subset(&room.free_cpus) && room.memory_shortage.is_none();
        valid.then(|| Assignment {
            cpus: has.clone(),
            mems: mems.clone(),
            memory_bytes: request.needed_bytes(),
            reason: format!("already on node {node} with CPUs {has}"),
        })
    }

    fn place(
        &self,
        machine: &Topology,
        allocations: &Allocations,
        request: &Request<'_>,
    ) -> Result<Assignment, PlacementError> {
        let wanted = usize::try_from(request.cpus).unwrap_or(usize::MAX);
        let rooms: Vec<Room> = Room::of(machine, allocations, request).collect();
        let promised = allocations.get(request.workload);
        let best = rooms
            .iter()
            .filter(|room| room.fits(wanted))
            .min_by_key(|room| {
                let elsewhere = promised.is_some_and(|promised| !promised.mems.contains(room.node));
                (elsewhere, Reverse(room.resident_bytes), room.free_cpus.len(), room.node)
            })
            .ok_or_else(|| refusal(machine, request, &rooms, wanted))?;
        let has = request.now.and_then(|now| now.cpus.as_ref());
        let preferred = promised.map(|promised| &promised.cpus).or(has).cloned().unwrap_or_default();
        let Some(cpus) = choose(machine, &best.free_cpus, wanted, &preferred) else {
            return Err(refusal(machine, request, &rooms, wanted));
        };
        Ok(Assignment {
            cpus,
            mems: NodeSet::from_iter([best.node]),
            memory_bytes: request.needed_bytes(),
            reason: best.why(request),
        })
    }
}

impl Request<'_> {
    /// Bytes to find room for: what is declared, else what the workload has now.
    pub fn needed_bytes(&self) -> u64 {
        let resident = || self.now?.accessed_bytes();
        self.memory_bytes.or_else(resident).unwrap_or(0)
    }

    fn resident_bytes(&self, node: NodeId) -> u64 {
        let bytes = self.now.and_then(|now| now.bytes_by_node.as_ref()?.get(&node));
        bytes.map_or(0, accessed_bytes)
    }

    fn may_use(&self, node: NodeId) -> bool {
        let allowed = self.nodes.is_none_or(|nodes| nodes.contains(node));
        let passed_on = self.bounds.as_ref().and_then(|bounds| bounds.mems.as_ref());
        allowed && passed_on.is_none_or(|mems| mems.contains(node))
    }
}

/// What one node has to offer to one request.
struct Room {
    node: NodeId,
    free_cpus: CpuSet,
    /// What is short, when the memory does not suffice.
    memory_shortage: Option<String>,
    /// Bytes that could be had; not known when the node's size is not.
    memory_bytes: Option<u64>,
    /// Bytes that the workload already has there.
    resident_bytes: u64,
}

impl Room {
    /// The nodes that have CPUs and memory and may be used.
    fn of(
        machine: &Topology,
        allocations: &Allocations,
        request: &Request<'_>,
    ) -> impl Iterator<Item = Self> {
        let taken = allocations.cpus_of_others(request.workload).union(&machine.isolated_cpus);
        let passed_on = request.bounds.as_ref().and_then(|bounds| bounds.cpus.as_ref());
        machine.nodes.iter().filter(|node| usable(node) && request.may_use(node.id)).map(move |node| {
            let free = node.cpus.difference(&taken);
            let promised = allocations.bytes_of_others(request.workload, node.id);
            let by_size = node.mem_total_bytes.map(|total| total.saturating_sub(promised));
            let by_now = request.available_bytes.get(&node.id).copied();
            let memory_bytes = by_size.map(|size| by_now.map_or(size, |now| size.min(now)));
            Self {
                node: node.id,
                free_cpus: passed_on.map_or(free.clone(), |allowed| free.intersection(allowed)),
                memory_shortage: shortage(request.needed_bytes(), memory_bytes),
                memory_bytes,
                resident_bytes: request.resident_bytes(node.id),
            }
        })
    }

    fn fits(&self, cpus: usize) -> bool {
        self.free_cpus.len() >= cpus && self.memory_shortage.is_none()
    }

    fn why(&self, request: &Request<'_>) -> String {
        let Self { node, resident_bytes, .. } = self;
        let free = self.free_cpus.len();
        let holds = if *resident_bytes > 0 {
            format!(", holds {} of its memory", words::size(*resident_bytes))
        } else {
            String::new()
        };
        format!("node {node} has {free} free CPUs for {}{holds}", request.cpus)
    }

    fn shortages(&self, cpus: usize) -> String {
        let short_of_cpus = (self.free_cpus.len() < cpus)
            .then(|| format!("{} of {cpus} CPUs are free", self.free_cpus.len()));
        let parts: Vec<String> = short_of_cpus.into_iter().chain(self.memory_shortage.clone()).collect();
        parts.join(" and ")
    }
}

fn usable(node: &Node) -> bool {
    !node.cpus.is_empty() && node.mem_total_bytes != Some(0)
}

fn shortage(needed: u64, available: Option<u64>) -> Option<String> {
    match available {
        _ if needed == 0 => None,
        None => Some("the size of its memory is not known".into()),
        Some(available) if available < needed => {
            Some(format!("{} of {} memory can be had", words::size(available), words::size(needed)))
        }
        Some(_) => None,
    }
}

fn refusal(machine: &Topology, request: &Request<'_>, rooms: &[Room], wanted: usize) -> PlacementError {
    // The closest is the one with the least shortage of CPUs, then of memory.
    let by_shortage = |room: &&Room| {
        let missing = wanted.saturating_sub(room.free_cpus.len());
        (missing, room.memory_shortage.is_some(), Reverse(room.memory_bytes), room.node)
    };
    let Some(closest) = rooms.iter().min_by_key(by_shortage) else {
        if !machine.nodes.iter().any(usable) {
            return PlacementError::NoNode;
        }
        return PlacementError::NotAllowed { why: bound_that_excludes(request) };
    };
    let memory =
        request.memory_bytes.map_or(String::new(), |bytes| format!(" and {} memory", words::size(bytes)));
    let fits = match (closest.free_cpus.len(), closest.memory_bytes) {
        (0, _) | (_, Some(0)) => String::new(),
        (cpus, Some(bytes)) => format!("; {cpus} CPUs and {} memory would fit", words::size(bytes)),
        (cpus, None) => format!("; {cpus} CPUs would fit"),
    };
    PlacementError::TooLarge {
        asked: format!("{} CPUs{memory}", request.cpus),
        closest: closest.node,
        short: closest.shortages(wanted),
        fits,
    }
}

fn bound_that_excludes(request: &Request<'_>) -> String {
    let declared = request.nodes.map(|nodes| format!("numa_nodes of its rule is {nodes}"));
    let above = request.bounds.as_ref().and_then(|bounds| {
        let mems = bounds.mems.as_ref()?;
        Some(format!("cpuset.mems.effective of {} is {mems}", bounds.cgroup))
    });
    declared.into_iter().chain(above).collect::<Vec<_>>().join(", ")
}
