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

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{AnswerGroup, Binder, Extender, ExtenderSettings, Packing, node::ExtenderNode};
use crate::cluster::{
    answers::{NodeAnswer, PodKind},
    objects::PodObject,
    view::{Millis, NodeView, UnknownNode, Verdict},
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
/// Most kinds of pods with known answers of one node.
const KINDS_OF_NODE: usize = 8;
/// Most containers and amounts of all kinds of pods that are told apart: a pod may have thousands of them.
const KINDS: usize = 65_536;

/// A call of the scheduler.
#[derive(Debug, Clone, Copy)]
pub struct FilterCall<'a> {
    /// The pod, without a node.
    pub pod: &'a PodObject,
    /// Names of the nodes in question.
    pub nodes: &'a [String],
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
    /// Nodes without a place for it, with one of few texts.
    pub refused: Vec<(usize, &'static str)>,
}

impl FilterAnswer {
    /// Did no node pass, for reasons that do not end by themselves?
    pub fn is_final(&self) -> bool {
        self.passed.is_empty() && self.refused.iter().all(|(_, text)| *text != UnknownNode::WAITING)
    }
}

/// Numbers of kinds of pods; one is never given twice.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    numbers: BTreeMap<PodKind, u32>,
    next: u32,
    /// Containers and amounts of all kinds.
    size: usize,
}

/// The last answers of a node, by number of the kind.
#[derive(Debug, Default)]
pub(super) struct KnownAnswers(Vec<(u32, Arc<NodeAnswer>)>);

/// How good a node is: less is better.
type NodeRank = (usize, i64, Result<usize, Reverse<usize>>);

/// What a node has for a pod.
enum NodeOffer {
    /// The pod may go there without one.
    Free(AnswerGroup),
    /// A place of this rank.
    Place(NodeRank),
    /// None.
    None(&'static str),
}

impl Kinds {
    pub(super) fn number(&mut self, kind: PodKind) -> u32 {
        if let Some(number) = self.numbers.get(&kind) {
            return *number;
        }
        if self.size >= KINDS {
            self.numbers.clear();
            self.size = 0;
        }
        self.next = self.next.wrapping_add(1);
        self.size = self.size.saturating_add(kind.size());
        self.numbers.insert(kind, self.next);
        self.next
    }
}

impl KnownAnswers {
    fn take(&mut self, kind: u32) -> Option<Arc<NodeAnswer>> {
        let at = self.0.iter().position(|(known, _)| *known == kind)?;
        Some(self.0.remove(at).1)
    }

    fn put(&mut self, kind: u32, answer: Arc<NodeAnswer>) {
        if self.0.len() >= KINDS_OF_NODE {
            self.0.remove(0);
        }
        self.0.push((kind, answer));
    }
}

impl Extender {
    /// Which nodes the pod may go to. Ends the reservation of its former attempt.
    pub fn filter(&mut self, call: FilterCall<'_>, now: Millis) -> FilterAnswer {
        let FilterCall { pod, nodes, number, accepted } = call;
        let is_late = self.attempts.is_overtaken(&pod.uid, number)
            || now.saturating_sub(accepted) > self.settings.call_limit;
        if !is_late {
            self.release(&pod.uid);
            self.attempts.begin(&pod.uid, number, &pod.request, now);
        }
        let kind = self.kinds.number(PodKind::of(&pod.request));
        let mut answer = FilterAnswer::default();
        let mut places: Vec<(NodeRank, &String, usize)> = Vec::new();
        for (at, name) in nodes.iter().enumerate() {
            match self.settings.offer(self.nodes.get_mut(name), pod, kind, now) {
                NodeOffer::Free(group) => {
                    self.tally.filtered.add(group, 1);
                    answer.passed.push(at);
                }
                NodeOffer::Place(_) if self.claims.are_unsettled_on(name, &pod.uid) => {
                    answer.refused.push((at, UnknownNode::WAITING));
                }
                NodeOffer::Place(rank) => places.push((rank, name, at)),
                NodeOffer::None(text) => answer.refused.push((at, text)),
            }
        }
        self.tally.filtered.add(AnswerGroup::Passed, places.len());
        self.tally.filtered.add_refusals(&answer);
        let best = places.iter().min().map(|(_, name, at)| ((*name).clone(), *at));
        match (self.settings.binder, best) {
            (Binder::Scheduler, Some((name, at))) => {
                answer.passed.push(at);
                if !is_late {
                    let lasts = if pod.scheduling.binds_late { BINDS_LATE } else { BINDS_SOON };
                    self.reserve(pod, &name, now.saturating_add(lasts));
                }
            }
            (Binder::Extender, best) => {
                if let Some((name, _)) =
                    best.filter(|_| !is_late && places.len() == 1 && answer.passed.is_empty())
                {
                    self.reserve(pod, &name, now.saturating_add(UNTIL_BIND));
                }
                answer.passed.extend(places.iter().map(|(_, _, at)| *at));
                answer.passed.sort_unstable();
            }
            (Binder::Scheduler, None) => {}
        }
        answer
    }

