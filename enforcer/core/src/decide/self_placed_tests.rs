//! Workloads that stay because of their processes, beside others that are placed.

use proptest::prelude::*;

use super::*;
use crate::{
    scene::Scene,
    turn::{History, SelfPlaced},
};
use numa_placement::Allocations;
use numa_topology::synth::Machine;

/// CPUs 0-1 on node 0 and 2-3 on node 1. `/a` is on node 0 with its memory on node 1, `/b` anywhere.
fn scene(a: &str) -> Scene {
    Scene::new(Machine::new().sockets(2).cores(2).threads(1).build())
        .workload("/a", a, "0-1")
        .memory("/a", &[(1, 4096, 0)])
        .workload("/b", "0-3", "0-1")
        .memory("/b", &[(0, 4096, 0)])
        .declared("/a", 2, None)
        .declared("/b", 2, None)
}

fn stays(mut scene: Scene, cgroup: &str, pinned: &str) -> Scene {
    let one = SelfPlaced {
        reason: "process 7 is bound".into(),
        pinned: pinned.parse().unwrap(),
        keeps_place: false,
    };
    scene.self_placed.insert(CgroupPath::new(cgroup), one);
    scene
}

fn cpus_set(decision: &Decision) -> Vec<String> {
    let steps = decision.plan.steps.iter().filter_map(|step| match &step.action {
        Action::SetCpus { cgroup, cpus } => Some(format!("{cgroup} {cpus}")),
        _ => None,
    });
    steps.collect()
}

#[test]
fn a_workload_that_is_left_alone_has_the_cpus_that_it_has_and_no_promise_elsewhere() {
    assert_eq!(cpus_set(&scene("0-1").decide()), ["/a 2-3", "/b 0-1"], "without a process of that kind");
    for (has, pinned) in [("0-1", "0"), ("0-1", ""), ("0-3", "0-1")] {
        let scene = stays(scene(has), "/a", pinned);
        let (a, mut allocations) = (CgroupPath::new("/a"), Allocations::default());
        // A turn before had promised them to each other.
        let mut before = scene.clone();
        before.self_placed.clear();
        before.decide_with(&History::default(), &mut allocations);
        let decision = scene.decide_with(&History::default(), &mut allocations);
        assert_eq!(cpus_set(&decision), ["/b 2-3"], "{has} {pinned}");
        assert!(!decision.aims.contains_key(&a) && !decision.targets.contains_key(&a));
        let refused: Vec<_> = decision.refused.iter().map(|one| (one.workload.as_str(), one.cause)).collect();
        assert_eq!(refused, [("/a", RefusalCause::SelfPlacement)]);
        assert_eq!(allocations.get(&Holder::cgroup(&a)), None);
        assert_eq!(allocations.exclusive_cpus().to_string(), "0-3");
        // Once it may be placed again nothing is held for it.
        before.decide_with(&History::default(), &mut allocations);
        assert_eq!(allocations.get(&Holder::self_placed(&a)), None);
    }
}

#[test]
fn threads_that_may_run_on_more_than_their_workload_asks_for_hold_nothing() {
    let mut allocations = Allocations::default();
    stays(scene("0-3"), "/a", "0-2").decide_with(&History::default(), &mut allocations);
    assert_eq!(allocations.exclusive_cpus().len(), 2, "those of /b");
}

#[test]
fn pages_that_a_policy_keeps_stay_and_so_does_the_place() {
    let mut scene = Scene::new(Machine::new().sockets(2).threads(1).build())
        .workload("/a", "6-7", "1")
        .memory("/a", &[(0, 100, 0), (1, 300, 0)])
        .declared("/a", 2, Some("1G"));
    assert_eq!(scene.decide().plan.steps.len(), 1, "its pages follow it");
    let one = SelfPlaced { reason: "bound".into(), keeps_place: true, ..SelfPlaced::default() };
    scene.self_placed.insert(CgroupPath::new("/a"), one);
    let mut allocations = Allocations::default();
    let decision = scene.decide_with(&History::default(), &mut allocations);
    assert_eq!(decision.plan.steps, []);
    assert_eq!(decision.refused[0].cause, RefusalCause::SelfPlacement);
    assert!(decision.targets.contains_key(&CgroupPath::new("/a")));
    assert_eq!(allocations.exclusive_cpus().to_string(), "6-7");
}

proptest! {
    #[test]
    fn no_workload_gets_a_cpu_of_one_that_stays(
        at in prop::collection::vec((0u32..4, 0u32..2), 2..5),
        stay in 0usize..5,
    ) {
        let mut scene = Scene::new(Machine::new().sockets(2).threads(1).build());
        for (index, (pair, memory)) in at.iter().enumerate() {
            let path = format!("/w{index}");
            let cpus = format!("{}-{}", 2 * pair, 2 * pair + 1);
            scene = scene.workload(&path, &cpus, "0-1").memory(&path, &[(*memory, 300, 0)]);
            scene = scene.declared(&path, 2, None);
        }
        let stay = stay % at.len();
        let mut allocations = Allocations::default();
        scene.decide_with(&History::default(), &mut allocations);
        let scene = stays(scene, &format!("/w{stay}"), "");
        let decision = scene.decide_with(&History::default(), &mut allocations);
        let own: CpuSet = format!("{}-{}", 2 * at[stay].0, 2 * at[stay].0 + 1).parse().unwrap();
        for (cgroup, target) in &decision.targets {
            prop_assert!(target.cpuset.cpus.as_ref().unwrap().is_disjoint(&own), "{cgroup}: {target:?}");
        }
        let steps = decision.plan.steps.iter().map(|step| step.action.cgroup().to_string());
        let left = format!("/w{stay}");
        prop_assert!(steps.into_iter().all(|cgroup| cgroup != left));
        let given: usize = allocations.iter().map(|(_, grant)| grant.exclusive.len()).sum();
        prop_assert_eq!(given, allocations.exclusive_cpus().len(), "nothing is given twice");
    }
}
