//! What would have to move so that a pod fits aligned.
//!
//! Problem: a pod is rejected, or runs scattered, although the machine has room: others are in the
//! way. Idea: for every set of nodes as narrow as the pod would need, count what is missing there, and
//! find the fewest holders, then those with the least memory, that free it and find another place that
//! is no worse than theirs. Some of them may free nothing there, but *make way* elsewhere for those that
//! do. Whether a set of moves really works is not computed but tried: the holders are taken out, the pod
//! is placed, and they are placed again, the largest first.
//!
//! Exact up to [`EXACT`] moves among the [`NEAR`] holders with the least memory on each set of nodes, as
//! far as [`TRIALS`] attempts reach (fewer on machines with many nodes); beyond, holders that free
//! most are added one by one. Who has devices, asked to be left alone, or was placed by another engine
//! is never moved.
//!
//! Pure: nothing that is given away changes. Cost: O(sets x holders^3) additions, and a placement per
//! trial.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{
    Allocations, ContainerRequest, CpuClass, Grant, Holder, Inventory, MemoryPriority, MemoryResource,
    Placement, PodRequest, Resources, Trace, admit, hints::HintsEngine, memory::ZoneAccount,
};
use crate::{
    id::NodeId,
    policy::placement::{HintsSettings, PlacementSettings, TopologyPolicy},
    set::{CpuSet, NodeSet},
    workload::QosClass,
};

/// Moves up to which the answer is the smallest one.
const EXACT: usize = 3;
/// Holders of which sets are tried on each set of nodes.
const NEAR: usize = 64;
/// Placements tried at most, twice.
const TRIALS: usize = 256;
/// Nodes up to which so many are tried: with each further one a placement may take twice as long.
const FEW_NODES: usize = 8;
/// Placements that are tried however many nodes there are.
const FEWEST_TRIALS: usize = 8;
/// Sets of nodes looked at.
const PLACES: usize = 256;

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
    let search = Search { inventory, settings, allocations: &without, pod };
    if let Some(moves) = search.attempt(&[]) {
        return Some(moves);
    }
    let movable: Vec<(&Holder, &Grant)> =
        without.iter().filter(|(holder, grant)| is_movable(grant) && may_move(holder)).collect();
    let places: Vec<Place<'_>> = search.places(&movable);
    let limit = trials(inventory.cpu_nodes().len());
    let mut trials = 0;
    for count in 1..=EXACT {
        // Those that all free something, and those of which some only make way, so that the one kind
        // does not crowd out the other.
        let mut kinds = [BTreeSet::new(), BTreeSet::new()];
        for (index, place) in places.iter().enumerate() {
            place.sets(count, |bytes, members, makes_way| {
                let sets = &mut kinds[usize::from(makes_way)];
                sets.insert((bytes, index, members.to_vec()));
                if sets.len() > limit {
                    sets.pop_last();
                }
            });
        }
        for (_, index, members) in kinds.into_iter().flatten().collect::<BTreeSet<_>>() {
            trials += 1;
            if trials > 2 * limit {
                break;
            }
            let holders: Vec<&Holder> = members
                .iter()
                .filter_map(|at| places.get(index)?.leaving.get(*at))
                .map(|l| l.holder)
                .collect();
            if let Some(moves) = search.attempt(&holders) {
                return Some(moves);
            }
        }
    }
    let greedy = places.iter().filter_map(Place::greedy).take(limit);
    let greedy = greedy.filter_map(|holders| search.attempt(&holders));
    greedy.min_by_key(|moves| (moves.len(), moves.iter().map(|one| one.bytes).sum::<u64>()))
}

/// Placements to try on a machine with so many nodes.
fn trials(nodes: usize) -> usize {
    let further = u32::try_from(nodes.saturating_sub(FEW_NODES)).unwrap_or(u32::MAX);
    TRIALS.checked_shr(further).unwrap_or(0).max(FEWEST_TRIALS)
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
}

/// A set of nodes for the pod, what is missing there, and who could leave.
struct Place<'a> {
    missing: Amounts,
    leaving: Vec<Leaving<'a>>,
}

/// A holder that could leave, and what that frees there: nothing, of one that is elsewhere.
struct Leaving<'a> {
    holder: &'a Holder,
    frees: Amounts,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Amounts {
    cpus: u64,
    memory: u64,
}

impl Amounts {
    fn plus(self, other: Self) -> Self {
        Self { cpus: self.cpus.saturating_add(other.cpus), memory: self.memory.saturating_add(other.memory) }
    }

