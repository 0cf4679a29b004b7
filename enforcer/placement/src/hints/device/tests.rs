//! Table of the device manager, and properties for any state.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    Allocations, ContainerKind, ContainerRequest, DeviceUnit, Grant, Holder, Inventory, PodName, PodRequest,
    QosClass,
    hints::{MAX_ENUMERATED_NODES, Mask, NodeIndex, Offer},
    samples,
    settings::PlacementSettings,
    size_units::SizeUnits,
};
use numa_topology::{MemoryKind, id::NodeId, set::NodeSet, synth::Machine};

const GPU: &str = "vendor.com/gpu";

/// A machine with devices, and the owner of each.
#[derive(Debug, Clone, Default)]
struct State {
    nodes: u32,
    /// Id and nodes.
    devices: Vec<(String, String)>,
    taken: Vec<String>,
    of_init: Vec<String>,
    held: Vec<String>,
}

impl State {
    fn of(nodes: u32, devices: &[(&str, &str)]) -> Self {
        let devices = devices.iter().map(|(id, near)| ((*id).to_owned(), (*near).to_owned())).collect();
        Self { nodes, devices, ..Self::default() }
    }

    /// A number of devices on each node, named `NODE-NUMBER`.
    fn rows(rows: &[usize]) -> Self {
        let names = |(node, count): (usize, &usize)| {
            (0..*count)
                .map(move |number| (format!("{node}-{number:03}"), node.to_string()))
                .collect::<Vec<_>>()
        };
        let devices = rows.iter().enumerate().flat_map(names).collect();
        Self { nodes: u32::try_from(rows.len()).unwrap(), devices, ..Self::default() }
    }

