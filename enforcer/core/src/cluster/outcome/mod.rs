//! Places of the pods that came to a node, against what the node's published state predicts of them.
//!
//! Problem: schedulers trust a state that is exact. A setting of the kubelet that this program translates
//! wrongly, or a pod of which no object tells, makes its predictions wrong, and no reader of the state can
//! see that. And a pod's owner who sees `TopologyAffinityError` does not see what was short. Idea: the daemon
//! is a reader of its own states. It takes the last exact state, plays the pods that the next one has more,
//! and compares ([`trial`]).
//!
//! Invariants: a prediction is called wrong only if nothing else can explain the difference. Between the two
//! states no pod ended, no other holder changed, the machine, the settings and the devices stayed as they
//! were, and each pod's request is known. Where several pods came, no order of them gives what is there. A
//! refusal counts only if what the node held when the kubelet refused the pod is known. All else is
//! unchecked, and makes no event.

mod shown;
#[cfg(test)]
mod tests;
mod trial;

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{Allocations, Grant, Holder, MemoryClaim, Undescribed, external::CLAIMED};
use numa_topology::set::{CpuSet, NodeSet};

use self::{
    shown::{ShownPod, ShownPods},
    trial::{Arrival, ArrivalEnd, Trial, TrialNode},
};
use super::{
    events::{EventObject, EventReason, NodeEvent},
    model::NodeModel,
    observed::NodeInApi,
    state::{DecidedBy, HeldPod, InexactSource, NodeState},
    view::{NodeView, StateOutcome},
};

/// Name of wrong predictions among the sources that make a state inexact.
pub const PREDICTION: &str = "prediction";
/// Most pods of which all orders are tried.
const MOST_PODS: usize = 4;
/// Longest reason of an inexact state, in characters.
const REASON: usize = 300;

/// Outcomes of predictions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PredictionOutcomes {
    /// Number of pods of which the prediction was right.
    pub right: u64,
    /// Number of pods of which it was wrong.
    pub wrong: u64,
    /// Number of pods of which the one or the other cannot be said.
    pub unchecked: u64,
    /// What the owners of pods should know.
    pub events: Vec<NodeEvent>,
    /// Why schedulers should not trust the states of this node, if they should not.
    pub doubt: Option<InexactSource>,
}

/// Compares each state of a node with the last exact one.
#[derive(Debug, Clone, Default)]
pub struct PredictionCheck {
    base: Option<CheckBase>,
}

/// The last exact state, and what was shown since.
#[derive(Debug, Clone)]
struct CheckBase {
    state: NodeState,
    /// When a state first had what pods hold in this one, in seconds since 1970.
    held_since: i64,
    /// Pods in the API, then and since.
    shown: ShownPods,
}

impl PredictionCheck {
    /// Notes a state, made of what the API says, at `now` in seconds since 1970.
    pub fn observe(&mut self, state: &NodeState, api: &NodeInApi, now: i64) -> PredictionOutcomes {
        let Some(base) = &mut self.base else {
            self.base = CheckBase::new(state, api, now);
            return PredictionOutcomes::default();
        };
        base.shown.note(state, api);
        // An admission may be under way, so what is there need not be all.
        if !state.exact || state.revision == base.state.revision {
            return PredictionOutcomes::default();
        }
        let outcomes = base.judge(state);
        let held_since = if base.state.pods == state.pods { base.held_since } else { now };
        // After a wrong one, nothing is predicted until the next state that is trusted.
        self.base = if outcomes.wrong > 0 { None } else { CheckBase::new(state, api, held_since) };
        outcomes
    }
}

impl CheckBase {
    fn new(state: &NodeState, api: &NodeInApi, held_since: i64) -> Option<Self> {
        let shown = ShownPods::new(state, api);
        state.exact.then(|| Self { state: state.clone(), held_since, shown })
    }

