//! What can be typed. Nothing here touches the system.
//!
//! The doc comments are the program's help: the first paragraph is `-h`, all of it `--help`.

mod control;
mod plan;

use std::{
    net::{AddrParseError, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use clap::{Parser, Subcommand, ValueEnum};
use enforcer_core::{
    finding::Severity,
    policy::{HumanDuration, Mode, Policy},
};

pub use self::{
    control::{Explain, Level, LogLevel, Pause, Resume, Socket, Status},
    plan::Plan,
};

const EXIT_CODES: &str = "\
Exit codes:
  0   aligned, or the command did what it was asked
  1   audit: a finding at or above --fail-on; plan: a pod that was not admitted
  2   could not determine, or failed while running (no such --root, no permission)
  64  wrong usage: an unknown flag, a bad value, a configuration that is not valid
  69  status, explain, pause, resume, log-level: no daemon runs

Examples:
  numa-enforcer audit                         what is misaligned on this host right now
  numa-enforcer audit --sample 10s            the same, with remote memory traffic
  numa-enforcer topology                      the machine as a tree
  numa-enforcer plan web.yaml                 what these pods would get on this host
  numa-enforcer plan --rebalance              who should be moved on this host, and what that costs
  numa-enforcer doctor                        what works here, and what is missing
  numa-enforcer run --mode observe            the daemon, which only watches
  numa-enforcer status                        how the running daemon fares
  numa-enforcer explain /shop/orders-db       what it decided about a workload, and why
  numa-enforcer restore                       undo everything the daemon has written";

const AUDIT_HELP: &str = "\
Columns:
  CPUs, nodes     where it may run
  memory          where its memory is, most first
  remote resid.   residency: share of its memory on nodes where it has no CPUs
  remote traffic  share of its memory accesses that go to another node; n/a without --sample

Verdicts:
  misaligned  a critical finding
  partial     a warning
  aligned     neither, and enough was seen to say so
  unknown     neither, but too little was seen: without --sample, so is every workload that may run
              on several nodes, has some memory, and was not found at fault

Exit codes:
  0   no finding at or above --fail-on, and at least one workload was judged
  1   a finding at or above --fail-on
  2   could not determine: no workload, or every one unknown; or the audit failed
  64  wrong usage: an unknown flag, a bad value, a configuration that is not valid

Examples:
  numa-enforcer audit
  numa-enforcer audit --sample 10s --only misaligned
  numa-enforcer audit --config /etc/numa-enforcer.toml
  numa-enforcer audit -o json --fail-on critical > audit.json
  numa-enforcer audit --root ./captured-host
  numa-enforcer audit -o prometheus --write /var/lib/node_exporter/numa.prom";

/// Keeps workloads' CPUs, memory and devices on the same NUMA nodes.
///
/// `audit`, `topology`, `plan`, `capture` and `doctor` only read, and work without root; what they cannot
/// see then, they name. `run` is the daemon: it watches, and corrects declared workloads in
/// `--mode enforce`. `restore` undoes what the daemon has written.
#[derive(Debug, Parser)]
#[command(name = "numa-enforcer", version, after_long_help = EXIT_CODES, max_term_width = 100)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show which workloads are misaligned, why, and what to do about it.
    ///
    /// Reads the machine, its workloads and where their memory is, once, and judges each workload.
    /// Residency (where the memory is) is always shown. Traffic (which memory is accessed) needs
    /// `--sample`, which attaches eBPF programs for that long; without it the column says n/a.
    ///
    /// Nothing is changed. Without root the audit still runs, and lists what it could not see.
    Audit(Audit),
    /// Show the machine: packages, NUMA nodes, caches, memory, distances, devices.
    ///
    /// Prints what the kernel says about the machine. Node ids and CPU lists are the kernel's own; what
    /// it does not say is left out of the tree and `null` in JSON.
    Topology(Topology),
    /// Show what pods would get: which CPUs, memory, devices, and what changes for others.
    ///
    /// Places the pods of manifests one after another on a machine that nobody uses yet: this host's
    /// topology, a captured or saved one, or one described in a line. Nothing on this host is changed,
    /// and what runs here does not count.
    ///
    /// With `--rebalance` it is the other way round: what runs here is watched for a while, and moves are shown
    /// that would bring its CPUs, memory and devices together, with what they cost and save.
    Plan(Box<Plan>),
    /// Copy the files that the readers use, scrubbed, so that a machine can be looked at elsewhere.
    ///
    /// Writes DIR/sys and DIR/proc with the files that `audit` and `topology` read, and nothing else.
    /// Host name, boot id, addresses, serial numbers and command lines are replaced. The copy is what
    /// `--root` takes, here or on any other machine.
    Capture(Capture),
    /// Show what works on this host, what is missing, and what to do about it.
    ///
    /// Tries what the other commands need: privileges, kernel features, BTF, each eBPF hook, the cgroup
    /// hierarchy, hardware counters. Each line says ok, degraded, missing or absent (as on most machines), what was seen, what to do.
    /// Changes nothing.
    Doctor(Doctor),
    /// Run the daemon.
    ///
    /// Prints an audit and then one line per tick, until it is interrupted. In observe mode, which is
    /// the default, it never writes. In enforce mode it corrects the workloads that the configuration
    /// declares; every original value is journalled before it is overwritten, and `restore` puts it back.
    ///
    /// Flags win over the configuration file.
    Run(Run),
    /// Put back every original value that the daemon has overwritten.
    ///
    /// Reads the journal and writes back each original value that the daemon has overwritten, newest
    /// first. Works after the daemon was killed. Can be run again at once. A daemon must not run meanwhile.
    Restore(Restore),
    /// Show how the running daemon fares: mode, pause, workloads, runtime, what is degraded.
    ///
    /// Asks the daemon over its control socket. Root and members of the socket's group may ask.
    Status(Status),
    /// Show what the running daemon decided about a workload lately, and why.
    ///
    /// Each decision with its inputs, the places that were considered, the comparison that decided, what it
    /// changed for others, its steps and what became of them, newest first.
    Explain(Explain),
    /// Have the running daemon write nothing, for a while or until it is resumed.
    ///
    /// It goes on to watch and to report. New containers start without a place, and get one when the pause
    /// is over; what was set stays. A plan that is being carried out is finished first. A daemon that is
    /// started again is still paused. Only root and the daemon's own user may pause it.
    Pause(Pause),
    /// Let a paused daemon write again; the next turn corrects what is not in place.
    Resume(Resume),
    /// Show or set from which level on the running daemon logs.
    LogLevel(LogLevel),
    /// Print the JSON Schema of an output or of the configuration.
    #[command(hide = true)]
    Schema(Schema),
    /// Hold memory while the daemon tries whether reclaim leaves it in its cpuset.
    #[command(hide = true)]
    HoldMemory,
    /// Watch over the daemon's brakes, and release them when it does not.
    #[command(hide = true)]
    WatchBrake,
}

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer audit
  numa-enforcer audit --sample 10s --only misaligned
  numa-enforcer audit -o json --fail-on critical > audit.json
  numa-enforcer audit --root ./captured-host

Exit codes: 0 no finding at or above --fail-on, 1 there is one, 2 could not determine, 64 usage.",
after_long_help = AUDIT_HELP)]
pub struct Audit {
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: AuditOutput,
    /// Write to FILE, as a whole or not at all, instead of to standard output.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Watch for this long (500ms, 10s, 2m) with eBPF and add remote traffic.
    #[arg(long, value_name = "DURATION", value_parser = span, conflicts_with = "root")]
    pub sample: Option<Duration>,
    /// Show only workloads that are misaligned or partial, and their findings; the summary and the
    /// exit code still count all.
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub only: Option<Only>,
    /// Exit with 1 when a finding is at least this severe.
    #[arg(long, value_enum, value_name = "SEVERITY", default_value = "warning")]
    pub fail_on: FailOn,
    /// Configuration file (TOML), as for `run`: also reports declared workloads that are not in place,
    /// and uses its thresholds and sources [default: built in, no declared workloads]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read a captured machine (see `capture`) instead of this host.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Arguments of `topology`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer topology
  numa-enforcer topology -o json | jq '.nodes[].cpus'
  numa-enforcer topology --root ./captured-host")]
pub struct Topology {
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "tree")]
    pub output: TreeOrJson,
    /// Read a captured machine (see `capture`) instead of this host.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Arguments of `capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer capture ./captured-host
  tar cjf captured-host.tar.bz2 captured-host
  numa-enforcer audit --root ./captured-host")]
