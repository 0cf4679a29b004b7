//! Check of a cluster: published states against nodes against pods.
//!
//! Problem: a prediction is as good as the state that it starts from, and a state that is wrong looks like
//! any other. What shows it is elsewhere: in the Node, in the pods, in the lease of the daemon. Idea: compare
//! them, and name each difference with its node and its pod.
//!
//! Invariants: nothing is asked and nothing is changed; time is an argument. A state that cannot be used is
//! one finding, and no other is derived from it. Equal input gives an equal report.

mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use numa_placement::{ContainerKind, ContainerRequest, QosClass};
use numa_topology::set::CpuSet;

pub use self::report::{
    CLUSTER_CHECK_SCHEMA_VERSION, ClusterCheckReport, ClusterFinding, ClusterFindingKind,
};
use super::{
    age::DaemonLeases,
    model::NodeModel,
    objects::{ForeignState, LeaseObject, NodeObject, PodObject, PodPhase, StateObject},
    state::{FIELD_MANAGER, HeldPod, NodeState},
    view::concerns,
};

/// Seconds after which a state covers a pod that was bound: the kubelet admits it and the daemon publishes,
/// also after a restart of either.
const COVERED_WITHIN: i64 = 120;
/// Seconds that the resources of an ended pod may stay: the kubelet frees them with its next round, once a
/// grace period is over.
const FREED_WITHIN: i64 = 300;

/// Objects of a cluster, as they were at one time.
#[derive(Debug, Clone, Copy)]
pub struct CheckedCluster<'a> {
    /// Nodes.
    pub nodes: &'a [NodeObject],
    /// Published states by name of the object.
    pub states: &'a BTreeMap<String, StateObject>,
    /// Pods of all nodes, listed after the states.
    pub pods: &'a [PodObject],
    /// Signs of life of daemons, as far as they are known.
    pub leases: &'a [LeaseObject],
    /// Whether `leases` has those of all daemons.
    pub has_all_leases: bool,
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// Every difference between states, nodes and pods.
pub fn check(cluster: CheckedCluster<'_>) -> ClusterCheckReport {
    let leases = DaemonLeases::new(cluster.leases, cluster.has_all_leases, cluster.now);
    let mut found = FoundDifferences { cluster, leases, findings: Vec::new() };
    let mut by_node = BTreeMap::<&str, Vec<&PodObject>>::new();
    for pod in cluster.pods {
        if let Some(node) = &pod.node {
            by_node.entry(node).or_default().push(pod);
        }
    }
    let mut pods: BTreeMap<&str, &PodObject> =
        cluster.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect();
    // What a mirror names as its uid in the kubelet hides no other pod.
    for pod in cluster.pods {
        pods.entry(pod.kubelet_uid()).or_insert(pod);
    }
    let known: BTreeSet<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
    for name in cluster.states.keys().filter(|name| !known.contains(name.as_str())) {
        found.add(ClusterFindingKind::Foreign, name, "there is no Node of this name".to_owned());
    }
    for node in cluster.nodes {
        match cluster.states.get(&node.name) {
            Some(object) => {
                let of_node = by_node.get(node.name.as_str()).map_or(&[][..], Vec::as_slice);
                found.of_state(node, object, of_node, &pods);
            }
            None if node.is_foreign_system => {}
            None => {
                found.add(ClusterFindingKind::Missing, &node.name, "no state is published".to_owned());
            }
        }
    }
    let FoundDifferences { mut findings, .. } = found;
    findings.sort();
    findings.dedup();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    ClusterCheckReport {
        schema_version: CLUSTER_CHECK_SCHEMA_VERSION,
        nodes: count(cluster.nodes.len()),
        states: count(cluster.states.len()),
        pods: count(cluster.pods.len()),
        findings,
    }
}

struct FoundDifferences<'a> {
    cluster: CheckedCluster<'a>,
    leases: DaemonLeases<'a>,
    findings: Vec<ClusterFinding>,
}

