//! Arguments of `scheduler`.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Subcommand, ValueEnum};
use enforcer_core::policy::HumanDuration;

use super::YamlOrJson;

/// Address of the extender unless another one is named.
const LISTEN: &str = "127.0.0.1:9480";

/// Arguments of `scheduler`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
docs/scheduler.md has how it is deployed.

Examples:
  numa-enforcer scheduler config > scheduler.yaml
  numa-enforcer scheduler serve")]
pub struct SchedulerArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: SchedulerCommand,
}

/// Commands about a scheduler.
#[derive(Debug, Subcommand)]
pub enum SchedulerCommand {
    /// Answer the kube-scheduler in the same pod.
    ///
    /// An extender (filter, prioritize, bind) that sends a pod only to a node that has its CPUs, memory and
    /// devices free together, by the states that the daemons of the nodes publish.
    Serve(SchedulerServeArgs),
    /// Print the configuration of that kube-scheduler.
    Config(SchedulerConfigArgs),
}

/// Arguments of `scheduler serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 ended by a signal, 2 failed, 64 usage

Examples:
  numa-enforcer scheduler serve
  numa-enforcer scheduler serve --filter-only --kubeconfig ~/.kube/config")]
pub struct SchedulerServeArgs {
    /// Listen there; only loopback is allowed
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    pub listen: SocketAddr,
    /// Answer /live, /ready and /metrics there, too, for the kubelet and Prometheus; nothing else.
    #[arg(long, value_name = "ADDRESS")]
    pub probes: Option<SocketAddr>,
    /// Ask this API server [default: that of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Leave binding to the scheduler.
    ///
    /// Then one node with a say about the pod passes a filter, and it holds a place there until the pod is
    /// bound.
    #[arg(long)]
    pub filter_only: bool,
    /// Prefer nodes with much left over to nodes with little
    #[arg(long)]
    pub spread: bool,
    /// Whether nodes pass that have never published a state
    #[arg(long, value_enum, value_name = "ANSWER", default_value = "allow")]
    pub unknown_nodes: UnknownNodes,
    /// With --filter-only: answer no call for so long after the start.
    ///
    /// Pods that were chosen before may still be bound, and their places are not known.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub settles: HumanDuration,
}

/// Answer for nodes that have never published a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnknownNodes {
    /// They pass.
    Allow,
    /// They take no pod with CPUs, memory or devices of its own.
    Deny,
}

/// Arguments of `scheduler config`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer scheduler config
  numa-enforcer scheduler config --filter-only --scheduler-name numa")]
pub struct SchedulerConfigArgs {
    /// Name by which pods choose the scheduler
    #[arg(long, value_name = "NAME", default_value = "numa-scheduler")]
    pub scheduler_name: String,
    /// Namespace of its lease
    #[arg(long, value_name = "NAME", default_value = "numa-enforcer")]
    pub namespace: String,
    /// Address of the extender
    #[arg(long, value_name = "ADDRESS", default_value = LISTEN)]
    pub extender: SocketAddr,
    /// Leave binding to the scheduler, as `serve --filter-only`
    #[arg(long)]
    pub filter_only: bool,
    /// How to show it
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub output: YamlOrJson,
}
