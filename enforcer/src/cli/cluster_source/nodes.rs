//! Nodes of a cluster with what their pods hold, made of its objects.
//!
//! Problem: a list tells that a pod has ended, and not whether its kubelet knew that when it admitted the
//! pods that came later. Idea: a recent end is shown to the view behind all bindings, so that the view asks
//! what difference the moment makes. A pod that came and went since the state matters if another one came
//! meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
};

use enforcer_cluster::objects::ClusterObjects;
use enforcer_core::cluster::{
    age::DaemonLeases,
    explain::{HostNode, HostedPod},
    objects::{NodeObject, PodObject, PodPhase, StateObject},
    plan::{NodeSums, PlannedNode, PlannedPod},
    view::{NodeView, StateOutcome},
};
use enforcer_runtime::manifest::annotation_documents;

use crate::cli::terminal;

/// Most states that are named as unusable.
const NOTES: usize = 16;
/// Seconds from the end of the last container of a pod within which its kubelet frees what it held: the
/// kubelet takes some seconds to see that end.
const FREED_WITHIN: i64 = 60;

/// The nodes with what their pods hold, and the pods that have no node yet. What is wrong with states is
/// printed on standard error.
pub(in crate::cli) fn with_pods(objects: ClusterObjects) -> (Vec<HostNode>, Vec<PlannedPod>) {
    let ClusterObjects { nodes, states, pods, leases, has_all_leases, now, .. } = objects;
    let leases = DaemonLeases::new(&leases, has_all_leases, now);
    let mut by_node = BTreeMap::<String, Vec<PodObject>>::new();
    let mut waiting = Vec::new();
    for mut pod in pods {
        pod.request.documents = annotation_documents(&pod.request.annotations);
        match (&pod.node, pod.phase) {
            (Some(node), _) => by_node.entry(node.clone()).or_default().push(pod),
            (None, PodPhase::Pending | PodPhase::Running) => {
                waiting.push(PlannedPod {
                    request: pod.request,
                    scheduling: pod.scheduling,
                    counted: pod.counted,
                });
            }
            (None, PodPhase::Ended) => {}
        }
    }
    let mut hosts = Vec::new();
    let mut notes = Vec::new();
    for node in nodes {
        let mut view = NodeView::default();
        let state = states.get(&node.name);
        notes.extend(state.and_then(|state| observe(&mut view, &node, state, &leases)));
        let NodeObject { name, is_cordoned, is_ready, taints, allocatable, labels, .. } = node;
        let mut sums = NodeSums::new(allocatable);
        let of_node = by_node.remove(&name).unwrap_or_default();
        let mut hosted = Vec::new();
        for pod in of_node.iter().filter(|pod| pod.phase != PodPhase::Ended).map(hosted_pod) {
            sums.add(&pod.amounts);
            hosted.push(pod);
        }
        observe_pods(&mut view, &of_node);
        let mut node = PlannedNode::new(name, sums, view);
        (node.is_cordoned, node.is_ready) = (is_cordoned, is_ready);
        (node.taints, node.labels) = (taints, labels);
        hosts.push(HostNode { node, pods: hosted });
    }
    note_first(&notes);
    (hosts, waiting)
}

fn hosted_pod(pod: &PodObject) -> HostedPod {
    HostedPod {
        name: pod.request.name.to_string(),
        uid: pod.kubelet_uid().to_owned(),
        priority: pod.scheduling.priority,
        is_static: pod.mirror_of.is_some(),
        amounts: pod.amounts(),
    }
}

/// Prints what is wrong with states, as far as it can be read.
fn note_first(notes: &[String]) {
    notes.iter().take(NOTES).for_each(|note| terminal::note(note));
    if notes.len() > NOTES {
        terminal::note(&format!("the same of {} further states", notes.len() - NOTES));
    }
}

/// Shows the view the pods of its node, in the order in which they came.
fn observe_pods(view: &mut NodeView, pods: &[PodObject]) {
    // A static pod has one uid or the other in the state.
    let covered_uids = |pod: &PodObject| {
        let covers = |uid: &&str| view.model().is_some_and(|model| model.covered.contains(*uid));
        let uids = BTreeSet::from([pod.uid.as_str(), pod.kubelet_uid()]);
        uids.into_iter().filter(covers).map(str::to_owned).collect::<Vec<_>>()
    };
    let freed_at = |pod: &PodObject| Some(pod.ended_at?.saturating_add(FREED_WITHIN));
    let (ended, held): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| pod.phase == PodPhase::Ended);
    let open = held.iter().filter(|pod| covered_uids(pod).is_empty()).map(|pod| pod.arrival.at);
    let open: Vec<i64> = open.collect();
    let mut came: Vec<&PodObject> = held;
    let mut ends: Vec<(Option<i64>, String)> = Vec::new();
    for pod in ended {
        let (uids, freed) = (covered_uids(pod), freed_at(pod));
        let was_beside = |at: &i64| (pod.arrival.at..=freed.unwrap_or(i64::MIN)).contains(at);
        if uids.is_empty() && open.iter().any(was_beside) {
            came.push(pod);
            ends.push((freed, pod.kubelet_uid().to_owned()));
        }
        ends.extend(uids.into_iter().map(|uid| (freed, uid)));
    }
    came.sort_by_key(|pod| pod.order());
    // Within a second nothing tells which pod was bound first.
    for together in came.chunk_by(|one, next| one.arrival.at == next.arrival.at) {
        let at = together.first().map_or(i64::MIN, |pod| pod.arrival.at);
        for (_, uid) in ends.extract_if(.., |(freed, _)| freed.is_some_and(|freed| freed < at)) {
            view.observe_ended(&uid, 0);
        }
        let together: Vec<_> = together.iter().map(|pod| (pod.kubelet_uid(), &pod.request)).collect();
        view.observe_bound_together(&together);
    }
    for (_, uid) in ends {
        view.observe_ended(&uid, 0);
    }
}

/// Shows the view the state of its node. Returns what is wrong with a state that is not of this node, or
/// contradicts itself, or is older than what it describes.
fn observe(
    view: &mut NodeView,
    node: &NodeObject,
    object: &StateObject,
    leases: &DaemonLeases<'_>,
) -> Option<String> {
    let left_out = |fault: &dyn Display| Some(format!("left out: NumaNodeState {}: {fault}", node.name));
    let state = match object.of_node(node) {
        Ok(state) => state,
        Err(foreign) => return left_out(&foreign),
    };
    if let StateOutcome::Refused(fault) = view.observe_state(state, 0) {
        return left_out(&fault);
    }
    let reason = leases.outdated(node, &object.origin, &state.kubelet.version).into_iter().next()?;
    let note = format!("out of date: NumaNodeState {}: {reason}", node.name);
    view.observe_outdated(Some(reason));
    Some(note)
}
