//! What a node's answer depends on, so that of nodes which would answer alike one is asked.
//!
//! Problem: a cluster has thousands of nodes of a few kinds, and a call for a new kind of pod costs an
//! admission on each. Idea: a kubelet reads its machine, its rules, and what is taken, whichever pod has it;
//! nodes with all of that in common answer alike.
//!
//! Invariant: nodes in equal situations give equal answers; only names of holders in a refusal may differ. A
//! node has no situation where more may decide: pods that the state does not cover, pods that share CPUs,
//! memory that may be free already, resources that are taken outside of pods, or a place that this pod has
//! there; and where nothing is certain.
//!
//! Cost: what is taken is summed up once for each change of the node.

use std::sync::Arc;

use numa_placement::{Inventory, PodRequest, settings::PlacementSettings};

use super::{Millis, NodeView, holdings::TakenResources};
use crate::cluster::state::DecidedBy;

/// What a node's answer to a pod depends on beside the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cluster) struct Situation<'a> {
    // Equal nodes share these parts, so their addresses tell them apart.
    inventory: *const Inventory,
    settings: *const PlacementSettings,
    gives_cpus: bool,
    taken: &'a TakenResources,
}

impl NodeView {
    /// The node's situation for a pod, if its answer depends on nothing else.
    pub(in crate::cluster) fn situation(&self, pod: &PodRequest, now: Millis) -> Option<Situation<'_>> {
        let model = self.model.as_ref()?;
        let is_certain = self.log.waiting().next().is_none() && self.is_exact(now);
        if !is_certain || model.decided_by != DecidedBy::Kubelet || self.counts(&pod.name) {
            return None;
        }
        let taken = self.taken_alone.get_or_init(|| self.bound.taken_alone()).as_ref()?;
        let (inventory, settings) = (Arc::as_ptr(&model.inventory), Arc::as_ptr(&model.settings));
        Some(Situation { inventory, settings, gives_cpus: model.gives_cpus(), taken })
    }
}

#[cfg(test)]
mod tests {
    use numa_placement::{Allocations, ContainerRequest, Holder, PodName, Rejection, place, remove};
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::{
        model::{
            NodeModel, SharedParts,
            tests::{hold, state},
        },
        state::NodeState,
        view::{PredictedPlace, Verdict},
    };

    fn asks(name: &str, containers: &[(u64, u64)]) -> PodRequest {
        let containers = containers
            .iter()
            .enumerate()
            .map(|(at, (cpus, gib))| ContainerRequest::guaranteed(format!("c{at}"), cpus * 1000, gib << 30));
        PodRequest::new(PodName::new("default", name).with_uid(name), containers.collect())
    }

    /// A node of this policy whose pods hold this.
    fn node(policy: &str, scope: &str, held: &Allocations, parts: &mut SharedParts) -> NodeView {
        let mut of_node = empty(policy, scope);
        hold(&mut of_node, held);
        let mut view = NodeView::default();
        view.observe_state(&of_node, 0);
        view.share_parts(parts);
        view
    }

    fn empty(policy: &str, scope: &str) -> NodeState {
        let mut state = state();
        (state.kubelet.topology_policy, state.kubelet.topology_scope) = (policy.into(), scope.into());
        state
    }

    /// The answer, with what a refusal says beside names of holders.
    fn without_names(verdict: Verdict) -> (Option<Verdict>, String) {
        match verdict {
            Verdict::Refused(group, rejection) => {
                let Rejection { reason, container, shortages, fits, .. } = *rejection;
                (None, format!("{group:?} {reason:?} {container:?} {shortages:?} {fits:?}"))
            }
            verdict => (Some(verdict), String::new()),
        }
    }

    fn pods() -> impl Strategy<Value = Vec<Vec<(u64, u64)>>> {
        prop::collection::vec(prop::collection::vec((1u64..6, 1u64..9), 1..3), 0..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn nodes_in_one_situation_answer_alike(
            policy in prop::sample::select(vec!["single-numa-node", "restricted", "best-effort", "none"]),
            scope in prop::sample::select(vec!["container", "pod"]),
            came in pods(),
            gone in prop::collection::vec(any::<bool>(), 6),
            asked in prop::collection::vec((1u64..9, 1u64..17), 1..4),
        ) {
            let model = NodeModel::new(&empty(policy, scope)).unwrap();
            let mut held = Allocations::default();
            for (at, containers) in came.iter().enumerate() {
                let _ = place(&model.inventory, &model.settings, &mut held, &asks(&format!("p{at}"), containers));
            }
            for (at, _) in gone.iter().enumerate().filter(|(_, is_gone)| **is_gone) {
                remove(&mut held, &PodName::new("default", format!("p{at}")).with_uid(format!("p{at}")));
            }
            // The same, held by other pods that came in another order.
            let mut others = Allocations::default();
            let grants: Vec<_> = held.iter().collect();
            for (at, (_, grant)) in grants.into_iter().rev().enumerate() {
                let pod = PodName::new("default", format!("q{at}")).with_uid(format!("q{at}"));
                others.give(Holder::new(pod, "main".into()), grant.clone());
            }
            let mut parts = SharedParts::default();
            let [one, other] = [&held, &others].map(|held| node(policy, scope, held, &mut parts));
            let pod = asks("asked", &asked);
            // A promise over several NUMA nodes may leave figures of a state that do not add up.
            prop_assume!(one.is_exact(1));
            prop_assert!(one.situation(&pod, 1).is_some());
            prop_assert_eq!(one.situation(&pod, 1), other.situation(&pod, 1));
            for ask in [NodeView::filter_to_commit, NodeView::filter_in_any_order] {
                prop_assert_eq!(without_names(ask(&one, &pod, 1)), without_names(ask(&other, &pod, 1)));
            }
            let left = |view: &NodeView| match view.filter(&pod, 1) {
                Verdict::Fits(PredictedPlace { nodes, .. }) => (view.free_cpus_on(&nodes), view.cpus_on(&nodes)),
                _ => (0, 0),
            };
            prop_assert_eq!(left(&one), left(&other));
        }
    }

    #[test]
    fn what_else_may_decide_leaves_a_node_without_a_situation() {
        let mut parts = SharedParts::default();
        let none = Allocations::default();
        let mut view = |policy| node(policy, "container", &none, &mut parts);
        let (pod, other) = (asks("p", &[(2, 1)]), asks("q", &[(2, 1)]));
        let is_known = |view: &NodeView| view.situation(&pod, 1).is_some();
        let same = view("restricted");
        assert!(is_known(&same));
        assert_ne!(same.situation(&pod, 1), view("single-numa-node").situation(&pod, 1));
        assert_eq!(same.situation(&pod, 1), view("restricted").situation(&pod, 1));
        assert!(same.situation(&pod, 1_000_000).is_none(), "it is stale");
        assert!(!is_known(&NodeView::default()));
        let mut bound = view("restricted");
        bound.observe_bound("q", &other);
        assert!(!is_known(&bound), "its end may be unseen");
        let mut tentative = view("restricted");
        tentative.reserve("q", &other, 10);
        assert!(!is_known(&tentative));
        let mut outdated = view("restricted");
        outdated.observe_outdated(Some("gone".into()));
        assert!(!is_known(&outdated));
        let mut held = Allocations::default();
        let model = NodeModel::new(&state()).unwrap();
        place(&model.inventory, &model.settings, &mut held, &other).unwrap();
        let holds = node("restricted", "container", &held, &mut parts);
        assert!(is_known(&holds) && holds.situation(&other, 1).is_none(), "the pod itself is there");
        assert_ne!(holds.situation(&pod, 1), same.situation(&pod, 1));
    }
}
