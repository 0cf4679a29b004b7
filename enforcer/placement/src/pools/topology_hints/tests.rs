//! Scores of single hints and of several together.

use super::*;
use crate::{Inventory, pools::tree::tests::server, settings::PlacementSettings};
use numa_topology::{id::NodeId, synth::Machine};

fn tree(machine: Topology) -> PoolTree {
    PoolTree::new(&Inventory::new(machine, Vec::new(), &PlacementSettings::default()).unwrap())
}

fn hint(cpus: &str, nodes: &str, packages: &[i32]) -> TopologyHint {
    TopologyHint {
        provider: "device:/dev/x".into(),
        cpus: cpus.parse().unwrap(),
        nodes: nodes.parse().unwrap(),
        packages: packages.to_vec(),
    }
}

/// Scores of the pools, by name, in millionths.
fn scores(tree: &PoolTree, hint: &TopologyHint) -> Vec<(String, u32)> {
    tree.pools().iter().map(|pool| (pool.name.clone(), score_of_one(tree, pool, hint))).collect()
}

fn score_named(tree: &PoolTree, name: &str, hint: &TopologyHint) -> u32 {
    scores(tree, hint).into_iter().find(|(pool, _)| pool == name).unwrap().1
}

#[test]
fn cpus_of_a_hint_count_by_their_share_in_the_pool() {
    // Node 0 has CPUs 0-13 and 56-69.
    let tree = tree(server());
    for (cpus, share) in [("13,14", 500_000), ("0-3", 1_000_000), ("14-27", 0), ("12-14", 666_666)] {
        assert_eq!(score_named(&tree, "NUMA node #0", &hint(cpus, "", &[])), share, "{cpus}");
    }
}

#[test]
fn a_die_is_scored_by_its_own_cpus() {
    let mut machine = Machine::new().threads(1).cores(8).build();
    machine.cpus.iter_mut().for_each(|cpu| cpu.die = Some(i32::from(cpu.id.0 >= 4)));
    let tree = tree(machine);
    let near_die_1 = hint("4-7", "", &[]);
    assert_eq!(score_named(&tree, "die #0/0", &near_die_1), 0);
    assert_eq!(score_named(&tree, "die #0/1", &near_die_1), 1_000_000);
    assert_eq!(score_named(&tree, "die #0/1", &hint("", "", &[0])), 1_000_000);
}

#[test]
fn nodes_of_a_hint_speak_for_their_pools_and_less_for_those_above() {
    let tree = tree(server());
    let expected = [
        ("NUMA node #0", 0),
        ("NUMA node #2", 1_000_000),
        ("socket #0", 900_000),
        ("NUMA node #1", 1_000_000),
        ("NUMA node #3", 0),
        ("socket #1", 900_000),
        ("root", 810_000),
    ];
    assert_eq!(scores(&tree, &hint("", "1,2", &[])), expected.map(|(name, score)| (name.to_owned(), score)));
    // Near a memory-only node is near its host.
    assert_eq!(score_named(&tree, "NUMA node #2", &hint("", "5", &[])), 1_000_000);
}

#[test]
fn packages_of_a_hint_speak_for_their_sockets() {
    let tree = tree(server());
    let expected = [
        ("NUMA node #0", 0),
        ("NUMA node #2", 0),
        ("socket #0", 0),
        ("NUMA node #1", 500_000),
        ("NUMA node #3", 500_000),
        ("socket #1", 1_000_000),
        ("root", 900_000),
    ];
    assert_eq!(scores(&tree, &hint("", "", &[1, 2])), expected.map(|(name, score)| (name.to_owned(), score)));
}

#[test]
fn scores_are_multiplied_and_zeros_are_kept_apart() {
    let tree = tree(server());
    let [near, far] = ["2", "1"].map(|nodes| hint("", nodes, &[]));
    let of = |pool: usize, hints: &[&TopologyHint]| score(&tree, tree.pool(pool), hints.iter().copied());
    assert_eq!(of(1, &[]), None);
    let node_2 = of(1, &[&near, &far]).unwrap();
    assert_eq!((node_2.product, node_2.without_zeros), (0, 1_000_000));
    let node_0 = of(0, &[&near, &far]).unwrap();
    assert!(!node_0.speaks_for() && node_2.speaks_for());
    assert!(node_2 > node_0);
    let root = of(6, &[&near, &far]).unwrap();
    assert_eq!(root.product, 656_100);
    assert!(root > node_2);
    // A product of many small scores is still nonzero.
    let small = hint("0-99", "", &[]);
    assert!(of(0, &[&small; 100]).unwrap().product > 0);
}

#[test]
fn annotations_say_which_hints_count() {
    let of = |provider: &str| TopologyHint { provider: provider.into(), ..hint("0", "", &[]) };
    let (disk, gpu, given) =
        (of("mount:/data/a"), of("device:/dev/nvidia0"), of("pod-resources:vendor.com/gpu"));
    let patterns = |texts: &[&str]| texts.iter().map(|text| HintPattern::new(text).unwrap()).collect();
    let count = |rules: HintRules| [&disk, &gpu, &given].map(|hint| rules.admit(hint));
    let all = HintRules::default;
    assert_eq!(count(all()), [true; 3]);
    assert_eq!(
        count(HintRules { kinds: BTreeSet::from([HintKind::Devices]), ..all() }),
        [false, true, false]
    );
    assert_eq!(count(HintRules { kinds: BTreeSet::new(), ..all() }), [false; 3]);
    assert_eq!(count(HintRules { allow: patterns(&["mount:/data"]), ..all() }), [true, false, false]);
    assert_eq!(count(HintRules { deny: patterns(&["/dev/nv*"]), ..all() }), [true, false, true]);
    let both = HintRules { allow: patterns(&["/d*/*"]), deny: patterns(&["device:/dev"]), ..all() };
    assert_eq!(count(both), [true, false, false]);
    let says_nothing = TopologyHint { cpus: CpuSet::new(), ..disk.clone() };
    assert!(!all().admit(&says_nothing));
    assert!(HintPattern::new("mount:/x[").is_err());
}

#[test]
fn what_is_outside_a_strict_hint_is_named() {
    let machine = server();
    let tree = tree(machine.clone());
    let check = |hint: &TopologyHint, cpus: &str, mems: &str| {
        outside(&tree, &machine, hint, &cpus.parse().unwrap(), &mems.parse().unwrap())
    };
    let node_2 = hint("", "2", &[]);
    // Node 2 has CPUs 14-27 and 70-83, and node 5 is attached to it.
    assert_eq!(check(&node_2, "14-15", "2,5"), None);
    let away = Some("CPUs 13 would be away from device:/dev/x".to_owned());
    assert_eq!(check(&node_2, "13-14", "2"), away);
    let away = Some("memory of nodes 0 would be away from device:/dev/x".to_owned());
    assert_eq!(check(&node_2, "14", "0,2"), away);
    assert_eq!(check(&hint("14-15", "", &[]), "14", "0"), away);
    assert_eq!(check(&hint("", "", &[0]), "0-27", "0,2,4-5"), None);
    assert!(check(&hint("", "", &[0]), "28", "1").is_some());
    assert_eq!(tree.local_memory(&[NodeId(2)].into_iter().collect()).to_string(), "2,5");
}
