//! What can be typed after `kubectl numa`. The doc comments are the help, as those of the other commands.

use std::{ffi::OsString, path::PathBuf};

use clap::{ArgAction, CommandFactory, Parser, Subcommand, builder::NonEmptyStringValueParser};

use super::super::args::{TableOrJson, View};
use crate::version;

const HELP: &str = "\
The daemons have to serve reports: kubectlPlugin.enabled of the chart, which
also has the roles that users need. docs/kubernetes.md says more.

Exit codes: 0 every node answered and no finding counts, 1 audit: a finding,
2 a node did not answer or nothing could be judged, 64 usage, 69 no daemon

Examples:
  kubectl numa audit
  kubectl numa status --context production
  kubectl numa explain web-1 -n shop
  kubectl numa top --node worker-3";

/// Asks the numa-enforcer daemons of a cluster, through kubectl.
///
/// Nothing on the nodes is changed.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-numa",
    bin_name = "kubectl numa",
    version = version::full(),
    after_help = HELP,
    max_term_width = 100,
    disable_help_flag = true
)]
pub struct PluginArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PluginCommand,
    /// How the cluster is reached.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Print help.
    #[arg(short, long, global = true, action = ArgAction::HelpShort)]
    pub help: Option<bool>,
}

/// How the cluster and its daemons are reached.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub struct ClusterArgs {
    /// The kubeconfig, as for kubectl
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, global = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", global = true, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub impersonated: Option<String>,
    /// Namespace of the daemons' pods
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = "numa-enforcer",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub enforcer_namespace: String,
    /// Labels of the daemons' pods
    #[arg(
        long,
        global = true,
        value_name = "LABELS",
        default_value = "app.kubernetes.io/name=numa-enforcer",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub selector: String,
    /// Token of the daemons' `metrics.token_file`
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The kubectl to run
    #[arg(long, global = true, value_name = "PROGRAM", default_value = "kubectl")]
    pub kubectl: OsString,
}

/// The commands of the plugin.
#[derive(Debug, Subcommand)]
pub enum PluginCommand {
    /// Show what is misaligned on each node: a line for each, and findings.
    ///
    /// The audit of a daemon's latest turn. With `--node` all of it, as `numa-enforcer audit` shows it on the
    /// node.
    Audit(AuditNodes),
    /// Show the state of the daemon of each node: a line for each.
    ///
    /// With `--node` all of it, as `numa-enforcer status` shows it on the node.
    Status(StatusOfNodes),
    /// Show what the daemon decided about the containers of a pod, and why.
    ///
    /// Asks the daemon of the pod's node.
    Explain(ExplainPod),
    /// Show a node live on the terminal.
    ///
    /// `?` shows the keys.
    Top(TopOfNode),
}

/// Arguments of `kubectl numa audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A node without a daemon is listed and does not count. JSON without --node has
numbers and findings of each node; with --node it is that of
`numa-enforcer audit -o json`.

Exit codes: 0 no finding that counts, 1 there is one, 2 a node did not answer
or no workload could be judged, 64 usage, 69 no daemon

Examples:
  kubectl numa audit
  kubectl numa audit --node worker-3
  kubectl numa audit -o json | jq '.nodes[].summary.misaligned'")]
pub struct AuditNodes {
    /// What is asked, and how it is shown.
    #[command(flatten)]
    pub question: NodeQuestion,
}

/// Arguments of `kubectl numa status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 every daemon answered, 2 one did not, 64 usage, 69 no daemon

Examples:
  kubectl numa status
  kubectl numa status --node worker-3 -o json | jq .paused")]
pub struct StatusOfNodes {
    /// What is asked, and how it is shown.
    #[command(flatten)]
    pub question: NodeQuestion,
}

/// All nodes or one, and the form of the answer.
#[derive(Debug, clap::Args)]
pub struct NodeQuestion {
    /// Ask this node alone
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub node: Option<String>,
    /// How to show it
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
}

/// Arguments of `kubectl numa explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 explained, 2 no such pod, or no container of it is known to the
daemon, 64 usage, 69 no daemon on its node

Examples:
  kubectl numa explain web-1 -n shop
  kubectl numa explain web-1 -n shop -c main -o json")]
pub struct ExplainPod {
    /// Name of the pod.
    #[arg(value_name = "POD", value_parser = NonEmptyStringValueParser::new())]
    pub pod: String,
    /// Namespace of the pod [default: that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: Option<String>,
    /// This container alone
    #[arg(short, long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub container: Option<String>,
    /// How to show it
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
}

/// Arguments of `kubectl numa top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 ended or printed, 2 the node did not answer, 64 usage, several
nodes or no terminal, 69 no daemon

Examples:
  kubectl numa top --node worker-3
  kubectl numa top --node worker-3 --once > top.txt")]
pub struct TopOfNode {
    /// The node; not needed where one node alone has a daemon
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub node: Option<String>,
    /// What is shown.
    #[command(flatten)]
    pub view: View,
}

/// Everything that can be typed after `kubectl numa`.
pub fn command() -> clap::Command {
    super::super::args::with_whole_help(PluginArgs::command())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }
}
