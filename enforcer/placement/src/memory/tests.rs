//! The account compared with brute force over all sets of nodes, and examples.

use proptest::prelude::*;

use super::*;
use crate::{ContainerKind, ContainerRequest, Grant, QosClass, samples, settings::PlacementSettings};
use numa_topology::synth::Machine;

const MEMORY: MemoryResource = MemoryResource::Memory;
const PAGES: MemoryResource = MemoryResource::Hugepages(2 << 20);

/// A machine with these bytes of memory and of huge pages by node.
fn inventory(capacity: &[(u64, u64)]) -> Inventory {
    let sockets = u32::try_from(capacity.len()).unwrap();
    let machine = Machine::new().sockets(sockets).cores(1).build();
    let mut inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap();
    for (node, (memory, pages)) in inventory.nodes.iter_mut().zip(capacity) {
        node.allocatable = BTreeMap::from([(MEMORY, *memory), (PAGES, *pages)]);
    }
    inventory
}

fn nodes(mask: u64) -> NodeSet {
    NodeSet::from_words(&[mask])
}

fn claim(zone: u64, bytes: u64) -> MemoryClaim {
    MemoryClaim { resource: MEMORY, zone: nodes(zone), bytes, by_node: BTreeMap::new() }
}

fn of(capacity: &[u64], claims: &[MemoryClaim]) -> ZoneAccount {
    let capacity: Vec<_> = capacity.iter().map(|bytes| (*bytes, 0)).collect();
    ZoneAccount::of_claims(&inventory(&capacity), claims)
}

/// The account of these claims with fewer nodes in a mask.
fn in_parts(inventory: &Inventory, claims: &[MemoryClaim], most: usize) -> ZoneAccount {
    let all = inventory.nodes.iter().map(|node| node.id).collect();
    let mut account = ZoneAccount::empty(inventory, &all, &BTreeMap::new(), most);
    account.enter(claims.iter().collect());
    account
}

fn sum_of(capacity: &[u64], zone: &NodeSet) -> u64 {
    zone.iter().filter_map(|node| capacity.get(node.0 as usize)).sum()
}

#[test]
fn claim_over_several_parts_lies_in_each_as_forecast() {
    let inventory = inventory(&[(8, 8); 4]);
    let mut account = in_parts(&inventory, &[], 2);
    let wide = account.promise(&nodes(0b1111), MEMORY, 20);
    assert_eq!(wide.by_node, BTreeMap::from([(NodeId(0), 8), (NodeId(1), 8), (NodeId(2), 4)]));
    let claims = [wide, MemoryClaim { by_node: BTreeMap::from([(NodeId(3), 6)]), ..claim(0b1100, 6) }];
    let account = in_parts(&inventory, &claims, 2);
    assert_eq!([0b0011, 0b1100, 0b0100, 0b1111].map(|zone| account.free(&nodes(zone), MEMORY)), [0, 6, 6, 6]);
    assert_eq!(account.left(&nodes(0b1111), MEMORY), 6);
    assert_eq!(account.usage(&nodes(0b1111), MEMORY), 26);
    // All pages may be taken from one part.
    let pages = MemoryClaim { resource: PAGES, ..claim(0b0110, 5) };
    let account = in_parts(&inventory, &[pages], 2);
    assert_eq!([0b0010, 0b0100, 0b1000].map(|zone| account.free(&nodes(zone), PAGES)), [3, 3, 8]);
}

