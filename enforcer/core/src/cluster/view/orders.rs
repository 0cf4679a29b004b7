//! A node's answer where nothing tells in which order pods arrive.
//!
//! Problem: a scheduler without a binder of its own chooses nodes one pod after another and binds them in any
//! order. The kubelet gives the lowest node that fits, so of two pods that fit in one order one may be
//! refused in the other. Pods that were bound within one second have the same problem: the API tells whole
//! seconds. Idea: a pod may come if the node admits it and every tentative pod in each order, and bound pods
//! count if every order leaves the same: when they come, on each later state and with each end that is shown
//! later, and as long as none of them ends. Pods that ask for the same are interchangeable, so a burst of
//! equal pods has a single order.
//!
//! Cost: up to [`MOST_ADMISSIONS`] admissions; where the orders need more, the pod has to wait until earlier
//! ones are bound, and bound pods until a state covers them.

use std::collections::BTreeMap;

use numa_placement::{Allocations, PodRequest};

use super::{
    Millis, NodeView, PredictedPlace, UnknownNode, Verdict, concern,
    holdings::{Holdings, NodeReply},
    log::{PodEvent, UidEvent},
};
use crate::cluster::{model::NodeModel, own_engine::arrival::Arrivals, state::DecidedBy};

/// Admissions of all orders together: four different pods need 64.
const MOST_ADMISSIONS: usize = 100;

/// Most orders of pods that were bound together in which ends are tried.
const MOST_ORDERS: usize = 24;

/// Holders beside which an admission costs about as much as alone.
const CHEAP_HOLDERS: usize = 256;

/// Which places are left after pods in one order.
enum OrderEnd<'a> {
    /// The node admits them all.
    Admitted(&'a Holdings),
    /// It refuses this one.
    Refused(&'a PodRequest),
    /// Its answer is not known, or there are more orders than can be tried.
    Unknown,
}

impl NodeView {
    /// The node's answer to a pod that may arrive before or after the tentative ones. The place is that of
    /// its arrival after them, in the order in which they were reserved.
    pub fn filter_in_any_order(&self, pod: &PodRequest, now: Millis) -> Verdict {
        let verdict = self.filter(pod, now);
        let (Verdict::Fits(_), Some(model)) = (&verdict, &self.model) else { return verdict };
        let earlier = self.log.tentative().map(|tentative| &tentative.request);
        let mut pods: Vec<_> = earlier.filter(|earlier| earlier.name != pod.name).collect();
        // A kubelet would refuse a pod that does not fit beside the bound ones: it takes nothing.
        let is_refused = |pod| matches!(self.bound.clone().admit(model, pod), NodeReply::Refused(_));
        pods.retain(|earlier| concern::concerns(model, earlier) && !is_refused(earlier));
        if pods.is_empty() {
            return self.beside_moved(verdict, pod);
        }
        pods.push(pod);
        if model.decided_by == DecidedBy::NumaEnforcer {
            // The order of arrival is open there in any case.
            return verdict;
        }
        let mut waiting = None;
        try_orders(model, &self.bound, &pods, &mut 0, &mut |end| {
            waiting = match end {
                OrderEnd::Admitted(_) => None,
                OrderEnd::Refused(refused) => Some(refused.name.to_string()),
                OrderEnd::Unknown => Some(pod.name.to_string()),
            };
            waiting.is_none()
        });
        if waiting.is_none() && !self.holds_places(model, &pods) {
            waiting = Some(pod.name.to_string());
        }
        waiting.map_or(verdict, |name| Verdict::Unknown(UnknownNode::Waiting(name)))
    }

    /// Notes that pods, by uid, are bound to this node, of which nothing tells the order. Their order here
    /// counts as long as no other one leaves less, or something else, for the next pod.
    pub fn observe_bound_together(&mut self, pods: &[(&str, &PodRequest)]) {
        if let Some(model) = self.model.as_ref().filter(|model| model.decided_by == DecidedBy::Kubelet) {
            let is_new = |uid: &str| !self.covers(uid) && !self.log.knows(uid);
            let mut new: Vec<_> = pods.iter().filter(|(uid, _)| is_new(uid)).collect();
            new.retain(|(_, request)| concern::concerns(model, request));
            let requests: Vec<&PodRequest> = new.iter().map(|(_, request)| *request).collect();
            if requests.len() > 1 {
                let named = new.iter().map(|(uid, request)| ((*uid).to_owned(), request.name.to_string()));
                if leave_the_same(model, &self.bound, &requests) {
                    self.together.push(named.collect());
                } else {
                    self.unordered.extend(named);
                }
            }
        }
        for (uid, request) in pods {
            self.observe_bound(uid, request);
        }
    }

    /// Notes that a pod ends: of those that were bound together with it, one may have the place that it has
    /// here, and it may have theirs.
    pub(super) fn end_together(&mut self, uid: &str) {
        for pods in self.together.extract_if(.., |pods| pods.contains_key(uid)) {
            self.unordered.extend(pods);
        }
    }

    /// Forgets which pods were bound together, as far as the state tells how it was: it covers the first.
    pub(super) fn forget_covered_orders(&mut self) {
        let Some(model) = &self.model else { return };
        let log = &self.log;
        let is_open = |uid: &String| log.knows(uid) && !model.covered.contains(uid);
        for pods in self.together.iter_mut().chain([&mut self.unordered]) {
            pods.retain(|uid, _| is_open(uid));
            if pods.len() < 2 || pods.keys().all(|uid| log.has_ended(uid)) {
                pods.clear();
            }
        }
        self.together.retain(|pods| !pods.is_empty());
    }
}

/// The events with pods that were bound together in each order; `None` if there are too many.
pub(super) fn orders_of<'a>(
    events: &[&'a UidEvent],
    together: &[BTreeMap<String, String>],
) -> Option<Vec<Vec<&'a UidEvent>>> {
    let group = |event: &UidEvent| {
        let is_binding = matches!(event.1, PodEvent::Bound(_));
        together.iter().position(|pods| is_binding && pods.contains_key(&event.0))
    };
    let mut orders = vec![Vec::new()];
    for run in events.chunk_by(|one, next| group(one).is_some() && group(one) == group(next)) {
        let mut longer = Vec::new();
        for order in &orders {
            extend_in_each_order(order, run, &mut longer);
            if longer.len() > MOST_ORDERS {
                return None;
            }
        }
        orders = longer;
    }
    Some(orders)
}

