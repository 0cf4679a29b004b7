//! The pods of a node while they change: all that run, and the newest that have ended.
//!
//! What a pod asks for may be longer than all else that is known of it, because its author chooses labels,
//! annotations and containers. A request beyond the bounds is left out, and the pod stays.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, RandomState},
    mem::size_of,
};

use enforcer_core::cluster::observed::PodSequence;
use numa_placement::{ContainerRequest, PodRequest};

use super::{BoundPods, pod::ReadPod};

/// Pods that run, or have not begun. A kubelet takes 110 unless it is told otherwise.
pub(super) const ACTIVE: usize = 1_024;
/// Pods that have ended: a controller may leave thousands on a node that refuses them.
pub(super) const ENDED: usize = 128;
/// Bytes of what all pods together ask for: room for 110 pods of some containers many times over.
pub(super) const REQUESTS: usize = 4 << 20;
/// Bytes of what one pod asks for.
const REQUEST: usize = 64 << 10;
/// Pods that are named as left out.
const NAMED: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct PodSet {
    sequence: PodSequence,
    /// By uid.
    active: BTreeMap<String, ReadPod>,
    /// By the time of their start, then by uid.
    ended: BTreeMap<(i64, String), ReadPod>,
    /// Why a pod is left out, by namespace and name.
    left_out: BTreeMap<String, String>,
    /// Whether more are left out than have a name there; only a list tells which of them are gone.
    has_more: bool,
    /// Bytes of what these pods ask for.
    request_bytes: usize,
}

impl Default for PodSet {
    /// The set of a new list, before its first pod.
    fn default() -> Self {
        // A random number is that of no other list.
        let sequence = PodSequence { list: RandomState::new().hash_one(0_u8), gone: 0 };
        let (active, ended, left_out) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { sequence, active, ended, left_out, has_more: false, request_bytes: 0 }
    }
}

