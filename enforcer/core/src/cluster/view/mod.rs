//! One node as a scheduler sees it: the last published state, and the pods that were bound since.
//!
//! Problem: a state is some seconds old, and pods bound in the meantime hold resources that it shows as free.
//! A second pod on the same view would be refused by the node. Idea: replay. The view is the state's model
//! plus the [events](log) of pods since, played by the engine in the order of the API: a bound pod is
//! admitted, an ended one removed. The kubelet admits in that order too, so the replay gives what it will
//! give. Only an end may come earlier to the kubelet than to the API: where that makes a difference to pods
//! that came in between, the answer is unknown until a state covers them, whether the end has been
//! [shown](ends) or [not](moved).
//!
//! Terminology: a *tentative* pod was chosen for the node and may still go elsewhere; it holds its place
//! until it is bound, forgotten or its time is over. A pod is *covered* if the state names its uid.
//!
//! Invariants: no pod is counted twice, because coverage is by uid and never by time. A state that is older
//! than the last one changes nothing. Time is an argument, and equal events give equal views. A pod of the
//! state stays until the API shows its end, also if no pod event has named it.
//!
//! Cost: an event costs one replay: one admission for each pod that the state does not cover. A filter costs
//! one admission.

mod concern;
mod ends;
mod holdings;
mod log;
mod moved;
mod orders;
mod reuse;
mod situation;
#[cfg(test)]
mod tests;
mod verdict;
mod without;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use numa_placement::{Allocations, PodName, PodRequest, external::CLAIMED};
use numa_topology::set::NodeSet;

pub(super) use self::concern::{concerns, may_concern};
#[cfg(test)]
pub(super) use self::reuse::take_over_init_memory;
pub(super) use self::situation::Situation;
pub use self::verdict::{PredictedContainer, PredictedPlace, RefusalGroup, UnknownNode, Verdict};
use self::{
    ends::{came_and_went, open_ends, possible_states},
    holdings::{Holdings, NodeReply, TakenResources},
    log::{LogChange, PodEvent, PodLog, UidEvent},
    moved::MovedPods,
    orders::orders_of,
};
use super::{
    model::{NodeModel, SharedParts, StateFault},
    state::{DecidedBy, NodeState, Revision},
};

/// Time in milliseconds of a clock that only the caller knows.
pub type Millis = u64;

/// Age from which a state is stale, if its daemon does not say that it lives.
const STALE_AFTER: Millis = 180_000;

/// Most pods remembered for a state to come that a kubelet would have no say about. The first state lacks
/// only those that came last.
const MOST_WITHOUT_STATE: usize = 64;

/// Most admissions by which it is tried when pods may have ended.
const MOST_ADMISSIONS: usize = 96;

/// A node with its state and the pods bound since.
#[derive(Debug, Clone, Default)]
pub struct NodeView {
    model: Option<NodeModel>,
    /// Revision of the newest state, refused ones included.
    newest: Option<Revision>,
    /// When the node was last known to live.
    seen_at: Millis,
    log: PodLog,
    /// Why the last state is older than what it describes, if other objects show that.
    outdated: Option<String>,
    /// What pods hold after all events.
    bound: Holdings,
    /// The same with the tentative pods, if there are any.
    with_tentative: Option<Holdings>,
    /// Tentative pods without a place beside the others. They may be bound all the same, and then either they
    /// or an end that nothing shows will have a place that is taken for free here.
    without_place: Vec<PodName>,
    /// Why the replay of bound pods is not what the node did.
    doubt: Option<UnknownNode>,
    /// Why it matters when a pod ended, or in which order pods came; looked for when the node is asked,
    /// because it costs many replays.
    open_order: OnceLock<Option<UnknownNode>>,
    /// Where bound pods may be; looked for in the same way.
    moved: OnceLock<MovedPods>,
    /// What bound pods hold, if it alone decides ([`Self::situation`]); looked for in the same way.
    taken_alone: OnceLock<Option<TakenResources>>,
    /// Names by uid of bound pods whose order decides what is left, and is not known.
    unordered: BTreeMap<String, String>,
    /// The same of pods that were bound together; each order of them has left the same so far.
    together: Vec<BTreeMap<String, String>>,
    /// Whether pods may have come and gone, unseen, between bound ones that the state does not cover.
    has_gap: bool,
    /// Whether a pod has to wait until the state covers those before it.
    one_at_a_time: bool,
    /// Number of changes: an answer of an older version may not be that of now.
    version: u64,
}

