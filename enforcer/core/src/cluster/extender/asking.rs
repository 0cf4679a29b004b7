//! What nodes answer to a pod: known answers, and the others in parts that several threads can share.
//!
//! Problem: a new kind of pod costs an admission for each node while the scheduler waits. Idea: the
//! admissions of one call know nothing of each other, so they are [shared out](WorkSharing); and of nodes in
//! one [`Situation`] a single one is asked.
//!
//! Invariants: the answers do not depend on the number of parts. An answer is kept by node and kind of pod,
//! and used again only as its [view](NodeAnswer::is_of) allows. Nothing changes while nodes are asked.
//!
//! Cost: of known answers, a lookup for each node; of others, an admission for each situation. Starting a
//! thread costs as much as some admissions, so a part has [`PART`] of them. There are more parts than
//! threads: one that waits for its CPU holds up one part.
//!
//! [`WorkSharing`]: super::WorkSharing

use std::{collections::BTreeMap, sync::OnceLock};

use super::{Binder, Extender, node::ExtenderNode};
use crate::cluster::{
    answers::{NodeAnswer, PodKind},
    objects::PodObject,
    view::{Millis, NodeView, Situation},
};

/// Most kinds of pods with known answers of one node.
const KINDS_OF_NODE: usize = 8;
/// Most containers and amounts of all kinds of pods that are told apart: a pod may have thousands of them.
const KINDS: usize = 65_536;
/// Admissions of a part.
const PART: usize = 32;

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
pub(super) struct KnownAnswers(Vec<(u32, NodeAnswer)>);

/// A node's answer, and what else is known of the node.
#[derive(Debug, Clone)]
pub(super) struct NodeReport {
    pub(super) answer: NodeAnswer,
    /// Percent of its workloads' memory that is remote.
    pub(super) remote_percent: u8,
    /// Whether it has ever published a state.
    pub(super) has_published: bool,
}

/// A pod for which nodes are asked.
#[derive(Debug, Clone, Copy)]
struct Question<'a> {
    pod: &'a PodObject,
    kind: u32,
    binder: Binder,
    /// Whether the pod may have a place already: then answers to others of its kind are not its own.
    may_have_place: bool,
    now: Millis,
}

impl Kinds {
    fn number(&mut self, kind: PodKind) -> u32 {
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
    /// The answer to this kind, which is then the last to be dropped.
    fn get(&mut self, kind: u32) -> Option<&NodeAnswer> {
        let at = self.0.iter().position(|(known, _)| *known == kind)?;
        self.0.get_mut(at..)?.rotate_left(1);
        self.0.last().map(|(_, answer)| answer)
    }

    fn put(&mut self, kind: u32, answer: NodeAnswer) {
        self.0.retain(|(known, _)| *known != kind);
        if self.0.len() >= KINDS_OF_NODE {
            self.0.remove(0);
        }
        self.0.push((kind, answer));
    }
}

impl Extender {
    /// The answers of these nodes, in their order.
    pub(super) fn ask_all(&mut self, pod: &PodObject, names: &[&str], now: Millis) -> Vec<NodeReport> {
        let kind = self.kinds.number(PodKind::of(&pod.request));
        let is_expected = || self.claims.has(&pod.uid) || self.attempts.node_of(&pod.uid).is_some();
        let may_have_place = self.pods.contains_key(&pod.uid) || is_expected();
        let question = Question { pod, kind, binder: self.settings.binder, may_have_place, now };
        let unseen = NodeReport {
            answer: question.put_to(&NodeView::default()),
            remote_percent: 0,
            has_published: false,
        };
        let mut reports = Vec::with_capacity(names.len());
        let mut open = Vec::new();
        for (at, name) in names.iter().copied().enumerate() {
            let Some(node) = self.nodes.get_mut(name) else {
                reports.push(unseen.clone());
                continue;
            };
            let known = node.known(question);
            if known.is_none() {
                open.push((at, name));
            }
            reports.push(NodeReport {
                answer: known.unwrap_or_else(|| unseen.answer.clone()),
                remote_percent: node.remote_percent,
                has_published: node.has_published,
            });
        }
        let (asked, answered_by) = self.representatives(question, &open);
        let given = self.ask(question, &asked);
        for ((at, name), by) in open.into_iter().zip(answered_by) {
            let (Some(node), Some(report), Some(answer)) =
                (self.nodes.get_mut(name), reports.get_mut(at), given.get(by))
            else {
                continue;
            };
            let is_own = asked.get(by).is_some_and(|asked| *asked == name);
            report.answer = if is_own { answer.clone() } else { answer.given_by(&node.view, question.now) };
            node.keep(question, report.answer.clone());
        }
        reports
    }

