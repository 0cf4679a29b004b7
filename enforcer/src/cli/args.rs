//! What can be typed. Nothing here touches the system.
//!
//! The doc comments are the program's help. `--help` of each command is one screen of 80 columns: what it
//! does, its options in a column, what is worth knowing besides, and examples. `numa-enforcer help COMMAND`
//! has more room, and with it the second paragraphs of options; the man pages are made of it.

mod cluster;
mod control;
mod exec;
mod explain_pod;
mod plan;
mod publish;
mod replay;
mod rule;
mod scheduler;
mod synthetic;
mod top;

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, str::FromStr, time::Duration};

use clap::{
    ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    builder::{NonEmptyStringValueParser, PathBufValueParser, TypedValueParser as _},
};
use clap_complete::Shell;
use enforcer_core::{
    finding::{Rule, Severity},
    policy::{ByteSize, HumanDuration, Mode, Policy},
};

use crate::version;

pub use self::{
    cluster::{ClusterArgs, ClusterCheckArgs, ClusterCommand},
    control::{Explain, LogLevelArgs, LogLevelName, Pause, Resume, Socket, StatusArgs},
    exec::{ExecArgs, ExecPolicy, MemoryTypeName},
    explain_pod::{ExplainCommand, ExplainPodArgs},
    plan::{PlanArgs, PodOrder},
    publish::{ExportedName, PublishArgs, PublishedName, YamlOrJson},
    replay::ReplayArgs,
    rule::RuleParser,
    scheduler::{
        LeaseName, SchedulerArgs, SchedulerCommand, SchedulerConfigArgs, SchedulerGateArgs,
        SchedulerServeArgs, Uncomputed, UnknownNodes,
    },
    synthetic::{SyntheticCluster, SyntheticLine},
    top::{SortBy, Top, View},
};

/// What is below the list of commands; docs/commands.md has the same codes.
pub(super) const HELP: &str = "\
Exit codes:
  0   aligned, or the command did what it was asked
  1   a finding; a pod without a place; something that came out differently
  2   could not determine, or failed (no such --root, no permission)
  64  wrong usage: an unknown flag, a bad value, a configuration not valid
  69  status, explain, pause, resume, log-level: no daemon runs

Examples:
  numa-enforcer audit                    what is misaligned on this host now
  numa-enforcer audit --sample 10s       the same, with remote memory traffic
  numa-enforcer plan web.yaml            what these pods would get on this host
  numa-enforcer doctor                   what works here, and what is missing
  numa-enforcer run --mode observe       the daemon, which only watches
  numa-enforcer explain /shop/orders-db  what it decided about it, and why
  numa-enforcer restore                  undo what the daemon has written";

const AUDIT_HELP: &str = "\
Remote residency is the share of its memory on nodes where it has no CPUs,
remote traffic the share of its memory accesses that go to another node.
docs/audit.md has every column.

Verdicts:
  misaligned  a critical finding
  partial     a warning
  aligned     neither, and enough was seen to say so
  unknown     neither, but too little was seen: without --sample, so is each
              that may run on several nodes, has memory, and has no fault

Exit codes: 0 no finding at or above --fail-on, 1 there is one, 2 could not
determine (no workload, or every one unknown) or failed, 64 wrong usage

Examples:
  numa-enforcer audit --sample 10s --only misaligned
  numa-enforcer audit -o prometheus --write /var/lib/node_exporter/numa.prom
  numa-enforcer audit -o html --sample 10s --write audit.html
  numa-enforcer audit -o junit --baseline audit.json > numa.xml
  numa-enforcer audit --explain remote-residency";

/// Keeps workloads' CPUs, memory and devices on the same NUMA nodes.
///
/// `audit`, `topology`, `plan`, `capture` and `doctor` only read, and need no root. `run` is the daemon: it
/// watches, and with `--mode enforce` corrects declared workloads; `restore` undoes what it has written.
#[derive(Debug, Parser)]
#[command(name = "numa-enforcer", version = version::full(), after_help = HELP, max_term_width = 100)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Print help; `help COMMAND` says more.
    #[arg(short, long, global = true, action = ArgAction::HelpShort)]
    pub help: Option<bool>,
}