#[test]
fn claims_that_no_longer_lie_as_forecast_are_kept_back_from_others() {
    let inventory = inventory(&[(8, 0); 4]);
    let on = |node, bytes| BTreeMap::from([(NodeId(node), bytes)]);
    // Both were forecast on node 1; there is room for the second on node 2.
    let narrow = MemoryClaim { by_node: on(1, 8), ..claim(0b0010, 8) };
    let wide = MemoryClaim { by_node: on(1, 6), ..claim(0b0110, 6) };
    let account = in_parts(&inventory, &[narrow.clone(), wide.clone()], 2);
    let free = |account: &ZoneAccount, zone| account.free(&nodes(zone), MEMORY);
    assert_eq!([0b0001, 0b0100, 0b1000, 0b1111].map(|zone| free(&account, zone)), [8, 2, 8, 18]);
    assert!(account.overcommitted(MEMORY).is_empty());
    // No node has room for all of it: the missing amount is not promised again on any node.
    let more = MemoryClaim { by_node: on(2, 6), ..claim(0b0100, 6) };
    let account = in_parts(&inventory, &[narrow, wide, more], 2);
    assert_eq!([0b0001, 0b1000, 0b1001].map(|zone| free(&account, zone)), [4, 4, 12]);
    assert!(account.fits(&nodes(0b1000), MEMORY, 4) && !account.fits(&nodes(0b1000), MEMORY, 5));
    assert!(account.fits(&nodes(0b0001), MEMORY, 4) && !account.fits(&nodes(0b0001), MEMORY, 5));
    assert!(!account.overcommitted(MEMORY).is_empty());
    // Nodes that are gone have no room.
    let gone = MemoryClaim { by_node: BTreeMap::from([(NodeId(0), 2), (NodeId(9), 4)]), ..claim(0x201, 6) };
    assert_eq!(free(&in_parts(&inventory, &[gone], 2), 0b0001), 2);
    assert_eq!(free(&in_parts(&inventory, &[claim(0x200, 6)], 2), 0b1111), 32);
}

/// Room on a set of nodes by the definition.
fn slack(capacity: &[u64], claims: &[MemoryClaim], set: u64) -> i128 {
    let there = capacity.iter().enumerate().filter(|(node, _)| set >> node & 1 == 1);
    let there: i128 = there.map(|(_, bytes)| i128::from(*bytes)).sum();
    let inside = claims.iter().filter(|claim| !claim.zone.is_empty() && claim.zone.is_subset(&nodes(set)));
    there - inside.map(|claim| i128::from(claim.bytes)).sum::<i128>()
}

/// Minimum room of any superset of this set.
fn least(capacity: &[u64], claims: &[MemoryClaim], zone: u64) -> i128 {
    let sets = (0..1u64 << capacity.len()).filter(|set| zone & !set == 0);
    sets.map(|set| slack(capacity, claims, set)).min().unwrap()
}

#[test]
fn narrow_promises_push_wide_ones_aside() {
    let account = of(&[10, 10], &[claim(0b11, 8)]);
    assert_eq!(account.free(&nodes(0b01), MEMORY), 10, "the wide one lies on node 0 and can move");
    assert_eq!(account.free(&nodes(0b11), MEMORY), 12);
    assert!(account.fits(&nodes(0b01), MEMORY, 10));
    assert!(!account.fits(&nodes(0b01), MEMORY, 11));
    let account = of(&[10, 10], &[claim(0b11, 8), claim(0b10, 6)]);
    assert_eq!(account.free(&nodes(0b01), MEMORY), 6, "node 1 has room for half of it only");
    assert_eq!(account.split(&nodes(0b01), MEMORY, 6), BTreeMap::from([(NodeId(0), 6)]));
}

#[test]
fn rings_of_zones_are_rearranged_through_one_another() {
    // 0-1, 1-2, 2-3: each can move to its right end, and only together do they free node 0.
    let chain = [claim(0b0011, 10), claim(0b0110, 10), claim(0b1100, 10)];
    let account = of(&[10; 4], &chain);
    assert_eq!(account.free(&nodes(0b0001), MEMORY), 10);
    assert_eq!(account.free(&nodes(0b1000), MEMORY), 10);
    assert_eq!(account.free(&nodes(0b1111), MEMORY), 10);
    assert!(account.overcommitted(MEMORY).is_empty());
}