/// What tells whether a view has changed.
pub type ViewMark = (u64, bool);

/// What became of a published state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateOutcome {
    /// It is the base of the view now.
    Taken,
    /// It is not newer than the last one.
    Older(Revision),
    /// It contradicts itself; the view has no base until another one comes.
    Refused(StateFault),
}

impl NodeView {
    /// Takes a published state.
    pub fn observe_state(&mut self, state: &NodeState, now: Millis) -> StateOutcome {
        if let Some(newest) = self.newest
            && !state.revision.is_after(newest)
        {
            if state.revision == newest && self.model.is_some() {
                self.seen_at = now;
            }
            return StateOutcome::Older(newest);
        }
        self.newest = Some(state.revision);
        let outcome = match NodeModel::new(state) {
            Ok(model) => {
                self.seen_at = now;
                self.outdated = None;
                self.log.cover(&model.covered, |request| concern::concerns(&model, request));
                self.model = Some(model);
                self.forget_covered_orders();
                StateOutcome::Taken
            }
            Err(fault) => {
                self.model = None;
                StateOutcome::Refused(fault)
            }
        };
        self.replay();
        outcome
    }

    /// Takes the parts of its model that other nodes have as well.
    pub fn share_parts(&mut self, parts: &mut SharedParts) {
        if let Some(model) = &mut self.model {
            parts.share(model);
        }
    }

    /// Notes that the node's daemon lives, as its lease or pod shows: its last state is still true.
    pub fn observe_life(&mut self, now: Millis) {
        self.seen_at = self.seen_at.max(now);
    }

    /// Notes why the last state is older than what it describes, or that nothing shows it; until the next one
    /// comes.
    pub fn observe_outdated(&mut self, reason: Option<String>) {
        if self.outdated != reason {
            self.version += 1;
            self.outdated = reason;
        }
    }

    /// Sets whether pods go to the node one at a time, because what it gives is not what is predicted.
    pub fn observe_one_at_a_time(&mut self, one_at_a_time: bool) {
        if self.one_at_a_time != one_at_a_time {
            self.version += 1;
            self.one_at_a_time = one_at_a_time;
        }
    }

    /// Notes that a pod is bound to this node; repeated events change nothing.
    pub fn observe_bound(&mut self, uid: &str, request: &PodRequest) {
        // Whatever the settings of a kubelet are, most pods hold nothing of their own. They may where the
        // daemon places containers, which only a state tells.
        let is_minor = |request: &PodRequest| !concern::may_concern(request);
        let is_of_kubelet = |model: &NodeModel| model.decided_by == DecidedBy::Kubelet;
        if self.covers(uid) || (self.model.as_ref().is_some_and(is_of_kubelet) && is_minor(request)) {
            return;
        }
        if self.model.is_none() {
            self.log.drop_oldest(is_minor, MOST_WITHOUT_STATE);
        }
        let change = self.log.bind(uid, request);
        self.apply(change, request);
    }

    /// Notes a bound pod of a list. Another one may have come before it and gone unseen, so if the state does
    /// not cover it nothing is certain until one does.
    pub fn observe_listed(&mut self, uid: &str, request: &PodRequest) {
        self.observe_bound(uid, request);
        if !self.has_gap && self.log.has_start(uid) {
            self.has_gap = true;
            self.replay();
        }
    }

