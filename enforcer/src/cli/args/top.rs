//! What can be typed to look at the host live.

use std::time::Duration;

use clap::ValueEnum;

use super::{control::Socket, span};
use enforcer_report::top::Sort;

/// Looking more often would cost more than it tells.
const SHORTEST: Duration = Duration::from_millis(500);

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer top
  numa-enforcer top --sort bytes --filter shop/
  numa-enforcer top --no-daemon --interval 5s
  numa-enforcer top --once > top.txt

Without a terminal, or with TERM=dumb, only --once works. NO_COLOR is respected.
Exit codes: 0 ended or printed, 2 nothing could be seen, 64 usage or no
terminal.")]
pub struct Top {
    /// What is shown.
    #[command(flatten)]
    pub view: View,
    /// Look by itself, whether or not a daemon runs; it may look less often then, to stay below 2 % of a CPU.
    #[arg(long, conflicts_with = "socket")]
    pub no_daemon: bool,
    /// How the daemon is reached.
    #[command(flatten)]
    pub daemon: Socket,
}

/// How often the view looks, and what it shows of what it sees.
#[derive(Debug, clap::Args)]
pub struct View {
    /// Time between two looks (500ms, 2s, 1m).
    #[arg(short = 'd', long, value_name = "DURATION", value_parser = interval, default_value = "2s")]
    pub interval: Duration,
    /// Print one frame as plain text, and end.
    #[arg(long)]
    pub once: bool,
    /// What workloads are sorted by.
    #[arg(long, value_enum, value_name = "BY", default_value = "traffic")]
    pub sort: SortBy,
    /// Only workloads that have this in their name or cgroup.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub filter: String,
}

/// What workloads are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SortBy {
    /// Remote traffic: share of accesses times busy CPUs.
    Traffic,
    /// Bytes on nodes where the workload has no CPUs.
    Bytes,
    /// Placements of its tasks on another node, per second.
    Migrations,
}

impl From<SortBy> for Sort {
    fn from(by: SortBy) -> Self {
        match by {
            SortBy::Traffic => Self::Traffic,
            SortBy::Bytes => Self::Bytes,
            SortBy::Migrations => Self::Migrations,
        }
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = span(text)?;
    if interval < SHORTEST { Err("must not be shorter than 500ms".into()) } else { Ok(interval) }
}
