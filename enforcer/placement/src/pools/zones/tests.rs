//! The cases of the reference allocator's own tests, in order, on one machine.

use proptest::prelude::*;

use super::*;
use crate::{NodeSupply, settings::PlacementSettings};
use numa_topology::{MemoryKind, Node, Topology};

use MemoryPriority::{BestEffort, Burstable, Guaranteed, Preserved, Strict};

/// Four nodes of DRAM with CPUs and four of PMEM, four bytes each.
fn machine() -> Inventory {
    let distances = [
        [10, 21, 11, 21, 17, 28, 28, 28],
        [21, 10, 21, 11, 28, 28, 17, 28],
        [11, 21, 10, 21, 28, 17, 28, 28],
        [21, 11, 21, 10, 28, 28, 28, 17],
        [17, 28, 28, 28, 10, 28, 28, 28],
        [28, 28, 17, 28, 28, 10, 28, 28],
        [28, 17, 28, 28, 28, 28, 10, 28],
        [28, 28, 28, 17, 28, 28, 28, 10],
    ];
    let node = |id: u32| Node {
        id: NodeId(id),
        cpus: if id < 4 {
            format!("{}-{}", 2 * id, 2 * id + 1).parse().unwrap()
        } else {
            "".parse().unwrap()
        },
        mem_total_bytes: Some(4),
        mem_free_bytes: None,
        hugepages: Vec::new(),
        kind: if id < 4 { MemoryKind::Dram } else { MemoryKind::Pmem },
        kind_evidence: Vec::new(),
        normal_memory: None,
        hmat: None,
        closest_cpu_node: None,
    };
    let topology = Topology {
        nodes: (0..8).map(node).collect(),
        distances: distances.iter().map(|row| row.iter().map(|distance| Some(*distance)).collect()).collect(),
        ..Topology::default()
    };
    let mut inventory = Inventory::new(Topology::default(), Vec::new(), &PlacementSettings::default())
        .unwrap_or_else(|_| unreachable!("default settings ask for nothing"));
    inventory.nodes = topology
        .nodes
        .iter()
        .map(|node| NodeSupply {
            id: node.id,
            kind: node.kind,
            cpus: node.cpus.clone(),
            total: BTreeMap::from([(MemoryResource::Memory, 4)]),
            allocatable: BTreeMap::from([(MemoryResource::Memory, 4)]),
        })
        .collect();
    inventory.machine = topology;
    inventory
}

fn nodes(text: &str) -> NodeSet {
    text.parse().unwrap()
}

fn claim(zone: &NodeSet, bytes: u64) -> MemoryClaim {
    MemoryClaim { resource: MemoryResource::Memory, zone: zone.clone(), bytes, by_node: BTreeMap::new() }
}

/// All containers by number, in order of arrival.
#[derive(Default)]
struct ZonedContainers(Vec<(u32, NodeSet, u64, MemoryPriority)>);

impl ZonedContainers {
    /// Its zone, and the moved containers as `number zone`.
    fn ask(
        &mut self,
        inventory: &Inventory,
        number: u32,
        zone: &str,
        bytes: u64,
        priority: MemoryPriority,
    ) -> Option<(String, Vec<String>)> {
        let zone = nodes(zone);
        let claims: Vec<MemoryClaim> = self.0.iter().map(|(_, zone, bytes, _)| claim(zone, *bytes)).collect();
        let account = ZoneAccount::of_claims(inventory, &claims);
        let zones = MemoryZones { inventory, account: &account };
        let offer = {
            let others = self.0.iter().zip(0u64..).map(|((_, zone, bytes, priority), arrival_seq)| Promise {
                zone,
                bytes: *bytes,
                priority: *priority,
                arrival_seq,
            });
            let others = OtherPromises::new(others.collect());
            zones.offer(Promise { zone: &zone, bytes, priority, arrival_seq: u64::MAX }, None, || &others)?
        };
        let mut moved = Vec::new();
        for (index, zone) in offer.moved {
            moved.push(format!("{} {zone}", self.0[index].0));
            self.0[index].1 = zone;
        }
        let own = offer.zone.to_string();
        self.0.push((number, offer.zone, bytes, priority));
        Some((own, moved))
    }
}