impl FoundDifferences<'_> {
    fn add(&mut self, finding: ClusterFindingKind, node: &str, reason: String) {
        self.findings.push(ClusterFinding { finding, node: node.to_owned(), pod: None, reason });
    }

    fn add_pod(&mut self, finding: ClusterFindingKind, node: &str, pod: String, reason: String) {
        self.findings.push(ClusterFinding { finding, node: node.to_owned(), pod: Some(pod), reason });
    }

    fn of_state(
        &mut self,
        node: &NodeObject,
        object: &StateObject,
        of_node: &[&PodObject],
        pods: &BTreeMap<&str, &PodObject>,
    ) {
        let name = &node.name;
        for writer in object.writers.iter().filter(|writer| *writer != FIELD_MANAGER) {
            let reason = format!("the field manager {writer:?} has written it");
            self.add(ClusterFindingKind::Foreign, name, reason);
        }
        let state = match object.of_node(node) {
            Ok(state) => state,
            Err(ForeignState::Unreadable(fault)) => {
                return self.add(ClusterFindingKind::Inexact, name, format!("it is no state: {fault}"));
            }
            Err(foreign) => return self.add(ClusterFindingKind::Foreign, name, foreign.to_string()),
        };
        for reason in self.leases.outdated(node, &object.origin, &state.kubelet.version) {
            self.add(ClusterFindingKind::Stale, name, reason);
        }
        let model = match NodeModel::new(state) {
            Ok(model) => model,
            Err(fault) => {
                return self.add(
                    ClusterFindingKind::Inexact,
                    name,
                    format!("it contradicts itself: {fault}"),
                );
            }
        };
        for source in &model.inexact {
            let reason = format!("{}: {}", source.source, source.reason);
            self.add(ClusterFindingKind::Inexact, name, reason);
        }
        if !model.inexact.is_empty() {
            return;
        }
        for held in &state.pods {
            self.of_held(node, held, pods);
        }
        if !node.is_ready {
            return;
        }
        for pod in of_node.iter().filter(|pod| pod.phase != PodPhase::Ended) {
            self.of_bound(node, state, &model, pod);
        }
    }

    /// Does the pod that holds something exist, and does it still need that?
    fn of_held(&mut self, node: &NodeObject, held: &HeldPod, pods: &BTreeMap<&str, &PodObject>) {
        let uids = [Some(held.uid.as_str()), held.mirror_of.as_deref()];
        let pod = uids.into_iter().flatten().find_map(|uid| pods.get(uid));
        let shown =
            if held.name.is_empty() { held.uid.clone() } else { format!("{}/{}", held.namespace, held.name) };
        let Some(pod) = pod else {
            let reason = format!("holds {}, and the API has no such pod", what(held));
            return self.add_pod(ClusterFindingKind::Leaked, &node.name, shown, reason);
        };
        if pod.node.as_deref().is_some_and(|bound| bound != node.name) {
            let bound = pod.node.as_deref().unwrap_or_default();
            let reason = format!("holds {}, and is bound to node {bound}", what(held));
            return self.add_pod(ClusterFindingKind::Leaked, &node.name, shown, reason);
        }
        if pod.phase == PodPhase::Ended {
            let ended_at = pod.ended_at.unwrap_or(self.cluster.now);
            let since = self.cluster.now.saturating_sub(ended_at);
            if since > FREED_WITHIN {
                let reason = format!("holds {}, and ended {since} s ago", what(held));
                self.add_pod(ClusterFindingKind::Leaked, &node.name, shown, reason);
            }
            return;
        }
        if pod.phase != PodPhase::Running {
            return;
        }
        for container in held.containers.iter().filter(|one| pod.ended_init.contains(&one.name)) {
            let others = held.containers.iter().filter(|other| !pod.ended_init.contains(&other.name));
            let used = others.fold(CpuSet::new(), |used, other| used.union(&other.cpus));
            let kept = container.cpus.difference(&used);
            if !kept.is_empty() {
                let reason = format!("its init container {} has ended and keeps CPUs {kept}", container.name);
                self.add_pod(ClusterFindingKind::Leaked, &node.name, shown.clone(), reason);
            }
        }
    }

    /// Is a pod that the managers of the node give something to in the state?
    fn of_bound(&mut self, node: &NodeObject, state: &NodeState, model: &NodeModel, pod: &PodObject) {
        if !concerns(model, &pod.request) {
            return;
        }
        let shown = pod.request.name.to_string();
        let is_covered = model.covered.contains(&pod.uid) || model.covered.contains(pod.kubelet_uid());
        let since = self.cluster.now.saturating_sub(pod.arrival.at);
        if !is_covered {
            if since > COVERED_WITHIN {
                let (finding, reason) = if pod.phase == PodPhase::Running {
                    (
                        ClusterFindingKind::Uncovered,
                        "runs, and the state does not have what it holds".to_owned(),
                    )
                } else {
                    (
                        ClusterFindingKind::Stale,
                        format!("was bound {since} s ago, and the state does not cover it"),
                    )
                };
                self.add_pod(finding, &node.name, shown, reason);
            }
            return;
        }
        if pod.phase != PodPhase::Running || !model.gives_cpus() || pod.request.qos != QosClass::Guaranteed {
            return;
        }
        let is_held = |held: &&HeldPod| {
            let uids = [Some(&held.uid), held.mirror_of.as_ref()];
            uids.into_iter().flatten().any(|uid| *uid == pod.uid || uid == pod.kubelet_uid())
        };
        let held = state.pods.iter().find(is_held);
        let permanent = pod.request.containers.iter().filter(|one| one.kind != ContainerKind::Init);
        for container in permanent {
            let asks = ContainerRequest::whole_cpus(container).unwrap_or(0);
            let has = held.and_then(|held| held.containers.iter().find(|one| one.name == container.name));
            let has = has.map_or(0, |one| u64::try_from(one.cpus.len()).unwrap_or(u64::MAX));
            if asks > 0 && has != asks {
                let reason = format!("container {} asks for {asks} CPUs and holds {has}", container.name);
                self.add_pod(ClusterFindingKind::Uncovered, &node.name, shown.clone(), reason);
            }
        }
    }
}

/// What a pod holds, in few words.
fn what(held: &HeldPod) -> String {
    let cpus = held.containers.iter().fold(CpuSet::new(), |all, one| all.union(&one.cpus));
    let memory = held.containers.iter().flat_map(|one| &one.memory);
    let bytes = memory.fold(0_i64, |sum, memory| sum.saturating_add(memory.bytes));
    let devices = held.containers.iter().flat_map(|one| one.devices.values()).flat_map(BTreeMap::values);
    let devices: u64 = devices.map(|count| u64::from(*count)).sum();
    let parts = [
        (!cpus.is_empty()).then(|| format!("CPUs {cpus}")),
        (bytes > 0).then(|| format!("{bytes} bytes of memory")),
        (devices > 0).then(|| format!("{devices} devices")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}
