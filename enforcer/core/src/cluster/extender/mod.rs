//! A scheduler extender's decisions: on which nodes a pod has a place, and which pods hold one.
//!
//! Problem: a scheduler sends one pod after another and binds them in the background. Between its choice and
//! the node's next state there are up to some seconds, in which other pods are chosen for the same CPUs.
//! Replies, reports and events are lost, late or repeated, and each program may start again at any moment.
//! Idea: every node has a [view](super::view), and a pod holds its place there from the moment at which it
//! was chosen or bound until the node's state covers it, or something shows that it never comes.
//!
//! Terminology: an *attempt* is one call of the scheduler for a pod; a later call ends the earlier one. A
//! *reservation* is the tentative place of an attempt. A *claim* is the place of a pod whose binding was sent
//! to the API server by this program. A pod is *foreign* if it came to the node without either.
//!
//! Invariants: a pod holds what it may still get: a claim ends only by what the API server shows of the pod,
//! never by time. What a node's state covers is counted once. An answer is made of whole lists only; until
//! then the extender is not ready. Equal inputs give equal answers: time is an argument.
//!
//! Cost: a filter costs one admission for each node whose view has changed since the last pod of this kind.

mod asking;
mod attempts;
mod binding;
mod choice;
mod decision;
mod held;
mod impossible;
mod leases;
mod node;
mod parked;
mod pods;
mod sharing;
mod tally;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use indexmap::IndexMap;

use self::{
    asking::Kinds,
    attempts::Attempts,
    binding::{Claims, PredictionOutcome},
    leases::KnownLeases,
    node::ExtenderNode,
    parked::ParkedPods,
    pods::{KnownPod, PodListing},
};
pub use self::{
    binding::{BindEnd, BindRefusal, BindTicket, PodBinding, UnsettledClaim},
    choice::{FilterAnswer, FilterCall},
    decision::PlacementDecision,
    sharing::{RunParts, WorkSharing},
    tally::{AnswerCounts, AnswerGroup, BindCallEnd, ExtenderTally, NodeCounts},
};
use super::{
    age::DaemonLeases,
    model::SharedParts,
    objects::{LeaseObject, NodeObject, StateObject},
    view::Millis,
};

/// Which program binds pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Binder {
    /// This one, so it knows the order of bindings.
    #[default]
    Extender,
    /// The scheduler, in any order.
    Scheduler,
}

/// Which of two nodes is better that give a pod the same number of NUMA nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Packing {
    /// The one with the least CPUs left over, which keeps large holes.
    #[default]
    Pack,
    /// The one with the most.
    Spread,
}

/// Settings of the extender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtenderSettings {
    /// Which program binds.
    pub binder: Binder,
    /// Which nodes are better.
    pub packing: Packing,
    /// Whether a node passes that has never published a state.
    pub allows_unknown_nodes: bool,
    /// Time after which a scheduler no longer reads the reply to a filter call.
    pub call_limit: Millis,
}

impl Default for ExtenderSettings {
    /// Binds itself, packs, lets nodes pass that have never published a state; calls are read for 5 s, which
    /// is kube-scheduler's `httpTimeout`.
    fn default() -> Self {
        Self {
            binder: Binder::default(),
            packing: Packing::default(),
            allows_unknown_nodes: true,
            call_limit: 5_000,
        }
    }
}

/// The cluster as an extender sees it.
#[derive(Debug, Default)]
pub struct Extender {
    settings: ExtenderSettings,
    sharing: WorkSharing,
    /// By name, in no order: a call names thousands of them.
    nodes: IndexMap<String, ExtenderNode>,
    /// Pods with a node, by uid in the API.
    pods: BTreeMap<String, KnownPod>,
    /// Nodes by uid of a pod that a scheduler means for them.
    nominations: BTreeMap<String, String>,
    parts: SharedParts,
    attempts: Attempts,
    claims: Claims,
    kinds: Kinds,
    leases: KnownLeases,
    leases_known: bool,
    /// Number of lists of pods that have begun.
    pod_lists: u64,
    listing: Option<PodListing>,
    tally: ExtenderTally,
    parked: ParkedPods,
}

impl Extender {
    /// An extender that knows nothing yet.
    pub fn new(settings: ExtenderSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Shares out what one call costs.
    pub fn share_work(&mut self, sharing: WorkSharing) {
        self.sharing = sharing;
    }

    /// What has happened since the last call.
    pub fn take_tally(&mut self) -> ExtenderTally {
        std::mem::take(&mut self.tally)
    }

    /// Number of reservations.
    pub fn reservations(&self) -> usize {
        self.attempts.reservations()
    }

    /// Number of claims that no event of their pod has settled.
    pub fn claims(&self) -> usize {
        self.claims.len()
    }

    /// Number of claims whose binding had no reply.
    pub fn unsettled_claims(&self) -> usize {
        self.claims.unsettled_claims()
    }

    /// Nodes by what their published state is worth now.
    pub fn node_counts(&self, now: Millis) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for node in self.nodes.values() {
            node.count_in(&mut counts, now);
        }
        counts
    }