    /// Scores of these nodes for a pod, 0 to 10, in their order.
    pub fn prioritize(&mut self, pod: &PodObject, nodes: &[String], now: Millis) -> Vec<i64> {
        let kind = self.kinds.number(PodKind::of(&pod.request));
        let score = |name| {
            let Some(node) = self.nodes.get_mut(name) else { return 0 };
            let answer = self.settings.answer(node, pod, kind, now);
            match &answer.verdict {
                Verdict::Fits(place) if !place.nodes.is_empty() => {
                    let capacity = node.view.cpus_on(&place.nodes).max(1);
                    let fit = score(place.nodes.len(), answer.left_over, capacity, self.settings.packing);
                    (fit - remote_penalty(node.remote_percent)).max(0)
                }
                Verdict::Fits(_) => BEST_SCORE,
                _ => 0,
            }
        };
        nodes.iter().map(score).collect()
    }

    fn reserve(&mut self, pod: &PodObject, name: &str, until: Millis) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.view.reserve(&pod.uid, &pod.request, until);
            self.attempts.reserve(&pod.uid, name, until);
        }
    }
}

impl ExtenderSettings {
    fn offer(&self, node: Option<&mut ExtenderNode>, pod: &PodObject, kind: u32, now: Millis) -> NodeOffer {
        let unseen = || {
            let view = NodeView::default();
            NodeAnswer::of(None, &view, now, |view| view.filter(&pod.request, now))
        };
        let (answer, penalty, has_published) = match node {
            None => (unseen(), 0, false),
            Some(node) => {
                let answer = self.answer(node, pod, kind, now);
                (answer, remote_penalty(node.remote_percent), node.has_published)
            }
        };
        match &answer.verdict {
            Verdict::NotConcerned => NodeOffer::Free(AnswerGroup::NotConcerned),
            Verdict::Fits(place) => NodeOffer::Place((
                place.nodes.len(),
                penalty,
                match self.packing {
                    Packing::Pack => Ok(answer.left_over),
                    Packing::Spread => Err(Reverse(answer.left_over)),
                },
            )),
            Verdict::Refused(group, _) => NodeOffer::None(group.as_str()),
            Verdict::Unknown(UnknownNode::NoState) if !has_published && self.allows_unknown_nodes => {
                NodeOffer::Free(AnswerGroup::Unpublished)
            }
            Verdict::Unknown(why) => NodeOffer::None(why.as_group()),
        }
    }

    /// The node's answer; a known one is used again as long as it is the same.
    pub(super) fn answer(
        &self,
        node: &mut ExtenderNode,
        pod: &PodObject,
        kind: u32,
        now: Millis,
    ) -> Arc<NodeAnswer> {
        let ask = |view: &NodeView| match self.binder {
            Binder::Extender => view.filter(&pod.request, now),
            Binder::Scheduler => view.filter_in_any_order(&pod.request, now),
        };
        // A nominated pod holds nothing against pods of higher priority.
        let nominated = node.nominated.iter();
        let before =
            nominated.filter(|(uid, other)| **uid != pod.uid && other.priority >= pod.scheduling.priority);
        let before: Vec<_> = before.collect();
        if !before.is_empty() {
            let mut view = node.view.clone();
            for (uid, other) in before {
                view.reserve(uid, &other.request, Millis::MAX);
            }
            return NodeAnswer::of(None, &view, now, ask);
        }
        let answer = NodeAnswer::of(node.answers.take(kind), &node.view, now, ask);
        node.answers.put(kind, Arc::clone(&answer));
        answer
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
