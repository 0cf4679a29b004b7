//! `numa-enforcer plan --cluster`: which node, NUMA nodes and CPUs pods would get in a cluster.
//!
//! The cluster is a list of objects as kubectl prints it. Pods with a node hold their place; pods of the
//! manifests, or without these the pods of the list that have no node, are placed one after another.

use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use enforcer_cluster::objects::{ClusterObjects, PodObject, PodPhase};
use enforcer_core::cluster::{
    plan::{ClusterPlan, NodeRule, NodeSums, PlannedNode, amounts_of},
    view::{NodeView, StateOutcome},
};
use numa_placement::{PodRequest, trial::TrialAction};

use super::{Exit, UsageError, args, exit::of_input, terminal};
use enforcer_host::{read_within, written_text};
use enforcer_report::{cluster_plan, json};
use enforcer_runtime::manifest::read_steps;

/// Largest list that is read.
const SIZE_LIMIT: u64 = 512 << 20;
/// Most copies that `--fill` tries.
const COPIES: usize = 100_000;

/// What is placed, and where.
pub(super) struct Options {
    nodes: Vec<PlannedNode>,
    pods: Vec<PodRequest>,
    rule: NodeRule,
    fill: bool,
    explain: bool,
    format: args::TableOrJson,
}

impl TryFrom<args::PlanArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::PlanArgs) -> anyhow::Result<Self> {
        let Some(source) = &args.cluster else {
            return Err(UsageError("a list of objects is expected behind --cluster".into()).into());
        };
        let standard_input = |path: &&PathBuf| path.as_os_str() == "-";
        if args.pods.iter().chain([source]).filter(standard_input).count() > 1 {
            return Err(UsageError("standard input (`-`) can be read only once".into()).into());
        }
        let mut pods = Vec::new();
        if !args.pods.is_empty() {
            let manifests: Vec<&Path> = args.pods.iter().map(PathBuf::as_path).collect();
            let steps = read_steps(&manifests, None).map_err(of_input)?;
            steps.ignored.iter().for_each(|line| terminal::note(line));
            for step in steps.steps {
                step.warnings.iter().for_each(|warning| terminal::note(warning));
                if let TrialAction::Create(pod) = step.action {
                    pods.push(pod);
                }
            }
        }
        let objects = read(source)?;
        objects.left_out.iter().for_each(|line| terminal::note(&format!("left out: {line}")));
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
        let rule = args.rule.into();
        Ok(Self { nodes, pods, rule, fill: args.fill, explain: args.explain, format: args.output })
    }
}

fn read(source: &Path) -> anyhow::Result<ClusterObjects> {
    let name = source.display();
    let text = if source.as_os_str() == "-" {
        read_within(&mut std::io::stdin().lock(), SIZE_LIMIT)
    } else {
        std::fs::File::open(source).and_then(|mut file| read_within(&mut file, SIZE_LIMIT))
    };
    let text = text.and_then(written_text).with_context(|| format!("reading {name}"))?;
    ClusterObjects::read(&text).map_err(|error| UsageError(format!("{name}: {error}")).into())
}

/// The nodes with what their pods hold, and the pods that have no node yet.
fn planned(objects: ClusterObjects) -> (Vec<PlannedNode>, Vec<PodRequest>) {
    let ClusterObjects { nodes, states, pods, .. } = objects;
    let mut by_node = BTreeMap::<String, Vec<PodObject>>::new();
    let mut waiting = Vec::new();
    for pod in pods {
        match (&pod.node, pod.phase) {
            (Some(node), _) => by_node.entry(node.clone()).or_default().push(pod),
            (None, PodPhase::Active) => waiting.push(pod.request),
            (None, PodPhase::Ended) => {}
        }
    }
    let mut planned = Vec::new();
    for node in nodes {
        let mut view = NodeView::default();
        if let Some(state) = states.get(&node.name)
            && let StateOutcome::Refused(fault) = view.observe_state(state, 0)
        {
            terminal::note(&format!("NumaNodeState {}: {fault}", node.name));
        }
        let mut sums = NodeSums::new(node.allocatable);
        for pod in by_node.remove(&node.name).unwrap_or_default() {
            match pod.phase {
                PodPhase::Ended => view.observe_ended(&pod.uid, 0),
                PodPhase::Active => {
                    sums.add(&amounts_of(&pod.request));
                    view.observe_bound(&pod.uid, &pod.request);
                }
            }
        }
        planned.push(PlannedNode::new(node.name, node.is_schedulable, sums, view));
    }
    (planned, waiting)
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