    fn judge(&self, next: &NodeState) -> PredictionOutcomes {
        let arrivals = self.arrivals(next);
        let count = arrivals.len() as u64;
        let late = self.late_refusals(next);
        let unchecked = PredictionOutcomes { unchecked: count + late, ..PredictionOutcomes::default() };
        let Some(arrivals) = arrivals.into_iter().collect::<Option<Vec<Arrival<'_>>>>() else {
            return unchecked;
        };
        if arrivals.is_empty() {
            return unchecked;
        }
        let (Ok(before), Ok(after)) = (NodeModel::new(&self.state), NodeModel::new(next)) else {
            return unchecked;
        };
        let mut view = NodeView::default();
        if view.observe_state(&self.state, 0) != StateOutcome::Taken
            || self.shown.has_missed(&before, &self.state, next)
            || !self.is_steady(next, (&before, &after), &arrivals)
        {
            return unchecked;
        }
        let node = TrialNode { after: &after, kubelet: &next.kubelet };
        let is_refused = |arrival: &Arrival<'_>| matches!(arrival.end, ArrivalEnd::Refused(_));
        let mut outcomes = PredictionOutcomes { unchecked: late, ..PredictionOutcomes::default() };
        if arrivals.iter().all(is_refused) {
            // What was refused holds nothing, so one is not in the way of another.
            for arrival in &arrivals {
                outcomes.add(std::slice::from_ref(arrival), node.try_orders(&view, &[arrival]));
            }
        } else if arrivals.len() <= MOST_PODS
            && (arrivals.len() == 1 || next.decided_by == DecidedBy::Kubelet)
        {
            let all: Vec<&Arrival<'_>> = arrivals.iter().collect();
            outcomes.add(&arrivals, node.try_orders(&view, &all));
        } else {
            outcomes.unchecked += count;
        }
        outcomes
    }

    /// Pods that the next state has and this one has not, in order of their uids; `None` for one of which the
    /// request is not known.
    fn arrivals<'a>(&'a self, next: &'a NodeState) -> Vec<Option<Arrival<'a>>> {
        let held: BTreeSet<&str> = self.state.pods.iter().map(uid_in_kubelet).collect();
        let came = next.pods.iter().map(|pod| (uid_in_kubelet(pod), ArrivalEnd::Held(pod)));
        let came = came.filter(|(uid, _)| !held.contains(uid));
        let refused = self.refusals(next).filter(|(_, at, _)| *at > self.held_since);
        let all = came.chain(refused.map(|(uid, _, reason)| (uid, ArrivalEnd::Refused(reason))));
        let all = all.map(|(uid, end)| {
            let pod = self.shown.get(uid)?;
            let request = pod.request.as_deref()?;
            let is_open = |what| matches!(what, Undescribed::PodResources | Undescribed::ResourceClaims);
            (!request.undescribed.is_some_and(is_open)).then_some(Arrival { pod, request, end })
        });
        all.collect()
    }

    /// New refusals by the kubelet's managers: uid, second and reason. Others have no part in a prediction,
    /// and what was refused holds nothing.
    fn refusals<'a>(&'a self, next: &'a NodeState) -> impl Iterator<Item = (&'a str, i64, &'a str)> {
        let is_known = |uid: &str| self.state.rejected.iter().any(|known| known.uid == uid);
        let is_own = next.decided_by == DecidedBy::NumaEnforcer;
        let new = next.rejected.iter().filter(move |one| !is_own && !is_known(&one.uid));
        let new = new.filter(|one| one.is_by_managers());
        new.map(|one| (one.uid.as_str(), one.at, one.reason.as_str()))
    }

    /// Number of refusals that may have been before the node held what it holds in this state.
    fn late_refusals(&self, next: &NodeState) -> u64 {
        self.refusals(next).filter(|(_, at, _)| *at <= self.held_since).count() as u64
    }

    /// Did nothing change but that these pods came?
    fn is_steady(
        &self,
        next: &NodeState,
        (before, after): (&NodeModel, &NodeModel),
        arrivals: &[Arrival<'_>],
    ) -> bool {
        let is_same_node = self.state.kubelet == next.kubelet
            && self.state.decided_by == next.decided_by
            && before.inventory == after.inventory
            && before.settings == after.settings;
        let is_same_rest = unnamed_devices(before) == unnamed_devices(after);
        let of_pods = match next.decided_by {
            DecidedBy::Kubelet => self.state.pods.iter().all(|pod| {
                let mut found = next.pods.iter();
                let found = found.find(|other| uid_in_kubelet(other) == uid_in_kubelet(pod));
                found.is_some_and(|found| hold_the_same(pod, found))
            }),
            DecidedBy::NumaEnforcer => {
                let is_arriving =
                    |holder: &Holder| arrivals.iter().any(|one| one.pod.is_called(&holder.pod().uid));
                let others = |allocations: &Allocations| {
                    let others = allocations.iter().filter(|(holder, _)| !is_arriving(holder));
                    let others = others.map(|(holder, grant)| (holder.clone(), Settled::of(grant)));
                    others.collect::<Vec<_>>()
                };
                others(&before.allocations) == others(&after.allocations)
            }
        };
        let refused_and_held = next.rejected.iter().any(|one| next.pods.iter().any(|pod| pod.uid == one.uid));
        is_same_node && is_same_rest && of_pods && !refused_and_held
    }
}