#[test]
fn the_cases_of_the_reference() {
    let inventory = machine();
    let mut all = ZonedContainers::default();
    // M1: more than the machine has, on no zone.
    assert_eq!(all.ask(&inventory, 0, "0-3", 33, Burstable), None);
    assert_eq!(all.ask(&inventory, 0, "10", 1, Burstable), None);
    assert_eq!(all.ask(&inventory, 0, "", 1, Burstable), None);
    for (number, zone, bytes, priority, own, moved) in [
        // M2
        (1, "0", 2, BestEffort, "0", None),
        (2, "2", 2, BestEffort, "2", None),
        (3, "0", 2, BestEffort, "0", None),
        (4, "2", 2, BestEffort, "2", None),
        // M3
        (5, "0", 2, Guaranteed, "0", Some("3 0-3")),
        (6, "2", 2, Guaranteed, "2", Some("4 0-3")),
        (7, "0", 2, Guaranteed, "0", Some("1 0-3")),
        (8, "2", 2, Guaranteed, "2", Some("2 0-3")),
        // M4
        (9, "1", 2, Burstable, "1", Some("4 0-7")),
        (10, "3", 2, Burstable, "3", Some("3 0-7")),
        (11, "1", 2, Burstable, "1", Some("2 0-7")),
        (12, "3", 2, Burstable, "3", Some("1 0-7")),
        // M5
        (13, "1", 2, Burstable, "0-7", None),
    ] {
        let expected = Some((own.to_owned(), moved.map(str::to_owned).into_iter().collect()));
        assert_eq!(all.ask(&inventory, number, zone, bytes, priority), expected, "{number}");
    }
    for steps in [
        // M6
        vec![(14, "0,2", 6, Burstable, "0,2", None), (15, "0", 3, Burstable, "0", Some("14 0-3"))],
        // M7
        vec![
            (16, "0,2", 4, Preserved, "0,2", None),
            (17, "0,2", 4, Burstable, "0,2", None),
            (18, "0", 1, Burstable, "0", Some("17 0-3")),
        ],
        // M8
        vec![
            (19, "0-3", 8, Strict, "0-3", None),
            (20, "0-3", 8, Burstable, "0-3", None),
            (21, "0", 1, Burstable, "0", Some("20 0-7")),
        ],
    ] {
        let mut all = ZonedContainers::default();
        for (number, zone, bytes, priority, own, moved) in steps {
            let expected = Some((own.to_owned(), moved.map(str::to_owned).into_iter().collect()));
            assert_eq!(all.ask(&inventory, number, zone, bytes, priority), expected, "{number}");
        }
    }
}

#[test]
fn fewer_bytes_are_moved_than_by_the_smallest_first() {
    let inventory = machine();
    let mut all = ZonedContainers::default();
    for (number, bytes) in [(1, 1), (2, 2), (3, 5)] {
        assert_eq!(all.ask(&inventory, number, "0,2", bytes, Burstable).unwrap().1.len(), 0);
    }
    // Five bytes too many: smallest first would move all three.
    let (own, moved) = all.ask(&inventory, 4, "0,2", 5, Guaranteed).unwrap();
    assert_eq!((own.as_str(), moved), ("0,2", vec!["3 0-3".to_owned()]));
}

#[test]
fn zones_that_overlap_are_counted_together() {
    let inventory = machine();
    let mut all = ZonedContainers::default();
    assert_eq!(all.ask(&inventory, 1, "0-1", 8, Guaranteed).unwrap().1.len(), 0);
    // Each zone holds its own promise, the three nodes do not hold both.
    let (own, moved) = all.ask(&inventory, 2, "1-2", 8, Burstable).unwrap();
    assert_eq!((own.as_str(), moved.len()), ("0-3", 0));
}

#[test]
fn a_limit_is_kept_also_when_widened() {
    let inventory = machine();
    let account = ZoneAccount::of_claims(&inventory, []);
    let zones = MemoryZones { inventory: &inventory, account: &account };
    let (zone, limit, none) = (nodes("0"), nodes("0,4"), OtherPromises::default());
    let new = Promise { zone: &zone, bytes: 6, priority: Burstable, arrival_seq: 0 };
    assert_eq!(zones.offer(new, Some(&limit), || &none).unwrap().zone, limit);
    let new = Promise { bytes: 9, ..new };
    assert_eq!(zones.offer(new, Some(&limit), || &none), None);
    let new = Promise { priority: Strict, bytes: 6, ..new };
    assert_eq!(zones.offer(new, None, || &none), None);
}

proptest! {
    /// Compared with all sets of nodes: everything fits exactly if no set has more promises than capacity.
    #[test]
    fn what_is_offered_can_be_kept(
        asked in proptest::collection::vec((1u32..256, 0u64..7, 0usize..5), 1..14),
    ) {
        let inventory = machine();
        let mut all = ZonedContainers::default();
        for (number, &(mask, bytes, priority)) in asked.iter().enumerate() {
            let zone: NodeSet = (0..8).filter(|bit| mask >> bit & 1 == 1).map(NodeId).collect();
            let priority = [BestEffort, Burstable, Guaranteed, Preserved, Strict][priority];
            let before: Vec<_> = all.0.clone();
            let number = u32::try_from(number).unwrap();
            let answer = all.ask(&inventory, number, &zone.to_string(), bytes, priority);
            let total: u64 = before.iter().map(|(_, _, bytes, _)| bytes).sum();
            if answer.is_none() {
                let movable = priority != Strict && before.iter().all(|(.., priority)| *priority != Strict);
                prop_assert!(!movable || total + bytes > 32, "there was room for {bytes} on {zone}");
                prop_assert_eq!(&all.0, &before);
            }
            for set in 1u32..256 {
                let set: NodeSet = (0..8).filter(|bit| set >> bit & 1 == 1).map(NodeId).collect();
                let inside = all.0.iter().filter(|(_, zone, ..)| zone.is_subset(&set));
                let sum: u64 = inside.map(|(_, _, bytes, _)| bytes).sum();
                prop_assert!(sum <= 4 * set.len() as u64, "{sum} on {set}");
            }
            for ((_, old, _, priority), (_, new, ..)) in before.iter().zip(&all.0) {
                prop_assert!(old.is_subset(new));
                prop_assert!(*priority != Strict || old == new);
            }
        }
    }
}
