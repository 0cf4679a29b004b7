//! Finds moves of other containers that would let a pod fit aligned.
//!
//! Problem: a pod is rejected, or runs scattered, although the machine has room: other containers are in the
//! way. Idea: for every set of nodes as narrow as the pod needs, compute what is missing there. Then find the
//! fewest holders, and among those the ones with the least memory, that free it and have another place that
//! is no worse. Some of them may free nothing there, but *make way* elsewhere for those that do. Whether a
//! set of moves works is tried, not computed: the holders are removed, the pod is placed, and they are placed
//! again, the largest first.
//!
//! No attempt is made if figures show that it would fail ([`places`]). The search is skipped if the whole
//! machine has too little, or if the pod would not fit even without all movable holders: missing devices
//! cannot be freed by moving.
//!
//! The result is exact up to [`EXACT`] moves among the holders with the least memory on each set of nodes,
//! within [`TRIALS`] attempts; beyond that, the holders that free the most are added one by one. Holders with
//! devices, with requested preservation, or placed by the engine `pools` are never moved: that engine chooses
//! by annotations, affinity and hints of the container, which a grant does not contain, so their allowed
//! places are unknown.
//!
//! Pure: allocations do not change. Cost: O(sets x holders^3) additions, and at most [`TRIALS`] placements.

mod places;
#[cfg(test)]
mod tests;

use std::{cell::Cell, cmp::Reverse, collections::BTreeSet};

use self::places::{CandidateNodes, NodeAmounts};
use super::{
    Allocations, ContainerRequest, CpuClass, Grant, Holder, Inventory, MemoryPriority, MemoryResource,
    PodGrant, PodRequest, Resources, Trace, admit, hints::HintsEngine, memory::ZoneAccount,
};
use crate::{
    QosClass,
    settings::{HintsSettings, PlacementSettings, TopologyPolicy},
};
use numa_topology::set::{CpuSet, NodeSet};

/// Maximum number of moves for an exact answer.
const EXACT: usize = 3;
/// Maximum number of attempted placements.
const TRIALS: usize = 96;
/// Number of these reserved for larger sets of moves.
const LAST_TRIALS: usize = 16;

/// A move of a holder to another place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderMove {
    /// The holder.
    pub holder: Holder,
    /// Its current place.
    pub from: CpusAndNodes,
    /// Its place after the move.
    pub to: CpusAndNodes,
    /// Promised bytes that would have to move.
    pub bytes: u64,
}

/// CPUs and memory nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpusAndNodes {
    /// CPUs.
    pub cpus: CpuSet,
    /// Memory nodes.
    pub mems: NodeSet,
}

/// The smallest set of moves that lets the pod fit aligned: empty if none is needed, `None` if none was
/// found. `may_move` returns whether a holder may be moved at all.
pub fn what_if(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &Allocations,
    pod: &PodRequest,
    may_move: impl Fn(&Holder) -> bool,
) -> Option<Vec<HolderMove>> {
    let mut without = allocations.clone();
    without.release_pod(&pod.name);
    let search = MoveSearch { inventory, settings, allocations: &without, pod, trials: Cell::new(TRIALS) };
    search.run(|holder, grant| is_movable(grant) && may_move(holder))
}

/// Can it be moved while it runs?
fn is_movable(grant: &Grant) -> bool {
    grant.engine == crate::engine_name::HINTS
        && grant.memory_priority < MemoryPriority::Preserved
        && !matches!(grant.class, CpuClass::Preserved | CpuClass::Reserved)
        && grant.devices.is_empty()
        && grant.pin_cpus
}

struct MoveSearch<'a> {
    inventory: &'a Inventory,
    settings: &'a PlacementSettings,
    /// Allocations without the pod.
    allocations: &'a Allocations,
    pod: &'a PodRequest,
    /// Number of placements that may still be tried.
    trials: Cell<usize>,
}