    const fn covers(self, other: Self) -> bool {
        self.cpus >= other.cpus && self.memory >= other.memory
    }
}

impl Search<'_> {
    /// Takes the holders out, places the pod, places them again: the moves, if that works.
    fn attempt(&self, holders: &[&Holder]) -> Option<Vec<Move>> {
        let mut trial = self.allocations.clone();
        let taken = trial.exclusive_cpus();
        let mut before: Vec<(&Holder, Grant)> =
            holders.iter().filter_map(|holder| Some((*holder, trial.release(holder)?))).collect();
        // Small ones find room beside large ones more easily than the other way round.
        before.sort_by_key(|(holder, had)| (Reverse((had.exclusive.len(), promised(had))), *holder));
        let request = PodRequest { previous: std::collections::BTreeMap::new(), ..self.pod.clone() };
        admit(self.inventory, self.settings, &mut trial, &request, &mut Trace::default()).ok()?;
        let aligned = |grant: &Grant| grant.hint.as_ref().is_none_or(|hint| hint.preferred);
        if !trial.of_pod(&self.pod.name).all(|(_, grant)| aligned(grant)) {
            return None;
        }
        for (holder, grant) in &before {
            let (request, engine) = again(holder, grant, &self.settings.hints)?;
            engine.place(self.inventory, &mut trial, &request, &mut Trace::default()).ok()?;
        }
        let now = trial.exclusive_cpus();
        before.sort_by_key(|(holder, _)| *holder);
        let moves = before.into_iter().map(|(holder, had)| {
            let has = trial.get(holder)?;
            Some(Move {
                holder: holder.clone(),
                from: Seat { cpus: had.cpus(&taken), mems: had.mems.clone() },
                to: Seat { cpus: has.cpus(&now), mems: has.mems.clone() },
                bytes: promised(&had),
            })
        });
        moves.collect()
    }

    /// Sets of nodes that would be wide enough for the largest container, with what is missing there.
    fn places<'a>(&self, movable: &[(&'a Holder, &'a Grant)]) -> Vec<Place<'a>> {
        let wanted = self.largest();
        let account = ZoneAccount::new(self.inventory, self.allocations, |_| false);
        let taken = self.allocations.exclusive_cpus().union(&self.inventory.reserved_cpus);
        let nodes: Vec<NodeId> = self.inventory.cpu_nodes().iter().collect();
        let capacity = |place: &NodeSet| Amounts {
            cpus: count(self.inventory.allowed_cpus.common(&self.inventory.machine.cpus_of(place))),
            memory: account.capacity(place, MemoryResource::Memory),
        };
        let sets = (1..=nodes.len())
            .map(|width| combinations(&nodes, width))
            .find(|sets| sets.iter().any(|place| capacity(place).covers(wanted)));
        let places = sets.unwrap_or_default().into_iter().filter(|place| capacity(place).covers(wanted));
        places
            .map(|place| {
                let cpus = self.inventory.machine.cpus_of(&place).intersection(&self.inventory.allowed_cpus);
                let missing = Amounts {
                    cpus: wanted.cpus.saturating_sub(count(cpus.difference(&taken).len())),
                    memory: wanted.memory.saturating_sub(account.free(&place, MemoryResource::Memory)),
                };
                let mut leaving: Vec<Leaving<'a>> = movable
                    .iter()
                    .map(|(holder, grant)| Leaving {
                        holder,
                        frees: Amounts {
                            cpus: count(grant.exclusive.common(&cpus)),
                            memory: memory_on(grant, &place),
                        },
                        bytes: promised(grant),
                    })
                    .collect();
                leaving.sort_by_key(|leaving| (leaving.bytes, leaving.holder));
                Place { missing, leaving }
            })
            .collect()
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

impl Leaving<'_> {
    fn only_makes_way(&self) -> bool {
        self.frees == Amounts::default()
    }
}

impl<'a> Place<'a> {
    /// Calls `found` for every set of so many holders that frees what is missing, with the bytes that
    /// would move, the members, and whether any of them only makes way.
    fn sets(&self, count: usize, mut found: impl FnMut(u64, &[usize], bool)) {
        let mut near = [0; 2];
        let candidates: Vec<usize> = (0..self.leaving.len())
            .filter(|at| {
                let kind = &mut near[usize::from(self.leaving[*at].only_makes_way())];
                *kind += 1;
                *kind <= NEAR
            })
            .collect();
        let mut members: Vec<usize> = Vec::with_capacity(count);
        self.extend(&candidates, count, &mut members, &mut found);
    }

