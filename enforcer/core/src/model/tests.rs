use proptest::prelude::*;

use super::*;
use crate::{
    sample::{HardwareAccesses, HintFaults, Placements, RunTime, ScanSkips},
    scene::{SECOND, Scene},
};
use numa_topology::{MemoryKind, degraded::Degraded, synth::Machine};

/// Two nodes, CPUs 0-3 and 4-7, and a CXL node 2 beside node 1.
pub(super) fn two_nodes() -> Topology {
    Machine::new().sockets(2).threads(1).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build()
}

fn scene(cpus: &str, mems: &str) -> Scene {
    Scene::new(two_nodes()).workload("/a", cpus, mems)
}

fn figures(scene: &Scene) -> WorkloadModel {
    scene.model().workloads.remove(&CgroupPath::new("/a")).unwrap()
}

fn close(left: Option<f64>, right: f64) {
    let left = left.unwrap_or(f64::NAN);
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn residency_is_judged_by_the_nodes_of_the_cpus() {
    for (cpus, memory, remote) in [
        ("0-3", vec![(0, 100, 0)], 0.0),
        ("0-3", vec![(1, 100, 0)], 1.0),
        ("0-3", vec![(0, 25, 50), (1, 25, 0)], 0.25),
        ("0-7", vec![(0, 50, 0), (1, 50, 0)], 0.0),
        // The memory-only node is local to node 1 and to no other.
        ("4-7", vec![(1, 10, 0), (2, 90, 0)], 0.0),
        ("0-3", vec![(0, 10, 0), (2, 90, 0)], 0.9),
    ] {
        close(figures(&scene(cpus, "0-2").memory("/a", &memory)).remote_residency, remote);
    }
}

#[test]
fn no_memory_is_not_no_remote_memory() {
    assert_eq!(figures(&scene("0-3", "0")).remote_residency, None);
    let empty = scene("0-3", "0").memory("/a", &[(0, 0, 0)]).ran("/a", &[(0, 1000)]);
    assert_eq!(figures(&empty).remote_residency, None);
    assert_eq!(figures(&empty).traffic, None);
}

#[test]
fn traffic_is_run_time_times_residency() {
    for (memory, ran, remote) in [
        (vec![(0, 100, 0)], vec![(1, 1000)], 1.0),
        (vec![(0, 100, 0)], vec![(0, 1000)], 0.0),
        (vec![(0, 50, 0), (1, 50, 0)], vec![(0, 500), (1, 500)], 0.5),
        (vec![(0, 90, 0), (1, 10, 0)], vec![(0, 750), (1, 250)], 0.75 * 0.1 + 0.25 * 0.9),
        (vec![(1, 50, 0), (2, 50, 0)], vec![(1, 1000)], 0.0),
        (vec![(1, 50, 0), (2, 50, 0)], vec![(0, 1000)], 1.0),
    ] {
        let traffic = figures(&scene("0-7", "0-2").memory("/a", &memory).ran("/a", &ran)).traffic.unwrap();
        close(Some(traffic.remote_ratio), remote);
        assert_eq!((traffic.source, traffic.samples), (TrafficSource::Placement, 100));
    }
}

#[test]
fn what_did_not_run_has_no_traffic() {
    let idle = figures(&scene("0-7", "0-1").memory("/a", &[(0, 100, 0)]));
    assert_eq!(idle.traffic, None);
    assert_eq!(idle.run_share, None);
    close(idle.cpus_used, 0.0);
}

#[test]
fn one_sample_gives_no_rates() {
    let scene = scene("4-7", "0").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 1000)]);
    let model = Model::new(&scene.machine, &scene.workloads, &scene.now, None);
    let figures = &model.workloads[&CgroupPath::new("/a")];
    assert_eq!(model.interval_ns, None);
    close(figures.remote_residency, 1.0);
    assert_eq!((&figures.traffic, &figures.run_share, figures.cpus_used), (&None, &None, None));
}