    fn apply(&mut self, change: LogChange, request: &PodRequest) {
        match change {
            LogChange::None => {}
            LogChange::Order => self.replay(),
            LogChange::Last => {
                self.version += 1;
                (self.moved, self.taken_alone) = Default::default();
                // The others need not be played again.
                if let Some(model) = &self.model
                    && let Some(doubt) = give(model, &mut self.bound, request)
                {
                    self.doubt.get_or_insert(doubt);
                }
                self.add_tentative();
            }
        }
    }

    /// Notes that a pod has ended or is gone.
    pub fn observe_ended(&mut self, uid: &str, now: Millis) {
        self.end_together(uid);
        if self.log.end(uid, now) {
            self.replay();
        }
    }

    /// Notes that a pod is there, which a list without it has shown as ended.
    pub fn observe_present(&mut self, uid: &str) {
        if self.log.revoke_end(uid) {
            self.replay();
        }
    }

    /// Is there a pod with this uid, and another namespace or name?
    pub fn has_under_other_name(&self, pod: &PodName) -> bool {
        let held =
            self.model.iter().flat_map(|model| model.allocations.iter()).map(|(holder, _)| holder.pod());
        let known = held.chain(self.log.waiting().map(|request| &request.name));
        // A state of which the API's pods are not known has none of their names.
        let mut namesakes = known.filter(|known| known.uid == pod.uid && known.namespace != CLAIMED);
        namesakes.any(|known| known != pod)
    }

    /// The node's answer to a pod that comes after all others, tentative ones included, if no pod has ended
    /// but those that are shown as ended.
    pub fn filter(&self, pod: &PodRequest, now: Millis) -> Verdict {
        // A pod is never in its own way.
        match self.without_place.iter().find(|name| **name != pod.name) {
            Some(name) if self.gives_own(pod) => Verdict::Unknown(UnknownNode::Misfit(name.to_string())),
            _ => self.behind_others(self.answer(self.now(), pod, now), pod, self.log.on_their_way()),
        }
    }