    /// The nodes to ask, and for each of the open ones the position of the one that answers for it: of nodes
    /// in the same situation that is the first. One that is named twice is asked once.
    fn representatives<'a>(
        &self,
        question: Question<'_>,
        open: &[(usize, &'a str)],
    ) -> (Vec<&'a str>, Vec<usize>) {
        let (mut first_in, mut named) = (BTreeMap::new(), BTreeMap::new());
        let mut asked = Vec::new();
        let answered_by = open.iter().map(|(_, name)| {
            let next = asked.len();
            let situation = self.nodes.get(*name).and_then(|node| node.situation(question));
            let by = situation.map_or(next, |situation| *first_in.entry(situation).or_insert(next));
            let by = *named.entry(*name).or_insert(by);
            if by == next {
                asked.push(*name);
            }
            by
        });
        let answered_by = answered_by.collect();
        (asked, answered_by)
    }

    /// Asks each of these nodes, which are all known; the answers are in their order.
    fn ask(&self, question: Question<'_>, open: &[&str]) -> Vec<NodeAnswer> {
        let ask = |names: &[&str]| -> Vec<NodeAnswer> {
            let nodes = names.iter().filter_map(|name| self.nodes.get(*name));
            nodes.map(|node| node.ask(question)).collect()
        };
        let is_shared = self.sharing.threads() > 1 && open.len() >= 2 * PART;
        let parts: Vec<_> = open.chunks(if is_shared { PART } else { open.len().max(1) }).collect();
        let answers: Vec<OnceLock<Vec<NodeAnswer>>> = parts.iter().map(|_| OnceLock::new()).collect();
        self.sharing.run(parts.len(), &|part| {
            if let (Some(names), Some(answers)) = (parts.get(part), answers.get(part)) {
                answers.get_or_init(|| ask(names));
            }
        });
        let answers = parts.iter().zip(answers);
        answers.flat_map(|(names, answers)| answers.into_inner().unwrap_or_else(|| ask(names))).collect()
    }
}

impl Question<'_> {
    fn put_to(self, view: &NodeView) -> NodeAnswer {
        let Self { pod, now, .. } = self;
        NodeAnswer::new(view, (&pod.request, now), |view| match self.binder {
            Binder::Extender => view.filter_to_commit(&pod.request, now),
            Binder::Scheduler => view.filter_in_any_order(&pod.request, now),
        })
    }
}

impl ExtenderNode {
    /// The known answer, if the node would give it again.
    fn known(&mut self, question: Question<'_>) -> Option<NodeAnswer> {
        let Question { pod, may_have_place, .. } = question;
        if self.has_nominated_before(pod) || (may_have_place && self.view.counts(&pod.request.name)) {
            return None;
        }
        let known = self.answers.get(question.kind)?;
        known.is_of(&self.view, question.now).then(|| known.clone())
    }

    /// What the node's answer depends on, if nothing else decides.
    fn situation(&self, question: Question<'_>) -> Option<Situation<'_>> {
        let Question { pod, now, .. } = question;
        self.view.situation(&pod.request, now).filter(|_| !self.has_nominated_before(pod))
    }

    fn ask(&self, question: Question<'_>) -> NodeAnswer {
        if !self.has_nominated_before(question.pod) {
            return question.put_to(&self.view);
        }
        let mut view = self.view.clone();
        for (uid, other) in self.nominated_before(question.pod) {
            view.reserve(uid, &other.request, Millis::MAX);
        }
        question.put_to(&view)
    }

    fn keep(&mut self, question: Question<'_>, answer: NodeAnswer) {
        if !self.has_nominated_before(question.pod) {
            self.answers.put(question.kind, answer);
        }
    }

    fn has_nominated_before(&self, pod: &PodObject) -> bool {
        !self.nominated.is_empty() && self.nominated_before(pod).next().is_some()
    }
}