/// Adds the events behind an order, in each order of their own, to the orders; some more than there may be
/// are enough.
fn extend_in_each_order<'a>(
    order: &[&'a UidEvent],
    rest: &[&'a UidEvent],
    orders: &mut Vec<Vec<&'a UidEvent>>,
) {
    if rest.is_empty() || orders.len() > MOST_ORDERS {
        return orders.push(order.to_vec());
    }
    let ask_the_same = |one: &UidEvent, other: &UidEvent| match (&one.1, &other.1) {
        (PodEvent::Bound(one), PodEvent::Bound(other)) => are_alike(one, other),
        _ => false,
    };
    for (at, next) in rest.iter().enumerate() {
        if rest.iter().take(at).any(|earlier| ask_the_same(earlier, next)) {
            continue;
        }
        let others = rest.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<&UidEvent> = others.map(|(_, event)| *event).collect();
        extend_in_each_order(&[order, &[*next]].concat(), &others, orders);
    }
}

/// Does every order of the pods leave the same for the next one?
fn leave_the_same(model: &NodeModel, held: &Holdings, pods: &[&PodRequest]) -> bool {
    let mut first = None;
    try_orders(model, held, pods, &mut 0, &mut |end| {
        let taken = match end {
            OrderEnd::Admitted(held) => Some(held.taken()),
            OrderEnd::Refused(_) => None,
            OrderEnd::Unknown => return false,
        };
        taken == *first.get_or_insert_with(|| taken.clone())
    })
}

/// Shows `end` the end of each order, until it returns false; returns whether it never did.
fn try_orders<'a>(
    model: &NodeModel,
    held: &Holdings,
    pods: &[&'a PodRequest],
    admissions: &mut usize,
    end: &mut impl FnMut(OrderEnd<'_>) -> bool,
) -> bool {
    if pods.is_empty() {
        return end(OrderEnd::Admitted(held));
    }
    for (at, next) in pods.iter().enumerate() {
        if pods.iter().take(at).any(|earlier| are_alike(earlier, next)) {
            continue;
        }
        *admissions += 1;
        if *admissions > MOST_ADMISSIONS {
            return end(OrderEnd::Unknown);
        }
        let mut trial = held.clone();
        let goes_on = match trial.admit(model, next) {
            NodeReply::Admitted(_) => {
                let rest: Vec<&'a PodRequest> =
                    pods.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, pod)| *pod).collect();
                try_orders(model, &trial, &rest, admissions, end)
            }
            NodeReply::Refused(_) => end(OrderEnd::Refused(next)),
            NodeReply::Unknown(_) => end(OrderEnd::Unknown),
        };
        if !goes_on {
            return false;
        }
    }
    true
}

/// Do two pods ask a kubelet for the same?
pub(super) fn are_alike(one: &PodRequest, other: &PodRequest) -> bool {
    one.qos == other.qos && one.containers == other.containers
}

/// The answer of a node where this daemon places containers: they come one by one, those of one pod between
/// those of another. The pod has this place behind all others.
pub(super) fn verdict_of_arrivals(
    model: &NodeModel,
    allocations: &Allocations,
    pending: &[&PodRequest],
    (pod, place): (&PodRequest, PredictedPlace),
) -> Verdict {
    let pods = pending.iter().copied().chain([pod]);
    let arrivals = Arrivals::new(&model.inventory, allocations, pods);
    match first_without_place(model, allocations, &arrivals, &mut 0) {
        Ok(()) => Verdict::Fits(place),
        Err(name) => Verdict::Unknown(UnknownNode::Waiting(name.unwrap_or_else(|| pod.name.to_string()))),
    }
}

/// Plays each order of containers. An error names the first pod with a container that has no place in one; no
/// name if there are more orders than can be tried.
fn first_without_place(
    model: &NodeModel,
    allocations: &Allocations,
    arrivals: &Arrivals<'_>,
    admissions: &mut usize,
) -> Result<(), Option<String>> {
    for at in arrivals.coming() {
        // An admission costs by the number of holders, which another node chooses.
        *admissions += 1 + allocations.iter().count() / CHEAP_HOLDERS;
        if *admissions > MOST_ADMISSIONS {
            return Err(None);
        }
        let (mut trial, mut rest) = (allocations.clone(), arrivals.clone());
        if rest.step((&model.inventory, &model.settings), &mut trial, at).is_err() {
            return Err(Some(arrivals.name(at)));
        }
        first_without_place(model, &trial, &rest, admissions)?;
    }
    Ok(())
}