    /// Depth of the recursion: at most [`EXACT`].
    fn extend(
        &self,
        candidates: &[usize],
        count: usize,
        members: &mut Vec<usize>,
        found: &mut impl FnMut(u64, &[usize], bool),
    ) {
        if members.len() == count {
            let chosen = || members.iter().filter_map(|at| self.leaving.get(*at));
            let freed = chosen().fold(Amounts::default(), |freed, leaving| freed.plus(leaving.frees));
            if freed.covers(self.missing) {
                let bytes = chosen().fold(0u64, |bytes, leaving| bytes.saturating_add(leaving.bytes));
                found(bytes, members, chosen().any(Leaving::only_makes_way));
            }
            return;
        }
        for (at, member) in candidates.iter().enumerate() {
            members.push(*member);
            self.extend(&candidates[at + 1..], count, members, found);
            members.pop();
        }
    }

    /// Holders that free most of what is missing, until nothing is.
    fn greedy(&self) -> Option<Vec<&'a Holder>> {
        let mut order: Vec<&Leaving<'a>> =
            self.leaving.iter().filter(|leaving| !leaving.only_makes_way()).collect();
        let share = |part: u64, whole: u64| {
            (u128::from(part.min(whole)) * 1000).checked_div(u128::from(whole)).unwrap_or(0)
        };
        order.sort_by_key(|leaving| {
            let frees = share(leaving.frees.cpus, self.missing.cpus)
                + share(leaving.frees.memory, self.missing.memory);
            (Reverse(frees), leaving.bytes, leaving.holder)
        });
        let mut freed = Amounts::default();
        let mut chosen = Vec::new();
        for leaving in order {
            if freed.covers(self.missing) {
                break;
            }
            freed = freed.plus(leaving.frees);
            chosen.push(leaving.holder);
        }
        freed.covers(self.missing).then_some(chosen)
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

/// Sets of so many nodes, lowest first; at most [`PLACES`].
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

fn promised(grant: &Grant) -> u64 {
    grant.memory.iter().fold(0, |sum, claim| sum.saturating_add(claim.bytes))
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        place::samples::{GIB, Host, container, devices, pod, policy},
        topology::synth::Machine,
    };

    /// Node 0 has CPUs 0-3,8-11, node 1 has 4-7,12-15; 16 GiB each.
    fn host() -> Host {
        Host::new(
            Machine::new().sockets(2).cores(4).memory_gib(16).build(),
            policy(TopologyPolicy::SingleNumaNode),
        )
    }

    fn fill(host: &mut Host, name: &str, node: &str, cpus: u64, gib: u64) {
        let mut request = container("c", cpus * 1000, gib * GIB);
        request.allowed_nodes = Some(node.parse().unwrap());
        host.admit(&pod(name, vec![request])).unwrap();
    }

    fn ask(host: &Host, request: &PodRequest) -> Option<Vec<(String, u64)>> {
        let moves = what_if(&host.inventory, &host.settings, &host.allocations, request, |_| true)?;
        Some(moves.iter().map(|one| (one.holder.to_string(), one.bytes / GIB)).collect())
    }

    #[test]
    fn fewer_placements_are_tried_where_each_takes_longer() {
        for (nodes, expected) in [(0, 256), (8, 256), (9, 128), (12, 16), (16, 8), (64, 8), (usize::MAX, 8)] {
            assert_eq!(trials(nodes), expected, "{nodes} nodes");
        }
    }

    #[test]
    fn the_fewest_holders_with_the_least_memory_move() {
        let mut host = host();
        fill(&mut host, "a", "0", 2, 3);
        fill(&mut host, "b", "0", 2, 2);
        fill(&mut host, "c", "1", 1, 1);
        fill(&mut host, "d", "1", 2, 1);
        let wide = pod("p", vec![container("c", 6000, GIB)]);
        assert!(host.admit(&wide).is_err());
        // One move is enough: `c` to node 0; `d` would not be needed.
        assert_eq!(ask(&host, &wide), Some(vec![("default/c/c".into(), 1)]));
        let whole = pod("p", vec![container("c", 7000, GIB)]);
        assert_eq!(ask(&host, &whole), Some(vec![("default/d/c".into(), 1)]));
        let all = pod("p", vec![container("c", 8000, GIB)]);
        assert_eq!(ask(&host, &all), Some(vec![("default/c/c".into(), 1), ("default/d/c".into(), 1)]));
        assert_eq!(ask(&host, &pod("p", vec![container("c", 9000, GIB)])), None);
        assert_eq!(ask(&host, &pod("p", vec![container("c", 1000, GIB)])), Some(vec![]));
    }

