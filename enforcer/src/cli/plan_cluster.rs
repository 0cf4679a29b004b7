//! `numa-enforcer plan --cluster`: which node, NUMA nodes and CPUs pods would get in a cluster.
//!
//! Pods with a node hold their place; pods of the manifests, or without these the pods of the cluster that
//! have no node, are placed one after another.

use std::{
    cmp::Reverse,
    io::Write,
    path::{Path, PathBuf},
};

use enforcer_core::cluster::{
    device_claims::{ClaimBook, DeviceObjects, PlannedDriver},
    plan::{ClusterPlan, NodeRule, PlannedNode, PlannedPod},
};

use super::{
    Exit, UsageError, args,
    cluster_source::{ClusterSource, ReadCluster, with_pods},
    config_file,
    exit::of_input,
    terminal,
};
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
    claims: ClaimBook,
    /// Whether nodes of the source could not be read.
    lacks_nodes: bool,
}

impl TryFrom<args::PlanArgs> for Options {
    type Error = anyhow::Error;

    fn try_from(args: args::PlanArgs) -> anyhow::Result<Self> {
        let named = ClusterSource::named(args.cluster.flatten(), args.kubeconfig, args.machine.synthetic)?;
        let no_source = "behind --cluster a SOURCE, --kubeconfig or --synthetic is expected";
        let source = named.ok_or_else(|| UsageError(no_source.into()))?;
        let standard_input =
            args.pods.iter().chain(&args.devices).filter(|path| path.as_os_str() == "-").count();
        if standard_input + usize::from(source.is_standard_input()) > 1 {
            return Err(UsageError("standard input (`-`) can be read only once".into()).into());
        }
        let mut pods = Vec::new();
        let mut of_files = DeviceObjects::default();
        if !args.pods.is_empty() || !args.devices.is_empty() {
            let manifests: Vec<&Path> = args.pods.iter().map(PathBuf::as_path).collect();
            let devices: Vec<&Path> = args.devices.iter().map(PathBuf::as_path).collect();
            let read = read_pods(&manifests, &devices).map_err(of_input)?;
            read.notes.iter().for_each(|line| terminal::note(line));
            (pods, of_files) = (read.pods, read.devices);
        }
        let dra = config_file::read(args.config.as_deref())?.unwrap_or_default().dra;
        let has_claims = |pod: &PlannedPod| !pod.scheduling.claims.is_empty();
        let read = if pods.is_empty() || pods.iter().any(has_claims) {
            source.read_with_devices()
        } else {
            source.read()
        };
        let ReadCluster { mut objects, lacks_nodes } = read?;
        let devices = of_files.over(std::mem::take(&mut objects.devices));
        let (nodes, waiting) = with_pods(objects);
        let nodes = nodes.into_iter().map(|host| host.node).collect();
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
            claims: ClaimBook::new(devices).with_driver(PlannedDriver::from(&dra)),
            lacks_nodes,
        })
    }
}

pub(super) fn run(options: Options, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Options { nodes, pods, rule, fill, explain, format, claims, lacks_nodes } = options;
    let plan = ClusterPlan::new(nodes, rule, explain, 0).with_claims(claims);
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
