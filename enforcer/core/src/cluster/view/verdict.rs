//! A node's answer to a pod.

use std::fmt;

use numa_placement::{
    Allocations, Holder, Inventory, MemoryResource, PodRequest, Rejection, RejectionProblem, RejectionReason,
    Undescribed,
};
use numa_topology::set::{CpuSet, NodeSet};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::state::InexactSource;

/// A node's answer to a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The node's managers have no say about this pod.
    NotConcerned,
    /// The node admits it, at this place.
    Fits(PredictedPlace),
    /// The node refuses it.
    Refused(RefusalGroup, Box<Rejection>),
    /// The node's answer cannot be predicted.
    Unknown(UnknownNode),
}

/// Why the answer of a node is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnknownNode {
    /// It has published no state, or only one that contradicts itself.
    NoState,
    /// Its last state is too old.
    Stale,
    /// Its last state is older than what it describes.
    Outdated(String),
    /// Its state is inexact.
    Inexact(InexactSource),
    /// A bound pod does not fit by the state; until the next state nothing is certain.
    Misfit(String),
    /// Its answer depends on memory of init containers of this pod, which the kubelet may have freed.
    FreedMemory(String),
    /// These pods were bound at the same time, and their order decides what is left.
    Unordered(String),
    /// Events were missed before this pod was bound, and no state covers it.
    Gap(String),
    /// This pod has ended, and pods that came before the API showed that may have what it held.
    OpenEnd(String),
    /// Another controller pins this pod, and what it gives is not known.
    OtherController(String),
    /// The amounts of the containers of this pod do not describe what the daemon of the node sees.
    Undescribed(String, Undescribed),
    /// Pods that were chosen for it may arrive in an order in which it refuses this one.
    Waiting(String),
    /// Pods go there one at a time, and this one is on its way.
    OneAtATime(String),
    /// Pods bound before this one may have its place, if others have ended that are shown as there.
    UnseenEnd(String),
}

impl UnknownNode {
    pub(super) fn unordered<'a>(pods: impl Iterator<Item = &'a String>) -> Self {
        Self::Unordered(pods.map(String::as_str).collect::<Vec<_>>().join(", "))
    }

    /// The text for a node on which an earlier pod may still arrive.
    pub const WAITING: &str = "NUMA: waiting for an earlier pod";

    /// The text for a scheduler: one of few, which counts nodes with equal texts.
    pub const fn as_group(&self) -> &'static str {
        if self.is_for_earlier_pod() { Self::WAITING } else { "NUMA: state unknown" }
    }

    /// Is it known when a state covers the pods before?
    pub(in crate::cluster) const fn is_for_earlier_pod(&self) -> bool {
        matches!(self, Self::Waiting(_) | Self::UnseenEnd(_) | Self::OneAtATime(_) | Self::FreedMemory(_))
    }
}

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoState => f.write_str("the node has published no usable state"),
            Self::Stale => f.write_str("the state of the node is too old"),
            Self::Inexact(source) => {
                write!(f, "the state of the node is inexact: {}: {}", source.source, source.reason)
            }
            Self::Outdated(reason) => write!(f, "the state of the node is out of date: {reason}"),
            Self::FreedMemory(pod) => write!(
                f,
                "pod {pod} may have freed memory of its init containers, which the state of the node does not cover"
            ),
            Self::Unordered(pods) => {
                write!(f, "pods {pods} were bound within one second, and their order decides what is left")
            }
            Self::OpenEnd(uid) => {
                write!(f, "the pod with uid {uid} has ended, and pods bound before may have what it held")
            }
            Self::Gap(pod) => write!(
                f,
                "pods may have come and gone unseen before pod {pod}, which the state of the node does not cover"
            ),
            Self::Misfit(pod) => write!(f, "pod {pod} is bound to the node and does not fit by its state"),
            Self::OtherController(pod) => write!(f, "another controller pins pod {pod}"),
            Self::Undescribed(pod, undescribed) => write!(
                f,
                "what numa-enforcer gives to pod {pod} does not follow from its containers: {}",
                undescribed.as_str()
            ),
            Self::OneAtATime(pod) => write!(
                f,
                "the node gave some pods another place than was predicted, so pods go there one at a time, and pod {pod} is on its way"
            ),
            Self::UnseenEnd(pod) => write!(
                f,
                "pods bound before {pod} may have its place, if the node has freed what others held and that is not shown yet"
            ),
            Self::Waiting(pod) => {
                write!(
                    f,
                    "pods that were chosen for the node may arrive in an order that leaves no place for {pod}"
                )
            }
        }
    }
}

/// Where a node would put a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PredictedPlace {
    /// NUMA nodes of its exclusive CPUs and of its memory.
    pub nodes: NodeSet,
    /// Its containers, in the order of the pod.
    pub containers: Vec<PredictedContainer>,
}

/// Where a node would put a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PredictedContainer {
    /// Its name.
    pub name: String,
    /// Its exclusive CPUs.
    pub cpus: CpuSet,
    /// Its memory nodes; empty if the memory manager gives none.
    pub mems: NodeSet,
}

impl PredictedPlace {
    /// The place of an admitted pod; a container that has ended by then has none.
    pub(super) fn new(inventory: &Inventory, pod: &PodRequest, allocations: &Allocations) -> Self {
        let mut place = Self::default();
        for container in &pod.containers {
            let holder = Holder::new(pod.name.clone(), container.name.clone());
            let Some(grant) = allocations.get(&holder) else { continue };
            let cpus = grant.exclusive.clone();
            let mems = grant.memory.iter().fold(NodeSet::new(), |mems, claim| mems.union(&claim.zone));
            place.nodes.extend(&inventory.machine.nodes_of(&cpus).union(&mems));
            place.containers.push(PredictedContainer { name: container.name.clone(), cpus, mems });
        }
        place
    }
}

/// What is short, as one of few texts: a scheduler counts nodes with equal texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalGroup {
    /// CPUs are free, but not together.
    Cpus,
    /// Whole cores.
    WholeCores,
    /// Memory or huge pages.
    Memory,
    /// Devices.
    Devices,
}

impl RefusalGroup {
    /// The group of a rejection: what it is short of, the scarcest kind first.
    pub(super) fn of(rejection: &Rejection) -> Self {
        if rejection.reason == RejectionReason::SmtAlignmentError {
            return Self::WholeCores;
        }
        match &*rejection.problem {
            RejectionProblem::Devices { .. } => return Self::Devices,
            RejectionProblem::Memory(_) => return Self::Memory,
            _ => {}
        }
        let short = |is_kind: &dyn Fn(&str) -> bool| {
            let shortages = rejection.shortages.iter().filter(|short| short.wanted > short.available);
            shortages.map(|short| short.resource.as_str()).any(is_kind)
        };
        if short(&|resource| resource.contains('/')) {
            Self::Devices
        } else if short(&|resource| resource == "cpu") {
            Self::Cpus
        } else if short(&|resource| MemoryResource::of_name(resource).is_some()) {
            Self::Memory
        } else {
            Self::Cpus
        }
    }

    /// The text for a scheduler.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpus => "NUMA: no node of the machine has the CPUs free together",
            Self::WholeCores => "NUMA: whole cores",
            Self::Memory => "NUMA: memory",
            Self::Devices => "NUMA: devices",
        }
    }
}