    #[test]
    fn memory_alone_can_be_in_the_way() {
        let mut host = host();
        fill(&mut host, "a", "0", 1, 10);
        fill(&mut host, "b", "1", 1, 2);
        fill(&mut host, "c", "1", 1, 4);
        assert_eq!(
            ask(&host, &pod("p", vec![container("c", 1000, 13 * GIB)])),
            Some(vec![("default/c/c".into(), 4)])
        );
    }

    #[test]
    fn who_frees_nothing_makes_way_for_those_that_do() {
        let mut host = host();
        for (at, (cpus, gib, node)) in
            [(2, 1, "1"), (1, 1, "1"), (2, 1, "1"), (1, 1, "1"), (3, 1, "0")].into_iter().enumerate()
        {
            fill(&mut host, &format!("f{at}"), node, cpus, gib);
        }
        // Node 1 has two CPUs left and f4 needs three, so that f1 changes places with it.
        let expected = ["default/f1/c", "default/f4/c"].map(|name| (name.to_owned(), 1));
        assert_eq!(ask(&host, &pod("p", vec![container("c", 7000, GIB)])), Some(expected.to_vec()));
    }

    #[test]
    fn who_must_stay_stays() {
        let mut host = host();
        fill(&mut host, "a", "0", 4, 1);
        fill(&mut host, "b", "1", 4, 1);
        let request = pod("p", vec![container("c", 6000, GIB)]);
        assert_eq!(ask(&host, &request).map(|moves| moves.len()), Some(1));
        let stays = |holder: &Holder| holder.pod().name != "a";
        let moves = what_if(&host.inventory, &host.settings, &host.allocations, &request, stays).unwrap();
        assert_eq!(moves[0].holder.to_string(), "default/b/c");
        assert_eq!((moves[0].from.mems.to_string(), moves[0].to.mems.to_string()), ("1".into(), "0".into()));
        assert_eq!(moves[0].to.cpus.len(), 4);
        let nobody = what_if(&host.inventory, &host.settings, &host.allocations, &request, |_| false);
        assert_eq!(nobody, None);
    }

    #[test]
    fn devices_are_not_moved() {
        let gpus = devices("v.com/gpu", &["0"]);
        let machine = Machine::new().sockets(2).cores(4).build();
        let settings = PlacementSettings {
            hints: policy(TopologyPolicy::SingleNumaNode),
            ..PlacementSettings::default()
        };
        let mut host = Host::with(machine, gpus, settings);
        host.admit(&pod("a", vec![container("c", 1000, GIB).device("v.com/gpu", 1)])).unwrap();
        assert_eq!(ask(&host, &pod("p", vec![container("c", 1000, GIB).device("v.com/gpu", 1)])), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn fewer_moves_than_found_are_not_enough(
            sizes in prop::collection::vec((1..5u64, 1..6u64, 0..2u32), 1..7),
            wanted in 1..9u64,
        ) {
            let mut host = host();
            for (index, (cpus, gib, node)) in sizes.iter().enumerate() {
                let mut request = container("c", cpus * 1000, gib * GIB);
                request.allowed_nodes = Some(node.to_string().parse().unwrap());
                let _ = host.admit(&pod(&format!("f{index}"), vec![request]));
            }
            let request = pod("p", vec![container("c", wanted * 1000, GIB)]);
            let before = host.allocations.clone();
            let found = what_if(&host.inventory, &host.settings, &host.allocations, &request, |_| true);
            prop_assert_eq!(&before, &host.allocations);
            let search = Search {
                inventory: &host.inventory,
                settings: &host.settings,
                allocations: &host.allocations,
                pod: &request,
            };
            let holders: Vec<&Holder> = host.allocations.iter().map(|(holder, _)| holder).collect();
            let least = (0..1u32 << holders.len())
                .filter(|set| {
                    let members: Vec<&Holder> =
                        holders.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, h)| *h).collect();
                    search.attempt(&members).is_some()
                })
                .map(u32::count_ones)
                .min();
            match (found, least) {
                (Some(moves), Some(least)) => prop_assert_eq!(moves.len(), least as usize),
                (None, least) => prop_assert!(least.is_none_or(|least| least as usize > EXACT)),
                (Some(moves), None) => prop_assert!(false, "{moves:?}"),
            }
        }
    }
}
