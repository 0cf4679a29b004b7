//! CPUs and memory nodes that the kubelet wants a container to have now.
//!
//! Problem: undoing a change must not restore the CPUs that a container had originally. The kubelet's shared
//! pool shrinks with each container that gets exclusive CPUs, so the original CPUs may belong to another
//! container by now. Idea: the state of the static CPU manager holds the CPUs that the kubelet last sent to
//! its runtime for each container.
//!
//! A cgroup names only the uid of the pod. Of several containers in a pod, the match is the one with the
//! largest overlap between its CPUs and the recorded ones. Without any overlap (the kubelet rebuilt its
//! state), it is one with as many CPUs as recorded, else one with more. The result is always CPUs of the
//! container's own pod. Without a usable state the result is `None`.

use super::{Claim, ClaimedPod, Kubelet};
use crate::workload::{CgroupPath, Origin, QosClass, identify};
use numa_topology::set::{CpuSet, NodeSet};

/// Policy of the memory manager that gives containers memory nodes of their own.
const STATIC_MEMORY: &str = "Static";

impl Kubelet {
    /// CPUs of a container of a pod by the static CPU manager; `None` if the state does not say. `had` are
    /// its recorded CPUs.
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
            // A container on the shared pool had more CPUs than its pod has exclusively.
            Some(cpus) => Some((*cpus).clone()).filter(|cpus| had.is_subset(cpus) || had.is_disjoint(shared)),
            None if qos == QosClass::Guaranteed && !had.is_empty() => made_anew(&own, had),
            None => None,
        };
        Some(exclusive.unwrap_or_else(|| shared.clone()))
    }

    /// Memory nodes of a container of a pod by the static memory manager; `None` if the state does not say,
    /// as for a container without memory of its own. `had` are its recorded nodes.
    pub fn wants_memory_now(&self, cgroup: &CgroupPath, had: &NodeSet) -> Option<NodeSet> {
        let Origin::Pod { pod_uid, container_id: Some(_), .. } = identify(cgroup).origin else { return None };
        if had.is_empty() || self.memory_policy.as_deref() != Some(STATIC_MEMORY) {
            return None;
        }
        let given = self.of_pod(&pod_uid).map(Claim::mems).filter(|mems| !mems.is_empty());
        given.max_by_key(|mems| mems.common(had))
    }
}

/// CPUs of a container without overlap to `had`, so that the state does not say which of the pod's containers
/// it is. A container on the shared pool had more CPUs than any of them has exclusively.
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
            // A container of the pod that runs on the shared pool.
            (path("", db), "0-7", Some("0,3,6-7")),
            (CgroupPath::new("/system.slice/a.service"), "0-7", None),
        ] {
            let found = kubelet.wants_now(&cgroup, &had.parse().unwrap());
            assert_eq!(found, wants.map(|cpus| cpus.parse().unwrap()), "{cgroup} {had}");
        }
        // The kubelet rebuilt its state: no CPUs overlap.
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
            // It could be either container; both have CPUs of its pod.
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
            // The record has no nodes, or the kubelet gave it none.
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