pub struct Capture {
    /// Where to write; must not exist yet, or be empty.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Copy from a captured machine instead of this host.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo numa-enforcer doctor
  numa-enforcer doctor -o json")]
pub struct Doctor {
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: TableOrJson,
    /// Where the daemon keeps its journal of original values.
    #[arg(long, value_name = "DIR", default_value_os_t = default_state_dir())]
    pub state_dir: PathBuf,
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer run --once
  numa-enforcer run --mode enforce --config /etc/numa-enforcer.toml
  numa-enforcer run --config /etc/numa-enforcer.toml --check

A configuration that cannot be read exits with 2, one that is not valid with 64.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct Run {
    /// May it write? [default: the configuration's, else observe]
    #[arg(long, value_enum)]
    pub mode: Option<RunMode>,
    /// Configuration file (TOML) [default: built in, no declared workloads]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Stop after the first tick.
    #[arg(long)]
    pub once: bool,
    /// Only check the configuration.
    #[arg(long)]
    pub check: bool,
    /// Where the journal is kept [default: the configuration's]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Time between two ticks (500ms, 10s, 2m) [default: the configuration's, else 10s]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub interval: Option<Duration>,
    /// Serve metrics and reports over HTTP there, or nowhere [default: the configuration's, else
    /// 127.0.0.1:9477]
    #[arg(long, value_name = "ADDRESS:PORT|off")]
    pub metrics_listen: Option<MetricsListen>,
    /// When it ends, put back every original value, as `restore` does; containers of a runtime keep
    /// what it stored for them
    #[arg(long)]
    pub restore_on_exit: bool,
    /// Log each event that the eBPF programs see, for debugging; off, it costs nothing
    #[arg(long)]
    pub bpf_log: bool,
}

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer restore --dry-run
  numa-enforcer restore
  numa-enforcer restore /shop/orders-db")]
pub struct Restore {
    /// Only this cgroup and what is below it [default: all]
    #[arg(value_name = "CGROUP")]
    pub cgroup: Option<String>,
    /// Where the journal is kept.
    #[arg(long, value_name = "DIR", default_value_os_t = default_state_dir())]
    pub state_dir: PathBuf,
    /// Only say what would be written.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
pub struct Schema {
    /// Of what.
    #[arg(value_enum)]
    pub of: SchemaOf,
}

/// Nothing that this program waits for is longer.
const LONGEST: Duration = Duration::from_hours(24);

/// A length of time that makes sense to wait for.
fn span(text: &str) -> Result<Duration, String> {
    let span = text.parse::<HumanDuration>().map_err(|error| error.to_string())?.get();
    if span.is_zero() {
        return Err("must be longer than zero".into());
    }
    if span > LONGEST {
        return Err("must not be longer than 24h".into());
    }
    Ok(span)
}

/// Where the journal is when neither a flag nor a configuration says otherwise.
fn default_state_dir() -> PathBuf {
    Policy::default().state_dir
}

/// Output of `audit`, `plan` and `doctor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableOrJson {
    /// For people.
    Table,
    /// For programs; `numa-enforcer schema --help` lists the schemas.
    Json,
}

/// Output of `audit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuditOutput {
    /// For people.
    Table,
    /// For programs; `numa-enforcer schema audit` prints its schema.
    Json,
    /// For the textfile collector of `node_exporter`.
    Prometheus,
}

/// Output of `topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TreeOrJson {
    /// For people.
    Tree,
    /// For programs: the `topology` object of the audit's JSON.
    Json,
}

