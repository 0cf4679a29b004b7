//! Pods that may be elsewhere than a view says, because of ends that nothing shows.
//!
//! Problem: a kubelet frees what a pod held before any object shows that end. A pod that is bound in between
//! may then be on another NUMA node than the view says, and have the place that the next one is promised.
//! Nothing shows whether that is so until a state covers it. Idea: a place counts if it is there wherever
//! those pods are. On NUMA nodes to which none of them can move, the kubelet has at least as much room as the
//! view, so what fits there fits in any case. Only for a pod that fits nowhere else are the ends tried out:
//! before each binding the pods that are there may have ended, singly or together, as far as that puts the
//! bound pod elsewhere. One that puts it nowhere else may as well come later, when it is only more room.
//!
//! Invariants: bindings keep their order, because a kubelet admits in it; pods that a scheduler binds come in
//! each order, behind those. What a kubelet prefers does not depend on what is free, so a pod that is where
//! it would be on the empty machine stays there. More room is no harm to a pod, but for init containers with
//! CPUs of their own.
//!
//! Cost: nothing where the state covers all pods. Else, once for each change of the view, two or more
//! admissions for each bound pod that is not covered; and one admission for each pod that is asked about, up
//! to twice [`MOST_ADMISSIONS`] if it fits only where another one may be. If they are not enough, the answer
//! is unknown.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use numa_placement::{
    CpuClass, Grant, Holder, PodName, PodRequest,
    settings::{MemoryManagerPolicy, TopologyPolicy},
};
use numa_topology::{id::NodeId, set::NodeSet};

use super::{
    MOST_ADMISSIONS, NodeView, concern,
    holdings::{Holdings, NodeReply},
    log::PodEvent,
    orders::are_alike,
};
use crate::cluster::{model::NodeModel, state::DecidedBy};

/// Most pods that may have ended for which all cases are tried.
const MOST_ENDED: usize = 12;

/// Where bound pods may be that the state does not cover.
#[derive(Debug, Clone, Default)]
pub(super) struct MovedPods {
    /// NUMA nodes to which some of them may have moved.
    pub(super) onto: NodeSet,
    /// What may be held after all events; `None` if there are too many cases. Looked for when it decides.
    states: OnceLock<Option<Vec<Holdings>>>,
}

/// Amounts of a container by NUMA node: of a kubelet's reasons to refuse a pod, none reads more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ContainerAmounts {
    cpus: BTreeMap<NodeId, usize>,
    memory: Vec<(NodeSet, u64)>,
    devices: BTreeMap<String, Vec<NodeSet>>,
}

/// Where the containers of a pod are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PodAmounts(BTreeMap<String, ContainerAmounts>);

/// Admissions that are tried.
struct Trials<'a> {
    model: &'a NodeModel,
    empty: Holdings,
    left: usize,
}

/// There are more cases than can be tried.
struct TooMany;

impl NodeView {
    /// Where bound pods may be.
    pub(super) fn moved_pods(&self, model: &NodeModel) -> &MovedPods {
        self.moved.get_or_init(|| {
            let mut moved = MovedPods::default();
            if !asks_for_sums(model) && self.log.bound().next().is_some() {
                let mut trials = Trials::new(model);
                let mut held = Holdings::new(model.allocations.clone());
                for (uid, event) in self.log.played_on(&model.covered) {
                    match event {
                        PodEvent::Bound(pod) => trials.move_pod(&mut held, &mut moved.onto, pod),
                        PodEvent::Ended(_) => held.remove_uid(model, uid),
                    }
                }
            }
            moved
        })
    }