    fn on<T>(&self, ask: impl FnOnce(&DeviceStock<'_>) -> T) -> T {
        let unit = |(id, near): &(String, String)| DeviceUnit {
            resource: GPU.into(),
            id: id.clone(),
            nodes: near.parse().unwrap(),
        };
        let machine = Machine::new()
            .sockets(self.nodes)
            .cores(1)
            .memory_only(NodeId(40), 1, MemoryKind::Cxl, NodeId(self.nodes - 1))
            .build();
        let devices = self.devices.iter().map(unit).collect();
        let inventory = Inventory::new(machine, devices, &PlacementSettings::default()).unwrap();
        let pod = pod(&self.held);
        let mut allocations = Allocations::default();
        let other = PodName { name: "other".into(), ..pod.name.clone() };
        for (name, container, ids) in [(&other, "app", &self.taken), (&pod.name, "init", &self.of_init)] {
            allocations.give(Holder::new(name.clone(), container.into()), grant(ids));
        }
        let nodes = NodeIndex::new(&inventory.cpu_nodes());
        ask(&DeviceStock::new(&inventory, &allocations, &nodes, &pod, 1, GPU))
    }

    fn offered(&self, count: u64) -> String {
        match self.on(|stock| offer(stock, count)) {
            Offer::NoPreference => "any".into(),
            Offer::Threshold(threshold) => panic!("{threshold:?} of few nodes"),
            Offer::Listed(hints) => {
                let hint = |hint: &crate::hints::MaskHint| {
                    let nodes = NodeSet::from_words(&[hint.mask.unwrap()]);
                    format!("{{{nodes}}}{}", if hint.preferred { '+' } else { '-' })
                };
                hints.iter().map(hint).collect::<Vec<_>>().join(" ")
            }
        }
    }

    fn assigned(&self, count: u64, mask: Option<Mask>) -> Vec<String> {
        self.on(|stock| assign(stock, count, mask)).unwrap()
    }
}

fn grant(ids: &[String]) -> Grant {
    Grant { devices: BTreeMap::from([(GPU.to_owned(), ids.to_vec())]), ..Grant::default() }
}

fn pod(held: &[String]) -> PodRequest {
    let container =
        |name: &str, kind| ContainerRequest { name: name.into(), kind, ..ContainerRequest::default() };
    let containers = vec![container("init", ContainerKind::Init), container("app", ContainerKind::App)];
    let previous = BTreeMap::from([("app".to_owned(), grant(held))]);
    PodRequest { qos: QosClass::Burstable, previous, ..samples::pod("pod", containers) }
}

fn named(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn a_device_counts_for_each_node_that_it_is_near() {
    let all = State::of(2, &[("a", "0"), ("b", "1"), ("c", "0-1")]);
    let without_a = State { taken: named(&["a"]), ..all.clone() };
    let mixed = State::of(2, &[("x", ""), ("y", "1")]);
    let unknown = State::of(2, &[("x", ""), ("y", "")]);
    let none = State::of(2, &[]);
    for (state, count, offered) in [
        (&all, 1, "{0}+ {1}+ {0-1}-"),
        (&all, 2, "{0}+ {1}+ {0-1}-"),
        (&all, 3, "{0-1}+"),
        (&all, 4, ""),
        (&all, 0, "any"),
        (&without_a, 1, "{0}+ {1}+ {0-1}-"),
        (&without_a, 2, "{1}+ {0-1}-"),
        (&mixed, 1, "{1}+ {0-1}-"),
        (&mixed, 2, ""),
        (&unknown, 1, "any"),
        (&unknown, u64::MAX, "any"),
        (&none, 1, ""),
        (&none, u64::MAX, ""),
    ] {
        assert_eq!(state.offered(count), offered, "{count} of {state:?}");
    }
    let hints = State::rows(&[1; 8]).offered(1);
    assert_eq!(hints.split(' ').count(), 255);
    assert_eq!(hints.matches('+').count(), 8);
}

#[test]
fn a_device_of_a_node_without_cpus_belongs_to_the_nearest_one_with() {
    let state = State::of(2, &[("a", "40"), ("b", "39")]);
    assert_eq!(state.offered(1), "{1}+ {0-1}-", "and one of no such node to none");
    assert_eq!(state.assigned(1, Some(0b10)), ["a"]);
}

#[test]
fn what_an_init_container_had_comes_first() {
    let state = State { of_init: named(&["b"]), ..State::of(2, &[("a", "0"), ("b", "1"), ("c", "0")]) };
    assert_eq!(state.offered(1), "{1}+ {0-1}-");
    assert_eq!(state.offered(2), "{0-1}-", "on an empty machine node 0 would do");
    assert_eq!(state.assigned(1, Some(0b01)), ["b"]);
    assert_eq!(state.assigned(2, Some(0b01)), ["a", "b"]);
    let passed_on = State { taken: named(&["b"]), ..state };
    assert_eq!(passed_on.assigned(1, Some(0b10)), ["a"], "another container has it now");
}

#[test]
fn a_container_keeps_what_it_holds() {
    let devices = State::of(2, &[("a", "0"), ("b", "1"), ("c", "1")]);
    let state = State { held: named(&["b"]), ..devices.clone() };
    assert_eq!(state.offered(1), "{1}+ {0-1}-", "only what it has");
    assert_eq!(state.assigned(1, Some(0b01)), ["b"]);
    assert_eq!(state.offered(2), "{1}+ {0-1}-");
    assert_eq!(state.assigned(2, Some(0b01)), ["a", "b"]);
    let lost = State { held: named(&["b"]), taken: named(&["b"]), ..devices };
    assert_eq!(lost.offered(1), "{0}+ {1}+ {0-1}-");
    assert_eq!(lost.assigned(1, Some(0b01)), ["a"]);
}

#[test]
fn near_devices_are_given_first() {
    let mut four = State::rows(&[2; 4]);
    four.devices.push(("x".into(), String::new()));
    for (state, mask, count, per_node) in [
        (State::of(2, &[("x", ""), ("y", "")]), Some(0b01), 1, "x:1"),
        (State::of(2, &[("none", ""), ("1-000", "1")]), Some(0b10), 1, "1:1"),
        (State::of(2, &[("none", ""), ("1-000", "1")]), Some(0b01), 1, "1:1"),
        (State::rows(&[2, 2]), Some(0b01), 2, "0:2"),
        (State::rows(&[2, 2]), None, 3, "0:2 1:1"),
        (State::rows(&[3, 3]), Some(0b01), 4, "0:3 1:1"),
        (State::rows(&[3, 3]), Some(0b10), 4, "0:1 1:3"),
        (State::rows(&[2; 4]), Some(0b1010), 4, "1:2 3:2"),
        (State::rows(&[100, 100]), Some(0b01), 5, "0:5"),
        (State::rows(&[3, 97]), Some(0b01), 5, "0:3 1:2"),
        // Nodes with few devices first, so that nodes with many keep them.
        (State::rows(&[4, 2, 3]), Some(0b111), 3, "1:2 2:1"),
        (State::rows(&[1, 3, 2]), Some(0b001), 3, "0:1 2:2"),
        (four, Some(0b1000), 9, "0:2 1:2 2:2 3:2 x:1"),
    ] {
        let mut counts = BTreeMap::<String, u32>::new();
        for id in state.assigned(count, mask) {
            let node = id.split_once('-').map_or(id.as_str(), |(node, _)| node);
            *counts.entry(if node == "y" { "x" } else { node }.to_owned()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(node, count)| format!("{node}:{count}")).collect();
        assert_eq!(counts.join(" "), per_node, "{count} at {mask:?}");
    }
}

#[test]
fn a_refusal_has_figures() {
    let state = State { taken: named(&["0-000"]), ..State::rows(&[1, 1]) };
    for count in [2, u64::MAX] {
        let refused = state.on(|stock| assign(stock, count, None)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!(
                "UnexpectedAdmissionError: requested number of devices unavailable for vendor.com/gpu. \
                 Requested: {count}, Available: 1: 1 of {count} vendor.com/gpu on nodes 0-1; \
                 at most 1 vendor.com/gpu on node 1 would fit"
            )
        );
    }
    let on_node = |count, nodes: &str| state.on(|stock| shortage(stock, count, &nodes.parse().unwrap()));
    assert_eq!(
        on_node(1, "0").unwrap().text(&SizeUnits::default(), &NodeSet::new()),
        "0 of 1 vendor.com/gpu on node 0"
    );
    assert_eq!(on_node(1, "0-1"), None);
}

#[test]
fn a_machine_with_many_nodes_gets_a_threshold() {
    let mut state = State::rows(&[1; MAX_ENUMERATED_NODES + 1]);
    state.devices.push(("z".into(), "3-4".into()));
    state.of_init = named(&["2-000"]);
    state.taken = named(&["1-000"]);
    let Offer::Threshold(threshold) = state.on(|stock| offer(stock, 3)) else { panic!("a list") };
    assert_eq!((threshold.width, threshold.must), (2, 0b100));
    assert_eq!(threshold.needs[0].free[..5], [1, 0, 1, 2, 1]);
    assert_eq!(state.on(|stock| offer(stock, 18)), Offer::Listed(Vec::new()));
}

fn any_state() -> impl Strategy<Value = State> {
    (1u32..=5).prop_flat_map(|nodes| {
        let device = (0u64..1 << nodes, 0u8..5);
        proptest::collection::vec(device, 0..12).prop_map(move |devices| {
            let mut state = State { nodes, ..State::default() };
            for (number, (near, holder)) in devices.into_iter().enumerate() {
                let id = format!("d{number:02}");
                match holder {
                    0 => state.taken.push(id.clone()),
                    1 => state.of_init.push(id.clone()),
                    _ => {}
                }
                state.devices.push((id, NodeSet::from_words(&[near]).to_string()));
            }
            state
        })
    })
}

proptest! {
    #[test]
    fn offers_are_as_defined(state in any_state(), count in 1u64..8) {
        let near = |id: &String| -> NodeSet {
            state.devices.iter().find(|(name, _)| name == id).unwrap().1.parse().unwrap()
        };
        let ids: Vec<&String> = state.devices.iter().map(|(id, _)| id).collect();
        let known = ids.iter().any(|id| !near(id).is_empty());
        let free = ids.iter().filter(|id| !state.taken.contains(id));
        let here = |id: &String, mask: Mask| !near(id).is_disjoint(&NodeSet::from_words(&[mask]));
        let count_of = |ids: &mut dyn Iterator<Item = &&String>, mask: Mask| {
            ids.filter(|id| here(id, mask)).count() as u64
        };
        let masks = 1..1u64 << state.nodes;
        let width = masks.clone().filter(|mask| count_of(&mut ids.iter(), *mask) >= count)
            .map(Mask::count_ones).min();
        let mut expected: Vec<(Mask, bool)> = masks
            .filter(|mask| count_of(&mut free.clone(), *mask) >= count)
            .filter(|mask| state.of_init.iter().all(|id| near(id).is_empty() || here(id, *mask)))
            .map(|mask| (mask, Some(mask.count_ones()) == width))
            .collect();
        expected.sort_unstable();
        match state.on(|stock| offer(stock, count)) {
            Offer::Listed(hints) => {
                let mut offered: Vec<_> = hints.iter().map(|hint| (hint.mask.unwrap(), hint.preferred)).collect();
                offered.sort_unstable();
                prop_assert_eq!(offered, expected);
                prop_assert!(known || ids.is_empty());
            }
            other => {
                prop_assert_eq!(other, Offer::NoPreference);
                prop_assert!(!known && !ids.is_empty());
            }
        }
    }

    #[test]
    fn devices_are_given_once_and_the_near_ones_first(
        state in any_state(),
        count in 0u64..10,
        mask in 0u64..32,
        order: bool,
    ) {
        let free: Vec<_> = state.devices.iter().filter(|(id, _)| !state.taken.contains(id)).collect();
        let outcome = state.on(|stock| assign(stock, count, Some(mask)));
        let mut turned = state.clone();
        if order {
            turned.devices.reverse();
        }
        prop_assert_eq!(&turned.on(|stock| assign(stock, count, Some(mask))), &outcome);
        let Ok(given) = outcome else {
            prop_assert!((free.len() as u64) < count);
            return Ok(());
        };
        prop_assert_eq!(given.len() as u64, count);
        prop_assert!(given.is_sorted_by(|a, b| a < b), "each once");
        prop_assert!(given.iter().all(|id| free.iter().any(|(name, _)| name == id)));
        let of_init = |id: &String| state.of_init.contains(id);
        let reused = given.iter().filter(|id| of_init(id)).count();
        prop_assert_eq!(reused, state.of_init.len().min(given.len()));
        let near = |near: &String| !near.parse::<NodeSet>().unwrap().is_disjoint(&NodeSet::from_words(&[mask]));
        let fresh = free.iter().filter(|(id, _)| !of_init(id));
        let aligned = fresh.clone().filter(|(_, at)| near(at)).count();
        let known = fresh.filter(|(_, at)| !at.is_empty()).count();
        let taken = |filter: &dyn Fn(&String) -> bool| {
            free.iter().filter(|(id, at)| given.contains(id) && !of_init(id) && filter(at)).count()
        };
        let rest = given.len() - reused;
        prop_assert_eq!(taken(&near), aligned.min(rest));
        prop_assert_eq!(taken(&|at| !at.is_empty()), known.min(rest));
    }
}
