//! Time to give one container its CPUs: `cargo bench -p numa-placement --bench cpu`.
//!
//! Offer and assignment on machines of 64 CPUs per node, two nodes per socket, eight cores per cache. Some
//! CPUs of each core are in use, so that no group larger than a core is entirely free: the case with the most
//! steps.

use divan::{Bencher, black_box};
use numa_placement::{
    CpuLayout, CpuPlace,
    hints::{
        NodeIndex,
        cpu::{CpuOptions, CpuPick, CpuStock, assign, assign_near, offer},
    },
};
use numa_topology::{
    id::{CpuId, NodeId},
    set::{CpuSet, NodeSet},
};

fn main() {
    divan::main();
}

/// CPUs of one node; half as many cores.
const CPUS: u32 = 64;

fn machine(nodes: u32) -> CpuLayout {
    let cores = nodes * CPUS / 2;
    let place = |cpu: u32| {
        let core = cpu % cores;
        let node = core / (CPUS / 2);
        CpuPlace { id: CpuId(cpu), core, socket: node / 2, node: NodeId(node), llc: core / 8 }
    };
    CpuLayout::new((0..cores * 2).map(place).collect())
}

fn nodes(layout: &CpuLayout) -> NodeSet {
    layout.nodes.iter().map(|(node, _)| *node).collect()
}

/// Without every third core of each cache and a single CPU here and there.
fn free(layout: &CpuLayout) -> CpuSet {
    let used = |cpu: &CpuPlace| cpu.core.is_multiple_of(3) || cpu.id.0.is_multiple_of(41);
    layout.cpus.iter().filter(|cpu| !used(cpu)).map(|cpu| cpu.id).collect()
}

const PACKED: CpuOptions = CpuOptions {
    full_pcpus_only: false,
    distribute_across_numa: false,
    distribute_across_cores: false,
    align_by_socket: false,
    align_by_uncore_cache: false,
};

/// Offer, and assignment near one node: the cost of one container.
#[divan::bench(args = [2, 8, 9, 12, 16, 32, 64])]
fn one_container(bencher: Bencher<'_, '_>, count: u32) {
    let layout = machine(count);
    let (available, none, index) = (free(&layout), CpuSet::new(), NodeIndex::new(&nodes(&layout)));
    let stock = CpuStock { available: &available, reusable: &none, allocated: None, usable: None };
    let affinity: NodeSet = [NodeId(count - 1)].into_iter().collect();
    let pick = CpuPick {
        available: &available,
        reserved: &none,
        reusable: &none,
        affinity: Some(&affinity),
        count: 16,
    };
    bencher.bench_local(|| {
        let offered = offer(black_box(&layout), &index, black_box(&stock), 16, PACKED);
        (offered, assign_near(black_box(&layout), black_box(&pick), PACKED))
    });
}

/// A quarter of the machine in the packed order.
#[divan::bench(args = [2, 8, 64])]
fn packed(bencher: Bencher<'_, '_>, nodes: u32) {
    assignment(bencher, nodes, PACKED);
}

/// The same by last-level caches.
#[divan::bench(args = [2, 8, 64])]
fn aligned_by_cache(bencher: Bencher<'_, '_>, nodes: u32) {
    assignment(bencher, nodes, CpuOptions { align_by_uncore_cache: true, ..PACKED });
}

/// The same in equal parts, with a remainder.
#[divan::bench(args = [2, 8, 64])]
fn distributed(bencher: Bencher<'_, '_>, nodes: u32) {
    assignment(bencher, nodes, CpuOptions { distribute_across_numa: true, ..PACKED });
}

fn assignment(bencher: Bencher<'_, '_>, nodes: u32, options: CpuOptions) {
    let layout = machine(nodes);
    let available = free(&layout);
    let count = layout.cpus.len() / 4 - 1;
    bencher.bench_local(|| assign(black_box(&layout), black_box(&available), count, options));
}
