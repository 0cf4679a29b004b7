//! CPUs of others, as the placement of declared workloads and the rebalance see them.

use super::*;
use crate::{
    hosted::Containers,
    owner::{LxcController, Owner, UnitSetting},
    partition::{Partition, PartitionState},
    rebalance,
    scene::Scene,
    turn::History,
    workload::{Origin, QosClass, Runtime},
};
use numa_topology::synth::Machine;

/// CPUs 0-3 on node 0, 4-7 on node 1.
fn host() -> Scene {
    Scene::new(Machine::new().sockets(2).threads(1).build())
}

/// Makes CPUs the partition of a cgroup.
fn partition(mut scene: Scene, path: &str, cpus: &str) -> Scene {
    scene = scene.workload(path, cpus, "0-1");
    scene.now_mut(path).partition = Some(PartitionState { kind: Partition::Root, invalid: None });
    without(scene, cpus)
}

/// Takes CPUs away from what the root cgroup passes on.
fn without(mut scene: Scene, cpus: &str) -> Scene {
    let root = scene.now_mut("/");
    root.cpus_effective = Some(root.cpus_effective.as_ref().unwrap().difference(&cpus.parse().unwrap()));
    scene
}

fn cpus_of(scene: &Scene, path: &str) -> Result<String, String> {
    let mut allocations = Allocations::default();
    let decision = scene.decide_with(&History::default(), &mut allocations);
    let path = CgroupPath::new(path);
    match decision.refused.iter().find(|refusal| refusal.workload == path) {
        Some(refusal) => Err(refusal.reason.clone()),
        None => Ok(allocations.get(&Holder::cgroup(&path)).unwrap().exclusive.to_string()),
    }
}

#[test]
fn declared_workload_goes_where_no_other_cgroup_is_pinned() {
    for (pinned, expected) in
        [("0-3", "4-5"), ("0-1", "2-3"), ("4-7", "0-1"), ("0-2,5", "4,6"), ("0-7", "0-1")]
    {
        let scene =
            host().workload("/db", "0-7", "0-1").workload("/box", pinned, "0-1").declared("/db", 2, None);
        assert_eq!(cpus_of(&scene, "/db").as_deref(), Ok(expected), "beside {pinned}");
    }
}

#[test]
fn declared_workload_goes_beside_the_cpus_of_other_owners() {
    let machine = |domain: &str| Origin::VirtualMachine { domain: domain.into() };
    let unit = |unit: &str| Origin::Unit { unit: unit.into() };
    let pod =
        || Origin::Pod { pod_uid: "u1".into(), qos: QosClass::Burstable, container_id: None, runtime: None };
    let container = || Origin::Container { id: "c1".into(), runtime: Runtime::Docker };
    for (path, origin, owner, expected) in [
        ("/system.slice/slurmstepd.scope/job_7", Origin::Cgroup, Owner::Slurm, "2-3"),
        ("/nomad.slice/share.slice/ID.web.scope", Origin::Cgroup, Owner::Nomad, "2-3"),
        ("/lxc.payload.web", Origin::Cgroup, Owner::Incus, "2-3"),
        ("/machine.slice/vm", machine("vm"), Owner::Libvirt, "2-3"),
        ("/system.slice/box.service", unit("box.service"), Owner::Systemd, "2-3"),
        // Claims of the kubelet and grants tell of the CPUs of pods, and the daemon itself needs none.
        ("/kubepods.slice/pod", pod(), Owner::Unknown, "0-1"),
        ("/daemon", container(), Owner::DaemonItself, "0-1"),
    ] {
        let mut scene =
            host().workload("/db", "0-7", "0-1").workload(path, "0-1", "0").declared("/db", 2, None);
        scene.workloads.last_mut().unwrap().origin = origin;
        scene.facts.lxc = Some(LxcController { owner: Owner::Incus, evidence: "/run/incus".into() });
        let setting = UnitSetting { file: "/etc/box".into(), line: "AllowedCPUs=0-1".into() };
        scene.facts.units.insert("box.service".into(), setting);
        scene.facts.own_cgroup = Some(CgroupPath::new("/daemon"));
        scene.facts.kubelet.unread = Some("denied".into());
        let owners = scene.owners(&Containers::default());
        assert_eq!(owners.foreign(scene.workloads.last().unwrap()).map(|owned| owned.owner), Some(owner));
        assert_eq!(cpus_of(&scene, "/db").as_deref(), Ok(expected), "beside {path}");
    }
}

