//! Table of the memory manager (amounts in MiB), and properties for any state.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    Allocations, ContainerKind, ContainerRequest, Grant, Holder, Inventory, MemoryClaim, MemoryResource,
    PodRequest, QosClass, Rejection, Resources,
    hints::{MAX_ENUMERATED_NODES, Mask, MaskHint, NodeIndex, Offer, merge::Merged},
    memory::ZoneAccount,
    samples,
    settings::PlacementSettings,
};
use numa_topology::{id::NodeId, set::NodeSet, synth::Machine};

const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;
const MEMORY: MemoryResource = MemoryResource::Memory;
const HUGE: MemoryResource = MemoryResource::Hugepages(GI);
const SMALL: MemoryResource = MemoryResource::Hugepages(2 * MI);
/// 1 GiB of memory and one huge page.
const R: [(MemoryResource, u64); 2] = [(MEMORY, GI), (HUGE, GI)];

/// Memory of nodes, and claims on it.
#[derive(Debug, Clone, Default)]
struct State {
    nodes: Vec<BTreeMap<MemoryResource, u64>>,
    claims: Vec<MemoryClaim>,
}

impl State {
    /// Nodes with MiB of memory and a number of huge pages of 1 GiB.
    fn of(nodes: &[(u64, u64)]) -> Self {
        let node = |(memory, pages): &(u64, u64)| BTreeMap::from([(MEMORY, memory * MI), (HUGE, pages * GI)]);
        Self { nodes: nodes.iter().map(node).collect(), claims: Vec::new() }
    }

    fn with(mut self, zone: &str, resource: MemoryResource, bytes: u64) -> Self {
        let zone = zone.parse().unwrap();
        self.claims.push(MemoryClaim { resource, zone, bytes, by_node: BTreeMap::new() });
        self
    }