impl MoveSearch<'_> {
    fn run(&self, may_move: impl Fn(&Holder, &Grant) -> bool) -> Option<Vec<HolderMove>> {
        if let Some(moves) = self.attempt(&[]) {
            return Some(moves);
        }
        let movable: Vec<(&Holder, &Grant)> =
            self.allocations.iter().filter(|(holder, grant)| may_move(holder, grant)).collect();
        if movable.is_empty() || !self.has_room() || !self.fits_without(&movable) {
            return None;
        }
        let places = self.places(&movable);
        for count in 1..=EXACT {
            let mut sets = BTreeSet::new();
            for (index, place) in places.iter().enumerate() {
                place.sets(count, |bytes, members| {
                    sets.insert((bytes, index, members.to_vec()));
                    if sets.len() > TRIALS {
                        sets.pop_last();
                    }
                });
            }
            let mut tried = BTreeSet::new();
            for (_, index, members) in sets {
                let holders: BTreeSet<&Holder> =
                    members.iter().filter_map(|at| places.get(index)?.holder(*at)).collect();
                if !tried.insert(holders.clone()) {
                    continue;
                }
                if let Some(moves) = self.attempt(&holders.into_iter().collect::<Vec<_>>()) {
                    return Some(moves);
                }
            }
        }
        self.trials.set(self.trials.get().max(LAST_TRIALS));
        let greedy = places.iter().filter_map(CandidateNodes::greedy);
        let greedy = greedy.filter_map(|holders| self.attempt(&holders));
        greedy.min_by_key(|moves| (moves.len(), moves.iter().map(|one| one.bytes).sum::<u64>()))
    }

    /// Does the whole machine have as much as the pod requests? Moves free nothing for the machine as a
    /// whole.
    fn has_room(&self) -> bool {
        let guaranteed = self.pod.qos == QosClass::Guaranteed;
        let wanted =
            |amount: &dyn Fn(&ContainerRequest) -> u64| if guaranteed { self.pod.peak(amount) } else { 0 };
        let free = self.free_cpus().len();
        let account = ZoneAccount::new(self.inventory, self.allocations, |_| false);
        let nodes = self.inventory.machine.ordinary_memory_nodes();
        count(free) >= wanted(&|container| container.whole_cpus().unwrap_or(0))
            && account.free(&nodes, MemoryResource::Memory)
                >= wanted(&|c| c.requests.memory_bytes.unwrap_or(0))
    }

    /// Does the pod fit aligned without all movable holders? If not, moving them does not help.
    fn fits_without(&self, movable: &[(&Holder, &Grant)]) -> bool {
        let mut trial = self.allocations.clone();
        for (holder, _) in movable {
            trial.release(holder);
        }
        self.admits(&mut trial)
    }

    /// CPUs that may be exclusive and are not.
    fn free_cpus(&self) -> CpuSet {
        let taken = self.allocations.exclusive_cpus().union(&self.inventory.reserved_cpus);
        self.inventory.allowed_cpus.difference(&taken)
    }

    /// Places the pod aligned, if possible.
    fn admits(&self, trial: &mut Allocations) -> bool {
        let request = PodRequest { previous: std::collections::BTreeMap::new(), ..self.pod.clone() };
        let aligned = |one: &PodGrant| one.grant.hint.as_ref().is_none_or(|hint| hint.preferred);
        admit(self.inventory, self.settings, trial, &request)
            .is_ok_and(|admission| admission.grants.iter().all(aligned))
    }

    /// Removes the holders, places the pod, and places them again; returns the moves if that works.
    fn attempt(&self, holders: &[&Holder]) -> Option<Vec<HolderMove>> {
        self.trials.set(self.trials.get().checked_sub(1)?);
        let mut trial = self.allocations.clone();
        let taken = trial.exclusive_cpus();
        let mut before: Vec<(&Holder, Grant)> =
            holders.iter().filter_map(|holder| Some((*holder, trial.release(holder)?))).collect();
        // Small ones find room beside large ones more easily than the other way round.
        before.sort_by_key(|(holder, had)| (Reverse((had.exclusive.len(), promised(had))), *holder));
        if !self.admits(&mut trial) {
            return None;
        }
        for (holder, grant) in &before {
            let (request, engine) = again(holder, grant, &self.settings.hints)?;
            engine.place(self.inventory, &mut trial, &request, &mut Trace::default()).ok()?;
        }
        let now = trial.exclusive_cpus();
        // A holder that is placed at its old place would only share overcommitted CPUs: that is not a move.
        if before.iter().any(|(holder, had)| trial.get(holder).is_none_or(|has| is_same_seat(had, has))) {
            return None;
        }
        before.sort_by_key(|(holder, _)| *holder);
        let moves = before.into_iter().map(|(holder, had)| {
            let has = trial.get(holder)?;
            Some(HolderMove {
                holder: holder.clone(),
                from: CpusAndNodes { cpus: had.cpus(&taken), mems: had.mems(&taken) },
                to: CpusAndNodes { cpus: has.cpus(&now), mems: has.mems.clone() },
                bytes: promised(&had),
            })
        });
        moves.collect()
    }

    /// Request of the largest container, or of the pod if it is aligned as a whole; a lower bound of what
    /// must be free together.
    fn largest(&self) -> NodeAmounts {
        let of = |container: &ContainerRequest| NodeAmounts {
            cpus: container.whole_cpus().filter(|_| self.pod.qos == QosClass::Guaranteed).unwrap_or(0),
            memory: container
                .requests
                .memory_bytes
                .filter(|_| self.pod.qos == QosClass::Guaranteed)
                .unwrap_or(0),
        };
        let largest = self.pod.containers.iter().map(of).max_by_key(|amounts| (amounts.cpus, amounts.memory));
        largest.unwrap_or_default()
    }
}

