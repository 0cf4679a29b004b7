//! A node's answer where nothing tells in which order chosen pods arrive.
//!
//! Problem: a scheduler without a binder of its own chooses nodes one pod after another and binds them in any
//! order. The kubelet gives the lowest node that fits, so of two pods that fit in one order one may be
//! refused in the other. Idea: a pod may come if the node admits it and every tentative pod in each order.
//! Pods that ask for the same are interchangeable, so a burst of equal pods has a single order.
//!
//! Cost: up to [`MOST_ADMISSIONS`] admissions; where the orders need more, the pod has to wait until earlier
//! ones are bound.

use numa_placement::{Allocations, PodRequest};

use super::{Millis, NodeView, UnknownNode, Verdict, concern, give};
use crate::cluster::model::NodeModel;

/// Admissions of all orders together: four different pods need 64.
const MOST_ADMISSIONS: usize = 100;

/// What the orders that were tried have shown.
enum Tried {
    /// The node admits all pods in each.
    Admitted,
    /// It refuses this pod in one.
    Refused(String),
    /// There are more than can be tried.
    TooMany,
}

impl NodeView {
    /// The node's answer to a pod that may arrive before or after the tentative ones. The place is that of
    /// its arrival after them, in the order in which they were reserved.
    pub fn filter_in_any_order(&self, pod: &PodRequest, now: Millis) -> Verdict {
        let verdict = self.filter(pod, now);
        let (Verdict::Fits(_), Some(model)) = (&verdict, &self.model) else { return verdict };
        let earlier = self.log.tentative().map(|tentative| &tentative.request);
        let mut pods: Vec<_> = earlier.filter(|earlier| earlier.name != pod.name).collect();
        pods.retain(|earlier| concern::concerns(model, earlier));
        if pods.is_empty() {
            return verdict;
        }
        pods.push(pod);
        let (bound, _) = self.play_events(model);
        match try_orders(model, &bound, &pods, &mut 0) {
            Tried::Admitted => verdict,
            Tried::Refused(name) => Verdict::Unknown(UnknownNode::Waiting(name)),
            Tried::TooMany => Verdict::Unknown(UnknownNode::Waiting(pod.name.to_string())),
        }
    }
}

fn try_orders(
    model: &NodeModel,
    allocations: &Allocations,
    pods: &[&PodRequest],
    admissions: &mut usize,
) -> Tried {
    for (at, next) in pods.iter().enumerate() {
        if pods.iter().take(at).any(|earlier| are_alike(earlier, next)) {
            continue;
        }
        *admissions += 1;
        if *admissions > MOST_ADMISSIONS {
            return Tried::TooMany;
        }
        let mut trial = allocations.clone();
        if !give(model, &mut trial, next) {
            return Tried::Refused(next.name.to_string());
        }
        let rest: Vec<_> =
            pods.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, pod)| *pod).collect();
        match try_orders(model, &trial, &rest, admissions) {
            Tried::Admitted => {}
            end => return end,
        }
    }
    Tried::Admitted
}

/// Do two pods ask a kubelet for the same?
fn are_alike(one: &PodRequest, other: &PodRequest) -> bool {
    one.qos == other.qos && one.containers == other.containers
}
