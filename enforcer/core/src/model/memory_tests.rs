//! Memory where no CPU is, memory in huge pages, a machine of one node, and a kernel that does not balance.

use super::{tests::two_nodes, *};
use crate::scene::Scene;
use numa_topology::{MemoryKind, Topology, synth::Machine};

fn figures(scene: &Scene) -> WorkloadModel {
    scene.model().workloads.remove(&CgroupPath::new("/a")).unwrap()
}

fn traffic(scene: &Scene) -> (f64, TrafficSource) {
    let traffic = figures(scene).traffic.unwrap();
    (traffic.remote_ratio, traffic.source)
}

/// Two nodes of CPUs with a memory-only node beside each, numbered in either way.
fn two_with_cxl(near_0: u32, near_1: u32) -> Topology {
    let mut nodes = [(near_0, NodeId(0)), (near_1, NodeId(1))];
    nodes.sort_unstable();
    let machine = Machine::new().sockets(2).threads(1);
    nodes
        .into_iter()
        .fold(machine, |machine, (id, beside)| machine.memory_only(NodeId(id), 64, MemoryKind::Cxl, beside))
        .build()
}

#[test]
fn memory_without_cpus_is_local_to_the_nearest_node_and_remote_to_all_others() {
    for machine in [two_with_cxl(2, 3), two_with_cxl(3, 2)] {
        let near = machine.nodes.iter().find(|node| node.id == NodeId(2)).unwrap().closest_cpu_node.unwrap();
        let (local, remote) = if near == NodeId(0) { ("0-3", "4-7") } else { ("4-7", "0-3") };
        for (cpus, share) in [(local, 0.0), (remote, 1.0), ("0-7", 0.0)] {
            let scene = Scene::new(machine.clone()).workload("/a", cpus, "0-3").memory("/a", &[(2, 100, 0)]);
            let figures = figures(&scene);
            assert_eq!(figures.remote_residency, Some(share), "{cpus} of {near}");
            assert!(figures.cpu_nodes.iter().all(|node| node.0 < 2), "no CPU of it: {}", figures.cpu_nodes);
        }
    }
}

#[test]
fn hinting_faults_are_not_asked_about_memory_without_cpus() {
    let scene = |memory: &[(u32, u64, u64)]| {
        Scene::new(two_nodes())
            .workload("/a", "4-7", "0-2")
            .memory("/a", memory)
            .ran("/a", &[(1, 1000)])
            // What the kernel says of a task on node 1 that works on node 2, which is nearest to it.
            .faults("/a", &[(1, 100, 900)])
    };
    let cxl = scene(&[(1, 10, 0), (2, 90, 0)]);
    assert_eq!(traffic(&cxl), (0.0, TrafficSource::Placement));
    let silent = figures(&cxl).traffic.unwrap().silent;
    assert!(silent[1].reason.contains("90 % of its memory is on nodes without CPUs"), "{silent:?}");
    // Controls: memory only on nodes with CPUs, little memory on others, and unknown memory.
    for memory in [&[(0, 90, 0), (1, 10, 0)][..], &[(0, 80, 0), (1, 16, 0), (2, 4, 0)]] {
        assert_eq!(traffic(&scene(memory)), (0.9, TrafficSource::HintFaults), "{memory:?}");
    }
    let mut unknown = scene(&[]);
    unknown.now_mut("/a").memory_by_node = None;
    assert_eq!(traffic(&unknown), (0.9, TrafficSource::HintFaults));
}

#[test]
fn a_machine_of_one_node_has_nothing_remote() {
    let machine = Machine::new().sockets(1).threads(1).build();
    let scene =
        Scene::new(machine).workload("/a", "0-3", "0").memory("/a", &[(0, 100, 50)]).ran("/a", &[(0, 1000)]);
    let figures = figures(&scene);
    assert_eq!(figures.remote_residency, Some(0.0));
    assert_eq!(figures.traffic.map(|traffic| traffic.remote_ratio), Some(0.0));
    assert_eq!(figures.run_share, Some([(NodeId(0), 1.0)].into()));
    assert!(scene.findings().is_empty(), "{:?}", scene.findings());
}

#[test]
fn a_kernel_that_does_not_balance_leaves_the_estimate() {
    for (mode, source) in [
        (Some(0), TrafficSource::Placement),
        (Some(2), TrafficSource::Placement),
        (Some(1), TrafficSource::HintFaults),
        (Some(3), TrafficSource::HintFaults),
        (None, TrafficSource::HintFaults),
    ] {
        let mut scene = Scene::new(two_nodes())
            .workload("/a", "0-7", "0-1")
            .memory("/a", &[(0, 100, 0)])
            .ran("/a", &[(1, 1000)])
            .faults("/a", &[(1, 600, 200)]);
        scene.now.settings.numa_balancing = mode;
        let expected = if source == TrafficSource::HintFaults { 0.25 } else { 1.0 };
        assert_eq!(traffic(&scene), (expected, source), "{mode:?}");
    }
}
