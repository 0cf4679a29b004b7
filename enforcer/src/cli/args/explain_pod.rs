//! Arguments of `explain pod`.

use std::path::PathBuf;

use clap::Subcommand;

use super::TableOrJson;

/// What is explained without a daemon.
#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// Say why a pod has no node, and what would make room.
    ///
    /// Asks no daemon: of each node, by the state that it publishes, what is short for the pod and the
    /// fewest pods that would make room if they left. Changes nothing.
    Pod(ExplainPodArgs),
}

/// Arguments of `explain pod`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 a node takes it or it has one, 1 no node does, 2 failed or no such
pod, 64 usage

Examples:
  numa-enforcer explain pod shop/orders --kubeconfig ~/.kube/config
  numa-enforcer explain pod --file orders.yaml
  kubectl get numanodestates,nodes,pods -A -o json |
    numa-enforcer explain pod shop/orders --cluster -")]
pub struct ExplainPodArgs {
    /// Namespace and name of the pod; a name alone is one of `default`
    #[arg(value_name = "NS/NAME", required_unless_present = "file")]
    pub pod: Option<String>,
    /// Take the pod from a manifest; it need not be in the cluster.
    ///
    /// Of several pods NS/NAME says which; `-` is standard input.
    #[arg(long, value_name = "PODS.yaml")]
    pub file: Option<PathBuf>,
    /// A list from kubectl (`-` is standard input), or a directory of captured machines [default: the
    /// cluster of kubectl]
    #[arg(long, value_name = "SOURCE", conflicts_with = "kubeconfig")]
    pub cluster: Option<PathBuf>,
    /// Ask the API server of its current context.
    ///
    /// The account may list numanodestates, nodes and pods.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
}
