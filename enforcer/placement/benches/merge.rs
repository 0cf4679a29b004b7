//! Time of a merge: `cargo bench -p numa-placement --bench merge`.
//!
//! Four resources offer every set of nodes. In one case all prefer single nodes; in the other the first
//! prefers single nodes and the others prefer pairs, so that no set is preferred by all. On 64 nodes the same
//! four resources state amounts: whether a set is preferred by all depends on how full the machine is.

use divan::Bencher;
use numa_placement::hints::{
    Mask, MaskHint, Need, NodeIndex, Offer, Threshold,
    merge::{MergeOptions, merge},
};
use numa_topology::id::NodeId;

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

/// Load of a machine that is too large for lists of masks.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    /// Number of nodes that would suffice on an empty machine.
    width: u32,
    /// Average use of each node in percent.
    used: u64,
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const LOADS: [Load; 6] = [
    Load { name: "1 node, half used", width: 1, used: 50 },
    Load { name: "1 node, nearly full", width: 1, used: 90 },
    Load { name: "3 nodes, half used", width: 3, used: 50 },
    Load { name: "3 nodes, a fifth used", width: 3, used: 20 },
    Load { name: "12 nodes, a fifth used", width: 12, used: 20 },
    Load { name: "24 nodes, a tenth used", width: 24, used: 10 },
];

/// CPUs, memory, huge pages and devices of 64 nodes, each node used differently.
fn thresholds(load: Load) -> Vec<Offer> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below.max(1)
    };
    let each = [16, 128 << 30, 64, 2];
    let offer = |each: u64| {
        let free = (0..64).map(|_| each - random(2 * each * load.used / 100 + 1).min(each)).collect();
        let amount = each * u64::from(load.width);
        Offer::Threshold(Threshold { needs: vec![Need { free, amount }], width: load.width, must: 0 })
    };
    each.map(offer).into()
}

#[divan::bench(args = LOADS, consts = [false, true])]
fn thresholds_of_64_nodes<const CLOSEST: bool>(bencher: Bencher<'_, '_>, load: Load) {
    let (machine, offers) = (machine(64), thresholds(load));
    bencher.bench_local(|| merge(&machine, divan::black_box(&offers), options(CLOSEST)));
}