/// Which workloads the audit shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// Those that are misaligned, wholly or in part.
    Misaligned,
}

/// Threshold of exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Any finding.
    Info,
    /// What costs performance.
    Warning,
    /// What costs much performance, or breaks a promise.
    Critical,
}

impl From<FailOn> for Severity {
    fn from(threshold: FailOn) -> Self {
        match threshold {
            FailOn::Info => Self::Info,
            FailOn::Warning => Self::Warning,
            FailOn::Critical => Self::Critical,
        }
    }
}

/// May the daemon write?
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RunMode {
    /// Never writes.
    Observe,
    /// Corrects declared workloads.
    Enforce,
}

impl From<RunMode> for Mode {
    fn from(mode: RunMode) -> Self {
        match mode {
            RunMode::Observe => Self::Observe,
            RunMode::Enforce => Self::Enforce,
        }
    }
}

/// Where metrics are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsListen {
    /// Nowhere.
    Off,
    /// At this address.
    At(SocketAddr),
}

impl FromStr for MetricsListen {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        if text == "off" { Ok(Self::Off) } else { text.parse().map(Self::At) }
    }
}

impl From<MetricsListen> for Option<SocketAddr> {
    fn from(listen: MetricsListen) -> Self {
        match listen {
            MetricsListen::Off => None,
            MetricsListen::At(address) => Some(address),
        }
    }
}

/// What `schema` describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// `audit -o json`.
    Audit,
    /// What the control socket answers: `status -o json`, `explain -o json` and the rest.
    Control,
    /// The file behind `run --config`.
    Config,
    /// `plan -o json`.
    Plan,
    /// `plan --rebalance -o json`.
    Rebalance,
    /// `topology -o json`.
    Topology,
    /// `doctor -o json`.
    Doctor,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }
}