#[test]
fn what_is_overcommitted_is_named() {
    let account = of(&[4, 4, 4], &[claim(0b001, 6), claim(0b011, 2), claim(0b100, 1)]);
    assert_eq!(
        account.overcommitted(MEMORY),
        [Overcommit { zone: nodes(0b001), usage: 6, capacity: 4 }],
        "both together fit on nodes 0-1, node 0 is too small"
    );
    let account = of(&[4, 4, 4], &[claim(0b011, 7), claim(0b110, 6), claim(0b101, 1)]);
    let over = account.overcommitted(MEMORY);
    assert_eq!(over, [Overcommit { zone: nodes(0b111), usage: 14, capacity: 12 }], "no zone alone");
    assert_eq!(account.free(&nodes(0b100), MEMORY), 0);
}

#[test]
fn a_broken_promise_elsewhere_takes_nothing_from_others() {
    let account = of(&[4, 4], &[claim(0b01, 100)]);
    assert_eq!(account.free(&nodes(0b10), MEMORY), 4);
    assert_eq!(account.free(&nodes(0b01), MEMORY), 0);
    assert_eq!(account.free(&nodes(0b11), MEMORY), 4);
}

#[test]
fn sizes_from_outside_do_no_harm() {
    let max = u64::MAX;
    let account = of(&[max, max, 1], &[claim(0b011, max), claim(0b011, max), claim(0b111, max)]);
    assert_eq!(account.free(&nodes(0b111), MEMORY), 1, "what is promised saturates, as what is there");
    assert!(!account.fits(&nodes(0b001), MEMORY, 2));
    assert_eq!(account.usage(&nodes(0b111), MEMORY), max);
    let by_node = account.split(&nodes(0b001), MEMORY, max);
    assert_eq!(by_node, BTreeMap::from([(NodeId(0), max)]), "sums to what was asked for all the same");
    let nowhere = account.split(&NodeSet::new(), MEMORY, 5);
    assert!(nowhere.is_empty());
    let table = account.free_on_sets(&[1, 2, 4], MEMORY);
    assert!((0..8).all(|set| table.at(set) <= account.free(&nodes(set), MEMORY)));
    let unknown = MemoryResource::Hugepages(u64::MAX);
    assert_eq!(account.free_on_sets(&[1, 2, 4], unknown).at(7), 0);
    assert_eq!(account.free(&nodes(0b111), unknown), 0);
    assert!(!account.fits(&nodes(0b111), unknown, 1));
    assert!(account.overcommitted(unknown).is_empty());
}

#[test]
fn with_too_many_kinds_of_other_nodes_the_table_never_says_more_than_the_truth() {
    // Each of nodes 16-31 is in a zone with one of the requested nodes 0-15, so memory on the latter can
    // move.
    let zones: Vec<MemoryClaim> = (0..16).map(|node| claim(1 << node | 1 << (node + 16), 8)).collect();
    let account = of(&[10; 32], &zones);
    let asked: Vec<u64> = (0..16).map(|node| 1 << node).collect();
    let many = account.free_on_sets(&asked, MEMORY);
    let few = account.free_on_sets(&asked[..8], MEMORY);
    for set in [0b1, 0b1000, 0b1011_0001, 0xff] {
        let free = account.free(&nodes(set), MEMORY);
        assert_eq!(free, 10 * u64::from(set.count_ones()));
        assert_eq!((many.at(set), few.at(set)), (2 * u64::from(set.count_ones()), free));
    }
}

#[test]
fn claims_on_nodes_that_are_gone_take_nothing() {
    let account = of(&[4, 4], &[claim(0b1000, 4), claim(0b1001, 3)]);
    assert_eq!(account.free(&nodes(0b01), MEMORY), 1);
    assert_eq!(account.free(&nodes(0b10), MEMORY), 4);
}