#[test]
fn a_clock_that_did_not_advance_gives_no_rates() {
    for (before, now) in [(110, 110), (111, 110)] {
        let mut scene = scene("4-7", "0").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 1000)]);
        scene.before.monotonic_ns = before * SECOND;
        scene.now.monotonic_ns = now * SECOND;
        assert_eq!(scene.model().interval_ns, None);
        assert_eq!(figures(&scene).traffic, None);
    }
}

/// Nanoseconds by node, as a program counts them.
fn ran(by_node: impl IntoIterator<Item = (NodeId, u64)>) -> BTreeMap<NodeId, RunTime> {
    by_node.into_iter().map(|(node, ns)| (node, RunTime { ns, misplaced_ns: ns / 4, samples: 1 })).collect()
}

#[test]
fn time_where_it_should_not_be_is_a_share_of_its_run_time() {
    let mut scene = scene("4-7", "0");
    assert_eq!(figures(&scene).misplaced_time, None);
    let before = scene.before.cgroups.get_mut(&CgroupPath::new("/a")).unwrap();
    before.run_time = Some(ran([(NodeId(0), 4 * SECOND)]));
    scene.now_mut("/a").run_time = Some(ran([(NodeId(0), 4 * SECOND), (NodeId(1), 8 * SECOND)]));
    close(figures(&scene).misplaced_time, 0.25);
}

#[test]
fn counters_that_went_back_give_no_rate() {
    let base = scene("4-7", "0").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 1000)]);
    for then in [vec![(NodeId(1), 2 * SECOND)], vec![(NodeId(0), 1)]] {
        let mut scene = base.clone();
        let before = scene.before.cgroups.get_mut(&CgroupPath::new("/a")).unwrap();
        before.run_time = Some(ran(then));
        assert_eq!(figures(&scene).run_share, None);
        assert_eq!(figures(&scene).traffic, None);
        assert_eq!(figures(&scene).cpus_used, None);
    }
}

#[test]
fn a_cgroup_that_is_new_has_no_rates() {
    let mut scene = scene("4-7", "0").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 1000)]);
    scene.before.cgroups.remove(&CgroupPath::new("/a"));
    assert_eq!(figures(&scene).traffic, None);
}

#[test]
fn threads_tell_where_it_ran_when_the_clock_program_does_not() {
    let mut scene = scene("0-7", "0")
        .memory("/a", &[(0, 100, 0)])
        .thread("/a", 10, "0-7", 1, (1000, 1500))
        .thread("/a", 11, "0-7", 5, (0, 1500));
    for counters in [Some(BTreeMap::new()), None] {
        scene.now_mut("/a").run_time = counters;
        let figures = figures(&scene);
        close(figures.run_share.as_ref().unwrap().get(&NodeId(1)).copied(), 0.75);
        close(figures.cpus_used, 0.2);
        let traffic = figures.traffic.unwrap();
        close(Some(traffic.remote_ratio), 0.75);
        assert_eq!((traffic.source, traffic.samples), (TrafficSource::Placement, 200));
    }
}

#[test]
fn a_thread_that_is_new_or_reuses_an_id_counts_from_zero() {
    let mut scene = scene("0-7", "0")
        .thread("/a", 10, "0-7", 0, (9000, 400))
        .thread("/a", 11, "0-7", 4, (0, 600))
        .thread("/a", 12, "0-7", 4, (0, 999_000));
    scene.before.tasks.remove(1);
    scene.now_mut("/a").run_time = None;
    // No thread can have run for longer than the ten seconds between the samples.
    close(figures(&scene).cpus_used, 0.04 + 0.06 + 1.0);
}

