//! `numa-enforcer plan --cluster`: which node, NUMA nodes and CPUs pods would get in a cluster.
//!
//! Pods with a node hold their place; pods of the manifests, or without these the pods of the cluster that
//! have no node, are placed one after another.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt::Display,
    io::Write,
    path::{Path, PathBuf},
};

use enforcer_cluster::objects::ClusterObjects;
use enforcer_core::cluster::{
    age::DaemonLeases,
    objects::{NodeObject, PodObject, PodPhase, StateObject},
    plan::{ClusterPlan, NodeRule, NodeSums, PlannedNode, PlannedPod},
    view::{NodeView, StateOutcome},
};

use super::{
    Exit, UsageError, args,
    cluster_source::{ClusterSource, ReadCluster},
    exit::of_input,
    terminal,
};
use enforcer_report::{cluster_plan, json};
use enforcer_runtime::manifest::{annotation_documents, read_pods};

/// Most copies that `--fill` tries.
const COPIES: usize = 100_000;
/// Most states that are named as unusable.
const NOTES: usize = 16;

/// What is placed, and where.
pub(super) struct Options {
    nodes: Vec<PlannedNode>,
    pods: Vec<PlannedPod>,
    rule: NodeRule,
    fill: bool,
    explain: bool,
    format: args::TableOrJson,
    /// Whether nodes of the source could not be read.
    lacks_nodes: bool,
}

impl TryFrom<args::PlanArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::PlanArgs) -> anyhow::Result<Self> {
        let named = ClusterSource::named(args.cluster.flatten(), args.kubeconfig, args.machine.synthetic)?;
        let no_source = "behind --cluster a SOURCE, --kubeconfig or --synthetic is expected";
        let source = named.ok_or_else(|| UsageError(no_source.into()))?;
        let standard_input = args.pods.iter().filter(|path| path.as_os_str() == "-").count();
        if standard_input + usize::from(source.is_standard_input()) > 1 {
            return Err(UsageError("standard input (`-`) can be read only once".into()).into());
        }
        let mut pods = Vec::new();
        if !args.pods.is_empty() {
            let manifests: Vec<&Path> = args.pods.iter().map(PathBuf::as_path).collect();
            let read = read_pods(&manifests).map_err(of_input)?;
            read.notes.iter().for_each(|line| terminal::note(line));
            pods = read.pods;
        }
        let ReadCluster { objects, lacks_nodes } = source.read()?;
        let (nodes, waiting) = planned(objects);
        if pods.is_empty() {
            pods = waiting;
        }
        if pods.is_empty() {
            return Err(
                UsageError("no pod to place: name manifests, or list pods without a node".into()).into()
            );
        }
        if args.fill && pods.len() != 1 {
            return Err(UsageError(format!("--fill takes one pod, and there are {}", pods.len())).into());
        }
        if args.order == args::PodOrder::Priority {
            pods.sort_by_key(|pod| Reverse(pod.scheduling.priority));
        }
        let rule = args.rule.into();
        Ok(Self {
            nodes,
            pods,
            rule,
            fill: args.fill,
            explain: args.explain,
            format: args.output,
            lacks_nodes,
        })
    }
}

/// The nodes with what their pods hold, and the pods that have no node yet.
fn planned(objects: ClusterObjects) -> (Vec<PlannedNode>, Vec<PlannedPod>) {
    let ClusterObjects { nodes, states, pods, leases, has_all_leases, now, .. } = objects;
    let leases = DaemonLeases::new(&leases, has_all_leases, now);
    let mut by_node = BTreeMap::<String, Vec<PodObject>>::new();
    let mut waiting = Vec::new();
    for mut pod in pods {
        pod.request.documents = annotation_documents(&pod.request.annotations);
        match (&pod.node, pod.phase) {
            (Some(node), _) => by_node.entry(node.clone()).or_default().push(pod),
            (None, PodPhase::Pending | PodPhase::Running) => {
                waiting.push(PlannedPod { request: pod.request, scheduling: pod.scheduling });
            }
            (None, PodPhase::Ended) => {}
        }
    }
    let mut planned = Vec::new();
    let mut notes = Vec::new();
    for node in nodes {
        let mut view = NodeView::default();
        let state = states.get(&node.name);
        notes.extend(state.and_then(|state| observe(&mut view, &node, state, &leases)));
        let NodeObject { name, is_cordoned, is_ready, taints, allocatable, .. } = node;
        let mut sums = NodeSums::new(allocatable);
        let of_node = by_node.remove(&name).unwrap_or_default();
        // Within a second nothing tells which pod was bound first.
        for together in of_node.chunk_by(|one, next| one.arrival.at == next.arrival.at) {
            let (ended, held): (Vec<_>, Vec<_>) =
                together.iter().partition(|pod| pod.phase == PodPhase::Ended);
            for pod in ended {
                end(&mut view, pod);
            }
            for pod in &held {
                sums.add(&pod.amounts());
            }
            let held: Vec<_> = held.into_iter().map(|pod| (pod.kubelet_uid(), &pod.request)).collect();
            view.observe_bound_together(&held);
        }
        let mut node = PlannedNode::new(name, sums, view);
        (node.is_cordoned, node.is_ready, node.taints) = (is_cordoned, is_ready, taints);
        planned.push(node);
    }
    note_first(&notes);
    (planned, waiting)
}

/// Prints what is wrong with states, as far as it can be read.
fn note_first(notes: &[String]) {
    notes.iter().take(NOTES).for_each(|note| terminal::note(note));
    if notes.len() > NOTES {
        terminal::note(&format!("the same of {} further states", notes.len() - NOTES));
    }
}

/// Takes back what the state gives to a pod that has ended; a static pod has one uid or the other there.
fn end(view: &mut NodeView, pod: &PodObject) {
    for uid in [pod.uid.as_str(), pod.kubelet_uid()] {
        if view.model().is_some_and(|model| model.covered.contains(uid)) {
            view.observe_ended(uid, 0);
        }
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

pub(super) fn run(options: Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { nodes, pods, rule, fill, explain, format, lacks_nodes } = options;
    let plan = ClusterPlan::new(nodes, rule, explain, 0);
    let report = match pods.first() {
        Some(pod) if fill => plan.fill(pod, COPIES),
        _ => plan.place_all(&pods),
    };
    match format {
        args::TableOrJson::Table => cluster_plan::render(&report, explain, terminal::style(), out)?,
        args::TableOrJson::Json => json::write(&report, out)?,
    }
    out.flush()?;
    if lacks_nodes {
        return Ok(Exit::Undetermined);
    }
    // Filling ends at the copy that no node takes.
    Ok(if report.pending == 0 || (fill && report.placed > 0) { Exit::Ok } else { Exit::Rejected })
}
