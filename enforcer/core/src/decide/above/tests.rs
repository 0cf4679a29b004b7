//! Cgroups above that are too narrow, ours and others'.

use std::collections::BTreeSet;

use crate::{
    plan::Action,
    sample::CgroupSample,
    scene::Scene,
    turn::{Decision, RefusalCause},
    workload::CgroupPath,
};
use numa_topology::synth::Machine;

/// CPUs 0-3 on node 0 and 4-7 on node 1; each of these cgroups has these CPUs and all memory.
fn host(above: &[(&str, &str)]) -> Scene {
    let mut scene = Scene::new(Machine::new().sockets(2).threads(1).build());
    for (path, cpus) in above {
        let sample = CgroupSample {
            cpus_effective: Some(cpus.parse().unwrap()),
            mems_effective: Some("0-1".parse().unwrap()),
            ..CgroupSample::default()
        };
        scene.now.cgroups.insert(CgroupPath::new(path), sample);
    }
    scene
}

fn steps(decision: &Decision) -> Vec<String> {
    let step = |action: &Action| match action {
        Action::SetCpus { cgroup, cpus } => format!("{cgroup} cpus {cpus}"),
        Action::SetMems { cgroup, mems } => format!("{cgroup} mems {mems}"),
        Action::SetExclusive { cgroup, cpus } => format!("{cgroup} exclusive {cpus}"),
        Action::SetPartition { cgroup, kind } => format!("{cgroup} {kind}"),
        Action::MovePages { cgroup, from, to, .. } => format!("{cgroup} move {from}>{to}"),
    };
    decision.plan.steps.iter().map(|one| step(&one.action)).collect()
}

#[test]
fn foreign_cgroup_above_is_named_and_nothing_is_tried() {
    let scene = host(&[("/s", "0"), ("/s/t", "0")])
        .workload("/s/t/a", "0", "0")
        .memory("/s/t/a", &[(0, 300, 0)])
        .declared("/s/t/a", 2, None);
    let decision = scene.decide();
    assert_eq!(steps(&decision), [""; 0]);
    assert_eq!(decision.refused[0].cause, RefusalCause::NoPlace);
    let reason = &decision.refused[0].reason;
    // Not the one that merely passes it on.
    assert!(reason.contains("/s above it allows only CPUs 0"), "{reason}");
}

#[test]
fn own_cgroups_above_are_widened_first_and_from_the_top_down() {
    let scene = host(&[("/s", "0"), ("/s/t", "0"), ("/s/t/u", "0")])
        .workload("/s/t/u/a", "0", "0")
        .memory("/s/t/u/a", &[(0, 300, 0)])
        .declared("/s/t/u/a", 2, None);
    let mut ours = scene.clone();
    ours.written = BTreeSet::from(["/s", "/s/t"].map(CgroupPath::new));
    let decision = ours.decide();
    assert_eq!(steps(&decision), ["/s cpus 0-1", "/s/t cpus 0-1", "/s/t/u/a cpus 0-1"]);
    let group: Vec<_> = decision.plan.groups[0].iter().map(CgroupPath::as_str).collect();
    assert_eq!(group, ["/s", "/s/t", "/s/t/u/a"], "they are taken back together");

    // One of them is not ours: nothing is widened in vain.
    let mut half = scene;
    half.written = BTreeSet::from([CgroupPath::new("/s/t")]);
    let decision = half.decide();
    assert_eq!((steps(&decision), decision.refused.len()), (vec![], 1));
}

#[test]
fn two_below_one_of_ours_find_room_for_both() {
    let mut scene = host(&[("/s", "0")])
        .workload("/s/a", "0", "0-1")
        .workload("/s/b", "0", "0-1")
        .declared("/s/a", 2, None)
        .declared("/s/b", 3, None);
    scene.written = BTreeSet::from([CgroupPath::new("/s")]);
    let decision = scene.decide();
    let found = steps(&decision);
    assert_eq!(found[0], "/s cpus 0-1,4-6", "{found:?}");
    assert_eq!(found.iter().filter(|step| step.starts_with("/s cpus")).count(), 1, "{found:?}");
    assert_eq!((decision.plan.groups.len(), decision.plan.groups[0].len()), (1, 3));
}

#[test]
fn cgroup_with_its_own_place_is_not_widened_for_others() {
    let mut scene = host(&[])
        .workload("/s", "0-1", "0")
        .workload("/s/a", "0-1", "0")
        .declared("/s", 2, None)
        .declared("/s/a", 3, None);
    scene.written = BTreeSet::from([CgroupPath::new("/s")]);
    let decision = scene.decide();
    assert_eq!(steps(&decision), [""; 0]);
    assert!(decision.refused[0].reason.contains("/s above it allows only CPUs 0-1"), "{decision:?}");
}