    fn on<T>(&self, strict: bool, ask: impl FnOnce(&MemoryStock<'_>) -> T) -> T {
        let inventory = self.inventory();
        let account = ZoneAccount::of_claims(&inventory, &self.claims);
        let nodes = NodeIndex::new(&inventory.cpu_nodes());
        ask(&MemoryStock::new(&account, &nodes, strict))
    }

    fn inventory(&self) -> Inventory {
        let sockets = u32::try_from(self.nodes.len()).unwrap();
        let machine = Machine::new().sockets(sockets).cores(1).build();
        let mut inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap();
        for (node, has) in inventory.nodes.iter_mut().zip(&self.nodes) {
            node.allocatable.clone_from(has);
        }
        inventory
    }

    fn assign(
        &self,
        strict: bool,
        wanted: &[(MemoryResource, u64)],
        mask: Option<Mask>,
        preferred: bool,
    ) -> Result<Vec<MemoryClaim>, Rejection> {
        self.on(strict, |stock| assign(stock, wanted, Merged { mask, preferred }))
    }

    fn offered(&self, strict: bool, wanted: &[(MemoryResource, u64)]) -> Vec<(String, String)> {
        let shown = |(resource, offer): (String, Offer)| (resource, shown(&offer));
        self.on(strict, |stock| offer(stock, wanted)).into_iter().map(shown).collect()
    }
}

fn shown(offer: &Offer) -> String {
    let Offer::Listed(hints) = offer else { panic!("{offer:?} is no list") };
    let hint = |hint: &MaskHint| {
        let nodes = NodeSet::from_words(&[hint.mask.unwrap()]);
        format!("{{{nodes}}}{}", if hint.preferred { '+' } else { '-' })
    };
    hints.iter().map(hint).collect::<Vec<_>>().join(" ")
}

fn by_node(claims: &[MemoryClaim], resource: MemoryResource) -> Vec<(u32, u64)> {
    let claim = claims.iter().find(|claim| claim.resource == resource).unwrap();
    claim.by_node.iter().map(|(node, bytes)| (node.0, *bytes)).collect()
}

#[test]
fn a_set_of_nodes_is_chosen_where_no_hint_is_given() {
    let claims = State::of(&[(1536, 1)]).assign(true, &R, None, false).unwrap();
    assert_eq!(claims.len(), 2);
    assert!(claims.iter().all(|claim| claim.zone.to_string() == "0" && claim.bytes == GI));

    // Four nodes with half of it each.
    for strict in [true, false] {
        let claims = State::of(&[(512, 1); 4]).assign(strict, &R, None, true).unwrap();
        assert!(claims.iter().all(|claim| claim.zone.to_string() == "0-1"));
        assert_eq!(by_node(&claims, MEMORY), [(0, 512 * MI), (1, 512 * MI)]);
        assert_eq!(by_node(&claims, HUGE), [(0, GI)]);
    }
}

/// Refusals: state, hint, strict rule, the problem; none if memory is found.
#[test]
fn refusals_say_what_was_looked_for() {
    let used = || State::of(&[(1024, 1), (512, 1), (512, 1)]).with("0", MEMORY, 512 * MI);
    let grouped = || State::of(&[(512, 1), (1024, 1), (1024, 1)]).with("1-2", MEMORY, GI);
    let default = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available";
    let extend = "failed to find NUMA nodes to extend the current topology hint";
    for (state, mask, preferred, strict, problem) in [
        (State::of(&[(512, 0)]), None, false, true, Some(default)),
        (State::of(&[(512, 0)]), None, false, false, Some(default)),
        (used(), None, true, true, Some("failed to find the default preferred hint")),
        (used(), None, true, false, Some("failed to find the default preferred hint")),
        (used(), None, false, false, None),
        (grouped(), Some(0b001), false, true, Some(extend)),
        (grouped(), Some(0b001), false, false, None),
        (used(), Some(0b010), true, true, Some("failed to find the extended preferred hint")),
        (used(), Some(0b010), true, false, Some("failed to find the extended preferred hint")),
        (used(), Some(0b010), false, false, None),
        (grouped(), Some(0b111), true, true, Some("preferred hint violates NUMA node allocation")),
        (grouped(), Some(0b111), true, false, None),
    ] {
        let outcome = state.assign(strict, &R, mask, preferred);
        let said = outcome.as_ref().err().map(|rejection| rejection.problem.to_string());
        let problem = problem.map(|problem| format!("[memorymanager] {problem}"));
        assert_eq!(said, problem, "{mask:?} {preferred} {strict}");
    }
}

#[test]
fn a_refusal_has_figures_and_a_way_out() {
    let state = State::of(&[(1024, 1), (512, 1), (512, 1)]).with("0", MEMORY, 512 * MI);
    let refused = state.assign(false, &R, Some(0b010), true).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "UnexpectedAdmissionError: [memorymanager] failed to find the extended preferred hint: \
         512 MiB of 1024 MiB memory on node 1; it fits on nodes 0-1"
    );
    let refused = State::of(&[(512, 0)]).assign(false, &R, None, false).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "UnexpectedAdmissionError: [memorymanager] failed to get the default NUMA affinity, no NUMA nodes \
         with enough memory is available: 512 MiB of 1024 MiB memory on node 0, \
         0 MiB of 1024 MiB hugepages-1Gi on node 0; \
         at most 512 MiB memory on node 0, 0 MiB hugepages-1Gi on node 0 would fit"
    );
    // Nodes outside the hint do not help: all of them together are short.
    let refused = State::of(&[(512, 1), (256, 1)]).assign(false, &R, Some(0b01), false).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "UnexpectedAdmissionError: [memorymanager] failed to find NUMA nodes to extend the current \
         topology hint: 768 MiB of 1024 MiB memory on nodes 0-1; at most 512 MiB memory on node 0 and \
         768 MiB on nodes 0-1, 1024 MiB hugepages-1Gi on node 0 and 2048 MiB on nodes 0-1 would fit"
    );
}

#[test]
fn a_set_that_is_too_small_is_widened() {
    let state = State::of(&[(512, 1), (512, 1), (512, 1), (1024, 0)]);
    for (mask, zone) in [(0b0100, "0,2"), (0b1000, "0,3"), (0b1100, "2-3"), (0b0001, "0-1")] {
        let claims = state.assign(false, &R, Some(mask), false).unwrap();
        assert_eq!(claims[0].zone.to_string(), zone);
    }
}

