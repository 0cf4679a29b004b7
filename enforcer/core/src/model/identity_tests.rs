//! Assignment of counters: threads that fork, exit and change cgroups, and recreated cgroups.

use proptest::prelude::*;

use super::{tests::two_nodes, *};
use crate::{
    sample::{HardwareAccesses, HintFaults, Placements, RunTime},
    scene::{SECOND, Scene},
};
use numa_topology::id::CpuId;

const A: &str = "/a";

fn figures_of(scene: &Scene, path: &str) -> WorkloadModel {
    scene.model().workloads.remove(&CgroupPath::new(path)).unwrap()
}

/// Every counter of a workload, advanced by the same factor from nothing.
fn counted(cgroup: &mut CgroupSample, factor: u64) {
    let time = RunTime { ns: factor * SECOND, misplaced_ns: factor * SECOND, samples: factor * 100 };
    cgroup.run_time = Some([(NodeId(1), time)].into());
    let moves = Placements {
        src_numa: NodeId(0),
        dst_numa: NodeId(1),
        migrated: factor * 10,
        started: 0,
        misplaced: 0,
    };
    cgroup.placements = Some(vec![moves]);
    let faults = HintFaults { remote: factor * 200, ..HintFaults::default() };
    cgroup.hint_faults = Some([(NodeId(1), faults)].into());
    let accesses = HardwareAccesses { local: 0, remote: factor * 10_000, samples: factor * 100 };
    cgroup.hardware = Some([(NodeId(1), accesses)].into());
}

/// One workload with counters of `before` under one id and of `now` under the other.
fn with_ids(before: (Option<u64>, u64), now: (Option<u64>, u64)) -> WorkloadModel {
    let mut scene = Scene::new(two_nodes()).workload(A, "0-7", "0-1").memory(A, &[(0, 100, 0)]);
    for (sample, (id, factor)) in [(&mut scene.before, before), (&mut scene.now, now)] {
        let cgroup = sample.cgroups.get_mut(&CgroupPath::new(A)).unwrap();
        cgroup.id = id;
        counted(cgroup, factor);
    }
    figures_of(&scene, A)
}

#[test]
fn a_cgroup_that_was_made_again_at_the_same_path_has_no_rates_yet() {
    for (before, now, same) in [
        ((Some(7), 1), (Some(7), 3), true),
        // Its counters are above those of the old one, so nothing went back.
        ((Some(7), 1), (Some(8), 3), false),
        ((Some(7), 1), (Some(8), 1), false),
        ((Some(7), 3), (Some(8), 1), false),
        // Only one hierarchy tells ids.
        ((None, 1), (None, 3), true),
        ((None, 1), (Some(8), 3), true),
    ] {
        let figures = with_ids(before, now);
        let known = [
            figures.cpus_used.is_some(),
            figures.run_share.is_some(),
            figures.misplaced_time.is_some(),
            figures.migrations_per_second.is_some(),
            figures.traffic.is_some(),
        ];
        assert_eq!(known, [same; 5], "{before:?} {now:?}");
        assert!(figures.remote_residency.is_some(), "where its memory is now, is known");
    }
}

#[test]
fn two_cgroups_that_exchange_their_paths_take_nothing_from_each_other() {
    let mut scene = Scene::new(two_nodes()).workload(A, "0-7", "0").workload("/b", "0-7", "0");
    for (sample, ids) in [(&mut scene.before, [7, 8]), (&mut scene.now, [8, 7])] {
        for (path, id) in ["/a", "/b"].into_iter().zip(ids) {
            let cgroup = sample.cgroups.get_mut(&CgroupPath::new(path)).unwrap();
            cgroup.id = Some(id);
            counted(cgroup, id);
        }
    }
    for path in [A, "/b"] {
        assert_eq!(figures_of(&scene, path).cpus_used, None, "{path}");
    }
}

#[test]
fn counters_that_start_again_are_noticed_by_any_of_their_fields() {
    for (then, now) in [
        // Local accesses are a difference and may go back by themselves; the others may not.
        (
            HardwareAccesses { local: 900, remote: 0, samples: 400 },
            HardwareAccesses { local: 1, remote: 50, samples: 300 },
        ),
        (
            HardwareAccesses { local: 0, remote: 60, samples: 100 },
            HardwareAccesses { local: 1, remote: 50, samples: 300 },
        ),
    ] {
        let mut scene =
            Scene::new(two_nodes()).workload(A, "0-7", "0-1").memory(A, &[(0, 100, 0)]).ran(A, &[(1, 1)]);
        for (sample, accesses) in [(&mut scene.before, then), (&mut scene.now, now)] {
            sample.cgroups.get_mut(&CgroupPath::new(A)).unwrap().hardware =
                Some([(NodeId(0), accesses)].into());
        }
        let traffic = figures_of(&scene, A).traffic.unwrap();
        assert_eq!(traffic.source, TrafficSource::Placement);
        assert!(traffic.silent[0].reason.contains("reset"), "{:?}", traffic.silent);
    }
}

