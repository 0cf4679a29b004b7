//! Pods played on the state before they came, and what the node did with them.

use std::collections::BTreeMap;

use numa_placement::{
    Allocations, ContainerKind, ContainerRequest, Grant, PodRequest, Rejection, external::UNPLACED,
    settings::TopologyPolicy,
};
use numa_topology::set::{CpuSet, NodeSet};

use super::shown::ShownPod;
use crate::cluster::{
    model::NodeModel,
    state::{DecidedBy, HeldPod, KubeletProfile},
    view::{NodeView, Verdict},
};

/// Most admissions of all orders together: four pods need 64.
const MOST_ADMISSIONS: usize = 64;

/// A pod that came.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) pod: &'a ShownPod,
    pub(super) request: &'a PodRequest,
    pub(super) end: ArrivalEnd<'a>,
}

/// Its outcome.
#[derive(Debug, Clone, Copy)]
pub(super) enum ArrivalEnd<'a> {
    /// The state has it.
    Held(&'a HeldPod),
    /// The kubelet refused it, for this reason.
    Refused(&'a str),
}

/// How a prediction and what is there compare.
#[derive(Debug)]
pub(super) enum Trial<'a> {
    /// They are the same; of a single pod that was refused, what was short.
    Agrees(Option<String>),
    /// They differ for this pod, in words.
    Differs(&'a ShownPod, String),
    /// There is no prediction, or it is not about this.
    Unknown,
}

/// The node after the pods came.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrialNode<'a> {
    pub(super) after: &'a NodeModel,
    pub(super) kubelet: &'a KubeletProfile,
}

/// What a container has of its own.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    cpus: CpuSet,
    mems: NodeSet,
}

impl TrialNode<'_> {
    /// Plays the pods one after another, in an order in which each becomes what it became, if there is one.
    pub(super) fn try_orders<'a>(&self, view: &NodeView, arrivals: &[&Arrival<'a>]) -> Trial<'a> {
        self.try_rest(view, arrivals, &mut 0)
    }

    fn try_rest<'a>(&self, view: &NodeView, rest: &[&Arrival<'a>], admissions: &mut usize) -> Trial<'a> {
        let mut differs = None;
        let mut is_unknown = false;
        for (at, arrival) in rest.iter().enumerate() {
            *admissions += 1;
            if *admissions > MOST_ADMISSIONS {
                return Trial::Unknown;
            }
            let mut trial = view.clone();
            let mut ended = self.try_one(&mut trial, arrival);
            let others: Vec<&Arrival<'a>> =
                rest.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, pod)| *pod).collect();
            if matches!(ended, Trial::Agrees(_)) && !others.is_empty() {
                ended = self.try_rest(&trial, &others, admissions);
            }
            match ended {
                agrees @ Trial::Agrees(_) => return agrees,
                Trial::Unknown => is_unknown = true,
                found @ Trial::Differs(..) => drop(differs.get_or_insert(found)),
            }
        }
        differs.filter(|_| !is_unknown).unwrap_or(Trial::Unknown)
    }

    /// Plays one pod, and leaves it in the view if the node took it.
    fn try_one<'a>(&self, view: &mut NodeView, arrival: &Arrival<'a>) -> Trial<'a> {
        let Arrival { pod, request, end } = *arrival;
        let is_own = self.after.decided_by == DecidedBy::NumaEnforcer;
        let differs = |note: String| Trial::Differs(pod, note);
        match (view.filter(request, 0), end) {
            (Verdict::Unknown(_), _) => Trial::Unknown,
            (Verdict::Refused(_, rejection), ArrivalEnd::Refused(_)) => {
                Trial::Agrees(Some(in_words(*rejection)))
            }
            (Verdict::Refused(_, rejection), ArrivalEnd::Held(_)) if !is_own => {
                let rejection = in_words(*rejection);
                let given = told(request, &self.found(pod));
                differs(format!("the node gave {given}, and its state predicted a refusal: {rejection}"))
            }
            // A plugin's own failure has the same reason, and nothing tells of it.
            (_, ArrivalEnd::Refused("UnexpectedAdmissionError"))
                if request.containers.iter().any(|one| !one.devices.is_empty()) =>
            {
                Trial::Unknown
            }
            (Verdict::Fits(_), ArrivalEnd::Refused(reason)) => {
                view.observe_bound(&pod.uid, request);
                let predicted = told(request, &grants_of(view.allocations(), pod));
                differs(format!(
                    "the kubelet refused the pod ({reason}), and its state predicted {predicted}"
                ))
            }
            (Verdict::NotConcerned, ArrivalEnd::Refused(reason)) => differs(format!(
                "the kubelet refused the pod ({reason}), and its state predicted that it fits"
            )),
            (Verdict::NotConcerned, ArrivalEnd::Held(held)) => {
                let has_own = |pod: &HeldPod| {
                    pod.containers.iter().any(|one| !one.cpus.is_empty() || !one.memory.is_empty())
                };
                if has_own(held) {
                    let given = told(request, &self.found(pod));
                    differs(format!("the node gave {given}, and its state predicted nothing of its own"))
                } else {
                    Trial::Agrees(None)
                }
            }
            (Verdict::Fits(_) | Verdict::Refused(..), ArrivalEnd::Held(_)) => {
                view.observe_bound(&pod.uid, request);
                let predicted = grants_of(view.allocations(), pod);
                self.compare(arrival, &predicted)
            }
        }
    }

    fn compare<'a>(&self, arrival: &Arrival<'a>, predicted: &BTreeMap<&str, &Grant>) -> Trial<'a> {
        let Arrival { pod, request, .. } = *arrival;
        let found = self.found(pod);
        let is_own = self.after.decided_by == DecidedBy::NumaEnforcer;
        let mut is_same = true;
        for container in &request.containers {
            let is_init = container.kind == ContainerKind::Init;
            if is_init && is_own {
                // It may have ended, and then it has nothing.
                continue;
            }
            let name = container.name.as_str();
            let place = |grants: &BTreeMap<&str, &Grant>| grants.get(name).map(|grant| place_of(grant));
            match (place(predicted), place(&found)) {
                // One that has ended has no grant, and one that only shares is in no file.
                (_, None) if is_own => {}
                (None, None) => {}
                (Some(expected), None) if expected == Place::default() => {}
                (Some(_), None) => return Trial::Unknown,
                (expected, Some(given)) => {
                    let expected = expected.unwrap_or_default();
                    // The memory of one that has ended is free again.
                    is_same &= expected.cpus == given.cpus && (is_init || expected.mems == given.mems);
                }
            }
        }
        is_same &= self.devices_are_near(request, predicted, &found);
        if is_same {
            return Trial::Agrees(None);
        }
        let (given, expected) = (told(request, &found), told(request, predicted));
        Trial::Differs(pod, format!("the node gave {given}, and its state predicted {expected}"))
    }

    /// Are the devices near the predicted nodes? Which of the devices there is the choice of the plugin. A
    /// kubelet with another policy may take any.
    fn devices_are_near(
        &self,
        request: &PodRequest,
        predicted: &BTreeMap<&str, &Grant>,
        found: &BTreeMap<&str, &Grant>,
    ) -> bool {
        let policy = self.after.settings.hints.policy;
        if !matches!(policy, TopologyPolicy::Restricted | TopologyPolicy::SingleNumaNode) {
            return true;
        }
        let is_pod_scope = self.kubelet.topology_scope == "pod";
        let near = |grant: &Grant| {
            let devices = self.device_nodes(grant);
            devices.iter().fold(self.nodes_of(&place_of(grant)), |nodes, device| nodes.union(device))
        };
        let of_pod = predicted.values().fold(NodeSet::new(), |nodes, grant| nodes.union(&near(grant)));
        request.containers.iter().all(|container: &ContainerRequest| {
            let name = container.name.as_str();
            let (Some(expected), Some(given)) = (predicted.get(name), found.get(name)) else { return true };
            let nodes = if is_pod_scope { of_pod.clone() } else { near(expected) };
            let is_near = |device: NodeSet| device.is_empty() || !device.intersection(&nodes).is_empty();
            self.device_nodes(given).into_iter().all(is_near)
        })
    }

    /// Nodes of each device of a grant.
    fn device_nodes(&self, grant: &Grant) -> Vec<NodeSet> {
        let units = |resource: &String| self.after.inventory.devices.get(resource);
        let all = grant.devices.iter().flat_map(|(resource, ids)| {
            let units = units(resource).into_iter().flatten();
            units.filter(|unit| ids.contains(&unit.id)).map(|unit| unit.nodes.clone())
        });
        all.collect()
    }

    fn nodes_of(&self, place: &Place) -> NodeSet {
        self.after.inventory.machine.nodes_of(&place.cpus).union(&place.mems)
    }

    fn found(&self, pod: &ShownPod) -> BTreeMap<&str, &Grant> {
        grants_of(&self.after.allocations, pod)
    }
}

