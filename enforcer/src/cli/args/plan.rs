//! Arguments of `plan`.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use enforcer_core::cluster::plan::NodeRule;

use super::{MachineSource, TableOrJson, span};

const HELP: &str = "\
Files (docs/plan.md has all of it):
  PODS.yaml  manifests of Pods, Deployments, Jobs and so on; or shorter:
             workloads: [{ name: db, cpus: 4, memory: 8GiB }]
  SOURCE     of kubectl get numanodestates,nodes,pods -A -o json; `-`; or a
             directory of captured machines
  --devices  - { resource: vendor.com/gpu, id: gpu0, numa_nodes: 0 }
  --steps    - create: a.yaml  - resize: { kind: Pod, ... }  - delete: ns/a-0

MACHINE is words in any order, which are 1 by default, memory 16GiB a node:
  sockets:N dies:N nodes:N l3:N cores:N threads:N memory:SIZE pmem:SIZE
  cxl:SIZE hbm:SIZE hugepages-2Mi:N hugepages-1Gi:N isolated:CPUS e-cores:CPUS
  fast:CPUS; for a cluster also machines:N topology-policy:POLICY and more

Exit codes: 0 all admitted, 1 some rejected or pending, 2 failed, 64 usage

Examples:
  numa-enforcer plan web.yaml --synthetic 'sockets:2 cores:8 memory:64GiB'
  numa-enforcer plan web.yaml --cluster --kubeconfig ~/.kube/config
  numa-enforcer plan web.yaml --cluster --synthetic 'machines:20 cores:16'
  numa-enforcer plan --rebalance --sample 30s --config /etc/numa-enforcer.toml";

/// Arguments of `plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct PlanArgs {
    /// Manifests or workload files; `-` is standard input.
    ///
    /// Every pod is created, in their order.
    #[arg(value_name = "PODS.yaml", required_unless_present_any = ["steps", "rebalance", "cluster"])]
    pub pods: Vec<PathBuf>,
    /// Then play the steps of a file.
    ///
    /// They create, resize, warm and delete.
    #[arg(long, value_name = "FILE")]
    pub steps: Option<PathBuf>,
    /// Show which running workloads should be moved.
    ///
    /// With bytes, time and gain of each move. Moves nothing.
    #[arg(
        long,
        conflicts_with_all = ["pods", "steps", "explain", "devices", "machine", "cluster"],
    )]
    pub rebalance: bool,
    /// Choose nodes of a cluster.
    ///
    /// SOURCE is a list of published states, Nodes and Pods from kubectl, or a directory of captured
    /// machines. Without it, `--kubeconfig` or `--synthetic` says which cluster. Pods without a node are
    /// placed, or those of the manifests.
    #[arg(
        long,
        value_name = "SOURCE",
        conflicts_with_all = ["steps", "root", "topology"],
    )]
    pub cluster: Option<Option<PathBuf>>,
    /// With `--cluster`: ask its API server.
    ///
    /// As the account of the current context. It may list numanodestates, nodes and pods, and for claims
    /// resourceslices, deviceclasses, resourceclaimtemplates and resourceclaims.
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub kubeconfig: Option<PathBuf>,
    /// With `--cluster`: exact or volcano.
    ///
    /// As each node's own managers answer, or by Volcano's policies [default: exact].
    #[arg(
        long,
        value_enum,
        default_value = "exact",
        hide_default_value = true,
        hide_possible_values = true,
        requires = "cluster"
    )]
    pub rule: PlanRule,
    /// With `--cluster`: arrival or priority.
    ///
    /// Pods are placed in the order in which they came, or the highest priority first [default: arrival].
    #[arg(
        long,
        value_enum,
        default_value = "arrival",
        hide_default_value = true,
        hide_possible_values = true,
        requires = "cluster"
    )]
    pub order: PodOrder,
    /// With `--cluster`: as many copies as fit.
    ///
    /// Of one pod, until no node takes another.
    #[arg(long, requires = "cluster")]
    pub fill: bool,
    /// With `--rebalance`: watch so long.
    ///
    /// A whole number and ms, s, m or h.
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "10s")]
    pub sample: Duration,
    /// How to show it: table or json.
    #[arg(short, long, value_enum, default_value = "table", hide_possible_values = true)]
    pub output: TableOrJson,
    /// Say of each place what spoke for or against it.
    #[arg(long)]
    pub explain: bool,
    /// Configuration as for `run` [default: built in]
    ///
    /// Its `[placement]` counts, with `--rebalance` its workloads and `[rebalance]`, and for claims `[dra]`;
    /// with `--cluster` `[dra]` alone.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Devices and the NUMA nodes they are near.
    ///
    /// Or `ResourceSlices`, `DeviceClasses`, templates and claims, as manifests or from kubectl; may be given
    /// several times.
    #[arg(long, value_name = "FILE")]
    pub devices: Vec<PathBuf>,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineSource,
}

/// How nodes of a cluster are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanRule {
    /// As each node's own managers will answer: on the fewest NUMA nodes, with the least left over.
    Exact,
    /// By Volcano's policies.
    Volcano,
}

/// Order in which pods are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PodOrder {
    /// As they came; those of manifests in the order of the files.
    Arrival,
    /// The highest priority first, then as they came.
    Priority,
}

impl From<PlanRule> for NodeRule {
    fn from(rule: PlanRule) -> Self {
        match rule {
            PlanRule::Exact => Self::Exact,
            PlanRule::Volcano => Self::Volcano,
        }
    }
}
