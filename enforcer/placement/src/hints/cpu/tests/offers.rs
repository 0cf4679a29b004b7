//! Offers of CPUs.

use super::*;
use crate::hints::{Mask, NodeIndex, Offer};

/// As `0+ 1+ 0,1-`: preferred or not.
fn offered(layout: &CpuLayout, stock: &CpuStock<'_>, request: usize, options: CpuOptions) -> String {
    let nodes = NodeIndex::new(&layout.nodes.iter().map(|(node, _)| *node).collect());
    match offer(layout, &nodes, stock, request, options) {
        Offer::NoPreference => "any".to_owned(),
        Offer::Threshold(threshold) => panic!("{threshold:?}"),
        Offer::Listed(hints) => {
            let text = hints.iter().map(|hint| {
                let nodes: Vec<String> =
                    nodes.nodes(hint.mask.unwrap()).iter().map(|node| node.to_string()).collect();
                format!("{}{}", nodes.join(","), if hint.preferred { '+' } else { '-' })
            });
            text.collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn offers_what_suffices_and_prefers_what_an_empty_machine_would_need() {
    let m12 = machine(12, |cpu| (cpu % 6, cpu % 6 / 3, cpu % 6 / 3, cpu % 6 / 3));
    for (request, available, reusable, allocated, expected) in [
        (0, "2-11", "", None, "any"),
        (2, "2-11", "", None, "0+ 1+ 0,1-"),
        (5, "2-11", "", None, "1+ 0,1-"),
        (7, "2-11", "", None, "0,1+"),
        (11, "2-11", "", None, ""),
        (13, "0-11", "", None, ""),
        (usize::MAX, "0-11", "", None, ""),
        (2, "0,3", "", None, "0,1-"),
        (5, "0-3", "", None, ""),
        (2, "", "", Some("0,6"), "0+ 0,1-"),
        (2, "1-5", "", Some("3,9"), "1+ 0,1-"),
        (11, "", "", Some("0-10"), "0,1+"),
        (2, "4-5", "", Some("0,6,3,9"), ""),
        (11, "", "", Some("0,6,3,9"), ""),
        (2, "2-5,8-11", "0,6", None, "0+ 0,1-"),
        (2, "2-5", "0,3", None, "0,1-"),
        (6, "4", "0-2,6-7", None, "0,1-"),
    ] {
        let (available, reusable) = (cpus(available), cpus(reusable));
        let allocated = allocated.map(cpus);
        let stock = CpuStock {
            available: &available,
            reusable: &reusable,
            allocated: allocated.as_ref(),
            usable: None,
        };
        assert_eq!(offered(&m12, &stock, request, PACKED), expected, "{request} of {available}");
    }
}

#[test]
fn with_alignment_by_socket_a_whole_socket_is_preferred() {
    let (d80, none) = (d80(), CpuSet::new());
    let socket = CpuOptions { align_by_socket: true, ..PACKED };
    for (request, available, options, expected) in [
        (2, "2,3,11", PACKED, "0+ 0,1- 0,2- 0,3- 0,1,2- 0,1,3- 0,2,3- 0,1,2,3-"),
        (2, "2,3,11", socket, "0+ 0,1+ 0,2- 0,3- 0,1,2- 0,1,3- 0,2,3- 0,1,2,3-"),
        (41, "0-28,40-57", socket, "0,1,2+ 0,1,2,3+"),
    ] {
        let available = cpus(available);
        let stock = CpuStock { available: &available, reusable: &none, allocated: None, usable: None };
        assert_eq!(offered(&d80, &stock, request, options), expected);
    }
}

#[test]
fn a_fuller_node_has_a_higher_score() {
    let (d12, available, none) = (d12(), cpus("0,1,3,5,7,9,11"), CpuSet::new());
    let stock = CpuStock { available: &available, reusable: &none, allocated: None, usable: None };
    let nodes = NodeIndex::new(&"0-1".parse().unwrap());
    let Offer::Listed(hints) = offer(&d12, &nodes, &stock, 1, PACKED) else { panic!("not listed") };
    let scores: Vec<_> = hints.iter().map(|hint| hint.score).collect();
    assert_eq!(scores, [83, 1, 42]);
}

/// `nodes` nodes of two CPUs, node n with CPUs 2n and 2n + 1.
fn many(nodes: u32) -> (CpuLayout, NodeIndex) {
    let layout = machine(nodes * 2, |cpu| (cpu, cpu / 2, cpu / 2, cpu / 2));
    let index = NodeIndex::new(&layout.nodes.iter().map(|(node, _)| *node).collect());
    (layout, index)
}

#[test]
fn above_sixteen_nodes_a_threshold_says_the_same() {
    let (available, reusable) = (cpus("1-9,20-31"), cpus("10"));
    let stock = CpuStock { available: &available, reusable: &reusable, allocated: None, usable: None };
    let (layout, nodes) = many(16);
    let nodes = nodes.with_lists();
    let Offer::Listed(listed) = offer(&layout, &nodes, &stock, 15, PACKED) else { panic!("not listed") };
    let (layout, nodes) = many(64);
    let Offer::Threshold(threshold) = offer(&layout, &nodes, &stock, 15, PACKED) else { panic!("listed") };
    let mut named: Vec<Mask> = listed.iter().map(|hint| hint.mask.unwrap()).collect();
    named.sort_unstable();
    assert!(!named.is_empty() && named.len() < 1 << 15);
    assert!((1..1 << 16).filter(|mask| threshold.suffices(*mask)).eq(named));
    assert_eq!(threshold.width, 8);
    assert!(listed.iter().all(|hint| hint.preferred == (hint.mask.unwrap().count_ones() == 8)));
}
