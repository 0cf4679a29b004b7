//! What a kubelet wants a container to run on now.
//!
//! Problem: what a container had when it was made is not what it should get back. The kubelet's shared CPUs
//! shrink with each container that gets CPUs for itself, and a container that is given back what it once had
//! runs on these. Idea: the state of the static CPU manager says for each container what the kubelet has told
//! its runtime last.
//!
//! Containers are known by the uid of their pod: of several in one pod the one whose CPUs have most in common
//! with what is recorded is meant. Where none has anything in common, as after the kubelet made its state
//! anew, those are meant that have as many CPUs as are recorded, else those that have more: CPUs of the
//! container's own pod, and never of another. Nothing is said where the state is not there or cannot be used.

use super::{Claim, ClaimedPod, Kubelet};
use crate::{
    set::{CpuSet, NodeSet},
    workload::{CgroupPath, Origin, QosClass, identify},
};

/// Policy of the memory manager that gives containers nodes of their own.
const STATIC_MEMORY: &str = "Static";

impl Kubelet {
    /// CPUs of a container of a pod by the static CPU manager; `None` where the kubelet does not say. `had`
    /// is what is recorded of it.
    pub fn wants_now(&self, cgroup: &CgroupPath, had: &CpuSet) -> Option<CpuSet> {
        let Origin::Pod { pod_uid, qos, container_id: Some(_), .. } = identify(cgroup).origin else {
            return None;
        };
        if self.unread.is_some() || self.cpu_policy.as_deref() != Some("static") {
            return None;
        }
        let shared = self.shared_cpus.as_ref()?;
        let own = self.claims.iter().filter(|claim| {
            matches!(&claim.pod, ClaimedPod::Uid(uid) if *uid == pod_uid) && !claim.cpus.is_empty()
        });
        let own: Vec<&CpuSet> =
            own.filter(|claim| claim.container.is_some()).map(|claim| &claim.cpus).collect();
        let nearest = own.iter().max_by_key(|cpus| cpus.common(had)).filter(|cpus| cpus.common(had) > 0);
        let exclusive = match nearest {
            // What runs on shared CPUs had more than its pod has for itself.
            Some(cpus) => Some((*cpus).clone()).filter(|cpus| had.is_subset(cpus) || had.is_disjoint(shared)),
            None if qos == QosClass::Guaranteed && !had.is_empty() => made_anew(&own, had),
            None => None,
        };
        Some(exclusive.unwrap_or_else(|| shared.clone()))
    }

    /// Memory nodes of a container of a pod by the static memory manager; `None` where the kubelet does not
    /// say, as of a container that it gave no memory. `had` is what is recorded of it.
    pub fn wants_memory_now(&self, cgroup: &CgroupPath, had: &NodeSet) -> Option<NodeSet> {
        let Origin::Pod { pod_uid, container_id: Some(_), .. } = identify(cgroup).origin else { return None };
        if had.is_empty() || self.memory_policy.as_deref() != Some(STATIC_MEMORY) {
            return None;
        }
        let given = self.of_pod(&pod_uid).map(Claim::mems).filter(|mems| !mems.is_empty());
        given.max_by_key(|mems| mems.common(had))
    }
}

