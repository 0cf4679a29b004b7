//! Filter and score: which nodes have a place for a pod, and which of them is best.
//!
//! Problem: a scheduler that binds itself does so in any order, and tells no extender which node it chose.
//! Idea: of the nodes whose managers have a say about the pod, at most one passes, with a reservation; so
//! wherever the pod goes, its place is held. Where this program binds, all nodes with a place pass and the
//! binding decides.
//!
//! Terminology: the best node gives the pod the fewest NUMA nodes, then has the least measured remote memory,
//! in a few steps, then leaves the fewest CPUs over on its nodes (or the most, by [`Packing`]), then comes
//! first by name.

use std::cmp::Reverse;

use super::{AnswerGroup, Binder, Extender, ExtenderSettings, Packing, asking::NodeReport};
use crate::cluster::{
    answers::NodeAnswer,
    objects::PodObject,
    view::{Millis, UnknownNode, Verdict},
};

/// How long a reservation lasts where the scheduler binds: its bindings wait behind 50 calls a second.
const BINDS_SOON: Millis = 300_000;
/// The same for a pod that waits for volumes, which may take 600 s.
const BINDS_LATE: Millis = 900_000;
/// The same where this program binds: one that ends too early costs a new attempt and nothing else.
const UNTIL_BIND: Millis = 30_000;
/// Best score of a node.
const BEST_SCORE: i64 = 10;
/// Points that a further NUMA node costs.
const PER_NUMA_NODE: i64 = 3;
/// Points between the best and the worst fit.
const FIT: i64 = 2;

/// A call of the scheduler.
#[derive(Debug, Clone, Copy)]
pub struct FilterCall<'a> {
    /// The pod, without a node.
    pub pod: &'a PodObject,
    /// Names of the nodes in question.
    pub nodes: &'a [&'a str],
    /// Number of the call, in the order of their acceptance.
    pub number: u64,
    /// When it was accepted.
    pub accepted: Millis,
}

/// The answer to a filter call; nodes are positions in the call. A node that has a place and is not the one
/// with the reservation is in neither list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterAnswer {
    /// Nodes that the pod may go to.
    pub passed: Vec<usize>,
    /// Nodes without a place for it, with the group of the refusal.
    pub refused: Vec<(usize, AnswerGroup)>,
}

impl FilterAnswer {
    /// Did no node pass, for reasons that do not end by themselves?
    pub fn is_final(&self) -> bool {
        self.passed.is_empty() && self.refused.iter().all(|(_, group)| *group != AnswerGroup::Waiting)
    }
}

/// How good a node is: less is better.
pub(super) type NodeRank = (usize, i64, Result<usize, Reverse<usize>>);

/// What a node has for a pod.
pub(super) enum NodeOffer {
    /// The pod may go there without one.
    Free(AnswerGroup),
    /// A place of this rank.
    Place(NodeRank),
    /// None, for a reason of this group.
    None(AnswerGroup),
}

impl Extender {
    /// Which nodes the pod may go to. Ends the reservation of its former attempt; one that is bound holds no
    /// other place.
    pub fn filter(&mut self, call: FilterCall<'_>, now: Millis) -> FilterAnswer {
        let FilterCall { pod, nodes, number, accepted } = call;
        // A scheduler that got no reply to its binding asks again for a pod that has its place.
        let is_bound = self.pods.contains_key(&pod.uid);
        let is_late = self.attempts.is_overtaken(&pod.uid, number) || self.is_given_up(accepted, now);
        let may_hold = !is_bound && !is_late;
        let mut was_on = None;
        if may_hold {
            was_on = self.take_back(&pod.uid);
            self.attempts.begin(&pod.uid, number, &pod.request, now);
        }
        let said = self.ask_all(pod, nodes, now);
        let mut answer = FilterAnswer::default();
        let mut places: Vec<(NodeRank, &str, usize)> = Vec::new();
        for ((at, name), said) in nodes.iter().copied().enumerate().zip(said) {
            match self.settings.offer(&said) {
                NodeOffer::Free(group) => {
                    self.tally.filtered.add(group, 1);
                    answer.passed.push(at);
                }
                NodeOffer::Place(_) if self.claims.are_unsettled_on(name, &pod.uid) => {
                    answer.refused.push((at, AnswerGroup::Waiting));
                }
                NodeOffer::Place(rank) => places.push((rank, name, at)),
                NodeOffer::None(group) => answer.refused.push((at, group)),
            }
        }
        self.tally.filtered.add(AnswerGroup::Passed, places.len());
        self.tally.filtered.add_refusals(&answer);
        if places.is_empty() && answer.passed.is_empty() && !answer.refused.is_empty() {
            let is_behind_earlier = answer.refused.iter().any(|(_, group)| *group == AnswerGroup::Waiting);
            self.parked.park(is_behind_earlier);
        }
        let best = places.iter().min().map(|(_, name, at)| (*name, *at));
        match (self.settings.binder, best) {
            (Binder::Scheduler, Some((name, at))) => {
                answer.passed.push(at);
                if may_hold {
                    let lasts = if pod.scheduling.binds_late { BINDS_LATE } else { BINDS_SOON };
                    self.reserve(pod, name, now.saturating_add(lasts));
                }
            }
            (Binder::Extender, best) => {
                if let Some((name, _)) =
                    best.filter(|_| may_hold && places.len() == 1 && answer.passed.is_empty())
                {
                    self.reserve(pod, name, now.saturating_add(UNTIL_BIND));
                }
                answer.passed.extend(places.iter().map(|(_, _, at)| *at));
                answer.passed.sort_unstable();
            }
            (Binder::Scheduler, None) => {}
        }
        if was_on.is_some_and(|was_on| self.attempts.node_of(&pod.uid) != Some(&was_on)) {
            self.parked.help();
        }
        answer
    }

