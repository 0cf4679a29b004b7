//! Time to admit a pod: `cargo bench -p numa-placement --bench admission`.
//!
//! A machine of 8 nodes and 512 CPUs runs 1,000 containers, a tenth of them with exclusive CPUs. The admitted
//! pod wants CPUs, memory and a device on one node; or it shares; or it has ten containers. The time covers
//! the whole admission including updates for other pods. The same runs on 9 to 128 nodes: with a set of nodes
//! that all resources prefer, without one, and for a pod that shares. As a test (`--test`), a twentieth of
//! the containers runs.

use std::collections::BTreeMap;

use divan::Bencher;
use numa_placement::{
    Allocations, ContainerRequest, DeviceUnit, Inventory, PodName, PodRequest, Resources, admit,
    pools::Documents,
    qos_class,
    settings::{PlacementEngine, PlacementSettings, TopologyPolicy},
};
use numa_topology::{id::NodeId, synth::Machine};

fn main() {
    divan::main();
}

const MIB: u64 = 1 << 20;

fn container(name: String, milli_cpus: u64, memory_bytes: u64, limited: bool) -> ContainerRequest {
    let requests = Resources {
        milli_cpus: Some(milli_cpus),
        memory_bytes: Some(memory_bytes),
        hugepages: BTreeMap::new(),
    };
    ContainerRequest {
        name,
        limits: if limited { requests.clone() } else { Resources::default() },
        requests,
        ..ContainerRequest::default()
    }
}

fn pod(name: String, containers: Vec<ContainerRequest>) -> PodRequest {
    PodRequest {
        name: PodName::new("default", name),
        qos: qos_class(&containers),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        documents: Documents::new(),
        containers,
        previous: BTreeMap::new(),
        undescribed: None,
    }
}

struct Host {
    inventory: Inventory,
    settings: PlacementSettings,
    allocations: Allocations,
}

fn host(engine: PlacementEngine, nodes: u32) -> Host {
    let per_socket = if nodes.is_multiple_of(4) { 4 } else { 3 };
    let machine = Machine::new()
        .sockets(nodes / per_socket)
        .nodes_per_socket(per_socket)
        .cores(32)
        .memory_gib(128)
        .build();
    let device = |index: u32| DeviceUnit {
        resource: "vendor.com/gpu".into(),
        id: format!("gpu{index}"),
        nodes: std::iter::once(NodeId(index)).collect(),
    };
    let mut settings = PlacementSettings::default();
    settings.engine = engine;
    settings.hints.policy = TopologyPolicy::Restricted;
    let inventory = Inventory::new(machine, (0..nodes).map(device).collect(), &settings)
        .unwrap_or_else(|error| panic!("inventory: {error}"));
    let mut host = Host { inventory, settings, allocations: Allocations::default() };
    #[expect(
        clippy::disallowed_methods,
        reason = "the bench program is told by an argument that it is a test"
    )]
    let pods = if std::env::args().any(|argument| argument == "--test") { 25 } else { 500 };
    for index in 0..pods {
        let containers = if index % 5 == 0 {
            (0..2).map(|c| container(format!("c{c}"), 1000, 256 * MIB, true)).collect()
        } else {
            (0..2).map(|c| container(format!("c{c}"), 100, 128 * MIB, false)).collect()
        };
        admitted(&mut host, &pod(format!("running{index}"), containers));
    }
    assert_eq!(host.allocations.iter().count(), 2 * pods);
    host
}

fn admitted(host: &mut Host, pod: &PodRequest) {
    let Host { inventory, settings, allocations } = host;
    let outcome = admit(inventory, settings, allocations, pod);
    outcome.unwrap_or_else(|rejection| panic!("{}: {rejection}", pod.name));
}

fn measure(bencher: Bencher<'_, '_>, host: Host, pod: &PodRequest) {
    let Host { inventory, settings, allocations } = host;
    bencher
        .with_inputs(|| allocations.clone())
        .bench_local_refs(|allocations| admit(&inventory, &settings, allocations, divan::black_box(pod)));
}

const ENGINES: [&str; 2] = ["hints", "pools"];

fn engine(name: &str) -> PlacementEngine {
    if name == "pools" { PlacementEngine::Pools } else { PlacementEngine::Hints }
}

#[divan::bench(args = ENGINES)]
fn exclusive_with_device(bencher: Bencher<'_, '_>, name: &str) {
    let mut request = container("c".into(), 8000, 4096 * MIB, true);
    request.devices.insert("vendor.com/gpu".into(), 1);
    measure(bencher, host(engine(name), 8), &pod("p".into(), vec![request]));
}

#[divan::bench(args = ENGINES)]
fn shared(bencher: Bencher<'_, '_>, name: &str) {
    measure(
        bencher,
        host(engine(name), 8),
        &pod("p".into(), vec![container("c".into(), 500, 256 * MIB, false)]),
    );
}

#[divan::bench(args = ENGINES)]
fn ten_containers(bencher: Bencher<'_, '_>, name: &str) {
    let containers = (0..10).map(|c| container(format!("c{c}"), 2000, 256 * MIB, true)).collect();
    measure(bencher, host(engine(name), 8), &pod("p".into(), containers));
}

const NODES: [u32; 7] = [9, 12, 16, 24, 32, 64, 128];

/// Two devices on two nodes, while CPUs and memory prefer one: refused.
fn with_devices(count: u64) -> PodRequest {
    let mut request = container("c".into(), 8000, 4096 * MIB, true);
    request.devices.insert("vendor.com/gpu".into(), count);
    pod("p".into(), vec![request])
}

#[divan::bench(args = NODES)]
fn aligned_on_many_nodes(bencher: Bencher<'_, '_>, nodes: u32) {
    measure(bencher, host(PlacementEngine::Hints, nodes), &with_devices(1));
}

#[divan::bench(args = NODES)]
fn refused_on_many_nodes(bencher: Bencher<'_, '_>, nodes: u32) {
    measure(bencher, host(PlacementEngine::Hints, nodes), &with_devices(2));
}

#[divan::bench(args = NODES)]
fn shared_on_many_nodes(bencher: Bencher<'_, '_>, nodes: u32) {
    let request = container("c".into(), 500, 256 * MIB, false);
    measure(bencher, host(PlacementEngine::Hints, nodes), &pod("p".into(), vec![request]));
}
