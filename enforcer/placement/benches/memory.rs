//! Time to account, offer and claim memory: `cargo bench -p numa-placement --bench memory`.
//!
//! A thousand containers have memory and huge pages: most of them on one node, every eighth on a pair of
//! nodes, every sixteenth on any node. Three quarters of the machine are promised.

use std::collections::BTreeMap;

use divan::{Bencher, black_box};
use numa_placement::{
    Allocations, Grant, Holder, Inventory, MemoryClaim, MemoryResource, PodName,
    hints::{
        NodeIndex,
        memory::{MemoryStock, assign, offer},
        merge::Merged,
    },
    memory::ZoneAccount,
    settings::PlacementSettings,
};
use numa_topology::{id::NodeId, set::NodeSet, synth::Machine};

fn main() {
    divan::main();
}

const GIB: u64 = 1 << 30;
const PAGES: MemoryResource = MemoryResource::Hugepages(2 << 20);
const CONTAINERS: u64 = 1000;
/// Per node.
const PROMISED: u64 = 96 * GIB;

struct Host {
    inventory: Inventory,
    allocations: Allocations,
    nodes: NodeIndex,
}

impl Host {
    fn new(nodes: u32) -> Self {
        let machine = Machine::new().sockets(nodes).cores(8).memory_gib(144).hugepages(2 << 20, 8192).build();
        let inventory = match Inventory::new(machine, Vec::new(), &PlacementSettings::default()) {
            Ok(inventory) => inventory,
            Err(error) => panic!("{error}"),
        };
        let mut allocations = Allocations::default();
        let bytes = PROMISED * u64::from(nodes) / CONTAINERS;
        for number in 0..CONTAINERS {
            let name = PodName::new("default", format!("pod-{number}"));
            let grant = Grant { memory: claims(number, nodes, bytes), ..Grant::default() };
            allocations.give(Holder::new(name, "app".into()), grant);
        }
        let nodes = NodeIndex::of(&inventory.machine, &inventory.cpu_nodes());
        Self { inventory, allocations, nodes }
    }

    fn account(&self) -> ZoneAccount {
        ZoneAccount::new(&self.inventory, &self.allocations, |_| false)
    }
}

fn claims(number: u64, nodes: u32, bytes: u64) -> Vec<MemoryClaim> {
    let node = NodeId(u32::try_from(number).unwrap_or_default() % nodes);
    let zone: NodeSet = match number {
        number if number % 16 == 0 => (0..nodes).map(NodeId).collect(),
        number if number % 8 == 0 => [node, NodeId((node.0 + 1) % nodes)].into_iter().collect(),
        _ => [node].into_iter().collect(),
    };
    let claim = |resource, bytes| MemoryClaim {
        resource,
        zone: zone.clone(),
        bytes,
        by_node: BTreeMap::from([(node, bytes)]),
    };
    vec![claim(MemoryResource::Memory, bytes), claim(PAGES, bytes / 16)]
}

/// The account of a thousand grants.
#[divan::bench(args = [8, 64])]
fn account(bencher: Bencher<'_, '_>, nodes: u32) {
    let host = Host::new(nodes);
    bencher.bench_local(|| black_box(&host).account());
}

/// A promise that fits without moving others.
#[divan::bench(args = [8, 64])]
fn fits(bencher: Bencher<'_, '_>, nodes: u32) {
    let account = Host::new(nodes).account();
    let zone: NodeSet = [NodeId(3)].into_iter().collect();
    bencher.bench_local(|| black_box(&account).fits(&zone, MemoryResource::Memory, GIB));
}

/// A promise that fits only after moving others, and one byte more.
#[divan::bench(args = [8, 64])]
fn fits_after_moving_others(bencher: Bencher<'_, '_>, nodes: u32) {
    let account = Host::new(nodes).account();
    let zone: NodeSet = [NodeId(3)].into_iter().collect();
    let free = account.free(&zone, MemoryResource::Memory);
    bencher.bench_local(|| {
        let fits = |bytes| black_box(&account).fits(&zone, MemoryResource::Memory, bytes);
        (fits(free), fits(free + 1))
    });
}

/// Offers of memory and huge pages for a container.
#[divan::bench(args = [8, 16, 64])]
fn offers(bencher: Bencher<'_, '_>, nodes: u32) {
    let host = Host::new(nodes);
    let account = host.account();
    let wanted = [(MemoryResource::Memory, 8 * GIB), (PAGES, GIB)];
    bencher.bench_local(|| offer(&MemoryStock::new(&account, &host.nodes, false), black_box(&wanted)));
}

/// Claims for a container, account included.
#[divan::bench(args = [8, 64])]
fn account_offers_and_claims(bencher: Bencher<'_, '_>, nodes: u32) {
    let host = Host::new(nodes);
    let wanted = [(MemoryResource::Memory, 8 * GIB), (PAGES, GIB)];
    bencher.bench_local(|| {
        let account = black_box(&host).account();
        let stock = MemoryStock::new(&account, &host.nodes, false);
        let offers = offer(&stock, &wanted);
        (offers, assign(&stock, &wanted, Merged { mask: Some(0b1000), preferred: true }))
    });
}