    /// The answer to a pod, if none of these others is on its way where pods go one at a time.
    fn behind_others<'a>(
        &self,
        verdict: Verdict,
        pod: &PodRequest,
        mut others: impl Iterator<Item = &'a PodRequest>,
    ) -> Verdict {
        if !self.one_at_a_time || !matches!(verdict, Verdict::Fits(_)) {
            return verdict;
        }
        match others.find(|other| other.name != pod.name && self.gives_own(other)) {
            Some(earlier) => Verdict::Unknown(UnknownNode::OneAtATime(earlier.name.to_string())),
            None => verdict,
        }
    }

    /// The same for a pod that is committed later: the answer of [`Self::commit`], if nothing changes.
    pub fn filter_to_commit(&self, pod: &PodRequest, now: Millis) -> Verdict {
        self.beside_moved(self.filter(pod, now), pod)
    }

    /// Is the state too old, and does nothing show that its daemon lives?
    pub const fn is_stale(&self, now: Millis) -> bool {
        now.saturating_sub(self.seen_at) > STALE_AFTER
    }

    /// Number of changes.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Number of changes, and whether the state is [stale](Self::is_stale). While both stay, so do answers.
    pub const fn mark(&self, now: Millis) -> ViewMark {
        (self.version, self.is_stale(now))
    }

    fn answer(&self, held: &Holdings, pod: &PodRequest, now: Millis) -> Verdict {
        let Some(model) = &self.model else {
            let is_certain = !concern::may_concern(pod);
            return if is_certain { Verdict::NotConcerned } else { Verdict::Unknown(UnknownNode::NoState) };
        };
        if !concern::concerns(model, pod) {
            return Verdict::NotConcerned;
        }
        if self.is_stale(now) {
            return Verdict::Unknown(UnknownNode::Stale);
        }
        if let Some(reason) = &self.outdated {
            return Verdict::Unknown(UnknownNode::Outdated(reason.clone()));
        }
        if let Some(source) = model.inexact.first() {
            return Verdict::Unknown(UnknownNode::Inexact(source.clone()));
        }
        if let Some(doubt) = self.doubt() {
            return Verdict::Unknown(doubt);
        }
        if !self.unordered.is_empty() {
            return Verdict::Unknown(UnknownNode::unordered(self.unordered.values()));
        }
        let mut trial = held.clone();
        // A pod is never in its own way: its former attempt is over.
        trial.remove(&pod.name);
        match trial.admit(model, pod) {
            NodeReply::Admitted(None) => Verdict::NotConcerned,
            NodeReply::Admitted(Some(place)) => self.beside_pending(model, pod, place),
            NodeReply::Refused(rejection) => Verdict::Refused(RefusalGroup::of(&rejection), rejection),
            NodeReply::Unknown(why) => Verdict::Unknown(why),
        }
    }

    /// The answer to a pod, if it has a place wherever the bound pods are.
    fn beside_moved(&self, verdict: Verdict, pod: &PodRequest) -> Verdict {
        match (&verdict, &self.model) {
            (Verdict::Fits(_), Some(model)) if !self.holds_places(model, &[pod]) => {
                Verdict::Unknown(UnknownNode::UnseenEnd(pod.name.to_string()))
            }
            _ => verdict,
        }
    }

    /// The answer to a pod that fits behind all others. A kubelet admits pods in the order of their bindings;
    /// a runtime creates containers as their images arrive, so each order of the pods that the state does not
    /// cover must leave a place for all.
    fn beside_pending(&self, model: &NodeModel, pod: &PodRequest, place: PredictedPlace) -> Verdict {
        if model.decided_by == DecidedBy::Kubelet {
            return Verdict::Fits(place);
        }
        let pending: Vec<&PodRequest> =
            self.log.waiting().filter(|pending| pending.name != pod.name).collect();
        if pending.is_empty() {
            return Verdict::Fits(place);
        }
        let mut covered = Holdings::new(model.allocations.clone());
        for (uid, event) in self.log.played_on(&model.covered) {
            if matches!(event, PodEvent::Ended(_)) {
                covered.remove_uid(model, uid);
            }
        }
        orders::verdict_of_arrivals(model, covered.allocations(), &pending, (pod, place))
    }

    /// Holds a place for a pod that was chosen for this node, until it is committed, forgotten, or `until`.
    /// It replaces a former place of the same pod.
    pub fn reserve(&mut self, uid: &str, request: &PodRequest, until: Millis) {
        if !self.covers(uid) && self.log.reserve(uid, request, until) {
            self.version += 1;
            self.add_tentative();
        }
    }

    /// Commits a pod if the node still admits it behind all bound pods. Tentative ones come later than it, so
    /// the place of the answer is what the node gives.
    pub fn commit(&mut self, uid: &str, request: &PodRequest, now: Millis) -> Verdict {
        let verdict = self.beside_moved(self.answer(&self.bound, request, now), request);
        let verdict = self.behind_others(verdict, request, self.log.bound());
        if matches!(verdict, Verdict::Fits(_)) {
            self.claim(uid, request);
        }
        verdict
    }

    /// Claims a pod whatever the state is: a state that comes later may lack it.
    pub fn claim(&mut self, uid: &str, request: &PodRequest) {
        if !self.covers(uid) {
            let change = self.log.claim(uid, request);
            self.apply(change, request);
        }
    }

    /// Gives up the tentative place of a pod; a bound one stays.
    pub fn release(&mut self, uid: &str) {
        if self.log.release(uid) {
            self.version += 1;
            self.add_tentative();
        }
    }

    /// Notes that the object of the last state was deleted: the next one is newer, whatever it says.
    pub const fn observe_deleted(&mut self) {
        self.newest = None;
    }

    /// Drops the state, because the node has been replaced under its name.
    pub fn observe_replaced(&mut self) {
        (self.model, self.newest, self.outdated) = (None, None, None);
        self.replay();
    }

    /// Gives up the place of a pod that goes elsewhere. A pod of the state stays.
    pub fn forget(&mut self, uid: &str) {
        if self.log.forget(uid) {
            self.replay();
        }
    }

    /// Gives up tentative places whose time is over.
    pub fn tick(&mut self, now: Millis) {
        let none = BTreeSet::new();
        let covered = self.model.as_ref().map_or(&none, |model| &model.covered);
        if self.log.tick(now, covered) {
            self.version += 1;
            self.add_tentative();
        }
    }

    /// Do the node's managers give the pod CPUs, memory or devices of its own, as far as its state tells?
    pub fn gives_own(&self, pod: &PodRequest) -> bool {
        may_concern(pod) && self.model.as_ref().is_some_and(|model| concerns(model, pod))
    }

    /// Number of pods that the state does not cover.
    pub fn pending(&self) -> usize {
        self.log.pending()
    }

    /// Is the pod among those that are in the way of others?
    pub(in crate::cluster) fn counts(&self, pod: &PodName) -> bool {
        self.allocations().of_pod(pod).next().is_some() || self.log.waiting().any(|known| known.name == *pod)
    }

    /// Is there no state, and no event of a pod that is remembered?
    pub fn is_empty(&self) -> bool {
        self.model.is_none() && self.log.is_empty()
    }

    /// Is the node's answer to a pod certain? One pod may still depend on memory of an ended init container.
    pub fn is_exact(&self, now: Millis) -> bool {
        let model_is_exact = self.model.as_ref().is_some_and(|model| model.inexact.is_empty());
        let is_current = !self.is_stale(now) && self.outdated.is_none();
        let is_certain = self.unordered.is_empty() && self.without_place.is_empty();
        model_is_exact && is_current && is_certain && self.doubt().is_none()
    }

    /// The model of the last state.
    pub const fn model(&self) -> Option<&NodeModel> {
        self.model.as_ref()
    }

    /// What pods hold now, pending ones included.
    pub fn allocations(&self) -> &Allocations {
        self.now().allocations()
    }

    /// What bound pods hold, without tentative ones.
    pub(in crate::cluster) fn bound_allocations(&self) -> &Allocations {
        self.bound.allocations()
    }

    fn now(&self) -> &Holdings {
        self.with_tentative.as_ref().unwrap_or(&self.bound)
    }

    /// What a pod could not have: `None` while the node's answer is not certain.
    pub(in crate::cluster) fn taken(&self, now: Millis) -> Option<TakenResources> {
        let model = self.model.as_ref().filter(|_| self.is_exact(now))?;
        Some(self.now().taken().with_moved_onto(&self.moved_pods(model).onto))
    }

    /// Number of CPUs on these NUMA nodes that a pod could still have exclusively.
    pub fn free_cpus_on(&self, nodes: &NodeSet) -> usize {
        let Some(model) = &self.model else { return 0 };
        let inventory = &model.inventory;
        let given = self.allocations().exclusive_cpus().union(&inventory.reserved_cpus);
        inventory.machine.cpus_of(nodes).difference(&given).len()
    }

    /// Number of CPUs of these NUMA nodes that pods can have exclusively.
    pub fn cpus_on(&self, nodes: &NodeSet) -> usize {
        let inventory = self.model.as_ref().map(|model| &model.inventory);
        inventory.map_or(0, |known| known.machine.cpus_of(nodes).difference(&known.reserved_cpus).len())
    }

    fn covers(&self, uid: &str) -> bool {
        self.model.as_ref().is_some_and(|model| model.covered.contains(uid))
    }

    /// Makes the allocations anew: the state's, then the events in their order, then tentative pods.
    fn replay(&mut self) {
        self.version += 1;
        self.doubt = None;
        match &self.model {
            None => self.bound = Holdings::default(),
            Some(model) => {
                let (bound, doubt) = self.play(model);
                self.bound = bound;
                let behind_gap = self.behind_gap(model).map(|pod| UnknownNode::Gap(pod.to_string()));
                self.has_gap = behind_gap.is_some();
                self.doubt = doubt.or(behind_gap);
            }
        }
        (self.open_order, self.moved, self.taken_alone) = Default::default();
        self.add_tentative();
    }

    /// A bound pod that may be elsewhere than the events say, because some were missed.
    fn behind_gap(&self, model: &NodeModel) -> Option<&PodName> {
        // Where the daemon places containers, all orders of those that come are tried.
        let is_open = self.has_gap && model.decided_by == DecidedBy::Kubelet;
        let seen = is_open.then(|| self.log.seen()).into_iter().flatten();
        seen.filter(|request| concerns(model, request)).map(|request| &request.name).next()
    }

    /// Puts tentative pods beside the bound ones.
    fn add_tentative(&mut self) {
        self.with_tentative = None;
        self.without_place.clear();
        let Some(model) = &self.model else { return };
        for pod in self.log.tentative() {
            let held = self.with_tentative.get_or_insert_with(|| self.bound.clone());
            // A place that is held without an end is one of a pod that may take long to be bound.
            if give(model, held, &pod.request).is_some() && pod.until < Millis::MAX {
                self.without_place.push(pod.request.name.clone());
            }
        }
    }

    /// Why nothing is certain about the node.
    fn doubt(&self) -> Option<UnknownNode> {
        let found = || self.model.as_ref().and_then(|model| self.find_open_order(model));
        self.doubt.clone().or_else(|| self.open_order.get_or_init(found).clone())
    }

    /// Pods that hold something else if one ended before they came, or if they came in another order.
    fn find_open_order(&self, model: &NodeModel) -> Option<UnknownNode> {
        if model.decided_by == DecidedBy::NumaEnforcer {
            // All orders of those that come are tried there, on what is left of the others.
            return None;
        }
        let open_end = |uid: &str| UnknownNode::OpenEnd(uid.to_owned());
        let events = self.log.played_on(&model.covered);
        if let Some(uid) = came_and_went(&events, |request| concerns(model, request)) {
            return Some(open_end(uid));
        }
        let first = open_ends(&events).first().map(|open| open.uid);
        if first.is_none() && self.together.is_empty() {
            return None;
        }
        let bind = |held: &mut Holdings, request: &PodRequest| drop(give(model, held, request));
        let end = |held: &mut Holdings, uid: &str| held.remove_uid(model, uid);
        let taken = self.bound.taken();
        let leaves_the_same = |events: &Vec<&UidEvent>| {
            let start = Holdings::new(model.allocations.clone());
            let open = open_ends(events);
            let states = possible_states(start, (events, &open), MOST_ADMISSIONS, bind, end);
            states.is_some_and(|states| states.iter().all(|held| held.taken() == taken))
        };
        let orders = orders_of(&events, &self.together);
        let is_certain = orders.is_some_and(|orders| orders.iter().all(leaves_the_same));
        let names = || UnknownNode::unordered(self.together.iter().flat_map(BTreeMap::values));
        (!is_certain).then(|| first.map_or_else(names, open_end))
    }

    /// What pods hold after all events, and the first reason why that is in doubt.
    fn play(&self, model: &NodeModel) -> (Holdings, Option<UnknownNode>) {
        let (mut now, mut doubt) = (Holdings::new(model.allocations.clone()), None);
        for (uid, event) in self.log.played_on(&model.covered) {
            match event {
                PodEvent::Bound(request) => {
                    let is_misfit = |found: &UnknownNode| matches!(found, UnknownNode::Misfit(_));
                    let found = give(model, &mut now, request);
                    // A pod that has ended may have been refused.
                    doubt = doubt.or(found.filter(|found| !(is_misfit(found) && self.log.has_ended(uid))));
                }
                PodEvent::Ended(_) => now.remove_uid(model, uid),
            }
        }
        (now, doubt)
    }
}

/// Admits a pod if the node's managers have a say about it; returns why that may not be what the node did.
fn give(model: &NodeModel, held: &mut Holdings, pod: &PodRequest) -> Option<UnknownNode> {
    match held.admit(model, pod) {
        NodeReply::Admitted(_) => None,
        NodeReply::Refused(_) => Some(UnknownNode::Misfit(pod.name.to_string())),
        NodeReply::Unknown(why) => Some(why),
    }
}