#[test]
fn offers_follow_the_rule_for_groups_where_it_is_on() {
    let group = State::of(&[(1024, 1), (1024, 0), (1024, 1), (1024, 1)])
        .with("0-1", MEMORY, GI)
        .with("0-1", HUGE, GI);
    let both = |hints: &str| ["memory", "hugepages-1Gi"].map(|name| (name.to_owned(), hints.to_owned()));
    assert_eq!(group.offered(true, &R), both("{2}+ {3}+ {2-3}-"));
    let free = "{2}+ {3}+ {1-2}- {1,3}- {2-3}- {1-3}-";
    assert_eq!(group.offered(false, &R), both(free), "but for those that could take the huge page of node 0");

    let node = |memory: u64, pages: u64| BTreeMap::from([(MEMORY, memory * MI), (SMALL, pages * MI)]);
    let state = State { nodes: vec![node(1536, 32), node(1536, 32)], claims: Vec::new() }
        .with("0-1", MEMORY, 2 * GI)
        .with("0-1", SMALL, 48 * MI);
    let wanted = [(MEMORY, GI), (SMALL, 16 * MI)];
    let offers = state.offered(true, &wanted);
    assert_eq!(offers.iter().map(|(_, hints)| hints.as_str()).collect::<Vec<_>>(), ["{0-1}-"; 2]);
    assert_eq!(state.offered(false, &wanted)[0].1, "{0-1}-", "huge pages cannot move aside");
    assert_eq!(state.offered(false, &wanted[..1])[0].1, "{0}+ {1}+ {0-1}-", "others can move aside");
}

#[test]
fn nothing_that_fits_is_not_the_same_as_no_preference() {
    let state = State::of(&[(512, 0), (512, 0)]);
    assert_eq!(state.offered(false, &[(MEMORY, 2 * GI)]), [("memory".to_owned(), String::new())]);
    assert_eq!(state.offered(false, &[(HUGE, u64::MAX)]), [("hugepages-1Gi".to_owned(), String::new())]);
    assert_eq!(state.offered(false, &[]), []);
    assert_eq!(state.assign(false, &[], None, true).unwrap(), []);
}

#[test]
fn the_score_says_how_full_the_nodes_are() {
    let state = State::of(&[(1024, 0), (1024, 0)]).with("1", MEMORY, 512 * MI);
    let offers = state.on(false, |stock| offer(stock, &[(MEMORY, MI)]));
    let Offer::Listed(hints) = &offers[0].1 else { panic!("{offers:?}") };
    assert_eq!(hints.iter().map(|hint| hint.score).collect::<Vec<_>>(), [1, 50, 25]);
}

#[test]
fn only_guaranteed_pods_want_memory_unless_all_are_aligned() {
    let requests = Resources {
        milli_cpus: None,
        memory_bytes: Some(GI),
        hugepages: BTreeMap::from([(2 * MI, 0), (GI, GI)]),
    };
    assert_eq!(wanted(&requests, QosClass::Guaranteed, false), R);
    assert_eq!(wanted(&requests, QosClass::Burstable, true), R);
    assert_eq!(wanted(&requests, QosClass::Burstable, false), []);
    assert_eq!(wanted(&Resources::default(), QosClass::BestEffort, true), []);
}