#[test]
fn kinds_of_memory_are_counted_apart_and_forecasts_are_kept() {
    let mut account = ZoneAccount::of_claims(&inventory(&[(8, 4), (8, 4)]), []);
    let memory = account.promise(&nodes(0b11), MEMORY, 12);
    assert_eq!(memory.by_node, BTreeMap::from([(NodeId(0), 8), (NodeId(1), 4)]));
    let pages = account.promise(&nodes(0b11), PAGES, 3);
    assert_eq!(pages.by_node, BTreeMap::from([(NodeId(0), 3)]));
    assert_eq!(account.free(&nodes(0b11), PAGES), 5);

    // A forecast that differs from the preferred order is kept.
    let right = MemoryClaim { by_node: BTreeMap::from([(NodeId(1), 6)]), ..claim(0b11, 6) };
    let account = ZoneAccount::of_claims(&inventory(&[(8, 0), (8, 0)]), &[right]);
    assert_eq!(account.split(&nodes(0b11), MEMORY, 9), BTreeMap::from([(NodeId(0), 8), (NodeId(1), 1)]));
}

#[test]
fn a_container_finds_what_ended_init_containers_had() {
    let container =
        |name: &str, kind| ContainerRequest { name: name.into(), kind, ..ContainerRequest::default() };
    let containers = vec![
        container("init", ContainerKind::Init),
        container("sidecar", ContainerKind::Sidecar),
        container("app", ContainerKind::App),
    ];
    let pod = PodRequest { qos: QosClass::Guaranteed, ..samples::pod("a", containers) };
    let mut allocations = Allocations::default();
    for (container, bytes) in [("init", 4), ("sidecar", 2)] {
        let grant = Grant { memory: vec![claim(0b1, bytes)], ..Grant::default() };
        allocations.give(Holder::new(pod.name.clone(), container.into()), grant);
    }
    let inventory = inventory(&[(10, 0)]);
    let free =
        |index| ZoneAccount::for_container(&inventory, &allocations, &pod, index).free(&nodes(0b1), MEMORY);
    assert_eq!(free(0), 4, "an init container that has not ended");
    assert_eq!(free(2), 8, "the sidecar stays");
    let other = samples::pod("b", pod.containers.clone());
    assert_eq!(ZoneAccount::for_container(&inventory, &allocations, &other, 2).free(&nodes(0b1), MEMORY), 4);
}

fn any_state() -> impl Strategy<Value = (Vec<u64>, Vec<MemoryClaim>)> {
    (1usize..=6).prop_flat_map(|count| {
        let zone = 1u64..1 << count;
        let claims = proptest::collection::vec((zone, 0u64..12), 0..10);
        let claims =
            claims.prop_map(|claims| claims.into_iter().map(|(zone, bytes)| claim(zone, bytes)).collect());
        (proptest::collection::vec(0u64..20, count), claims)
    })
}