#[test]
fn pins_are_shared_where_nothing_else_is_free_and_the_reason_names_the_cgroup() {
    let scene = host().workload("/db", "0-7", "0-1").workload("/box", "1-6", "0-1").declared("/db", 3, None);
    let mut allocations = Allocations::default();
    scene.decide_with(&History::default(), &mut allocations);
    let reason = &allocations.get(&Holder::cgroup(&CgroupPath::new("/db"))).unwrap().reason;
    assert!(reason.contains("CPUs 1-6 are those of /box, and no place is free beside them"), "{reason}");
}

#[test]
fn memory_is_not_left_behind_to_avoid_a_pin() {
    for (pinned, expected) in [("0-3", "0-1"), ("0-1", "2-3"), ("0-2", "0-1"), ("4-7", "0-1")] {
        let scene = host()
            .workload("/db", "0-7", "0-1")
            .memory("/db", &[(0, 500, 0)])
            .workload("/box", pinned, "0-1");
        assert_eq!(
            cpus_of(&scene.declared("/db", 2, None), "/db").as_deref(),
            Ok(expected),
            "beside {pinned}"
        );
    }
}

#[test]
fn what_a_workload_has_already_is_kept_beside_a_pin() {
    let scene = host().workload("/db", "0-1", "0").workload("/box", "0-3", "0").declared("/db", 2, None);
    assert_eq!(cpus_of(&scene, "/db").as_deref(), Ok("0-1"));
}

#[test]
fn partition_of_another_cgroup_is_taken_and_named() {
    let scene = partition(host(), "/rt", "0-2").workload("/db", "3-7", "0-1").declared("/db", 4, None);
    assert_eq!(cpus_of(&scene, "/db").as_deref(), Ok("4-7"));
    let scene = scene.declares("cgroup = '/two'\ncpus = 3").workload("/two", "3-7", "0-1");
    let refused = cpus_of(&scene, "/two").unwrap_err();
    assert!(refused.contains("CPUs 0-2 of the partition /rt"), "{refused}");
    // Above processes, and with none at all.
    let mut scene =
        host().workload("/rt/a", "5-7", "1").workload("/db", "0-4", "0-1").declared("/db", 2, None);
    scene = without(scene, "5-7");
    let above = crate::sample::CgroupSample {
        cpus_effective: Some("5-7".parse().unwrap()),
        ..crate::sample::CgroupSample::default()
    };
    scene.now.cgroups.insert(CgroupPath::new("/rt"), above);
    for (rt, named) in
        [(true, "CPUs 5-7 of the partition /rt"), (false, "CPUs 5-7 of a partition without processes")]
    {
        if !rt {
            scene.now.cgroups.remove(&CgroupPath::new("/rt"));
            scene.now.cgroups.remove(&CgroupPath::new("/rt/a"));
            scene.workloads.retain(|one| one.cgroup.as_str() != "/rt/a");
        }
        let asks = scene
            .clone()
            .declares("cgroup = '/two'\ncpus = 3\nnuma_nodes = '1'")
            .workload("/two", "0-4", "0-1");
        let refused = cpus_of(&asks, "/two").unwrap_err();
        assert!(refused.contains(named), "{refused}");
        assert!(!refused.contains("nodes 0-1"), "only node 1 was asked for: {refused}");
    }
}

#[test]
fn partition_that_a_declared_workload_is_in_is_not_held_against_it() {
    let scene = partition(host(), "/rt", "0-3").workload("/rt/db", "0-3", "0-1").declared("/rt/db", 2, None);
    assert_eq!(cpus_of(&scene, "/rt/db").as_deref(), Ok("0-1"));
}

#[test]
fn rebalance_gives_no_workload_the_cpus_of_others() {
    let host = |pinned: &str| {
        let scene =
            host().workload("/db", "0-3", "0-1").memory("/db", &[(1, 4000, 0)]).ran("/db", &[(0, 9000)]);
        let scene = scene.accesses("/db", &[(0, 0, 90_000, 900)]).declared("/db", 4, None);
        if pinned.is_empty() { scene } else { scene.workload("/box", pinned, "0-1") }
    };
    let moves = |scene: &Scene| {
        scene.with_inputs(&Containers::default(), &History::default(), |inputs| {
            let report = rebalance::once(inputs, &mut Allocations::default(), 1 << 30);
            report
                .moves
                .into_iter()
                .map(|one| one.cpus_to.map(|to| to.exclusive.to_string()))
                .collect::<Vec<_>>()
        })
    };
    // Its CPUs go to its memory, or its memory to its CPUs.
    assert_eq!(moves(&host("")), [Some("4-7".to_owned())]);
    assert_eq!(moves(&host("4-5")), [None]);
    assert_eq!(moves(&partition(host(""), "/rt", "6-7")), [None]);
}