/// A pod takes the peak of its stages: memory of an ended init container is free for later ones, memory of a
/// sidecar is not. Amounts in GiB; `i`, `s`, `a` are init container, sidecar, app.
#[test]
fn a_pod_takes_the_peak_of_its_stages() {
    for (containers, peak) in [
        ("a1 a2", 3),
        ("i1 i4 a1 a2", 4),
        ("i1 i2 a3 a4", 7),
        ("i4 i3 a2 a1", 4),
        ("i1 i3 a2 a3", 5),
        ("s2 i4 a1 a2", 6),
        ("s2 i4 a2 a3", 7),
        ("i5 s1 s2 i5 s3 a1", 8),
    ] {
        let (pod, sizes) = pod(containers);
        let admitted = |gib: u64| {
            let inventory = State::of(&[(gib << 10, 0)]).inventory();
            let nodes = NodeIndex::new(&inventory.cpu_nodes());
            let mut allocations = Allocations::default();
            pod.containers.iter().zip(&sizes).enumerate().all(|(index, (container, size))| {
                let account = ZoneAccount::for_container(&inventory, &allocations, &pod, index);
                let stock = MemoryStock::new(&account, &nodes, false);
                let claims = assign(&stock, &[(MEMORY, size * GI)], Merged { mask: None, preferred: true });
                claims.is_ok_and(|memory| {
                    let holder = Holder::new(pod.name.clone(), container.name.clone());
                    allocations.give(holder, Grant { memory, ..Grant::default() });
                    true
                })
            })
        };
        assert!(admitted(peak), "{containers} fits in {peak} GiB");
        assert!(!admitted(peak - 1), "{containers} needs {peak} GiB");
    }
}

/// Containers like `i4`: kind and GiB.
fn pod(containers: &str) -> (PodRequest, Vec<u64>) {
    let kind = |letter: &str| match letter {
        "i" => ContainerKind::Init,
        "s" => ContainerKind::Sidecar,
        _ => ContainerKind::App,
    };
    let read = containers.split(' ').map(|container| container.split_at(1));
    let container = |(index, (letter, _)): (usize, (&str, &str))| ContainerRequest {
        name: format!("c{index}"),
        kind: kind(letter),
        ..ContainerRequest::default()
    };
    let containers = read.clone().enumerate().map(container).collect();
    let pod = PodRequest { qos: QosClass::Guaranteed, ..samples::pod("pod", containers) };
    (pod, read.map(|(_, size)| size.parse().unwrap()).collect())
}

#[test]
fn sixteen_nodes_are_listed_by_what_can_be_moved() {
    let state = State::of(&[(1024, 0); 16])
        .with("0-1", MEMORY, 3 * GI / 2)
        .with("1-3", MEMORY, 3 * GI / 2)
        .with("0-15", MEMORY, 7 * GI);
    let wanted = [(MEMORY, GI)];
    state.on(false, |stock| {
        let nodes = stock.nodes.clone().with_lists();
        let stock = &MemoryStock::new(stock.account, &nodes, false);
        let Offer::Listed(hints) = &offer(stock, &wanted)[0].1 else { panic!("few nodes are listed") };
        let listed: std::collections::BTreeSet<Mask> = hints.iter().filter_map(|hint| hint.mask).collect();
        assert!((1..1 << 16).all(|mask| listed.contains(&mask) == stock.fits(mask, &wanted)));
        assert!(!listed.contains(&0b11) && listed.contains(&0b1111) && listed.contains(&(1 << 9)));
    });
}

/// Twenty nodes of 1 GiB; the first is full.
fn many() -> State {
    State::of(&[(1024, 1); 20]).with("0", MEMORY, GI)
}

#[test]
fn a_machine_with_many_nodes_gets_a_threshold() {
    let offers = many().on(false, |stock| offer(stock, &[(MEMORY, 2 * GI), (HUGE, GI)]));
    let Offer::Threshold(threshold) = &offers[1].1 else { panic!("{offers:?}") };
    assert_eq!((offers.len(), threshold.width, threshold.must), (2, 2, 0));
    assert!(threshold.suffices(0b110));
    assert!(!threshold.suffices(0b011));
    assert_eq!(many().offered(false, &[(MEMORY, 21 * GI)])[0].1, "");

    let claims = many().assign(false, &[(MEMORY, 2 * GI)], Some(1), false).unwrap();
    assert_eq!(claims[0].zone.to_string(), "0-2");
    let claims = many().assign(false, &[(MEMORY, GI)], None, true).unwrap();
    assert_eq!(claims[0].zone.to_string(), "1");
}