    /// Number of nodes with a state.
    pub fn nodes_with_state(&self) -> usize {
        self.nodes.values().filter(|node| node.view.model().is_some()).count()
    }

    /// Takes a Node.
    pub fn observe_node(&mut self, node: NodeObject, now: Millis) {
        let known = self.nodes.entry(node.name.clone()).or_default();
        if let Some(state) = known.observe_node(node) {
            self.observe_state(state, now);
        }
    }

    /// Forgets a Node that is gone.
    ///
    /// Its state goes later: until then a Node that takes the name has published.
    pub fn observe_node_gone(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name)
            && node.observe_gone()
        {
            self.nodes.swap_remove(name);
        }
    }

    /// Takes a published state.
    pub fn observe_state(&mut self, object: StateObject, now: Millis) {
        let name = object.name.clone();
        let node = self.nodes.entry(name.clone()).or_default();
        let pod_lists = self.pod_lists;
        let before = self.parked.are_waiting().then(|| node.view.taken(now));
        let came = node.view.pending();
        let rules = |node: &ExtenderNode| {
            let model = node.view.model()?;
            Some((Arc::clone(&model.inventory), Arc::clone(&model.settings)))
        };
        let ruled = before.is_some().then(|| rules(node)).flatten();
        let Some(taken) = node.observe_state(object, pod_lists, now) else { return };
        node.view.share_parts(&mut self.parts);
        if let Some(before) = before
            && let Some(after) = node.view.taken(now)
            && before.is_none_or(|before| after.lacks_some_of(&before))
        {
            self.parked.help();
        }
        if node.view.pending() < came {
            self.parked.help_behind_earlier();
        }
        if ruled.is_some() && rules(node) != ruled {
            self.parked.help();
        }
        let mut wrong = Vec::new();
        for (uid, outcome) in self.claims.covered(&name, &taken) {
            match outcome {
                PredictionOutcome::Right => self.tally.as_predicted += 1,
                PredictionOutcome::Open => self.tally.unchecked += 1,
                PredictionOutcome::Wrong(name) => wrong.push(name),
            }
            self.claims.forget_prediction(&uid);
        }
        if let Some(last) = wrong.last() {
            node.distrust(last, now);
        }
        self.tally.mispredicted.append(&mut wrong);
    }

    /// Notes that the newest state of a node cannot be read: an older one would be wrong.
    pub fn observe_unread_state(&mut self, name: &str, why: String) {
        self.nodes.entry(name.to_owned()).or_default().observe_unread_state(why);
    }

    /// Notes that the object with the state of a node is gone.
    pub fn observe_state_gone(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name)
            && node.observe_state_gone()
        {
            self.nodes.swap_remove(name);
        }
    }

    /// Notes whether the leases of all daemons are told. Without them a state counts by its own age.
    pub fn observe_leases_known(&mut self, are_known: bool) {
        self.leases_known = are_known;
    }

    /// Takes the lease of a daemon, as an event.
    pub fn observe_lease(&mut self, lease: LeaseObject, now: Millis) {
        self.leases.observe(lease, false, now);
    }

    /// Takes the lease of a daemon, as an item of a list: it may have been renewed some time ago.
    pub fn observe_listed_lease(&mut self, lease: LeaseObject, now: Millis) {
        self.leases.observe(lease, true, now);
    }

    /// Forgets the lease of a daemon.
    pub fn observe_lease_gone(&mut self, namespace: &str, node: &str) {
        self.leases.forget(namespace, node);
    }

    /// Lets time pass: reservations end, and states count by the age of what is behind them. `server_now` is
    /// the time of the API server in seconds since 1970.
    pub fn tick(&mut self, now: Millis, server_now: i64) {
        for uid in self.attempts.expired(now) {
            self.release(&uid);
        }
        self.claims.tick(now);
        // Without any lease the daemons keep none.
        let has_all = self.leases_known && !self.leases.is_empty();
        let told = self.leases.by_server(now, server_now).filter(|_| has_all);
        let leases = DaemonLeases::new(told, has_all, server_now);
        for (name, node) in &mut self.nodes {
            if node.tick(name, &leases, now) {
                self.parked.help();
            }
        }
        self.nodes.retain(|_, node| !node.is_unseen());
    }

    /// Gives up the reservation of a pod; its claims stay.
    fn release(&mut self, uid: &str) {
        if self.take_back(uid).is_some() {
            self.parked.help();
        }
    }

    /// The same for a pod that may get the place again at once: its node.
    fn take_back(&mut self, uid: &str) -> Option<String> {
        let name = self.attempts.release(uid)?;
        self.nodes.get_mut(&name)?.view.release(uid);
        Some(name)
    }
}