    /// Gives the place of a call back if the scheduler no longer reads the answer, now that there is one.
    pub fn withdraw(&mut self, call: FilterCall<'_>, now: Millis) {
        if self.is_given_up(call.accepted, now) && self.attempts.is_latest(&call.pod.uid, call.number) {
            self.release(&call.pod.uid);
        }
    }

    const fn is_given_up(&self, accepted: Millis, now: Millis) -> bool {
        now.saturating_sub(accepted) > self.settings.call_limit
    }

    /// Scores of these nodes for a pod, 0 to 10, in their order.
    pub fn prioritize(&mut self, pod: &PodObject, nodes: &[&str], now: Millis) -> Vec<i64> {
        let said = self.ask_all(pod, nodes, now);
        let packing = self.settings.packing;
        let score = |said: NodeReport| match &*said.answer.verdict {
            Verdict::Fits(place) if !place.nodes.is_empty() => {
                let NodeAnswer { left_over, capacity, .. } = said.answer;
                let fit = score(place.nodes.len(), left_over, capacity.max(1), packing);
                (fit - remote_penalty(said.remote_percent)).max(0)
            }
            Verdict::Fits(_) => BEST_SCORE,
            _ => 0,
        };
        said.into_iter().map(score).collect()
    }

    fn reserve(&mut self, pod: &PodObject, name: &str, until: Millis) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.view.reserve(&pod.uid, &pod.request, until);
            self.attempts.reserve(&pod.uid, name, until);
        }
    }
}

impl ExtenderSettings {
    /// What a node has for a pod that has answered so.
    pub(super) fn offer(&self, said: &NodeReport) -> NodeOffer {
        match &*said.answer.verdict {
            Verdict::NotConcerned => NodeOffer::Free(AnswerGroup::NotConcerned),
            Verdict::Fits(place) => NodeOffer::Place((
                place.nodes.len(),
                remote_penalty(said.remote_percent),
                match self.packing {
                    Packing::Pack => Ok(said.answer.left_over),
                    Packing::Spread => Err(Reverse(said.answer.left_over)),
                },
            )),
            Verdict::Refused(group, _) => NodeOffer::None((*group).into()),
            Verdict::Unknown(UnknownNode::NoState) if !said.has_published && self.allows_unknown_nodes => {
                NodeOffer::Free(AnswerGroup::Unpublished)
            }
            Verdict::Unknown(why) => NodeOffer::None(why.into()),
        }
    }
}

/// Points that a node loses whose workloads have so much of their memory remote: at most as many as for a
/// further NUMA node.
const fn remote_penalty(percent: u8) -> i64 {
    match percent {
        0..10 => 0,
        10..25 => 1,
        25..50 => 2,
        _ => PER_NUMA_NODE,
    }
}

fn score(numa_nodes: usize, left_over: usize, capacity: usize, packing: Packing) -> i64 {
    let of = |number: usize| i64::try_from(number).unwrap_or(i64::MAX / 16);
    let further = of(numa_nodes).saturating_sub(1).min(BEST_SCORE);
    // Points by how full the NUMA nodes are that the pod gets.
    let free = FIT * of(left_over.min(capacity)) / of(capacity.max(1));
    let misfit = if packing == Packing::Pack { free } else { FIT - free };
    (BEST_SCORE - PER_NUMA_NODE * further - misfit).max(0)
}