#[test]
fn with_many_nodes_the_rule_for_groups_is_asked_about_few_sets() {
    let state = many().with("5-6", MEMORY, GI);
    let offers = state.offered(true, &[(MEMORY, GI)]);
    let hints: Vec<&str> = offers[0].1.split(' ').collect();
    assert_eq!(hints[..4], ["{1}+", "{2}+", "{3}+", "{4}+"]);
    assert!(hints.contains(&"{5-6}-") && hints.contains(&"{4,7}-") && !hints.contains(&"{4-5}-"));
    assert!(hints.len() < 200);
}

fn any_state(most: usize) -> impl Strategy<Value = State> {
    (1..=most).prop_flat_map(|count| {
        let node = (0u64..20, 0u64..4).prop_map(|(a, b)| BTreeMap::from([(MEMORY, a), (HUGE, b)]));
        let nodes = proptest::collection::vec(node, count);
        let claims = proptest::collection::vec((1u64..1 << count, any::<bool>(), 1u64..10), 0..6);
        (nodes, claims).prop_map(|(nodes, claims)| State {
            nodes,
            claims: claims
                .into_iter()
                .map(|(zone, memory, bytes)| MemoryClaim {
                    resource: if memory { MEMORY } else { HUGE },
                    zone: NodeSet::from_words(&[zone]),
                    bytes,
                    by_node: BTreeMap::new(),
                })
                .collect(),
        })
    })
}

fn any_wanted() -> impl Strategy<Value = WantedMemory> {
    (1u64..20, 0u64..4).prop_map(|(memory, pages)| {
        [(MEMORY, memory), (HUGE, pages)].into_iter().filter(|(_, bytes)| *bytes > 0).collect()
    })
}