proptest! {
    #[test]
    fn free_is_what_every_set_of_nodes_leaves((capacity, claims) in any_state(), zone in 1u64..64) {
        let zone = (zone & ((1 << capacity.len()) - 1)).max(1);
        let account = of(&capacity, &claims);
        let free = least(&capacity, &claims, zone) - least(&capacity, &claims, 0).min(0);
        prop_assert_eq!(i128::from(account.free(&nodes(zone), MEMORY)), free);
        for bytes in 0..24u64 {
            prop_assert_eq!(account.fits(&nodes(zone), MEMORY, bytes), i128::from(bytes) <= free, "{} bytes", bytes);
        }
    }

    #[test]
    fn all_sets_at_once_are_one_after_another((capacity, claims) in any_state(), asked in 0u64..64) {
        let account = of(&capacity, &claims);
        let asked: Vec<u64> = (0..capacity.len()).map(|node| asked & 1 << node).collect();
        let table = account.free_on_sets(&asked, MEMORY);
        for set in 0..1u64 << asked.len() {
            let zone = asked.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
            let zone = zone.fold(0, |zone, (_, node)| zone | node);
            prop_assert_eq!(table.at(set), account.free(&nodes(zone), MEMORY), "{:b}", zone);
        }
    }

    #[test]
    fn overcommit_is_what_cannot_be_kept((capacity, claims) in any_state()) {
        let account = of(&capacity, &claims);
        let over = account.overcommitted(MEMORY);
        prop_assert_eq!(over.is_empty(), least(&capacity, &claims, 0) >= 0);
        for Overcommit { zone, usage, capacity: there } in over {
            prop_assert!(usage > there);
            let set = (0..6).filter(|node| zone.contains(NodeId(*node))).fold(0, |set, node| set | 1 << node);
            prop_assert_eq!(slack(&capacity, &claims, set), i128::from(there) - i128::from(usage));
        }
    }

    /// The same with only a few nodes in a mask.
    #[test]
    fn claims_that_fit_in_parts_can_be_kept_together(
        (capacity, wishes) in any_state(),
        most in 1usize..=3,
        resource in prop::sample::select(vec![MEMORY, PAGES]),
    ) {
        let both: Vec<_> = capacity.iter().map(|bytes| (*bytes, *bytes)).collect();
        let inventory = inventory(&both);
        let of = |claims: &[MemoryClaim]| in_parts(&inventory, claims, most);
        let mut made: Vec<MemoryClaim> = Vec::new();
        for wish in wishes.into_iter().filter(|wish| wish.bytes > 0) {
            let account = of(&made);
            let free = account.free(&wish.zone, resource);
            // For pages that cannot move, the whole account counts a node once for each zone.
            let whole = ZoneAccount::of_claims(&inventory, &made).free(&wish.zone, resource);
            prop_assert!(resource == PAGES || free <= whole, "{} {}", free, whole);
            prop_assert_eq!(account.capacity(&wish.zone, resource), sum_of(&capacity, &wish.zone));
            if account.fits(&wish.zone, resource, wish.bytes) {
                prop_assert!(wish.bytes <= free);
                let by_node = account.split(&wish.zone, resource, wish.bytes);
                prop_assert_eq!(by_node.values().sum::<u64>(), wish.bytes);
                prop_assert!(by_node.iter().all(|(node, bytes)| wish.zone.contains(*node) && *bytes > 0));
                made.push(MemoryClaim { resource, by_node, ..wish });
                prop_assert!(of(&made).overcommitted(resource).is_empty());
            }
        }
        // By the account that sees all nodes at once.
        let over = ZoneAccount::of_claims(&inventory, &made).overcommitted(resource);
        prop_assert!(resource == PAGES || over.is_empty(), "{:?}", over);
    }

    /// Claims are made one after another where they fit, with their forecasts: the sums are right in any
    /// order, and a forecast never leaves its zone.
    #[test]
    fn claims_that_fit_can_be_kept_together((capacity, wishes) in any_state()) {
        let capacity: Vec<_> = capacity.iter().map(|bytes| (*bytes, 0)).collect();
        let inventory = inventory(&capacity);
        let mut made: Vec<MemoryClaim> = Vec::new();
        let mut running = ZoneAccount::of_claims(&inventory, []);
        for wish in wishes {
            let account = ZoneAccount::of_claims(&inventory, &made);
            let free = account.free(&wish.zone, MEMORY);
            prop_assert_eq!(running.free(&wish.zone, MEMORY), free, "built at once or one by one");
            if account.fits(&wish.zone, MEMORY, wish.bytes) {
                let by_node = account.split(&wish.zone, MEMORY, wish.bytes);
                prop_assert_eq!(by_node.values().sum::<u64>(), wish.bytes);
                prop_assert!(by_node.iter().all(|(node, bytes)| wish.zone.contains(*node) && *bytes > 0));
                running.promise(&wish.zone, MEMORY, wish.bytes);
                made.push(MemoryClaim { by_node, ..wish.clone() });
                let now = ZoneAccount::of_claims(&inventory, &made);
                prop_assert_eq!(now.free(&wish.zone, MEMORY), free - wish.bytes);
            }
        }
        let account = ZoneAccount::of_claims(&inventory, &made);
        prop_assert!(account.overcommitted(MEMORY).is_empty());
        made.reverse();
        prop_assert_eq!(ZoneAccount::of_claims(&inventory, &made), account);
    }
}