/// Help with all of what a command does, and its options in a column: clap has either the one or the other.
const TEMPLATE: &str = "{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// Everything that can be typed.
pub fn command() -> clap::Command {
    with_whole_help(Args::command())
}

/// The same definition with the help of this program: all of what a command does.
pub(super) fn with_whole_help(command: clap::Command) -> clap::Command {
    let whole = |command: clap::Command| match command.get_long_about().cloned() {
        Some(about) => command.before_help(about).help_template(TEMPLATE),
        None => command,
    };
    whole(command).mut_subcommands(whole)
}

/// What a shell completes: everything that can be typed but for the commands that only we type ourselves.
pub fn completed() -> clap::Command {
    let all = command();
    let shown = all.get_subcommands().filter(|one| !one.is_hide_set());
    clap::Command::new("numa-enforcer")
        .version(version::VERSION)
        .disable_help_flag(true)
        .args(all.get_arguments())
        .subcommands(shown)
}

/// What was typed.
pub(super) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let mut command = command();
    let mut typed = command.try_get_matches_from_mut(words)?;
    Args::from_arg_matches_mut(&mut typed).map_err(|error| error.format(&mut command))
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
    /// Changes nothing, and works without root; what it could not see then, it lists.
    Audit(AuditArgs),
    /// Show the machine: packages, NUMA nodes, caches, memory, devices.
    ///
    /// Prints what the kernel says about the machine, distances included. Node ids and CPU lists are the
    /// kernel's own; what it does not say is left out of the tree and `null` in JSON.
    Topology(TopologyArgs),
    /// Show what CPUs, memory and devices pods would get.
    ///
    /// Places the pods of manifests one after another on an empty machine: this host's topology, a captured,
    /// saved or described one; with `--cluster` on nodes. With `--rebalance` it shows moves that would bring
    /// CPUs, memory and devices of running workloads together. Changes nothing.
    Plan(Box<PlanArgs>),
    /// Check what the nodes of a cluster publish.
    Cluster(ClusterArgs),
    /// Serve a kube-scheduler: pods go where they fit.
    Scheduler(SchedulerArgs),
    /// Copy what the readers read, scrubbed, to look at it elsewhere.
    ///
    /// Writes DIR/sys and DIR/proc with the files that `audit` and `topology` read, and nothing else.
    /// Host name, boot id, addresses, serial numbers and command lines are replaced. The copy is what
    /// `--root` takes, here or on any other machine.
    Capture(Capture),
    /// Show what works on this host, what is missing, and what to do.
    ///
    /// Tries what the other commands need: privileges, kernel features, BTF, each eBPF hook, the cgroup
    /// hierarchy, hardware counters. Each line says ok, degraded, missing or absent (as on most machines),
    /// what was seen, what to do. Changes nothing.
    Doctor(Doctor),
    /// Print, compare or write once what this node tells its cluster.
    ///
    /// The daemon publishes on every change, with `cluster.publish`. This shows the same objects without an
    /// API server (--print), shows how they differ from those in the cluster (--diff), or writes them once.
    /// Without --print it asks the API server, as the account of the configuration.
    Publish(PublishArgs),
    /// Run the daemon.
    ///
    /// Prints an audit and then one line per turn, until it is interrupted. In observe mode, which is
    /// the default, it never writes. In enforce mode it corrects the workloads that the configuration
    /// declares; every original value is journalled before it is overwritten, and `restore` puts it back.
    /// Flags win over the configuration file.
    Run(RunArgs),
    /// Run a program under a memory policy.
    ///
    /// For units and entry points: a memory policy belongs to a task, and no other process can set it. The
    /// command sets the policy and becomes the program. Needs no root and no daemon.
    Exec(ExecArgs),
    /// Take recorded turns again, and show what comes out differently.
    ///
    /// Gives what `run --record` has written to the code that decides, turn by turn, and compares what it
    /// decides now with what was recorded. With --policy it is asked what another configuration would have
    /// done in each of these turns. Changes nothing, and needs neither root nor the recorded host.
    Replay(ReplayArgs),
    /// Put back every original value that the daemon has overwritten.
    ///
    /// Reads the journal and puts back each original value, in an order that the kernel accepts: wider first,
    /// then exact. Works after the daemon was killed. Can be run again at once. A daemon in enforce mode must
    /// be stopped first; one in observe mode may run.
    Restore(Restore),
    /// Show the state of the running daemon.
    ///
    /// Its mode, whether it is paused, its workloads, the container runtime, what is degraded. Asks the
    /// daemon over its control socket. Root and members of the socket's group may ask.
    Status(StatusArgs),
    /// Show what the daemon decided about a workload lately, and why.
    ///
    /// Each decision with its inputs, the places that were considered, the comparison that decided, what it
    /// changed for others, its steps and what became of them, newest first. `explain pod` asks a cluster
    /// instead: why a pod has no node.
    Explain(Explain),
    /// Show nodes, workloads and decisions, live on the terminal.
    ///
    /// Asks the running daemon over its control socket, and looks by itself where none can be asked; the
    /// first line says which of the two. It changes nothing. `?` shows the keys.
    Top(Box<Top>),
    /// Have the running daemon write nothing for a while.
    ///
    /// Without `--for` until it is resumed. It goes on to watch and to report. New containers start without a
    /// place, and get one when the pause is over; what was set stays. A plan that is being carried out is
    /// finished first. A daemon that is started again is still paused. Only root and the daemon's own user
    /// may pause it.
    Pause(Pause),
    /// Let a paused daemon write again.
    ///
    /// Its next turn corrects what is not in place.
    Resume(Resume),
    /// Show or set from which level on the running daemon logs.
    LogLevel(LogLevelArgs),
    /// Print what a shell needs to complete commands and options.
    Completions(Completions),
    /// Print the JSON Schema of an output or of the configuration.
    ///
    /// For editors and programs: it is the one that this program reads or writes, key by key.
    Schema(Schema),
    /// Write the daemon's seccomp profile into a directory.
    ///
    /// For the init container of its pod: a Localhost profile is a file of the node, below the kubelet's
    /// directory. Replaces DIR/numa-enforcer.json as a whole or not at all, and makes DIR if it is missing.
    // Only the chart types it: help and completions are for people, and the help is one screen.
    #[command(hide = true)]
    InstallSeccomp(InstallSeccomp),
    /// Hold memory while the daemon tries whether reclaim leaves it in its cpuset.
    #[command(hide = true)]
    HoldMemory,
    /// Watch over the daemon's brakes, and release them when it does not.
    #[command(hide = true)]
    WatchBrake,
}

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
#[command(after_help = AUDIT_HELP)]
pub struct AuditArgs {
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "table")]
    pub output: AuditOutput,
    /// Write into FILE, as a whole or not at all.
    ///
    /// Nothing goes to standard output then.
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Sample for this long (10s, 2m) and report remote traffic.
    ///
    /// eBPF programs are attached meanwhile. A length is a whole number and ms, s, m or h.
    #[arg(long, value_name = "DURATION", value_parser = span, conflicts_with = "root")]
    pub sample: Option<Duration>,
    /// Show only workloads that are misaligned or partial.
    ///
    /// And their findings. The summary and the exit code still count all.
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub only: Option<Only>,
    /// Show only findings that are new or worse since FILE, an earlier audit as JSON.
    ///
    /// The exit code is about those alone.
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Explain a finding and exit.
    ///
    /// By its id, or by the code of its rule.
    #[arg(long, value_name = "ID", exclusive = true, value_parser = RuleParser, hide_possible_values = true)]
    pub explain: Option<Rule>,
    /// Exit with 1 when a finding is at least so severe.
    #[arg(long, value_enum, value_name = "SEVERITY", default_value = "warning")]
    pub fail_on: FailOn,
    /// Configuration (TOML) as for `run`: its declared workloads, thresholds, sources [default: built in]
    ///
    /// Declared workloads that are not in place are findings, too. A daemon at the control socket of the
    /// configuration is asked for the nodes that it has added to workloads.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Read a captured machine (see `capture`) instead.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// Arguments of `topology`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer topology
  numa-enforcer topology -o json | jq '.nodes[].cpus'
  numa-enforcer topology -o svg > machine.svg
  numa-enforcer topology --root ./captured-host
  numa-enforcer topology --synthetic 'sockets:2 nodes:2 cores:8'")]