/// What of a grant stays where another container comes: all but its share of CPUs that are left.
#[derive(Debug, PartialEq)]
struct Settled {
    exclusive: CpuSet,
    mems: NodeSet,
    memory: Vec<MemoryClaim>,
    scope: Option<CpuSet>,
    is_cold: bool,
}

impl Settled {
    fn of(grant: &Grant) -> Self {
        Self {
            exclusive: grant.exclusive.clone(),
            mems: grant.mems.clone(),
            memory: grant.memory.clone(),
            scope: grant.shared.as_ref().map(|shared| shared.scope.clone()),
            is_cold: grant.cold_start.is_some(),
        }
    }
}

/// Uid of a pod in the kubelet, which is the same before and after its mirror is known.
fn uid_in_kubelet(pod: &HeldPod) -> &str {
    pod.mirror_of.as_deref().unwrap_or(&pod.uid)
}

/// Do two states say the same of what a pod holds? Names and kinds may become known later.
fn hold_the_same(one: &HeldPod, other: &HeldPod) -> bool {
    one.containers.len() == other.containers.len()
        && one.containers.iter().zip(&other.containers).all(|(one, other)| {
            (&one.name, &one.cpus, &one.memory, &one.devices)
                == (&other.name, &other.cpus, &other.memory, &other.devices)
        })
}

/// Number of devices that are not free and that no pod holds, by resource and group: it changes with their
/// health.
fn unnamed_devices(model: &NodeModel) -> BTreeMap<(&str, &str), usize> {
    let unnamed = model.allocations.iter().filter(|(holder, _)| {
        holder.pod().namespace == CLAIMED && holder.pod().uid.is_empty() && holder.name().is_empty()
    });
    let mut counts = BTreeMap::new();
    for (resource, ids) in unnamed.flat_map(|(_, grant)| &grant.devices) {
        for id in ids {
            let group = id.split_once('-').map_or(id.as_str(), |(group, _)| group);
            *counts.entry((resource.as_str(), group)).or_default() += 1;
        }
    }
    counts
}

impl PredictionOutcomes {
    fn add(&mut self, arrivals: &[Arrival<'_>], trial: Trial<'_>) {
        let count = arrivals.len() as u64;
        match trial {
            Trial::Agrees(short) => {
                self.right += count;
                if let ([arrival], Some(short)) = (arrivals, short)
                    && let ArrivalEnd::Refused(reason) = arrival.end
                {
                    let note =
                        format!("the kubelet refused the pod ({reason}), as its state predicts: {short}");
                    self.tell(arrival.pod, EventReason::NumaPlacementRefused, &note);
                }
            }
            Trial::Unknown => self.unchecked += count,
            Trial::Differs(pod, mut note) => {
                if count > 1 {
                    note.push_str(" (whatever the order of the pods that came with it)");
                }
                self.wrong += 1;
                self.unchecked += count - 1;
                let reason: String = format!("pod {}: {note}", pod.name()).chars().take(REASON).collect();
                self.doubt.get_or_insert(InexactSource::new(PREDICTION, reason));
                self.tell(pod, EventReason::NumaPredictionWrong, &note);
            }
        }
    }

    fn tell(&mut self, pod: &ShownPod, reason: EventReason, note: &str) {
        let ShownPod { uid, namespace, name, .. } = pod;
        let object = EventObject::Pod { namespace: namespace.clone(), name: name.clone(), uid: uid.clone() };
        self.events.push(NodeEvent::new(object, reason, note));
    }
}
