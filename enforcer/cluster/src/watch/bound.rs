//! The pods of a node while they change: all that run, and the newest that have ended.

use std::collections::BTreeMap;

use super::{BoundPods, pod::ReadPod};

/// Pods that run, or have not begun. A kubelet takes 110 unless it is told otherwise.
pub(super) const ACTIVE: usize = 1_024;
/// Pods that have ended: a controller may leave thousands on a node that refuses them.
pub(super) const ENDED: usize = 128;
/// Pods that are named as left out.
const NAMED: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct PodSet {
    /// By uid.
    active: BTreeMap<String, ReadPod>,
    /// By the time of their start, then by uid.
    ended: BTreeMap<(i64, String), ReadPod>,
    /// Why a pod is left out, by namespace and name.
    left_out: BTreeMap<String, String>,
    /// Whether more are left out than have a name there; only a list tells which of them are gone.
    has_more: bool,
}

impl PodSet {
    /// Adds a pod, or replaces what was known of it.
    pub(super) fn put(&mut self, read: ReadPod) {
        let name = format!("{}/{}", read.pod.namespace, read.pod.name);
        self.remove(&read.pod.uid, &name);
        if read.pod.is_finished {
            self.ended.insert((read.started_at, read.pod.uid.clone()), read);
            if self.ended.len() > ENDED {
                self.ended.pop_first();
            }
        } else if self.active.len() < ACTIVE {
            self.active.insert(read.pod.uid.clone(), read);
        } else {
            self.leave_out(name, format!("more than {ACTIVE} pods are bound to the node"));
        }
    }

    /// Notes a pod that cannot be read; what was known of it is outdated.
    pub(super) fn leave_out(&mut self, name: String, reason: String) {
        let is_named = |read: &ReadPod| name.split_once('/') == Some((&read.pod.namespace, &read.pod.name));
        self.active.retain(|_, read| !is_named(read));
        self.ended.retain(|_, read| !is_named(read));
        if self.left_out.len() < NAMED || self.left_out.contains_key(&name) {
            self.left_out.insert(name, reason);
        } else {
            self.has_more = true;
        }
    }

    /// Removes a pod that is gone.
    pub(super) fn remove(&mut self, uid: &str, name: &str) {
        self.left_out.remove(name);
        if self.active.remove(uid).is_none() {
            self.ended.retain(|(_, known), _| known != uid);
        }
    }

    /// What is known now.
    pub(super) fn now(&self) -> BoundPods {
        let mut pods: Vec<_> =
            self.active.values().chain(self.ended.values()).map(|read| read.pod.clone()).collect();
        pods.sort_by(|one, other| one.uid.cmp(&other.uid));
        let named = self.left_out.iter().map(|(name, reason)| format!("pod {name}: {reason}"));
        let more = self.has_more.then(|| format!("more than {NAMED} pods are left out"));
        let left_out = named.chain(more).collect();
        BoundPods { pods, left_out }
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::cluster::observed::ApiPod;

    use super::*;

    fn pod(number: usize, is_finished: bool) -> ReadPod {
        let (uid, name) = (format!("u{number:05}"), format!("p{number}"));
        let pod = ApiPod { uid, namespace: "shop".into(), name, is_finished, ..ApiPod::default() };
        let started_at = i64::try_from(number).unwrap();
        ReadPod { pod, node: "a".into(), version: "1".into(), started_at }
    }

    #[test]
    fn the_newest_of_ended_pods_stay() {
        let mut pods = PodSet::default();
        (0..1_000).rev().for_each(|number| pods.put(pod(number, true)));
        let kept = pods.now().pods;
        assert_eq!((kept.len(), kept[0].uid.as_str()), (ENDED, "u00872"));
        pods.put(pod(1, false));
        pods.put(pod(1, true));
        assert_eq!(pods.now().pods.len(), ENDED, "one that ends is no longer there as one that runs");
        pods.remove("u00999", "shop/p999");
        assert_eq!(pods.now().pods.len(), ENDED - 1);
    }

    #[test]
    fn pods_beyond_the_bound_are_named() {
        let mut pods = PodSet::default();
        (0..ACTIVE + 100).for_each(|number| pods.put(pod(number, false)));
        let now = pods.now();
        assert_eq!((now.pods.len(), now.left_out.len()), (ACTIVE, NAMED + 1));
        assert!(now.left_out[0].starts_with("pod shop/p1024: more than 1024"), "{:?}", now.left_out);
        (ACTIVE..ACTIVE + 100)
            .for_each(|number| pods.remove(&pod(number, false).pod.uid, &format!("shop/p{number}")));
        assert_eq!(pods.now().left_out, ["more than 16 pods are left out"], "the others had no name here");
    }

    #[test]
    fn pod_that_became_too_large_is_no_longer_known() {
        let mut pods = PodSet::default();
        pods.put(pod(1, false));
        pods.leave_out("shop/p1".into(), "too large".into());
        assert_eq!(
            pods.now(),
            BoundPods { pods: Vec::new(), left_out: vec!["pod shop/p1: too large".into()] }
        );
        pods.put(pod(1, false));
        assert_eq!((pods.now().pods.len(), pods.now().left_out.len()), (1, 0));
    }
}