/// A holder's own request, reconstructed from its grant, and an engine that gives it a place no worse.
fn again(holder: &Holder, grant: &Grant, host: &HintsSettings) -> Option<(PodRequest, HintsEngine)> {
    let (name, container) = (holder.pod(), holder.name());
    let millis = match &grant.shared {
        Some(shared) => shared.milli_cpus,
        None => count(grant.exclusive.len()).saturating_mul(1000),
    };
    let mut requests = Resources {
        milli_cpus: Some(millis),
        memory_bytes: None,
        hugepages: std::collections::BTreeMap::new(),
    };
    for claim in &grant.memory {
        match claim.resource {
            MemoryResource::Memory => requests.memory_bytes = Some(claim.bytes),
            MemoryResource::Hugepages(size) => {
                requests.hugepages.insert(size, claim.bytes);
            }
        }
    }
    let was_aligned = grant.hint.as_ref().is_some_and(|hint| hint.preferred);
    let policy = if was_aligned { TopologyPolicy::Restricted } else { TopologyPolicy::BestEffort };
    let request = PodRequest {
        name: name.clone(),
        qos: grant.qos?,
        labels: grant.labels.clone(),
        annotations: std::collections::BTreeMap::new(),
        documents: super::pools::Documents::new(),
        containers: vec![ContainerRequest {
            name: container.to_owned(),
            limits: requests.clone(),
            requests,
            devices: std::collections::BTreeMap::new(),
            resident_bytes: std::collections::BTreeMap::new(),
            ..ContainerRequest::default()
        }],
        previous: std::collections::BTreeMap::new(),
        undescribed: None,
    };
    Some((request, HintsEngine::new(HintsSettings { policy, ..host.clone() })))
}

/// Does it keep its CPUs and its memory nodes?
fn is_same_seat(had: &Grant, has: &Grant) -> bool {
    let reach = |grant: &Grant| grant.shared.as_ref().map(|shared| shared.reach().clone());
    (&had.exclusive, &had.mems, reach(had)) == (&has.exclusive, &has.mems, reach(has))
}

fn promised(grant: &Grant) -> u64 {
    grant.memory.iter().fold(0, |sum, claim| sum.saturating_add(claim.bytes))
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
