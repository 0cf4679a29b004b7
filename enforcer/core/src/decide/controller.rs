//! Cgroups without cpuset files of their own.
//!
//! Problem: if `cpuset` is not in `cgroup.subtree_control` of a cgroup above, there is no file to write, and
//! a write that fails each minute is no passing fault. Idea: the sample records the cgroup that the effective
//! sets were read from. If that is another one, the workload is refused with the file that must change. The
//! state lasts: nothing is granted, and nothing is tried.

use crate::{sample::Sample, workload::CgroupPath};

/// Reason why the cpuset of a cgroup without such files cannot be set.
pub(crate) fn without_controller(sample: &Sample, cgroup: &CgroupPath) -> Option<String> {
    let from = sample.cgroups.get(cgroup)?.effective_from.as_ref()?;
    if sample.cpuset_v1 {
        let mount = &sample.cgroup_mounts.cpuset;
        return Some(format!("it is in no cgroup of its own below {mount}, and has the CPUs of {from}"));
    }
    let delegate = if is_of_users(from) { " (Delegate=cpuset for user@.service)" } else { "" };
    Some(format!("cpuset is not in cgroup.subtree_control of {from}{delegate}"))
}

/// Is it the slice of systemd's user managers, or a cgroup in it? These have what is delegated to
/// `user@.service`.
fn is_of_users(cgroup: &CgroupPath) -> bool {
    cgroup.relative().split('/').next() == Some("user.slice")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scene::Scene, turn::RefusalCause};
    use numa_placement::{Allocations, Holder};
    use numa_topology::synth::Machine;

    /// A declared workload with sets that were read from another cgroup.
    fn scene(from: &str) -> Scene {
        let machine = Machine::new().sockets(2).threads(1).build();
        let mut scene = Scene::new(machine)
            .workload("/user.slice/a", "0-7", "0-1")
            .memory("/user.slice/a", &[(0, 100, 0), (1, 100, 0)])
            .declared("/user.slice/a", 2, None);
        scene.now_mut("/user.slice/a").effective_from = Some(CgroupPath::new(from));
        scene
    }

    #[test]
    fn a_cgroup_without_the_controller_is_refused_and_promised_nothing() {
        for (from, reason) in [
            (
                "/user.slice",
                "cpuset is not in cgroup.subtree_control of /user.slice (Delegate=cpuset for user@.service)",
            ),
            ("/", "cpuset is not in cgroup.subtree_control of /"),
            ("/userdb", "cpuset is not in cgroup.subtree_control of /userdb"),
            (
                "/system.slice/userdbd.service",
                "cpuset is not in cgroup.subtree_control of /system.slice/userdbd.service",
            ),
        ] {
            let mut allocations = Allocations::default();
            let scene = scene(from);
            let decision = scene.decide_with(&crate::turn::History::default(), &mut allocations);
            assert_eq!(decision.plan.steps, [], "{from}");
            assert_eq!(decision.refused.len(), 1);
            assert_eq!(decision.refused[0].cause, RefusalCause::NoController);
            assert_eq!(decision.refused[0].reason, reason);
            assert!(allocations.get(&Holder::cgroup(&CgroupPath::new("/user.slice/a"))).is_none());
            for finding in scene.findings() {
                assert_eq!(finding.remedy, None, "{finding:?}");
                assert_eq!(finding.obstacle.as_deref(), Some(reason));
                let own = |source: &str| source.contains("/a/cpuset");
                assert!(!finding.evidence.iter().any(|one| own(&one.source)), "{finding:?}");
            }
        }
    }

    #[test]
    fn on_v1_the_hierarchy_is_named() {
        let mut scene = scene("/");
        scene.now.cpuset_v1 = true;
        scene.now.cgroup_mounts.cpuset = "/sys/fs/cgroup/cpuset".into();
        let reason = &scene.decide().refused[0].reason;
        assert_eq!(
            reason,
            "it is in no cgroup of its own below /sys/fs/cgroup/cpuset, and has the CPUs of /"
        );
    }
}
