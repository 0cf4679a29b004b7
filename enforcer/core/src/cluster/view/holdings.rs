//! What the pods of a view hold, with what a kubelet may have freed already.
//!
//! Problem: a kubelet frees the memory of an ended init container when the next container of its pod starts,
//! and no object tells when that is. A view that counts such memory until a state covers the pod predicts a
//! refusal, or another NUMA node, where the kubelet has the memory back. One that does not count it admits
//! what the kubelet refuses. Idea: such memory is *loose*, and a pod is admitted with each part of it held
//! and freed. The answer is known if it is the same every time.
//!
//! Invariant: what a pod is given here does not depend on loose memory, or the answer says that it does.
//!
//! Cost: one admission, and twice as many for each init container with loose memory, up to [`MOST_LOOSE`].

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{
    Allocations, ContainerKind, Grant, Holder, MemoryResource, PodName, PodRequest, Rejection, place, remove,
    unspill,
};
use numa_topology::set::{CpuSet, NodeSet};

use super::{PredictedPlace, UnknownNode, concern, reuse, verdict::RefusalGroup};
use crate::cluster::{
    model::NodeModel,
    own_engine::{KATALYST, KOORDINATOR, arrival::arrive},
    state::DecidedBy,
};

/// Most init containers with loose memory for which all cases are tried.
const MOST_LOOSE: usize = 4;

/// What pods hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Holdings {
    allocations: Allocations,
    /// Init containers whose memory may be free.
    loose: Vec<Holder>,
}

/// A node's answer to a pod.
#[derive(Debug)]
pub(super) enum NodeReply {
    /// It has no say about the pod, or admits it.
    Admitted(Option<PredictedPlace>),
    /// It refuses the pod.
    Refused(Box<Rejection>),
    /// Its answer is not known, for this reason.
    Unknown(UnknownNode),
}

/// What is taken, whichever pod has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cluster) struct TakenResources {
    cpus: CpuSet,
    memory: BTreeMap<(MemoryResource, NodeSet), u64>,
    loose: BTreeMap<(MemoryResource, NodeSet), u64>,
    devices: BTreeMap<String, BTreeSet<String>>,
    /// NUMA nodes on which pods may be that are counted elsewhere.
    moved_onto: NodeSet,
}

impl TakenResources {
    /// The same where pods may have moved to these NUMA nodes.
    pub(super) fn with_moved_onto(self, nodes: &NodeSet) -> Self {
        Self { moved_onto: nodes.clone(), ..self }
    }

    /// Does it lack anything that the other one has?
    pub(in crate::cluster) fn lacks_some_of(&self, other: &Self) -> bool {
        let less = |one: &BTreeMap<(MemoryResource, NodeSet), u64>, other: &BTreeMap<_, u64>| {
            other.iter().any(|(of, bytes)| one.get(of).is_none_or(|held| held < bytes))
        };
        let fewer = |(resource, ids): (&String, &BTreeSet<String>)| {
            self.devices.get(resource).is_none_or(|held| !ids.is_subset(held))
        };
        !other.cpus.is_subset(&self.cpus)
            || !other.moved_onto.is_subset(&self.moved_onto)
            || less(&self.memory, &other.memory)
            || less(&other.loose, &self.loose)
            || other.devices.iter().any(fewer)
    }
}

impl Holdings {
    /// These allocations, none of them loose.
    pub(super) const fn new(allocations: Allocations) -> Self {
        Self { allocations, loose: Vec::new() }
    }

    /// All of it, loose memory included.
    pub(super) const fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Gives a container what it is to hold.
    pub(super) fn give(&mut self, holder: Holder, grant: Grant) {
        self.allocations.give(holder, grant);
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, pod: &PodName) {
        if self.allocations.of_pod(pod).next().is_some() {
            remove(&mut self.allocations, pod);
        }
        self.loose.retain(|holder| holder.pod() != pod);
    }

    /// Removes a pod that only its uid names.
    pub(super) fn remove_uid(&mut self, model: &NodeModel, uid: &str) {
        self.allocations.retain(|holder| holder.pod().uid != uid);
        if model.decided_by == DecidedBy::NumaEnforcer {
            unspill(&mut self.allocations);
        }
        self.loose.retain(|holder| holder.pod().uid != uid);
    }

