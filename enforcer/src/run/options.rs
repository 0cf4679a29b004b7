//! The daemon's options: flags, the configuration that they override, and why it does not run.

use std::{collections::BTreeSet, io, net::SocketAddr, path::PathBuf, time::Duration};

use enforcer_core::{
    cluster::exported::ExportedKind,
    policy::{Brake, HumanDuration, Mode, Policy},
};
use thiserror::Error;

use crate::{
    config::{ConfigError, Configured, Flags, notes_of_flags, read_config_below},
    engine::SourceError,
    log_level::LogLevel,
    record,
};
use enforcer_act::{journal::JournalError, scratch};
use enforcer_host::{HostRoot, cgroup::LayoutError};
use enforcer_report::{style::Style, text, units};

/// Options of one run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The host to run on.
    pub host: HostRoot,
    /// Configuration file; `None` for the built-in configuration.
    pub config: Option<PathBuf>,
    /// A missing configuration file counts as an empty one, at the start and on reload.
    pub config_may_be_absent: bool,
    /// Flags that override the configuration.
    pub overrides: Overrides,
    /// Stop after the first turn.
    pub once: bool,
    /// The daemon restores when it ends, which may take long.
    pub restore_on_exit: bool,
    /// Longest wait for the end of another daemon that enforces.
    pub take_over: Duration,
    /// Where and how much to record of each turn.
    pub record: Option<RecordOptions>,
    /// Style of the audit.
    pub style: Style,
    /// Level of the log.
    pub log: LogLevel,
}

/// Where turns are recorded.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Path of the recording.
    pub file: PathBuf,
    /// Largest size of the recording, in bytes.
    pub limit: u64,
}

/// Flags that override the configuration file, also on reload.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Mode: observe or enforce.
    pub mode: Option<Mode>,
    /// Time between two turns.
    pub interval: Option<Duration>,
    /// Directory of the journal.
    pub state_dir: Option<PathBuf>,
    /// Where metrics are served; `Some(None)` for nowhere.
    pub metrics_listen: Option<Option<SocketAddr>>,
    /// Additional address for `/live` and `/ready`.
    pub probes_listen: Option<SocketAddr>,
    /// Loopback address for the reports and what the control socket answers to readers.
    pub reports_listen: Option<SocketAddr>,
    /// Publish the state of the node, under this name.
    pub publish_as: Option<String>,
    /// Name of this node in the cluster.
    pub node_name: Option<String>,
    /// Objects of other schedulers that are published beside it; none means those of the configuration.
    pub also_publish: BTreeSet<ExportedKind>,
    /// Write events of the node and its pods.
    pub events: bool,
    /// Feature file of node-feature-discovery.
    pub feature_file: Option<PathBuf>,
    /// Log the diagnostics of the eBPF programs.
    pub bpf_log: bool,
}

/// Why the daemon does not run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The configuration is invalid or unreadable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// There is no usable cgroup hierarchy.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The journal cannot be opened, so writes are forbidden.
    #[error("enforce mode needs its journal: {0}")]
    Journal(#[from] JournalError),
    /// The recording cannot be opened.
    #[error(transparent)]
    Record(#[from] record::OpenError),
    /// A running daemon cannot apply the new configuration.
    #[error("mode: from observe to enforce needs a restart, because the privileges to write were given up")]
    NeedsRestart,
    /// The driver for claims runs.
    #[error("nri.place: false needs a restart with dra.enabled = false: claims are being prepared")]
    ClaimsArePlaced,
    /// A source that the daemon needs has failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The async runtime, the signals or the output failed.
    #[error("{operation}: {cause}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// Its cause.
        #[source]
        cause: io::Error,
    },
}

impl RunError {
    /// The faulty line of the configuration with marks below it, each after a newline; empty for other
    /// errors.
    pub(super) fn marks(&self) -> String {
        let Self::Config(error) = self else { return String::new() };
        let lines = error.excerpt().into_iter().flat_map(str::lines);
        lines.flat_map(|line| ["\n".into(), text::escape(line)]).collect()
    }
}

pub(super) fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |cause| RunError::Io { operation, cause }
}

