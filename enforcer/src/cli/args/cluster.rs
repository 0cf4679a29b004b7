//! Arguments of `cluster`.

use std::path::PathBuf;

use clap::Subcommand;

use super::TableOrJson;

/// Arguments of `cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer cluster check
  numa-enforcer cluster check --kubeconfig ~/.kube/config -o json")]
pub struct ClusterArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ClusterCommand,
}

/// Commands about a cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Compare published states with nodes and pods.
    ///
    /// Names states that are missing, foreign, stale or inexact, what pods hold and do not need, and pods
    /// that a state does not cover. Changes nothing.
    Check(ClusterCheckArgs),
}

/// Arguments of `cluster check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 no finding, 1 findings, 2 failed, 64 usage

Examples:
  numa-enforcer cluster check --kubeconfig ~/.kube/config
  kubectl get numanodestates,nodes,pods -A -o json --show-managed-fields |
    numa-enforcer cluster check -")]
pub struct ClusterCheckArgs {
    /// A list from kubectl (`-` is standard input), or a directory of captured machines [default: the
    /// cluster of kubectl]
    #[arg(value_name = "SOURCE", conflicts_with = "kubeconfig")]
    pub source: Option<PathBuf>,
    /// Ask the API server of its current context.
    ///
    /// The account may list numanodestates, nodes and pods; leases too if daemons that have ended are to be
    /// named.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
}