#[test]
fn hinting_faults_replace_the_estimate_where_they_are_alive() {
    let scene = scene("0-7", "0-1").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 1000)]);
    let with = |pages: &[(u32, u64, u64)], numa_balancing| {
        let mut scene = scene.clone().faults("/a", pages);
        scene.now.settings.numa_balancing = numa_balancing;
        figures(&scene).traffic.unwrap()
    };
    let alive = with(&[(0, 100, 0), (1, 200, 100)], Some(1));
    close(Some(alive.remote_ratio), 0.25);
    assert_eq!((alive.source, alive.samples), (TrafficSource::HintFaults, 400));
    assert_eq!(with(&[(0, 100, 0)], None).source, TrafficSource::HintFaults);

    // Silence, few faults, or balancing that is off: not a word about locality.
    for (pages, mode) in [
        (vec![], Some(1)),
        (vec![(1, 99, 0)], Some(1)),
        (vec![(1, 500, 0)], Some(0)),
        (vec![(1, 500, 0)], Some(2)),
    ] {
        let blind = with(&pages, mode);
        assert_eq!(blind.source, TrafficSource::Placement, "{pages:?} {mode:?}");
        close(Some(blind.remote_ratio), 1.0);
    }
}

/// Sources that are silent, in order, with their reasons.
fn silent(traffic: &Traffic) -> Vec<(TrafficSource, &str)> {
    traffic.silent.iter().map(|silent| (silent.source, silent.reason.as_str())).collect()
}

#[test]
fn hardware_counters_are_trusted_more_than_hinting_faults() {
    let scene = scene("0-7", "0-1")
        .memory("/a", &[(0, 100, 0)])
        .ran("/a", &[(1, 1000)])
        .faults("/a", &[(1, 300, 100)])
        .accesses("/a", &[(0, 5_000, 1_000, 60), (1, 3_000, 1_000, 40)]);
    let traffic = figures(&scene).traffic.unwrap();
    close(Some(traffic.remote_ratio), 0.2);
    assert_eq!((traffic.source, traffic.samples), (TrafficSource::Hardware, 100));
    assert_eq!(silent(&traffic), []);

    let few = figures(&scene.clone().accesses("/a", &[(1, 99, 0, 99)])).traffic.unwrap();
    assert_eq!((few.source, few.samples), (TrafficSource::HintFaults, 400));
    assert_eq!(silent(&few), [(TrafficSource::Hardware, "99 samples, 100 are needed")]);

    let none = figures(&scene.accesses("/a", &[]).faults("/a", &[(1, 1, 1)])).traffic.unwrap();
    assert_eq!(none.source, TrafficSource::Placement);
    assert_eq!(
        silent(&none),
        [
            (TrafficSource::Hardware, "0 samples, 100 are needed"),
            (TrafficSource::HintFaults, "2 pages, 100 are needed")
        ]
    );
}

#[test]
fn a_figure_says_why_a_better_source_is_silent() {
    let mut scene = scene("0-7", "0-1").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 1000)]);
    let reasons = |scene: &Scene| {
        let traffic = figures(scene).traffic.unwrap();
        let order: Vec<_> = traffic.silent.iter().map(|silent| silent.source).collect();
        assert_eq!(order, [TrafficSource::Hardware, TrafficSource::HintFaults]);
        [0, 1].map(|at| traffic.silent[at].reason.clone())
    };
    assert_eq!(reasons(&scene), ["not counted in both samples"; 2]);
    scene.now.degraded.push(Degraded::new("bpf", "EPERM", ""));
    assert_eq!(reasons(&scene), ["EPERM"; 2]);
    scene.now.degraded.push(Degraded::new("bpf:hardware", "no PMU", ""));
    scene.now.degraded.push(Degraded::new("bpf:hint-faults", "no trampolines", ""));
    assert_eq!(reasons(&scene), ["no PMU", "no trampolines"]);
    scene.now.settings.numa_balancing = Some(0);
    assert!(reasons(&scene)[1].contains("/proc/sys/kernel/numa_balancing is 0"));
}