    /// Is there a place for each of these pods, in any order behind the bound ones, whichever pods have ended
    /// that are shown as there? The view has places for them in each order.
    pub(super) fn holds_places(&self, model: &NodeModel, pods: &[&PodRequest]) -> bool {
        if asks_for_sums(model) {
            return true;
        }
        let moved = self.moved_pods(model);
        if moved.onto.is_empty() && pods.len() < 2 {
            return true;
        }
        // A pod is never in its own way: its former attempt is over.
        let without = |held: &Holdings| {
            let mut held = held.clone();
            for pod in pods {
                held.remove(&pod.name);
            }
            held
        };
        // Pods that were bound together add their orders to what is open.
        let is_ordered = self.together.is_empty();
        let mut trials = Trials::new(model);
        if (is_ordered || moved.onto.is_empty())
            && trials.fit_off(&moved.onto, &without(&self.bound), pods).unwrap_or(false)
        {
            return true;
        }
        let states = moved.states.get_or_init(|| self.states_after_ends(model).ok());
        trials.left = MOST_ADMISSIONS;
        let mut fit = |held: &Holdings| trials.fit_after_ends(&without(held), pods).unwrap_or(false);
        is_ordered && states.as_ref().is_some_and(|states| states.iter().all(&mut fit))
    }

    /// What may be held after all events, with pods ended before each of them.
    fn states_after_ends(&self, model: &NodeModel) -> Result<Vec<Holdings>, TooMany> {
        let mut trials = Trials::new(model);
        let mut states = vec![Holdings::new(model.allocations.clone())];
        for (uid, event) in self.log.played_on(&model.covered) {
            let mut next: Vec<Holdings> = Vec::new();
            for held in states {
                let after = match event {
                    PodEvent::Bound(pod) => trials.after_ends(&held, pod)?,
                    PodEvent::Ended(_) => {
                        let mut held = held;
                        held.remove_uid(model, uid);
                        vec![held]
                    }
                };
                for held in after {
                    if !next.contains(&held) {
                        next.push(held);
                    }
                }
            }
            states = next;
        }
        Ok(states)
    }
}

impl<'a> Trials<'a> {
    fn new(model: &'a NodeModel) -> Self {
        let mut empty = model.allocations.clone();
        empty.retain(|holder| holder.pod().uid.is_empty());
        Self { model, empty: Holdings::new(empty), left: MOST_ADMISSIONS }
    }

    /// Admits a pod; returns where it is, `None` if the node refuses it.
    ///
    /// # Errors
    /// If the answer is not known, or this is one admission too many.
    fn admit(&mut self, held: &mut Holdings, pod: &PodRequest) -> Result<Option<PodAmounts>, TooMany> {
        self.left = self.left.checked_sub(1).ok_or(TooMany)?;
        match held.admit(self.model, pod) {
            NodeReply::Admitted(_) => Ok(Some(PodAmounts::new(self.model, held, pod))),
            NodeReply::Refused(_) => Ok(None),
            NodeReply::Unknown(_) => Err(TooMany),
        }
    }

    /// Is it where it would be on the empty machine?
    fn is_settled(&mut self, place: &PodAmounts, pod: &PodRequest) -> Result<bool, TooMany> {
        Ok(self.admit(&mut self.empty.clone(), pod)?.as_ref() == Some(place))
    }

    /// Adds a bound pod, and the NUMA nodes to which it may have moved.
    fn move_pod(&mut self, held: &mut Holdings, onto: &mut NodeSet, pod: &PodRequest) {
        if !concern::concerns(self.model, pod) {
            return;
        }
        let before = held.clone();
        // The admissions of a bound pod are few, and not counted together.
        self.left = MOST_ADMISSIONS;
        let Ok(place) = self.admit(held, pod) else { return onto.extend(&self.all_nodes()) };
        let place = place.unwrap_or_default();
        let nodes = place.nodes();
        let is_pushed = !nodes.is_disjoint(onto);
        if !is_pushed && self.is_settled(&place, pod).unwrap_or(false) {
            return;
        }
        let is_single = self.model.settings.hints.policy == TopologyPolicy::SingleNumaNode;
        if is_pushed || !is_single || nodes.len() != 1 {
            return onto.extend(&self.nodes_beside(&nodes));
        }
        for node in self.all_nodes().difference(&nodes).iter() {
            let node: NodeSet = [node].into_iter().collect();
            let mut held = before.clone();
            for uid in self.holders_on(&before, &node) {
                held.remove_uid(self.model, &uid);
            }
            let place = self.admit(&mut held, pod);
            if place.is_ok_and(|place| place.is_none_or(|place| place.nodes().is_disjoint(&node))) {
                continue;
            }
            onto.extend(&node);
        }
    }

