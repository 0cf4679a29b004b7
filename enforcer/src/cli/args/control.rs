//! What can be typed to ask and to tell a running daemon.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;
use enforcer_core::policy::Policy;

use super::{ExplainCommand, TableOrJson, span};

/// How a running daemon is reached.
#[derive(Debug, Clone, clap::Args)]
pub struct Socket {
    /// Its control socket; `control.socket` of its configuration.
    #[arg(long, value_name = "PATH", default_value_os_t = default_socket())]
    pub socket: PathBuf,
}

/// What is asked of a running daemon.
#[derive(Debug, clap::Args)]
pub struct DaemonQuery {
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
    /// How it is reached.
    #[command(flatten)]
    pub daemon: Socket,
}

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer status
  numa-enforcer status -o json | jq .paused

Exit codes: 0 the daemon answered, 69 no daemon runs there, 2 it could not be
asked, 64 usage.")]
pub struct StatusArgs {
    /// How it is asked.
    #[command(flatten)]
    pub question: DaemonQuery,
}

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  numa-enforcer explain /shop/orders-db
  numa-enforcer explain shop/web-1/main
  numa-enforcer explain orders-db -o json
  numa-enforcer explain pod shop/orders

Exit codes: 0 explained, 69 no daemon runs there, 2 no such workload or
several, 64 usage.")]
pub struct Explain {
    /// What is explained instead of a workload.
    #[command(subcommand)]
    pub command: Option<ExplainCommand>,
    /// A cgroup, NAMESPACE/POD/CONTAINER, a container's id or its beginning, the name of a `[[workload]]`,
    /// or the end of a cgroup or name.
    #[arg(value_name = "WORKLOAD", required = true)]
    pub workload: Option<String>,
    /// How it is asked.
    #[command(flatten)]
    pub question: DaemonQuery,
}

/// Arguments of `pause`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer pause --for 10m
  numa-enforcer pause && systemctl restart kubelet && numa-enforcer resume")]
pub struct Pause {
    /// End by itself after this long (30s, 10m, 2h; at most 24h) [default: until resumed]
    #[arg(long = "for", value_name = "DURATION", value_parser = at_least_a_second)]
    pub length: Option<Duration>,
    /// How the daemon is reached.
    #[command(flatten)]
    pub daemon: Socket,
}

/// Arguments of `resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer resume")]
pub struct Resume {
    /// How the daemon is reached.
    #[command(flatten)]
    pub daemon: Socket,
}

/// Arguments of `log-level`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer log-level
  numa-enforcer log-level debug")]
pub struct LogLevelArgs {
    /// From which level on the daemon logs; without it the level is only shown.
    #[arg(value_enum, value_name = "LEVEL")]
    pub level: Option<LogLevelName>,
    /// How the daemon is reached.
    #[command(flatten)]
    pub daemon: Socket,
}

/// Levels of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevelName {
    /// Nothing.
    Off,
    /// What does not work.
    Error,
    /// What did not come out as wanted, too.
    Warn,
    /// What happens, too.
    Info,
    /// What helps to find a fault, too.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevelName {
    /// The word that the daemon takes.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |level| level.get_name().to_owned())
    }
}

fn default_socket() -> PathBuf {
    Policy::default().control.socket
}

/// The daemon takes whole seconds.
fn at_least_a_second(text: &str) -> Result<Duration, String> {
    let span = span(text)?;
    if span.subsec_nanos() > 0 { Err("whole seconds are expected".into()) } else { Ok(span) }
}