#[test]
fn faults_are_silent_because_of_a_cpuset_only_where_the_kernel_was_seen_to_skip_it() {
    let mut scene = scene("0-7", "0").memory("/a", &[(0, 100, 0)]).ran("/a", &[(1, 1000)]).faults("/a", &[]);
    let mut reason = |before, now| {
        let skips = |one_node| Some(ScanSkips { one_node, ..ScanSkips::default() });
        scene.before.cgroups.get_mut(&CgroupPath::new("/a")).unwrap().scan_skips = skips(before);
        scene.now_mut("/a").scan_skips = skips(now);
        figures(&scene).traffic.unwrap().silent[1].reason.clone()
    };
    let plain = "0 pages, 100 are needed";
    assert_eq!([reason(None, None), reason(None, Some(9)), reason(Some(9), Some(9))], [plain; 3]);
    assert_eq!(reason(Some(9), Some(4)), plain, "counted anew");
    let seen = reason(Some(4), Some(9));
    assert!(seen.starts_with(plain) && seen.contains("cpuset.mems has one node (5 times"), "{seen}");
}

#[test]
fn hardware_counters_count_from_the_sample_before() {
    let base = scene("0-7", "0-1").accesses("/a", &[(0, 1_000, 900, 300)]);
    for (local, remote, expected) in [(900, 800, Some(0.5)), (1_100, 800, Some(1.0)), (1_000, 901, None)] {
        let mut scene = base.clone();
        let before = scene.before.cgroups.get_mut(&CgroupPath::new("/a")).unwrap();
        let accesses = HardwareAccesses { local, remote, samples: 100 };
        before.hardware = Some([(NodeId(0), accesses)].into());
        let traffic = figures(&scene).traffic;
        assert_eq!(
            traffic.map(|traffic| (traffic.remote_ratio, traffic.samples)),
            expected.map(|r| (r, 200))
        );
    }
}

#[test]
fn hinting_faults_count_from_the_sample_before() {
    let mut scene = scene("0-7", "0-1").faults("/a", &[(0, 1000, 300)]);
    let faults = HintFaults { local: 900, remote: 0, ..HintFaults::default() };
    let before = scene.before.cgroups.get_mut(&CgroupPath::new("/a")).unwrap();
    before.hint_faults = Some(BTreeMap::from([(NodeId(0), faults)]));
    let traffic = figures(&scene).traffic.unwrap();
    close(Some(traffic.remote_ratio), 0.75);
    assert_eq!(traffic.samples, 400);
}

#[test]
fn migrations_count_moves_between_different_nodes() {
    let mut scene = scene("0-7", "0-1");
    let moves = |src, dst, migrated| Placements {
        src_numa: NodeId(src),
        dst_numa: NodeId(dst),
        migrated,
        started: 0,
        misplaced: 0,
    };
    scene.now_mut("/a").placements = Some(vec![moves(0, 1, 40), moves(1, 0, 15), moves(1, 1, 900)]);
    assert_eq!(figures(&scene).migrations_per_second, None, "nothing to compare with");
    let before = scene.before.cgroups.get_mut(&CgroupPath::new("/a")).unwrap();
    before.placements = Some(vec![moves(0, 1, 5)]);
    close(figures(&scene).migrations_per_second, 5.0);
}

#[test]
fn a_cgroup_without_cpuset_files_has_those_of_the_cgroup_above() {
    let mut scene = scene("0-3", "0").workload("/a/b", "", "");
    let bare = CgroupSample::default();
    scene.now.cgroups.insert(CgroupPath::new("/a/b"), bare);
    let model = scene.model();
    let figures = &model.workloads[&CgroupPath::new("/a/b")];
    assert_eq!(figures.cpus.as_ref().unwrap().to_string(), "0-3");
    assert_eq!(figures.mems.as_ref().unwrap().to_string(), "0");
    assert_eq!(figures.cpu_nodes.to_string(), "0");
}

