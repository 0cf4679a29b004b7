//! How long the merge takes: `cargo bench -p enforcer-core --bench merge`.
//!
//! Four resources offer every set of nodes; once all of them prefer single nodes, and once the first
//! prefers single nodes and the others pairs, so that no set is preferred by all.

use divan::Bencher;
use enforcer_core::{
    id::NodeId,
    place::hints::{
        Mask, MaskHint, NodeIndex, Offer,
        merge::{MergeOptions, merge},
    },
};

fn main() {
    divan::main();
}

const RESOURCES: usize = 4;

/// Four sockets, like most machines with many nodes.
fn machine(nodes: u32) -> NodeIndex {
    let socket = |node: u32| node * 4 / nodes;
    let distance = |from: u32, to: u32| match () {
        () if from == to => 10,
        () if socket(from) == socket(to) => 12,
        () => 20 + 4 * socket(from).abs_diff(socket(to)),
    };
    let table = (0..nodes).map(|from| (0..nodes).map(|to| distance(from, to)).collect()).collect();
    NodeIndex::new(&(0..nodes).map(NodeId).collect()).with_distances(table)
}

/// Every set of nodes; those of the given width are preferred. Narrow ones first.
fn all_masks(nodes: u32, width: u32) -> Offer {
    let hint = |mask: Mask| MaskHint { mask: Some(mask), preferred: mask.count_ones() == width, score: 0 };
    let mut hints: Vec<MaskHint> = (1..1 << nodes).map(hint).collect();
    hints.sort_by_key(|hint| hint.mask.map_or(0, Mask::count_ones));
    Offer::Listed(hints)
}

fn options(prefer_closest: bool) -> MergeOptions {
    MergeOptions { prefer_closest, ..MergeOptions::default() }
}

#[divan::bench(args = [2, 4, 8, 16], consts = [false, true])]
fn preferred<const CLOSEST: bool>(bencher: Bencher<'_, '_>, nodes: u32) {
    let (machine, offers) = (machine(nodes), vec![all_masks(nodes, 1); RESOURCES]);
    bencher.bench_local(|| merge(&machine, divan::black_box(&offers), options(CLOSEST)));
}

#[divan::bench(args = [2, 4, 8, 16], consts = [false, true])]
fn not_preferred<const CLOSEST: bool>(bencher: Bencher<'_, '_>, nodes: u32) {
    let machine = machine(nodes);
    let offers: Vec<Offer> = (0..RESOURCES).map(|n| all_masks(nodes, if n == 0 { 1 } else { 2 })).collect();
    bencher.bench_local(|| merge(&machine, divan::black_box(&offers), options(CLOSEST)));
}
