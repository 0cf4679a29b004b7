//! The decision about a gated pod.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use strum::{IntoStaticStr, VariantNames};

use super::{Gate, NotComputed, SETTLES, UncomputedPods};
use crate::cluster::{
    extender::{AnswerGroup, Extender, FilterAnswer, FilterCall},
    objects::PodObject,
    plan::{Amounts, CPU, NodeEntry, too_full},
    view::Millis,
};

/// A decision about a gated pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateDecision {
    /// It is released without a node.
    Release(ReleaseCause),
    /// It gets this node, where it holds its place now.
    Place {
        /// The node.
        node: String,
    },
    /// It stays gated.
    Wait(GateWait),
}

/// Why a pod is released without a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseCause {
    /// No manager of any node has a say about it.
    NotConcerned,
    /// Its requirements are not computed whole.
    NotComputed(NotComputed),
}

/// Why a pod stays gated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GateWait {
    /// Requirement that is not computed, for which it is held.
    pub held_for: Option<NotComputed>,
    /// Nodes that no scheduler uses for it, by reason.
    pub turned_away: BTreeMap<String, usize>,
    /// The other ones.
    pub nodes: Vec<String>,
    /// What they answer.
    pub answer: FilterAnswer,
}

/// End of an attempt to change a gated pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum GateEnd {
    /// It got its node.
    Placed,
    /// It was released without a node, because no manager has a say about it.
    NotConcerned,
    /// It was released without a node, because its requirements are not computed whole.
    NotComputed,
    /// The pod had changed meanwhile.
    Conflict,
    /// The API server refused the change.
    Refused,
    /// There was no reply: the change may land.
    NoReply,
}

impl GateDecision {
    /// Does a pod that has lost the gate show that this was done to it?
    pub(super) fn is_shown_by(&self, pod: &PodObject) -> bool {
        match (self, &pod.node) {
            (Self::Wait(_), _) => false,
            (Self::Release(_), _) => true,
            (Self::Place { node }, Some(bound)) => node == bound,
            (Self::Place { node }, None) => pod.scheduling.placed_on().is_some_and(|mark| mark.node == *node),
        }
    }
}

impl GateEnd {
    /// Names of all ends, in their order.
    pub const NAMES: &'static [&'static str] = Self::VARIANTS;

    /// The end of a decision that has landed.
    pub const fn of_landed(decision: &GateDecision) -> Option<Self> {
        match decision {
            GateDecision::Place { .. } => Some(Self::Placed),
            GateDecision::Release(ReleaseCause::NotConcerned) => Some(Self::NotConcerned),
            GateDecision::Release(ReleaseCause::NotComputed(_)) => Some(Self::NotComputed),
            GateDecision::Wait(_) => None,
        }
    }
}

impl GateWait {
    /// The sentence for the pod's owner, before `explained` of the nodes that were asked. `None` if it waits
    /// for an earlier pod, which ends by itself.
    pub fn note(&self, explained: Option<String>) -> Option<String> {
        if let Some(why) = self.held_for {
            return Some(format!("the pod stays gated: {why} cannot be computed here"));
        }
        if !self.answer.is_final() {
            return None;
        }
        let number: usize = self.turned_away.values().sum();
        if number == 0 {
            return explained.or_else(|| Some("no node is known".to_owned()));
        }
        let mut note = format!("{number} nodes are not for the pod: ");
        for (at, (reason, count)) in self.turned_away.iter().enumerate() {
            let _ = write!(note, "{}{count} {reason}", if at == 0 { "" } else { ", " });
        }
        if let Some(explained) = explained {
            let _ = write!(note, "; of the others, {explained}");
        }
        Some(note)
    }
}

impl Gate {
    /// Decides about a gated pod; `None` if it is none any more.
    pub fn decide(&mut self, uid: &str, extender: &mut Extender, now: Millis) -> Option<GateDecision> {
        self.grant_claims(extender, now);
        let gated = self.gated.get_mut(uid)?;
        gated.is_tried = true;
        gated.unclear.take_if(|unclear| now.saturating_sub(unclear.sent) >= SETTLES);
        if let Some(unclear) = &gated.unclear {
            // Whichever of the two lands, it is the same.
            return Some(unclear.decision.clone());
        }
        let pod = gated.pod.clone();
        extender.release_hold(uid);
        self.nodes.uncount(uid);
        if !extender.has_say(&pod, now) {
            return Some(GateDecision::Release(ReleaseCause::NotConcerned));
        }
        match (pod.scheduling.gates.not_computed, self.settings.uncomputed) {
            (None, _) => {}
            (Some(NotComputed::TooLarge), UncomputedPods::Place) | (Some(_), UncomputedPods::Release) => {
                let why = pod.scheduling.gates.not_computed.unwrap_or(NotComputed::TooLarge);
                return Some(GateDecision::Release(ReleaseCause::NotComputed(why)));
            }
            (held_for, UncomputedPods::Hold) => {
                return Some(GateDecision::Wait(GateWait { held_for, ..GateWait::default() }));
            }
            (Some(_), UncomputedPods::Place) => {}
        }
        Some(self.choose(&pod, extender, now))
    }

    /// The node of a pod.
    fn choose(&mut self, pod: &PodObject, extender: &mut Extender, now: Millis) -> GateDecision {
        let amounts = pod.amounts();
        let mut wait = GateWait::default();
        let mut free = Vec::new();
        for node in extender.node_objects() {
            let used = self.nodes.used(&node.name);
            let refusal = NodeEntry::from(node).turns_away(&pod.scheduling);
            if let Some(refusal) = refusal.or_else(|| too_full(&node.allocatable, used, &amounts)) {
                *wait.turned_away.entry(refusal.reason).or_default() += 1;
                continue;
            }
            let of = |amounts: &Amounts| amounts.get(CPU).copied().unwrap_or(0);
            free.push(of(&node.allocatable).saturating_sub(of(used)));
            wait.nodes.push(node.name.clone());
        }
        self.calls += 1;
        let names: Vec<&str> = wait.nodes.iter().map(String::as_str).collect();
        let call = FilterCall { pod, nodes: &names, number: self.calls, accepted: now };
        wait.answer = extender.filter(call, now);
        let held = extender.held_on(&pod.uid).map(str::to_owned);
        // What an earlier pod leaves shows soon, and the choice of a node is final.
        let is_open = wait.answer.refused.iter().any(|(_, group)| *group == AnswerGroup::Waiting);
        // Of nodes without a say the one with the most free CPU time, then the first by name.
        let without_say = || {
            let passed = wait.answer.passed.iter();
            let best = passed.max_by_key(|at| (free.get(**at), Reverse(**at)))?;
            wait.nodes.get(*best).cloned()
        };
        let Some(node) = held.or_else(|| if is_open { None } else { without_say() }) else {
            return GateDecision::Wait(wait);
        };
        extender.hold(pod, &node, now);
        self.nodes.count(&pod.uid, &node, amounts);
        GateDecision::Place { node }
    }
}