#[test]
fn affinity_of_all_threads_narrows_the_nodes() {
    let pinned = scene("0-7", "0-1").memory("/a", &[(0, 100, 0)]).thread("/a", 10, "4", 4, (0, 0)).thread(
        "/a",
        11,
        "5-6",
        5,
        (0, 0),
    );
    assert_eq!(figures(&pinned).cpus.unwrap().to_string(), "0-7");
    assert_eq!(figures(&pinned).cpu_nodes.to_string(), "1");
    close(figures(&pinned).remote_residency, 1.0);
    let one_free = pinned.thread("/a", 12, "0-7", 5, (0, 0));
    assert_eq!(figures(&one_free).cpu_nodes.to_string(), "0-1");
}

#[test]
fn a_process_in_the_root_cgroup_has_figures_of_its_own() {
    let mut scene =
        Scene::new(two_nodes()).thread("/", 77, "4-7", 5, (0, 2000)).thread("/", 78, "0", 0, (0, 10));
    for pid in [77, 78] {
        scene.workloads.push(Workload {
            cgroup: CgroupPath::root(),
            cgroup_id: None,
            name: format!("worker {pid}"),
            origin: Origin::Process { pid, command: "worker".into() },
        });
    }
    let bytes = NodeBytes { anon: 1 << 30, ..NodeBytes::default() };
    scene.now.memory_by_process = BTreeMap::from([(77, BTreeMap::from([(NodeId(0), bytes)]))]);
    let model = scene.model();
    let figures = model.of(&scene.workloads[0]).unwrap();
    close(figures.remote_residency, 1.0);
    close(figures.traffic.as_ref().map(|traffic| traffic.remote_ratio), 1.0);
    assert_eq!(figures.cpu_nodes.to_string(), "1");
    assert_eq!(figures.tasks, Some(1));
    close(figures.cpus_used, 0.2);
    assert_eq!(model.of(&scene.workloads[1]).unwrap().cpu_nodes.to_string(), "0");
}

proptest! {
    /// Whatever the counters are: shares sum to 1, ratios stay between 0 and 1, no rate is negative.
    #[test]
    fn figures_stay_in_their_bounds(
        bytes in prop::collection::btree_map((0u32..4).prop_map(NodeId), (any::<u64>(), any::<u64>()), 0..4),
        run in prop::collection::btree_map((0u32..4).prop_map(NodeId), any::<u64>(), 0..4),
        later in prop::collection::btree_map((0u32..4).prop_map(NodeId), any::<u64>(), 0..4),
        faults in prop::collection::vec((0u32..4, any::<u64>(), any::<u64>()), 0..4),
        accesses in prop::collection::vec((0u32..4, any::<u64>(), any::<u64>(), any::<u64>()), 0..4),
        times in (any::<u64>(), any::<u64>()),
    ) {
        let mut scene = scene("0-7", "0-2").faults("/a", &faults).accesses("/a", &accesses);
        scene.before.monotonic_ns = times.0;
        scene.now.monotonic_ns = times.1;
        scene.before.cgroups.get_mut(&CgroupPath::new("/a")).unwrap().run_time = Some(ran(run));
        let now = scene.now_mut("/a");
        now.run_time = Some(ran(later));
        let node_bytes = |(anon, file)| NodeBytes { anon, file, ..NodeBytes::default() };
        now.memory_by_node = Some(bytes.into_iter().map(|(node, pair)| (node, node_bytes(pair))).collect());
        let figures = figures(&scene);
        if let Some(share) = &figures.run_share {
            prop_assert!((share.values().sum::<f64>() - 1.0).abs() < 1e-6, "{share:?}");
        }
        let ratios = [figures.remote_residency, figures.traffic.map(|traffic| traffic.remote_ratio)];
        for ratio in ratios.into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&ratio), "{ratio}");
        }
        for rate in [figures.cpus_used, figures.migrations_per_second].into_iter().flatten() {
            prop_assert!(rate >= 0.0 && rate.is_finite(), "{rate}");
        }
    }
}
