//! Time of the engine `pools` for one pod on a full host: `cargo bench -p numa-placement --bench pools`.
//!
//! Eight nodes with 512 CPUs or 128 nodes with 8,192, and 1,000 running containers: some with exclusive CPUs,
//! most of them sharing. A pod with one container arrives and requests exclusive or shared CPUs. Another
//! bench fills a machine with Burstable pods without a memory limit and also counts the updates for other
//! pods. As a test (`--test`), a twentieth of the containers runs.

use std::collections::BTreeMap;

use divan::Bencher;
use numa_placement::{
    Allocations, ContainerRequest, Inventory, PodName, PodRequest, Resources, admit, qos_class,
    settings::{CpuAmount, PlacementEngine, PlacementSettings},
};
use numa_topology::synth::Machine;

fn main() {
    divan::main();
}

const CONTAINERS: usize = 1000;

/// `count`, or a twentieth of it as a test.
#[expect(clippy::disallowed_methods, reason = "the bench program is told by an argument that it is a test")]
fn scaled(count: usize) -> usize {
    if std::env::args().any(|argument| argument == "--test") { count / 20 } else { count }
}

fn settings() -> PlacementSettings {
    let mut settings = PlacementSettings::default();
    settings.engine = PlacementEngine::Pools;
    settings.reserved.cpus = Some(CpuAmount::Milli(2000));
    settings
}

fn inventory(settings: &PlacementSettings, nodes: u32) -> Inventory {
    let machine = Machine::new()
        .sockets(nodes / 2)
        .nodes_per_socket(2)
        .llcs(4)
        .cores(32)
        .threads(2)
        .memory_gib(256)
        .build();
    match Inventory::new(machine, Vec::new(), settings) {
        Ok(inventory) => inventory,
        Err(error) => panic!("{error}"),
    }
}

fn pod(name: &str, milli: u64, guaranteed: bool) -> PodRequest {
    let amounts = |milli| Resources {
        milli_cpus: Some(milli),
        memory_bytes: Some(1 << 29),
        hugepages: BTreeMap::new(),
    };
    let containers = vec![ContainerRequest {
        name: "main".to_owned(),
        requests: amounts(milli),
        limits: amounts(if guaranteed { milli } else { 2 * milli }),
        ..ContainerRequest::default()
    }];
    PodRequest {
        name: PodName::new("default", name),
        qos: qos_class(&containers),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        documents: BTreeMap::new(),
        containers,
        previous: BTreeMap::new(),
        undescribed: None,
    }
}

/// A host on which 1,000 containers run.
fn full(inventory: &Inventory, settings: &PlacementSettings) -> Allocations {
    let mut allocations = Allocations::default();
    for number in 0..scaled(CONTAINERS) {
        let pod = match number % 10 {
            0 => pod(&format!("pod-{number}"), 2000, true),
            _ => pod(&format!("pod-{number}"), 200, false),
        };
        if let Err(rejection) = admit(inventory, settings, &mut allocations, &pod) {
            panic!("{rejection}");
        }
    }
    allocations
}

#[divan::bench(args = [(8, 8000, true), (8, 500, false), (128, 8000, true), (128, 500, false)])]
fn whole_pod(bencher: Bencher<'_, '_>, (nodes, milli, guaranteed): (u32, u64, bool)) {
    let settings = settings();
    let inventory = inventory(&settings, nodes);
    let running = full(&inventory, &settings);
    let pod = pod("new", milli, guaranteed);
    bencher
        .with_inputs(|| running.clone())
        .bench_local_refs(|allocations| admit(&inventory, &settings, allocations, &pod));
}

/// The same where nothing else runs.
#[divan::bench(args = [8, 128])]
fn exclusive_alone(bencher: Bencher<'_, '_>, nodes: u32) {
    let settings = settings();
    let inventory = inventory(&settings, nodes);
    let pod = pod("new", 8000, true);
    bencher
        .with_inputs(Allocations::default)
        .bench_local_refs(|allocations| admit(&inventory, &settings, allocations, &pod));
}

/// All pods of a machine, each with a request and no limit.
#[divan::bench(args = [500, 2000], sample_count = 10)]
fn burstable_pods_without_limit(bencher: Bencher<'_, '_>, count: usize) {
    let settings = settings();
    let inventory = inventory(&settings, 8);
    let pods: Vec<PodRequest> = (0..scaled(count))
        .map(|number| {
            let mut pod = pod(&format!("pod-{number}"), 100, false);
            pod.containers.iter_mut().for_each(|container| container.limits = Resources::default());
            pod
        })
        .collect();
    bencher.bench_local(|| {
        let mut allocations = Allocations::default();
        let admitted = pods.iter().filter_map(|pod| admit(&inventory, &settings, &mut allocations, pod).ok());
        admitted.map(|admission| admission.updates.len()).sum::<usize>()
    });
}