/// Without programs: threads alone.
fn by_threads() -> Scene {
    let mut scene = Scene::new(two_nodes()).workload(A, "0-7", "0").workload("/b", "0-7", "0");
    for path in [A, "/b"] {
        scene.now_mut(path).run_time = None;
    }
    // There was an earlier thread, or else no figure could be known at all.
    scene.thread("/b", 900, "0-7", 0, (1_000, 1_000))
}

fn used(scene: &Scene, path: &str) -> f64 {
    figures_of(scene, path).cpus_used.unwrap_or(0.0)
}

#[test]
fn threads_that_come_and_go_count_for_what_they_ran() {
    const INTERVAL_MS: u64 = 10_000;
    for (what, before, now, expected) in [
        ("it ran on", Some(5_000), Some(7_000), 0.2),
        ("it slept", Some(5_000), Some(5_000), 0.0),
        ("it was forked", None, Some(3_000), 0.3),
        ("it ended", Some(5_000), None, 0.0),
        ("its id is another one's now", Some(5_000), Some(1_000), 0.1),
        ("it came from a cgroup that is no workload", None, Some(900_000), 0.0),
        ("it came from there, barely older than the interval", None, Some(INTERVAL_MS + 1), 0.0),
        ("it was forked at once and never slept", None, Some(INTERVAL_MS), 1.0),
        ("its id is that of one which came from elsewhere", Some(950_000), Some(900_000), 0.0),
        ("the tick of its time is late", Some(5_000), Some(5_000 + INTERVAL_MS + 10), 1.0),
    ] {
        let mut scene = by_threads().thread(A, 10, "0-7", 4, (before.unwrap_or(0), now.unwrap_or(0)));
        if before.is_none() {
            scene.before.tasks.retain(|task| task.tid != 10);
        }
        if now.is_none() {
            scene.now.tasks.retain(|task| task.tid != 10);
        }
        let used = used(&scene, A);
        assert!((used - expected).abs() < 1e-9, "{what}: {used} is not {expected}");
    }
}

#[test]
fn a_thread_that_changes_workloads_counts_once() {
    let mut scene = by_threads().thread(A, 10, "0-7", 4, (2_000, 5_000));
    scene.now.tasks.iter_mut().find(|task| task.tid == 10).unwrap().cgroup = Some(CgroupPath::new("/b"));
    assert!(used(&scene, A).abs() < 1e-9, "{}", used(&scene, A));
    assert!((used(&scene, "/b") - 0.3).abs() < 1e-9, "{}", used(&scene, "/b"));
}

/// A thread before and now: its id, its cgroup, and its CPU time in nanoseconds.
type TrafficInput = (u32, Option<bool>, u64);

proptest! {
    /// In any order of forks, exits, changes of cgroups and reuse of ids, and with any clock, run time is
    /// attributed once, is not below 0, and was run in the interval.
    #[test]
    fn time_is_attributed_at_most_once(
        before in prop::collection::vec((0u32..6, any::<Option<bool>>(), 0..40 * SECOND), 0..8),
        now in prop::collection::vec((0u32..6, any::<Option<bool>>(), 0..40 * SECOND), 0..8),
        clock in (0..40 * SECOND, 0..40 * SECOND),
    ) {
        let mut scene = by_threads();
        let only = |seen: Vec<TrafficInput>| -> BTreeMap<u32, (Option<bool>, u64)> {
            seen.into_iter().map(|(tid, cgroup, ns)| (tid, (cgroup, ns))).collect()
        };
        let (before, now) = (only(before), only(now));
        let tasks = |seen: &BTreeMap<u32, (Option<bool>, u64)>| -> Vec<TaskSample> {
            let task = |(tid, (cgroup, ns)): (&u32, &(Option<bool>, u64))| TaskSample {
                tid: *tid,
                pid: 1,
                command: String::new(),
                cgroup: cgroup.map(|first| CgroupPath::new(if first { A } else { "/b" })),
                cpu: Some(CpuId(*tid)),
                cpus_allowed: None,
                cpu_time_ns: Some(*ns),
                preferred_node: None,
                faults_by_node: None,
            };
            seen.iter().map(task).collect()
        };
        scene.before.tasks.extend(tasks(&before));
        scene.now.tasks.extend(tasks(&now));
        (scene.before.monotonic_ns, scene.now.monotonic_ns) = clock;
        let model = scene.model();
        let Some(interval) = model.interval_ns else {
            prop_assert!(clock.1 <= clock.0);
            prop_assert!(model.workloads.values().all(|figures| figures.cpus_used.is_none()));
            return Ok(());
        };
        let most: u64 = now
            .iter()
            .map(|(tid, (_, ns))| before.get(tid).map_or(*ns, |(_, then)| if then <= ns { ns - then } else { *ns }).min(interval))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "compared with room to spare")]
        let (most, interval) = (most as f64, interval as f64);
        let all: f64 = model.workloads.values().filter_map(|figures| figures.cpus_used).sum();
        prop_assert!(all >= 0.0 && all * interval <= most * (1.0 + 1e-9) + 1.0, "{all} of {most}");
    }
}