proptest! {
    #[test]
    fn every_set_with_room_is_offered_and_no_other(state in any_state(5), wanted in any_wanted(), strict: bool) {
        let inventory = state.inventory();
        let account = ZoneAccount::of_claims(&inventory, &state.claims);
        let nodes = |mask: Mask| NodeSet::from_words(&[mask]);
        let masks = 1..1u64 << state.nodes.len();
        let would = |mask: &Mask| {
            wanted.iter().all(|(resource, bytes)| account.capacity(&nodes(*mask), *resource) >= *bytes)
        };
        let width = masks.clone().filter(would).map(Mask::count_ones).min();
        let in_use = |zone: &NodeSet| state.claims.iter().any(|claim| claim.zone == *zone);
        let allowed = |mask: Mask| {
            let zones = state.claims.iter().map(|claim| &claim.zone);
            !strict || zones.clone().all(|zone| zone.is_disjoint(&nodes(mask))) || in_use(&nodes(mask))
                && zones.clone().all(|zone| *zone == nodes(mask) || zone.is_disjoint(&nodes(mask)))
        };
        let fits = |mask: &Mask| {
            wanted.iter().all(|(resource, bytes)| account.free(&nodes(*mask), *resource) >= *bytes)
        };
        let mut expected: Vec<(Mask, bool)> = masks
            .filter(|mask| allowed(*mask) && fits(mask))
            .map(|mask| (mask, Some(mask.count_ones()) == width))
            .collect();
        for (_, offer) in state.on(strict, |stock| offer(stock, &wanted)) {
            let Offer::Listed(hints) = offer else { panic!("few nodes are listed") };
            prop_assert!(hints.iter().all(|hint| (1..=100).contains(&hint.score)));
            let mut offered: Vec<_> = hints.iter().map(|hint| (hint.mask.unwrap(), hint.preferred)).collect();
            offered.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(&offered, &expected);
        }
    }

    #[test]
    fn what_is_assigned_has_room_and_holds_the_merged_set(
        state in any_state(5),
        wanted in any_wanted(),
        mask in 0u64..32,
        strict: bool,
    ) {
        let mask = mask & ((1 << state.nodes.len()) - 1);
        let offered = state.on(strict, |stock| offer(stock, &wanted));
        let Offer::Listed(hints) = &offered[0].1 else { panic!("few nodes are listed") };
        let holds = |hint: &&MaskHint| hint.mask.unwrap() & mask == mask;
        let narrowest = hints.iter().filter(holds).map(|hint| hint.mask.unwrap().count_ones()).min();
        match state.assign(strict, &wanted, (mask != 0).then_some(mask), false) {
            Ok(claims) => {
                prop_assert_eq!(claims.len(), wanted.len());
                for (claim, (resource, bytes)) in claims.iter().zip(&wanted) {
                    prop_assert_eq!((claim.resource, claim.bytes), (*resource, *bytes));
                    prop_assert_eq!(claim.by_node.values().sum::<u64>(), *bytes);
                    prop_assert!(claim.by_node.keys().all(|node| claim.zone.contains(*node)));
                    prop_assert!(NodeSet::from_words(&[mask]).is_subset(&claim.zone));
                    prop_assert_eq!(u32::try_from(claim.zone.len()).ok(), narrowest, "no wider than needed");
                }
                let before = ZoneAccount::of_claims(&state.inventory(), &state.claims);
                let after = ZoneAccount::of_claims(&state.inventory(), state.claims.iter().chain(&claims));
                for claim in &claims {
                    let free = |account: &ZoneAccount| account.free(&claim.zone, claim.resource);
                    let left = free(&before) - claim.bytes;
                    if claim.resource == MEMORY {
                        prop_assert_eq!(free(&after), left);
                    } else {
                        // Huge pages are promised only if they are available in any order of use.
                        prop_assert!(free(&after) <= left);
                    }
                }
            }
            Err(_) => prop_assert!(narrowest.is_none() || strict, "there was room"),
        }
    }

    #[test]
    fn under_the_strict_rule_no_node_serves_two_zones(
        wishes in proptest::collection::vec((any_wanted(), 0u64..16, any::<bool>()), 1..12),
    ) {
        let mut state = State { nodes: vec![BTreeMap::from([(MEMORY, 20), (HUGE, 4)]); 4], claims: Vec::new() };
        for (wanted, mask, preferred) in wishes {
            let claims = state.assign(true, &wanted, (mask != 0).then_some(mask), preferred);
            state.claims.extend(claims.unwrap_or_default());
        }
        for (a, b) in state.claims.iter().flat_map(|a| state.claims.iter().map(move |b| (a, b))) {
            prop_assert!(a.zone == b.zone || a.zone.is_disjoint(&b.zone));
        }
    }

    /// A threshold never overstates, and what is assigned on many nodes has room.
    #[test]
    fn many_nodes_are_treated_like_few(
        state in any_state(6),
        wanted in any_wanted(),
        masks in proptest::collection::vec(1u64..1 << 22, 8),
    ) {
        let mut nodes = state.nodes.clone();
        nodes.extend(std::iter::repeat_n(BTreeMap::from([(MEMORY, 3), (HUGE, 1)]), MAX_ENUMERATED_NODES + 6 - nodes.len()));
        let state = State { nodes, ..state };
        state.on(false, |stock| {
            let offers = offer(stock, &wanted);
            let Offer::Threshold(threshold) = &offers[0].1 else { panic!("{offers:?}") };
            for mask in masks {
                // For huge pages a threshold adds up single nodes; several nodes together can have more.
                let ordinary = wanted.iter().all(|(what, _)| *what == MEMORY);
                let is_known = ordinary || mask.is_power_of_two();
                prop_assert!(!is_known || !threshold.suffices(mask) || stock.fits(mask, &wanted));
                let merged = Merged { mask: Some(mask & 0b11), preferred: false };
                if let Ok(claims) = assign(stock, &wanted, merged) {
                    let zone = &claims[0].zone;
                    prop_assert!(wanted.iter().all(|(what, bytes)| stock.account.fits(zone, *what, *bytes)));
                    prop_assert!(mask & 1 == 0 || zone.contains(NodeId(0)));
                } else {
                    prop_assert!(!stock.fits(stock.nodes.all(), &wanted));
                }
            }
            Ok(())
        })?;
    }
}