/// CPUs of a container that has nothing of what it `had`: the state does not say which of the pod's
/// containers it is. One that shares had more than any of them has for itself.
fn made_anew(own: &[&CpuSet], had: &CpuSet) -> Option<CpuSet> {
    let all = |fits: &dyn Fn(&CpuSet) -> bool| {
        let fitting = own.iter().filter(|cpus| fits(cpus));
        Some(fitting.fold(CpuSet::new(), |all, cpus| all.union(cpus))).filter(|cpus| !cpus.is_empty())
    };
    all(&|cpus| cpus.len() == had.len()).or_else(|| all(&|cpus| cpus.len() > had.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::MemoryBlock;

    #[test]
    fn a_container_gets_what_the_kubelet_wants_now_and_never_cpus_of_another_one() {
        let claim = |pod: &str, container: &str, cpus: &str| Claim {
            pod: ClaimedPod::Uid(pod.into()),
            container: Some(container.into()),
            cpus: cpus.parse().unwrap(),
            ..Claim::default()
        };
        let (db, web) = ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222");
        let id = "a".repeat(64);
        let slice = |uid: &str| uid.replace('-', "_");
        let path = |qos: &str, uid: &str| {
            CgroupPath::new(&format!(
                "/kubepods.slice/kubepods{qos}.slice/kubepods{qos}-pod{}.slice/cri-containerd-{id}.scope",
                slice(uid)
            ))
        };
        let kubelet = Kubelet {
            cpu_policy: Some("static".into()),
            shared_cpus: Some("0,3,6-7".parse().unwrap()),
            claims: vec![claim(db, "db", "1-2"), claim(db, "log", "4-5")],
            ..Kubelet::default()
        };
        for (cgroup, had, wants) in [
            (path("-besteffort", web), "0-7", Some("0,3,6-7")),
            (path("-besteffort", web), "", Some("0,3,6-7")),
            (path("", db), "1-2", Some("1-2")),
            (path("", db), "4", Some("4-5")),
            // A container of the pod that shares.
            (path("", db), "0-7", Some("0,3,6-7")),
            (CgroupPath::new("/system.slice/a.service"), "0-7", None),
        ] {
            let found = kubelet.wants_now(&cgroup, &had.parse().unwrap());
            assert_eq!(found, wants.map(|cpus| cpus.parse().unwrap()), "{cgroup} {had}");
        }
        // The kubelet has made its state anew: nothing is where it was.
        let anew = Kubelet { shared_cpus: Some("0-1,3".parse().unwrap()), ..kubelet.clone() };
        let one = |cpus: &str| Kubelet { claims: vec![claim(db, "db", cpus)], ..anew.clone() };
        let two = |a: &str, b: &str| Kubelet {
            claims: vec![claim(db, "db", a), claim(db, "log", b), claim(web, "web", "2")],
            ..anew.clone()
        };
        for (kubelet, qos, had, wants) in [
            (one("4-5"), "", "1-2", "4-5"),
            (one("4-5"), "", "1", "4-5"),
            (one("4-5"), "", "8-11", "0-1,3"),
            (one("4-5"), "-burstable", "1-2", "0-1,3"),
            (two("4-6", "7"), "", "0-2", "4-6"),
            (two("4-6", "7"), "", "0", "7"),
            // Which of the two it is is not told: both are its pod's.
            (two("4-5", "6-7"), "", "1-2", "4-7"),
            (two("4-5", "6-7"), "", "2-3,5", "0-1,3"),
        ] {
            let found = kubelet.wants_now(&path(qos, db), &had.parse().unwrap());
            assert_eq!(found, wants.parse().ok(), "{:?} {had}", kubelet.claims);
        }
        let memory = |nodes: &str| {
            let block = MemoryBlock { kind: "memory".into(), nodes: nodes.parse().unwrap(), bytes: 1 << 30 };
            Claim { pod: ClaimedPod::Uid(db.into()), memory: vec![block], ..Claim::default() }
        };
        let moved = Kubelet {
            memory_policy: Some("Static".into()),
            claims: vec![memory("1"), memory("2-3")],
            ..kubelet.clone()
        };
        for (cgroup, had, wants) in [
            (path("", db), "1", Some("1")),
            (path("", db), "0-1", Some("1")),
            (path("", db), "3", Some("2-3")),
            // It was told no nodes, or the kubelet gave it none.
            (path("", db), "", None),
            (path("", web), "0", None),
        ] {
            let found = moved.wants_memory_now(&cgroup, &had.parse().unwrap());
            assert_eq!(found, wants.map(|mems| mems.parse().unwrap()), "{cgroup} {had}");
        }
        assert_eq!(kubelet.wants_memory_now(&path("", db), &"1".parse().unwrap()), None);
        let none = Kubelet { cpu_policy: Some("none".into()), ..kubelet.clone() };
        assert_eq!(none.wants_now(&path("-besteffort", web), &CpuSet::new()), None);
        let unread = Kubelet { unread: Some("damaged".into()), ..kubelet };
        assert_eq!(unread.wants_now(&path("-besteffort", web), &CpuSet::new()), None);
    }
}
