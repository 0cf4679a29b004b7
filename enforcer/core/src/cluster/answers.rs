//! Answers of nodes that are used again for pods that ask for the same.
//!
//! Problem: a burst has thousands of pods of a few kinds, and a node's answer costs an admission. Idea: an
//! answer is kept with the version of the view that gave it.
//!
//! Invariant: an answer is used again only where the node would give it again. A kubelet reads the `QoS`
//! class and the amounts of a pod and nothing else. The engine of this daemon also reads its name, labels
//! and annotations, so nothing is kept of nodes that it places. A pod that the view counts is not in its own
//! way, but it is in the way of all others: its answer is for itself alone.

use std::{collections::BTreeMap, sync::Arc};

use numa_placement::{ContainerKind, PodRequest, QosClass};

use super::{
    state::DecidedBy,
    view::{Millis, NodeView, Verdict, ViewMark},
};

/// What a kubelet's answer depends on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodKind(QosClass, Vec<ContainerAmounts>);

type ContainerAmounts = (ContainerKind, Option<u64>, Option<u64>, BTreeMap<u64, u64>, BTreeMap<String, u64>);

impl PodKind {
    pub(super) fn of(pod: &PodRequest) -> Self {
        let containers = pod.containers.iter().map(|container| {
            let requests = &container.requests;
            let hugepages = requests.hugepages.clone();
            (container.kind, requests.milli_cpus, requests.memory_bytes, hugepages, container.devices.clone())
        });
        Self(pod.qos, containers.collect())
    }

    /// Number of its containers and of their amounts of huge pages and devices.
    pub(super) fn size(&self) -> usize {
        self.1.iter().map(|(_, _, _, hugepages, devices)| 1 + hugepages.len() + devices.len()).sum::<usize>()
            + 1
    }
}

/// A node's answer to a pod.
#[derive(Debug, Clone)]
pub(super) struct NodeAnswer {
    /// Mark of the view that gave it. `None` if it is for one pod alone.
    given_by: Option<ViewMark>,
    pub(super) verdict: Arc<Verdict>,
    /// Number of CPUs that are free on the NUMA nodes of the place, those of the pod included.
    pub(super) left_over: usize,
    /// Number of CPUs that pods can have exclusively on these NUMA nodes.
    pub(super) capacity: usize,
}

impl NodeAnswer {
    /// The answer of `ask` to a pod, or the known one if the view would give it again.
    pub(super) fn of(
        known: Option<Self>,
        view: &NodeView,
        (pod, now): (&PodRequest, Millis),
        ask: impl FnOnce(&NodeView) -> Verdict,
    ) -> Self {
        let known = known.filter(|known| known.is_of(view, now));
        known.unwrap_or_else(|| Self::new(view, (pod, now), ask))
    }

    /// The answer of `ask` to a pod.
    pub(super) fn new(
        view: &NodeView,
        (pod, now): (&PodRequest, Millis),
        ask: impl FnOnce(&NodeView) -> Verdict,
    ) -> Self {
        let verdict = ask(view);
        let (left_over, capacity) = match &verdict {
            Verdict::Fits(place) => (view.free_cpus_on(&place.nodes), view.cpus_on(&place.nodes)),
            _ => (0, 0),
        };
        let is_by_kubelet = view.model().is_none_or(|model| model.decided_by == DecidedBy::Kubelet);
        let is_for_all = is_by_kubelet && !view.counts(&pod.name);
        let given_by = is_for_all.then(|| view.mark(now));
        Self { given_by, verdict: Arc::new(verdict), left_over, capacity }
    }

    /// The same answer as that of another view, which is in the same situation.
    pub(super) fn given_by(&self, view: &NodeView, now: Millis) -> Self {
        Self { given_by: self.given_by.map(|_| view.mark(now)), ..self.clone() }
    }

    /// Would the view give it again?
    pub(super) fn is_of(&self, view: &NodeView, now: Millis) -> bool {
        self.given_by == Some(view.mark(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{model::tests::state, view::UnknownNode};
    use numa_placement::{ContainerRequest, PodName};

    #[test]
    fn an_answer_is_used_again_until_its_view_changes() {
        let pod =
            PodRequest::new(PodName::new("d", "p"), vec![ContainerRequest::guaranteed("c", 2_000, 1 << 30)]);
        let mut view = NodeView::default();
        view.observe_state(&state(), 0);
        let asked = std::cell::Cell::new(0);
        let mut known = None;
        let mut ask = |view: &NodeView, now| {
            let answer = NodeAnswer::of(known.take(), view, (&pod, now), |view| {
                asked.set(asked.get() + 1);
                view.filter(&pod, now)
            });
            known = Some(answer.clone());
            (Verdict::clone(&answer.verdict), answer.left_over, asked.get())
        };
        let (first, left_over, _) = ask(&view, 0);
        assert_eq!((ask(&view, 1), left_over), ((first, 6, 1), 6));
        view.observe_bound("q", &pod);
        assert_eq!(ask(&view, 2).1, 4);
        let stale = ask(&view, 1_000_000);
        assert_eq!(
            (stale.0, stale.2),
            (Verdict::Unknown(UnknownNode::Stale), 3),
            "time alone changes this one"
        );
    }
}
