//! `numa-enforcer plan --cluster`: which node, NUMA nodes and CPUs pods would get in a cluster.
//!
//! Pods with a node hold their place; pods of the manifests, or without these the pods of the cluster that
//! have no node, are placed one after another.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use enforcer_cluster::objects::ClusterObjects;
use enforcer_core::cluster::{
    objects::{NodeObject, PodObject, PodPhase, StateObject},
    plan::{ClusterPlan, NodeRule, NodeSums, PlannedNode, PlannedPod, amounts_of},
    view::{NodeView, StateOutcome},
};

use super::{Exit, UsageError, args, cluster_source::ClusterSource, exit::of_input, terminal};
use enforcer_report::{cluster_plan, json};
use enforcer_runtime::manifest::read_pods;

/// Most copies that `--fill` tries.
const COPIES: usize = 100_000;

/// What is placed, and where.
pub(super) struct Options {
    nodes: Vec<PlannedNode>,
    pods: Vec<PlannedPod>,
    rule: NodeRule,
    fill: bool,
    explain: bool,
    format: args::TableOrJson,
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
        let (nodes, waiting) = planned(source.read(false)?.objects);
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
        Ok(Self { nodes, pods, rule, fill: args.fill, explain: args.explain, format: args.output })
    }
}

/// The nodes with what their pods hold, and the pods that have no node yet.
fn planned(objects: ClusterObjects) -> (Vec<PlannedNode>, Vec<PlannedPod>) {
    let ClusterObjects { nodes, states, pods, .. } = objects;
    let mut by_node = BTreeMap::<String, Vec<PodObject>>::new();
    let mut waiting = Vec::new();
    for pod in pods {
        match (&pod.node, pod.phase) {
            (Some(node), _) => by_node.entry(node.clone()).or_default().push(pod),
            (None, PodPhase::Pending | PodPhase::Running) => {
                waiting.push(PlannedPod { request: pod.request, scheduling: pod.scheduling });
            }
            (None, PodPhase::Ended) => {}
        }
    }
    let mut planned = Vec::new();
    for node in nodes {
        let mut view = view(&node, states.get(&node.name));
        let NodeObject { name, is_cordoned, is_ready, taints, allocatable, .. } = node;
        let mut sums = NodeSums::new(allocatable);
        for pod in by_node.remove(&name).unwrap_or_default() {
            if pod.phase == PodPhase::Ended {
                end(&mut view, &pod);
            } else {
                sums.add(&amounts_of(&pod.request));
                view.observe_bound(pod.kubelet_uid(), &pod.request);
            }
        }
        let mut node = PlannedNode::new(name, sums, view);
        (node.is_cordoned, node.is_ready, node.taints) = (is_cordoned, is_ready, taints);
        planned.push(node);
    }
    (planned, waiting)
}

/// Takes back what the state gives to a pod that has ended; a static pod has one uid or the other there.
fn end(view: &mut NodeView, pod: &PodObject) {
    for uid in [pod.uid.as_str(), pod.kubelet_uid()] {
        if view.model().is_some_and(|model| model.covered.contains(uid)) {
            view.observe_ended(uid, 0);
        }
    }
}

/// The node as its state shows it; a state that is not of this node, or contradicts itself, is named.
fn view(node: &NodeObject, state: Option<&StateObject>) -> NodeView {
    let mut view = NodeView::default();
    let Some(state) = state else { return view };
    let fault = match state.of_node(node) {
        Ok(state) => match view.observe_state(state, 0) {
            StateOutcome::Refused(fault) => Some(fault.to_string()),
            StateOutcome::Taken | StateOutcome::Older(_) => None,
        },
        Err(foreign) => Some(foreign.to_string()),
    };
    if let Some(fault) = fault {
        terminal::note(&format!("left out: NumaNodeState {}: {fault}", node.name));
    }
    view
}

pub(super) fn run(options: Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { nodes, pods, rule, fill, explain, format } = options;
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
    // Filling ends at the copy that no node takes.
    Ok(if report.pending == 0 || (fill && report.placed > 0) { Exit::Ok } else { Exit::Rejected })
}