pub struct TopologyArgs {
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "tree")]
    pub output: TopologyOutput,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineSource,
}

/// Which machine a command is about; this host where nothing is said.
#[derive(Debug, clap::Args)]
pub struct MachineSource {
    /// Take a captured machine (see `capture`).
    #[arg(long, value_name = "DIR", group = "machine")]
    pub root: Option<PathBuf>,
    /// Take the machine of a saved `topology -o json`.
    #[arg(long, value_name = "FILE", group = "machine")]
    pub topology: Option<PathBuf>,
    /// Take a machine that is described in one line.
    #[arg(long, value_name = "MACHINE", group = "machine")]
    pub synthetic: Option<SyntheticLine>,
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
    /// Configuration of the daemon, for where its state and its kubelet are, and for `[dra]`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the daemon keeps its journal of original values; of the configuration unless given.
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer run --once
  numa-enforcer run --mode enforce --config /etc/numa-enforcer.toml
  numa-enforcer run --config /etc/numa-enforcer.toml --check
  numa-enforcer run --record /run/numa-enforcer/turns.rec

A configuration that cannot be read exits with 2, one that is not valid with 64.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct RunArgs {
    /// observe or enforce [default: the configuration's, else observe]
    #[arg(long, value_enum, hide_possible_values = true)]
    pub mode: Option<RunMode>,
    /// Configuration file (TOML) [default: built in, no declared workloads]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Like --config, but a missing file means the built-in configuration.
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub config_if_present: Option<PathBuf>,
    /// Stop after the first turn, for which no eBPF programs are loaded.
    ///
    /// What they see is not in it.
    #[arg(long)]
    pub once: bool,
    /// Only check the configuration.
    #[arg(long)]
    pub check: bool,
    /// Where the journal is kept [default: the configuration's]
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(own_dir))]
    pub state_dir: Option<PathBuf>,
    /// Turn interval (500ms, 2m) [default: the configuration's, else 10s]
    ///
    /// It holds on an idle host, too.
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub interval: Option<Duration>,
    /// Serve metrics and reports over HTTP there, or nowhere [default: the configuration's, else
    /// 127.0.0.1:9477]
    #[arg(long, value_name = "ADDRESS|off")]
    pub metrics_listen: Option<MetricsListen>,
    /// Serve the probes /live and /ready there, too [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = address_and_port)]
    pub probes_listen: Option<SocketAddr>,
    /// Serve reports there, on loopback, for `kubectl numa` [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = address_and_port)]
    pub reports_listen: Option<SocketAddr>,
    /// Publish the state of the node in the cluster, under its name there
    #[arg(long, value_name = "NODE")]
    pub publish_as: Option<String>,
    /// Name of this node in the cluster, for claims [default: the configuration's, else the host's]
    #[arg(long, value_name = "NODE", conflicts_with = "publish_as", hide_short_help = true)]
    pub node_name: Option<String>,
    /// Publish objects of other schedulers, too: nrt, numatopology [default: the configuration's]
    // The short help is one screen.
    #[arg(long, value_enum, value_name = "OBJECTS", value_delimiter = ',', requires = "publish_as")]
    #[arg(hide_short_help = true)]
    pub also_publish: Vec<ExportedName>,
    /// Write events of the node and its pods in the cluster [default: the configuration's]
    #[arg(long, requires = "publish_as", hide_short_help = true)]
    pub events: bool,
    /// Write labels of the node to this file of node-feature-discovery [default: the configuration's]
    #[arg(long, value_name = "FILE", requires = "publish_as", hide_short_help = true)]
    pub feature_file: Option<PathBuf>,
    /// When it ends, put back every original value, as `restore` does.
    ///
    /// Containers keep the cpuset that their runtime has stored.
    #[arg(long)]
    pub restore_on_exit: bool,
    /// Wait so long for another daemon of this machine to end [default: not at all]
    ///
    /// For an update that starts the new daemon first. It answers probes meanwhile, and enforces nothing.
    #[arg(long, value_name = "DURATION", value_parser = span, hide_short_help = true)]
    pub take_over: Option<Duration>,
    /// Append to FILE what each turn sees and does, for `replay`.
    ///
    /// Only root and the daemon's own user can read it.
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    pub record: Option<PathBuf>,
    /// Largest size of that file; recording ends there
    #[arg(long, value_name = "SIZE", default_value = "64MiB", requires = "record")]
    pub record_limit: ByteSize,
    /// Log each event that the eBPF programs see, for debugging.
    ///
    /// Off, it costs nothing.
    // The short help is one screen.
    #[arg(long, hide_short_help = true)]
    pub bpf_log: bool,
}

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer restore --dry-run
  numa-enforcer restore
  numa-enforcer restore orders-db.service
  numa-enforcer restore /shop/orders-db")]