impl Flags for Overrides {
    fn apply(&self, policy: &mut Policy) {
        let Self { mode, interval, state_dir, metrics_listen, probes_listen, reports_listen, .. } = self;
        if let Some(mode) = mode {
            policy.mode = *mode;
        }
        if let Some(interval) = interval {
            policy.interval = (*interval).into();
            policy.idle_interval = policy.interval;
        }
        if let Some(dir) = state_dir {
            policy.state_dir.clone_from(dir);
        }
        if let Some(listen) = metrics_listen {
            policy.metrics.enabled = listen.is_some();
            policy.metrics.listen = listen.unwrap_or(policy.metrics.listen);
        }
        policy.metrics.probes = probes_listen.or(policy.metrics.probes);
        policy.metrics.reports = reports_listen.or(policy.metrics.reports);
        if self.publish_as.is_some() {
            policy.cluster.publish = true;
            policy.cluster.node_name.clone_from(&self.publish_as);
        }
        if self.node_name.is_some() {
            policy.cluster.node_name.clone_from(&self.node_name);
        }
        if !self.also_publish.is_empty() {
            policy.cluster.also_publish.clone_from(&self.also_publish);
        }
        policy.cluster.events |= self.events;
        if self.feature_file.is_some() {
            policy.cluster.feature_file.clone_from(&self.feature_file);
        }
        policy.sample.bpf_log |= self.bpf_log;
    }

    fn flag(&self, key: &str) -> Option<String> {
        let Self { mode, interval, state_dir, metrics_listen, probes_listen, reports_listen, .. } = self;
        match key {
            "mode" => mode.map(|mode| format!("--mode {mode}")),
            "interval" | "idle_interval" => {
                interval.map(|interval| format!("--interval {}", HumanDuration::from(interval)))
            }
            "state_dir" => state_dir.as_ref().map(|dir| format!("--state-dir {}", dir.display())),
            "metrics.enabled" => {
                metrics_listen.is_some_and(|listen| listen.is_none()).then(|| "--metrics-listen off".into())
            }
            "metrics.listen" => metrics_listen.flatten().map(|listen| format!("--metrics-listen {listen}")),
            "metrics.probes" => probes_listen.map(|listen| format!("--probes-listen {listen}")),
            "metrics.reports" => reports_listen.map(|listen| format!("--reports-listen {listen}")),
            "cluster.publish" => self.publish_as.as_ref().map(|name| format!("--publish-as {name}")),
            "cluster.node_name" => {
                let named = |flag: &str, name: &String| format!("{flag} {name}");
                let other = self.node_name.as_ref().map(|name| named("--node-name", name));
                other.or_else(|| self.publish_as.as_ref().map(|name| named("--publish-as", name)))
            }
            "cluster.also_publish" => {
                let names: Vec<&str> = self.also_publish.iter().map(|kind| (*kind).into()).collect();
                (!names.is_empty()).then(|| format!("--also-publish {}", names.join(",")))
            }
            "cluster.feature_file" => {
                self.feature_file.as_ref().map(|file| format!("--feature-file {}", file.display()))
            }
            "cluster.events" => self.events.then(|| "--events".into()),
            "sample.bpf_log" => self.bpf_log.then(|| "--bpf-log".into()),
            _ => None,
        }
    }
}

impl RunOptions {
    /// The configuration file with the flags applied.
    pub fn policy(&self) -> Result<Policy, ConfigError> {
        self.configured().map(|configured| configured.policy)
    }

    /// The same with notes about keys that have no effect.
    pub fn configured(&self) -> Result<Configured, ConfigError> {
        let read = match &self.config {
            Some(path) => match read_config_below(path, &self.overrides) {
                Err(ConfigError::Read { cause, .. })
                    if self.config_may_be_absent && cause.kind() == io::ErrorKind::NotFound =>
                {
                    None
                }
                read => Some(read?),
            },
            None => None,
        };
        let Configured { policy, notes, file } = read.unwrap_or_else(|| {
            let mut policy = Policy::default();
            self.overrides.apply(&mut policy);
            let notes = notes_of_flags(&policy, &self.overrides);
            Configured { policy, notes, file: None }
        });
        let flag = |key: &str| Some(self.overrides.flag(key)?.split(' ').next()?.to_owned());
        policy.metrics.validate().map_err(|error| ConfigError::Invalid {
            place: self.config.as_deref().map_or("flags".into(), |path| path.display().to_string()),
            problem: error.renamed(flag).to_string(),
            excerpt: None,
        })?;
        if policy.memory.widening.brake == Brake::High && scratch::is_on(&self.host) {
            return Err(ConfigError::NotHere {
                place: self.config.clone().unwrap_or_default(),
                key: "memory.widening.brake",
                problem: Brake::NOT_BESIDE_DEMOTION,
                seen: scratch::switch(&self.host).as_path().to_owned(),
            });
        }
        Ok(Configured { policy, notes, file })
    }
}

/// `1 declared workload`.
pub fn declared(policy: &Policy) -> String {
    units::count(policy.workloads.len(), "declared workload")
}
