//! What would have to move so that a pod fits aligned.
//!
//! Problem: a pod is rejected, or runs scattered, although the machine has room: others are in the
//! way. Idea: for every set of nodes as narrow as the pod would need, count what is missing there, and
//! find the fewest holders, then those with the least memory, that free it and find another place that
//! is no worse than theirs. Some of them may free nothing there, but *make way* elsewhere for those that
//! do. Whether a set of moves really works is not computed but tried: the holders are taken out, the pod
//! is placed, and they are placed again, the largest first.
//!
//! Nothing is tried where figures say that it is in vain ([`places`]), and nothing at all where the whole
//! machine has too little, or where the pod would not fit if all who could move were gone: devices that
//! are not there cannot be had by moving.
//!
//! Exact up to [`EXACT`] moves among the holders with the least memory on each set of nodes, as far as
//! [`TRIALS`] attempts reach; beyond, holders that free most are added one by one. Never moved is who has
//! devices, asked to be left alone, or was placed by the engine `pools`: that chooses by annotations,
//! affinity and hints of the container, which its grant does not keep, so that nobody could say where it
//! would be allowed to be.
//!
//! Pure: nothing that is given away changes. Cost: O(sets x holders^3) additions, and at most
//! [`TRIALS`] placements.

mod places;
#[cfg(test)]
mod tests;

use std::{cell::Cell, cmp::Reverse, collections::BTreeSet};

use self::places::{Amounts, Place};
use super::{
    Allocations, ContainerRequest, CpuClass, Grant, Holder, Inventory, MemoryPriority, MemoryResource,
    Placement, PodRequest, Resources, Trace, admit, hints::HintsEngine, memory::ZoneAccount,
};
use crate::{
    policy::placement::{HintsSettings, PlacementSettings, TopologyPolicy},
    set::{CpuSet, NodeSet},
    workload::QosClass,
};

/// Moves up to which the answer is the smallest one.
const EXACT: usize = 3;
/// Placements tried at most.
const TRIALS: usize = 96;
/// Of these, those that are left for many moves.
const LAST_TRIALS: usize = 16;

/// Another place for a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Who.
    pub holder: Holder,
    /// Where it is.
    pub from: Seat,
    /// Where it would be.
    pub to: Seat,
    /// Bytes that it was promised, which would have to move.
    pub bytes: u64,
}

/// CPUs and memory nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// CPUs.
    pub cpus: CpuSet,
    /// Memory nodes.
    pub mems: NodeSet,
}

/// The smallest set of moves that lets the pod fit aligned: none needed is an empty list, none found is
/// `None`. `may_move` says who may be moved at all.
pub fn what_if(
    inventory: &Inventory,
    settings: &PlacementSettings,
    allocations: &Allocations,
    pod: &PodRequest,
    may_move: impl Fn(&Holder) -> bool,
) -> Option<Vec<Move>> {
    let mut without = allocations.clone();
    without.release_pod(&pod.name);
    let search = Search { inventory, settings, allocations: &without, pod, trials: Cell::new(TRIALS) };
    search.run(|holder, grant| is_movable(grant) && may_move(holder))
}

/// May it be taken elsewhere while it runs?
fn is_movable(grant: &Grant) -> bool {
    grant.engine == HintsEngine::NAME
        && grant.memory_priority < MemoryPriority::Preserved
        && !matches!(grant.class, CpuClass::Preserved | CpuClass::Reserved)
        && grant.devices.is_empty()
        && grant.pin_cpus
}

struct Search<'a> {
    inventory: &'a Inventory,
    settings: &'a PlacementSettings,
    /// Without the pod.
    allocations: &'a Allocations,
    pod: &'a PodRequest,
    /// Placements that may still be tried.
    trials: Cell<usize>,
}

impl Search<'_> {
    fn run(&self, may_move: impl Fn(&Holder, &Grant) -> bool) -> Option<Vec<Move>> {
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
        let greedy = places.iter().filter_map(Place::greedy);
        let greedy = greedy.filter_map(|holders| self.attempt(&holders));
        greedy.min_by_key(|moves| (moves.len(), moves.iter().map(|one| one.bytes).sum::<u64>()))
    }

    /// Is there as much on the whole machine as the pod asks for? Nobody leaves the machine.
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

    /// Does the pod fit aligned when all who could move are gone? If not, what is short is not theirs.
    fn fits_without(&self, movable: &[(&Holder, &Grant)]) -> bool {
        let mut trial = self.allocations.clone();
        for (holder, _) in movable {
            trial.release(holder);
        }
        self.admits(&mut trial)
    }

    /// CPUs that nobody has for itself, of those that may be exclusive.
    fn free_cpus(&self) -> CpuSet {
        let taken = self.allocations.exclusive_cpus().union(&self.inventory.reserved_cpus);
        self.inventory.allowed_cpus.difference(&taken)
    }

    /// Places the pod aligned, if that is possible.
    fn admits(&self, trial: &mut Allocations) -> bool {
        let request = PodRequest { previous: std::collections::BTreeMap::new(), ..self.pod.clone() };
        let outcome = admit(self.inventory, self.settings, trial, &request, &mut Trace::default());
        let aligned = |grant: &Grant| grant.hint.as_ref().is_none_or(|hint| hint.preferred);
        outcome.is_ok() && trial.of_pod(&self.pod.name).all(|(_, grant)| aligned(grant))
    }

    /// Takes the holders out, places the pod, places them again: the moves, if that works.
    fn attempt(&self, holders: &[&Holder]) -> Option<Vec<Move>> {
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
        // Placed again where it was it would only share with more than was promised: that is no move.
        if before.iter().any(|(holder, had)| trial.get(holder).is_none_or(|has| is_same_seat(had, has))) {
            return None;
        }
        before.sort_by_key(|(holder, _)| *holder);
        let moves = before.into_iter().map(|(holder, had)| {
            let has = trial.get(holder)?;
            Some(Move {
                holder: holder.clone(),
                from: Seat { cpus: had.cpus(&taken), mems: had.mems(&taken) },
                to: Seat { cpus: has.cpus(&now), mems: has.mems.clone() },
                bytes: promised(&had),
            })
        });
        moves.collect()
    }

    /// What the largest container asks for, or the pod where that is aligned as a whole; a lower bound
    /// of what must be free together.
    fn largest(&self) -> Amounts {
        let of = |container: &ContainerRequest| Amounts {
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

/// A holder's own request, as its grant tells, and an engine that gives it a place no worse.
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
    };
    Some((request, HintsEngine::new(HintsSettings { policy, ..host.clone() })))
}

/// Does it run where it ran, with its memory where it was?
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