pub struct Restore {
    /// Only this cgroup and what is below it, by its path or a name
    /// that `explain` takes; with --config also the name of a
    /// `[[workload]]` entry [default: all]
    // An empty one is the variable of a script that was not set, and not all.
    #[arg(value_name = "WORKLOAD", value_parser = NonEmptyStringValueParser::new())]
    pub workload: Option<String>,
    /// Where the journal is kept [default: `state_dir` of --config,
    /// else /run/numa-enforcer]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Configuration of the daemon, for its `state_dir` and for the
    /// place of a kubelet's files where it is not the default.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Only say what would be written.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer completions bash > \\
      /usr/share/bash-completion/completions/numa-enforcer
  numa-enforcer completions zsh > \\
      /usr/local/share/zsh/site-functions/_numa-enforcer
  numa-enforcer completions fish > \\
      ~/.config/fish/completions/numa-enforcer.fish")]
pub struct Completions {
    /// For which shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// Arguments of `install-seccomp`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer install-seccomp /var/lib/kubelet/seccomp")]
pub struct InstallSeccomp {
    /// Where to write numa-enforcer.json.
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
}

/// Arguments of `schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  numa-enforcer schema config > config.schema.json
  numa-enforcer schema audit")]
pub struct Schema {
    /// Of what.
    #[arg(value_enum, value_name = "WHAT")]
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

/// A directory in which the daemon can keep its journal, as the configuration takes it.
fn own_dir(path: PathBuf) -> Result<PathBuf, &'static str> {
    Policy::check_state_dir(&path).map(|()| path)
}

/// Where the journal is when neither a flag nor a configuration says otherwise.
pub(super) fn default_state_dir() -> PathBuf {
    Policy::default().state_dir
}

/// Output of `plan`, `cluster check`, `doctor`, `status` and `explain`.
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
    /// One page for a browser, which needs no network; with `--sample`, also traffic between nodes and
    /// moves that are worth it.
    Html,
    /// For CI: a test case per workload.
    Junit,
    /// For collectors of results of checks: SARIF 2.1.0.
    Sarif,
}

/// Output of `topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopologyOutput {
    /// For people.
    Tree,
    /// For programs: the `topology` object of the audit's JSON.
    Json,
    /// A picture: packages, nodes, memory, devices.
    Svg,
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
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Self::Off) } else { address_and_port(text).map(Self::At) }
    }
}

/// As in the configuration.
fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_bare| "this is not an address and a port, as in `127.0.0.1:9477`".to_owned())
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
    /// `plan --cluster -o json`.
    ClusterPlan,
    /// `explain pod -o json`.
    PodExplanation,
    /// `cluster check -o json`.
    ClusterCheck,
    /// `plan --rebalance -o json`.
    Rebalance,
    /// `topology -o json`.
    Topology,
    /// `doctor -o json`.
    Doctor,
    /// `kubectl numa -o json` without `--node`.
    Cluster,
    /// `replay -o json`.
    Replay,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        command().debug_assert();
    }
}