/// Grants of a pod by the names of its containers.
fn grants_of<'a>(allocations: &'a Allocations, pod: &ShownPod) -> BTreeMap<&'a str, &'a Grant> {
    let own = allocations.iter().filter(|(holder, _)| pod.is_called(&holder.pod().uid));
    own.map(|(holder, grant)| (holder.name(), grant)).collect()
}

fn place_of(grant: &Grant) -> Place {
    if grant.engine == UNPLACED {
        return Place::default();
    }
    let mems = grant.memory.iter().fold(NodeSet::new(), |mems, claim| mems.union(&claim.zone));
    Place { cpus: grant.exclusive.clone(), mems }
}

/// What was short, without the pods that have it: they may be of namespaces that the owner of this pod does
/// not see.
fn in_words(mut rejection: Rejection) -> String {
    rejection.wording.taken.clear();
    rejection.to_string()
}

/// What the containers of a pod have of their own, in words.
fn told(request: &PodRequest, grants: &BTreeMap<&str, &Grant>) -> String {
    let one = |container: &ContainerRequest| {
        let grant = grants.get(container.name.as_str())?;
        let Place { cpus, mems } = place_of(grant);
        let mut parts = Vec::new();
        if !cpus.is_empty() {
            parts.push(format!("CPUs {cpus}"));
        }
        if !mems.is_empty() {
            parts.push(format!("memory of nodes {mems}"));
        }
        for (resource, ids) in grant.devices.iter().filter(|(_, ids)| !ids.is_empty()) {
            parts.push(format!("{} {resource}", ids.len()));
        }
        (!parts.is_empty()).then(|| format!("{}: {}", container.name, parts.join(", ")))
    };
    let all: Vec<String> = request.containers.iter().filter_map(one).collect();
    if all.is_empty() { "nothing of its own".to_owned() } else { all.join("; ") }
}