    fn all_nodes(&self) -> NodeSet {
        self.model.inventory.nodes.iter().map(|node| node.id).collect()
    }

    /// The NUMA nodes on which a pod may have more if it moves: more of its own, too, if it has several.
    fn nodes_beside(&self, nodes: &NodeSet) -> NodeSet {
        let all = self.all_nodes();
        if nodes.len() == 1 { all.difference(nodes) } else { all }
    }

    /// Uids of the pods that hold something on these NUMA nodes.
    fn holders_on(&self, held: &Holdings, nodes: &NodeSet) -> BTreeSet<String> {
        let pods = held.allocations().iter().filter(|(holder, _)| !holder.pod().uid.is_empty());
        let on =
            pods.filter(|(_, grant)| !ContainerAmounts::new(self.model, grant).nodes().is_disjoint(nodes));
        on.map(|(holder, _)| holder.pod().uid.clone()).collect()
    }

    /// Have all these pods places, in each order, on NUMA nodes to which none can move?
    fn fit_off(&mut self, onto: &NodeSet, held: &Holdings, pods: &[&PodRequest]) -> Result<bool, TooMany> {
        for (next, rest) in each_next(pods) {
            let (before, mut trial) = (held, held.clone());
            let Some(place) = self.admit(&mut trial, next)? else { return Ok(false) };
            if !place.nodes().is_disjoint(onto) {
                let mut beside = before.clone();
                self.block(&mut beside, onto);
                let place = self.admit(&mut beside, next)?;
                if place.is_none_or(|place| !place.nodes().is_disjoint(onto)) {
                    return Ok(false);
                }
            }
            if !rest.is_empty() {
                let mut onto = onto.clone();
                let left = self.left;
                self.move_pod(&mut before.clone(), &mut onto, next);
                self.left = left.checked_sub(1).ok_or(TooMany)?;
                if !self.fit_off(&onto, &trial, &rest)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Takes all CPUs of these NUMA nodes.
    fn block(&self, held: &mut Holdings, nodes: &NodeSet) {
        let inventory = &self.model.inventory;
        let taken = held.allocations().exclusive_cpus().union(&inventory.reserved_cpus);
        let exclusive = inventory.machine.cpus_of(nodes).difference(&taken);
        let grant = Grant { class: CpuClass::Exclusive, exclusive, ..Grant::default() };
        held.give(Holder::new(PodName::new("", "blocked"), String::new()), grant);
    }

    /// Have all these pods places, in each order, with pods ended before each of them?
    fn fit_after_ends(&mut self, held: &Holdings, pods: &[&PodRequest]) -> Result<bool, TooMany> {
        for (next, rest) in each_next(pods) {
            let mut trial = held.clone();
            if self.admit(&mut trial, next)?.is_none() {
                return Ok(false);
            }
            if rest.is_empty() {
                continue;
            }
            for held in self.after_ends(held, next)? {
                if !self.fit_after_ends(&held, &rest)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// What may be held after a pod was bound: with none ended before, and with each least set of those that
    /// puts the pod elsewhere. A pod without a place holds nothing.
    fn after_ends(&mut self, held: &Holdings, pod: &PodRequest) -> Result<Vec<Holdings>, TooMany> {
        if !concern::concerns(self.model, pod) {
            return Ok(vec![held.clone()]);
        }
        let mut first = held.clone();
        let place = self.admit(&mut first, pod)?;
        let best = self.admit(&mut self.empty.clone(), pod)?;
        let mut after = vec![first];
        if place == best {
            return Ok(after);
        }
        let nodes = place.as_ref().map(PodAmounts::nodes).unwrap_or_default();
        let may_end = self.holders_on(held, &self.nodes_beside(&nodes)).into_iter();
        let may_end: Vec<String> = may_end.collect();
        if may_end.len() > MOST_ENDED {
            return Err(TooMany);
        }
        let mut places = BTreeMap::from([(0_u32, place)]);
        let mut sets: Vec<u32> = (1..1_u32 << may_end.len()).collect();
        sets.sort_by_key(|set| set.count_ones());
        for set in sets {
            let bits = (0..may_end.len()).map(|at| 1_u32 << at).filter(|bit| set & bit != 0);
            // Those before it have all been tried, but for larger ones than put it where it is best.
            let smaller: Option<Vec<_>> = bits.map(|bit| places.get(&(set & !bit))).collect();
            let Some(smaller) = smaller.filter(|smaller| !smaller.contains(&&best)) else { continue };
            let mut trial = held.clone();
            for (_, uid) in may_end.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1) {
                trial.remove_uid(self.model, uid);
            }
            let place = self.admit(&mut trial, pod)?;
            if !smaller.contains(&&place) {
                after.push(trial);
            }
            places.insert(set, place);
        }
        Ok(after)
    }
}

/// Does no NUMA node decide what the node refuses? A daemon that places containers tries each order of them.
fn asks_for_sums(model: &NodeModel) -> bool {
    let hints = &model.settings.hints;
    model.decided_by != DecidedBy::Kubelet
        || matches!(hints.policy, TopologyPolicy::None | TopologyPolicy::BestEffort)
            && hints.memory_manager_policy != MemoryManagerPolicy::Static
}

/// Each of these pods that may come next, one of those that ask for the same, and the others.
fn each_next<'a, 'b>(
    pods: &'b [&'a PodRequest],
) -> impl Iterator<Item = (&'a PodRequest, Vec<&'a PodRequest>)> + 'b {
    let all = pods.iter().enumerate();
    let different = all.filter(|(at, pod)| !pods.iter().take(*at).any(|earlier| are_alike(earlier, pod)));
    different.map(|(at, pod)| {
        let rest = pods.iter().enumerate().filter(|(other, _)| *other != at);
        (*pod, rest.map(|(_, pod)| *pod).collect())
    })
}

impl PodAmounts {
    fn new(model: &NodeModel, held: &Holdings, pod: &PodRequest) -> Self {
        let grants = pod.containers.iter().filter_map(|container| {
            let holder = Holder::new(pod.name.clone(), container.name.clone());
            let grant = held.allocations().get(&holder)?;
            Some((container.name.clone(), ContainerAmounts::new(model, grant)))
        });
        Self(grants.collect())
    }

    fn nodes(&self) -> NodeSet {
        self.0.values().fold(NodeSet::new(), |nodes, amounts| nodes.union(&amounts.nodes()))
    }
}

impl ContainerAmounts {
    fn new(model: &NodeModel, grant: &Grant) -> Self {
        let machine = &model.inventory.machine;
        let on = |id: NodeId| grant.exclusive.common(&machine.cpus_of(&[id].into_iter().collect()));
        let cpus = machine.nodes_of(&grant.exclusive).iter().map(|id| (id, on(id))).collect();
        let memory = grant.memory.iter().map(|claim| (claim.zone.clone(), claim.bytes)).collect();
        let devices = grant.devices.iter().map(|(resource, ids)| {
            let units = model.inventory.devices.get(resource).into_iter().flatten();
            let near = units.filter(|unit| ids.contains(&unit.id)).map(|unit| unit.nodes.clone());
            let mut near: Vec<NodeSet> = near.collect();
            near.sort();
            (resource.clone(), near)
        });
        Self { cpus, memory, devices: devices.collect() }
    }

    fn nodes(&self) -> NodeSet {
        let memory = self.memory.iter().map(|(zone, _)| zone);
        let near = memory.chain(self.devices.values().flatten());
        near.fold(self.cpus.keys().copied().collect(), |nodes, more| nodes.union(more))
    }
}