    /// Admits a pod if the node's managers have a say about it and admit it.
    pub(super) fn admit(&mut self, model: &NodeModel, pod: &PodRequest) -> NodeReply {
        if !concern::concerns(model, pod) {
            return NodeReply::Admitted(None);
        }
        if model.decided_by == DecidedBy::NumaEnforcer {
            if [KOORDINATOR, KATALYST].iter().any(|mark| pod.annotations.contains_key(*mark)) {
                return NodeReply::Unknown(UnknownNode::OtherController(pod.name.to_string()));
            }
            if let Some(undescribed) = pod.undescribed {
                return NodeReply::Unknown(UnknownNode::Undescribed(pod.name.to_string(), undescribed));
            }
            return match arrive((&model.inventory, &model.settings), &mut self.allocations, pod) {
                Ok(()) => NodeReply::Admitted(Some(self.place_of(model, pod))),
                Err(rejection) => NodeReply::Refused(rejection),
            };
        }
        let request = model.request_of(pod);
        let others = self.with_memory_freed();
        let try_on =
            |allocations: &mut Allocations| place(&model.inventory, &model.settings, allocations, &request);
        let answer = try_on(&mut self.allocations);
        let is_same = match others {
            Some(others) => others.into_iter().all(|mut other| match (&answer, try_on(&mut other)) {
                (Ok(()), Ok(())) => have_same_place(&request.name, &self.allocations, &other),
                (Err(one), Err(other)) => are_alike(one, &other),
                _ => false,
            }),
            None => false,
        };
        let depends = self.loose.first().filter(|_| !is_same).map(|holder| holder.pod().to_string());
        match (answer, &depends) {
            (Ok(()), _) => {}
            (Err(_), Some(pod)) => return NodeReply::Unknown(UnknownNode::FreedMemory(pod.clone())),
            (Err(rejection), None) => return NodeReply::Refused(Box::new(rejection)),
        }
        let place = self.place_of(model, pod);
        reuse::take_over_init_memory(&mut self.allocations, &request);
        let init = request.containers.iter().filter(|one| one.kind == ContainerKind::Init);
        for holder in init.map(|one| Holder::new(request.name.clone(), one.name.clone())) {
            if self.allocations.get(&holder).is_some_and(|grant| !grant.memory.is_empty()) {
                self.loose.push(holder);
            }
        }
        let unknown = depends.map(|pod| NodeReply::Unknown(UnknownNode::FreedMemory(pod)));
        unknown.unwrap_or(NodeReply::Admitted(Some(place)))
    }

    fn place_of(&self, model: &NodeModel, pod: &PodRequest) -> PredictedPlace {
        PredictedPlace::new(&model.inventory, pod, &self.allocations)
    }

    /// What is left with each part of the loose memory freed; `None` if there are too many.
    fn with_memory_freed(&self) -> Option<Vec<Allocations>> {
        if self.loose.len() > MOST_LOOSE {
            return None;
        }
        let freed = |cases: usize| {
            let mut allocations = self.allocations.clone();
            for (_, holder) in self.loose.iter().enumerate().filter(|(at, _)| cases >> at & 1 == 1) {
                let grant = allocations.get(holder).cloned().unwrap_or_default();
                allocations.give(holder.clone(), Grant { memory: Vec::new(), ..grant });
            }
            allocations
        };
        Some((1..1 << self.loose.len()).map(freed).collect())
    }

    /// What is taken, if a kubelet reads nothing else of the holders.
    pub(super) fn taken_alone(&self) -> Option<TakenResources> {
        let is_plain = |(holder, grant): (&Holder, &Grant)| grant.shared.is_none() && !holder.is_apart();
        (self.loose.is_empty() && self.allocations.iter().all(is_plain)).then(|| self.taken())
    }

    /// What is taken, whichever pod has it.
    pub(super) fn taken(&self) -> TakenResources {
        let mut taken =
            TakenResources { cpus: self.allocations.exclusive_cpus(), ..TakenResources::default() };
        for (holder, grant) in self.allocations.iter() {
            for claim in &grant.memory {
                let key = (claim.resource, claim.zone.clone());
                if self.loose.contains(holder) {
                    let loose = taken.loose.entry(key.clone()).or_default();
                    *loose = loose.saturating_add(claim.bytes);
                }
                let memory = taken.memory.entry(key).or_default();
                *memory = memory.saturating_add(claim.bytes);
            }
            for (resource, ids) in &grant.devices {
                taken.devices.entry(resource.clone()).or_default().extend(ids.iter().cloned());
            }
        }
        taken
    }
}

/// Has the pod the same CPUs, memory and devices in both?
fn have_same_place(pod: &PodName, one: &Allocations, other: &Allocations) -> bool {
    let claims = |grant: &Grant| {
        let claims = grant.memory.iter().map(|claim| (claim.resource, claim.zone.clone(), claim.bytes));
        claims.collect::<Vec<_>>()
    };
    let are_same = |(one_holder, one): (&Holder, &Grant), (other_holder, other): (&Holder, &Grant)| {
        one_holder == other_holder
            && one.exclusive == other.exclusive
            && one.devices == other.devices
            && claims(one) == claims(other)
    };
    one.of_pod(pod).count() == other.of_pod(pod).count()
        && one.of_pod(pod).zip(other.of_pod(pod)).all(|(one, other)| are_same(one, other))
}

/// Do two rejections mean the same to a scheduler?
fn are_alike(one: &Rejection, other: &Rejection) -> bool {
    one.reason == other.reason && RefusalGroup::of(one) == RefusalGroup::of(other)
}