impl PodSet {
    /// Adds a pod, or replaces what was known of it.
    pub(super) fn put(&mut self, mut read: ReadPod) {
        let name = format!("{}/{}", read.pod.namespace, read.pod.name);
        self.take(&read.pod.uid, &name);
        let left = REQUESTS.saturating_sub(self.request_bytes).min(REQUEST);
        read.pod.request = read.pod.request.filter(|request| bytes_of(request) <= left);
        if read.pod.is_finished {
            self.request_bytes += request_bytes(&read);
            self.ended.insert((read.started_at, read.pod.uid.clone()), read);
            if self.ended.len() > ENDED {
                self.sequence.gone += 1;
                let oldest = self.ended.pop_first();
                self.request_bytes -= oldest.map_or(0, |(_, oldest)| request_bytes(&oldest));
            }
        } else if self.active.len() < ACTIVE {
            self.request_bytes += request_bytes(&read);
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
        self.request_bytes = self.active.values().chain(self.ended.values()).map(request_bytes).sum();
        if self.left_out.len() < NAMED || self.left_out.contains_key(&name) {
            self.left_out.insert(name, reason);
        } else {
            self.has_more = true;
        }
    }

    /// Removes a pod that is gone.
    pub(super) fn remove(&mut self, uid: &str, name: &str) {
        self.sequence.gone += 1;
        self.take(uid, name);
    }

    fn take(&mut self, uid: &str, name: &str) {
        self.left_out.remove(name);
        if let Some(gone) = self.active.remove(uid) {
            self.request_bytes -= request_bytes(&gone);
            return;
        }
        let gone: Vec<_> = self.ended.extract_if(.., |(_, known), _| known == uid).collect();
        self.request_bytes -= gone.iter().map(|(_, gone)| request_bytes(gone)).sum::<usize>();
    }

    /// What is known now.
    pub(super) fn now(&self) -> BoundPods {
        let mut pods: Vec<_> =
            self.active.values().chain(self.ended.values()).map(|read| read.pod.clone()).collect();
        pods.sort_by(|one, other| one.uid.cmp(&other.uid));
        let named = self.left_out.iter().map(|(name, reason)| format!("pod {name}: {reason}"));
        let more = self.has_more.then(|| format!("more than {NAMED} pods are left out"));
        let left_out = named.chain(more).collect();
        BoundPods { pods, left_out, sequence: self.sequence }
    }
}

fn request_bytes(read: &ReadPod) -> usize {
    read.pod.request.as_deref().map_or(0, bytes_of)
}

/// Bytes of a request, without those of the allocator.
fn bytes_of(request: &PodRequest) -> usize {
    let texts = |texts: &BTreeMap<String, String>| {
        texts.iter().map(|(key, text)| 2 * size_of::<String>() + key.len() + text.len()).sum::<usize>()
    };
    let container = |container: &ContainerRequest| {
        let devices = container.devices.keys().map(|name| 2 * size_of::<String>() + name.len());
        let pages = container.requests.hugepages.len() + container.limits.hugepages.len();
        size_of::<ContainerRequest>()
            + container.name.len()
            + devices.sum::<usize>()
            + pages * 2 * size_of::<u64>()
    };
    size_of::<PodRequest>()
        + texts(&request.labels)
        + texts(&request.annotations)
        + request.containers.iter().map(container).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use numa_placement::PodName;

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
    fn request_beyond_the_bounds_is_left_out_and_its_pod_stays() {
        let asking = |number: usize, is_finished: bool, label: usize| {
            let mut read = pod(number, is_finished);
            let containers = vec![ContainerRequest::guaranteed("main", 1_000, 1 << 30)];
            let mut request = PodRequest::new(PodName::new("shop", "p"), containers);
            request.labels.insert("text".into(), "x".repeat(label));
            read.pod.request = Some(Arc::new(request));
            read
        };
        let asked = |pods: &PodSet| pods.now().pods.iter().filter(|pod| pod.request.is_some()).count();
        let mut pods = PodSet::default();
        pods.put(asking(0, false, REQUEST));
        assert_eq!((pods.now().pods.len(), asked(&pods)), (1, 0), "one is too long");
        let each = REQUEST / 2;
        let room = REQUESTS / (each + bytes_of(pod_of(&asking(0, false, 0))));
        (0..room + 9).for_each(|number| pods.put(asking(number, number % 2 == 0, each)));
        assert_eq!((pods.now().pods.len(), asked(&pods)), (room + 9, room));
        (0..room / 2).for_each(|number| pods.put(asking(number, true, each)));
        assert_eq!(asked(&pods), room, "each counts once");
        pods.leave_out("shop/p1".into(), "too large".into());
        pods.remove("u00002", "shop/p2");
        pods.remove("u00003", "shop/p3");
        pods.put(asking(9_999, false, each));
        assert_eq!(asked(&pods), room - 2);
        (0..room + 9).for_each(|number| pods.remove(&format!("u{number:05}"), "shop/p"));
        pods.remove("u09999", "shop/p");
        assert_eq!((pods.request_bytes, pods.now().pods.len()), (0, 0));
    }

    fn pod_of(read: &ReadPod) -> &PodRequest {
        read.pod.request.as_deref().unwrap()
    }

    #[test]
    fn each_pod_that_leaves_is_counted_and_each_list_is_another_one() {
        let mut pods = PodSet::default();
        let first = pods.now().sequence;
        pods.put(pod(1, false));
        pods.put(pod(1, true));
        assert_eq!(pods.now().sequence, first, "a change is no end");
        pods.remove("u00001", "shop/p1");
        pods.put(pod(2, false));
        pods.remove("u00002", "shop/p2");
        assert_eq!(pods.now().sequence, PodSequence { gone: 2, ..first }, "one that was never seen, too");
        (0..=ENDED).for_each(|number| pods.put(pod(number, true)));
        assert_eq!(pods.now().sequence.gone, 3);
        assert_ne!(PodSet::default().now().sequence.list, first.list);
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
        let now = pods.now();
        assert_eq!((now.pods, now.left_out), (Vec::new(), vec!["pod shop/p1: too large".to_owned()]));
        pods.put(pod(1, false));
        assert_eq!((pods.now().pods.len(), pods.now().left_out.len()), (1, 0));
    }
}
