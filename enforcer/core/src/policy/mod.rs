//! The configuration: settings of the daemon and declared workloads.
//!
//! This is the schema of the configuration file; unknown keys are refused. Values that can be checked one by
//! one have types that cannot hold an invalid value; [`Policy::validate`] checks relations between values.
//! The daemon reads the file.

mod cluster;
mod dra;
mod ineffective;
mod memory;
mod rebalance;
mod workload;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

pub use numa_placement::settings::{
    self as placement, CgroupGlob, DeclaredClass, DurationError, GlobError, HumanDuration, NameGlob,
    NameGlobError, OtherSetting, PolicyError,
};
use numa_placement::settings::{
    covering,
    refusal::{Relation, at_odds, quoted, refused},
    whole,
};
pub use numa_topology::size::{ByteSize, SizeError};

pub use self::{
    cluster::ClusterSettings,
    dra::{DraFallback, DraNodeSettings, DraSettings},
    ineffective::Ineffective,
    memory::{Brake, DemotionBackend, DemotionSettings, MemorySettings, MoveSettings, WideningSettings},
    rebalance::RebalanceSettings,
    workload::{PodNames, RuleSubject, WorkloadKind, WorkloadRule, hints_of_cgroups},
};
use crate::{
    interrupts::InterruptMode,
    partition::Partition,
    self_placement::SelfPlacement,
    workload::{CgroupPath, Origin, identify},
};

/// Maximum time between two samples.
const LONGEST_INTERVAL: Duration = Duration::from_hours(24);

/// The configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Whether the daemon may write: `observe` never writes.
    pub mode: Mode,
    /// Time between two samples.
    pub interval: HumanDuration,
    /// Maximum time between two samples while the host is nearly idle; `interval` if that is longer.
    pub idle_interval: HumanDuration,
    /// Time after a correction for which a workload is not moved to the same place again.
    pub cool_down: HumanDuration,
    /// Treatment of processes that have set memory policies or CPU affinities themselves, which a write to
    /// their cpuset would change.
    pub self_placement: SelfPlacement,
    /// Directory of the journal.
    pub state_dir: PathBuf,
    /// Sources of samples.
    pub sample: SampleSettings,
    /// The metrics endpoint.
    pub metrics: MetricsSettings,
    /// Connection to the container runtime.
    pub nri: NriSettings,
    /// Reading the kubelet's assignments.
    pub kubelet: KubeletSettings,
    /// What the daemon tells the cluster.
    pub cluster: ClusterSettings,
    /// Claims of Dynamic Resource Allocation.
    pub dra: DraSettings,
    /// Control socket of the daemon.
    pub control: ControlSettings,
    /// Values from which a measurement is a finding.
    pub thresholds: Thresholds,
    /// Placement of pods.
    pub placement: placement::PlacementSettings,
    /// Page placement, and actions when memory runs out.
    pub memory: MemorySettings,
    /// Moving running workloads to a better place.
    pub rebalance: RebalanceSettings,
    /// Interrupts of devices.
    pub interrupts: InterruptSettings,
    /// Declared workloads; the first matching entry applies.
    #[serde(rename = "workload", skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadRule>,
}

/// May the daemon write?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The daemon never writes.
    #[default]
    Observe,
    /// The daemon corrects declared workloads.
    Enforce,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        })
    }
}

/// Interrupts of devices: off exclusive CPUs, and near the workloads that use the devices.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterruptSettings {
    /// `off` does not read them, `observe` reports them, `enforce` also sets their CPUs, in enforce mode.
    pub mode: InterruptMode,
}

impl Policy {
    /// Whether the daemon sets CPUs of interrupts, where nothing else keeps it from writing.
    pub fn steers_interrupts(&self) -> bool {
        self.mode == Mode::Enforce && self.interrupts.mode == InterruptMode::Enforce
    }
}

/// Sources that a sample may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SampleSettings {
    /// Load the eBPF programs.
    pub bpf: bool,
    /// Let the eBPF programs log their actions.
    pub bpf_log: bool,
    /// Source of run time per node.
    pub run_time: RunTimeSource,
    /// Read `/proc/PID/numa_maps`, which takes locks of the process.
    pub numa_maps: bool,
}

/// Source of run time per node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RunTimeSource {
    /// A clock on each CPU, 99 times a second: negligible cost.
    #[default]
    Clock,
    /// Every context switch: exact, with a cost at each switch.
    Switches,
}

/// The metrics endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsSettings {
    /// Serve metrics.
    pub enabled: bool,
    /// Address and port. On addresses other than loopback, `/report.json` and `/report.html` are refused
    /// without `token_file`.
    #[serde(deserialize_with = "address_and_port")]
    pub listen: SocketAddr,
    /// Address and port on which `/live` and `/ready` are also served, independent of `listen`.
    #[serde(deserialize_with = "optional_address_and_port", skip_serializing_if = "Option::is_none")]
    pub probes: Option<SocketAddr>,
    /// Loopback address and port on which the reports and the read-only answers of the control socket are
    /// also served, for `kubectl numa`: a port-forward reaches the loopback addresses of a pod.
    #[serde(deserialize_with = "optional_address_and_port", skip_serializing_if = "Option::is_none")]
    pub reports: Option<SocketAddr>,
    /// File with the token that requests must carry (`Authorization: Bearer TOKEN`), except for `/live` and
    /// `/ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Export the kernel-side counters of each workload, not only the totals.
    pub workload_counters: bool,
}

fn address_and_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text: String =
        crate::quoted::read(deserializer, "an address and a port in quotes, as in \"127.0.0.1:9477\"")?;
    text.parse().map_err(|_bare| {
        de::Error::custom(format!("`{text}` is not an address and a port, as in `127.0.0.1:9477`"))
    })
}

fn optional_address_and_port<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    #[derive(Deserialize)]
    struct Address(#[serde(deserialize_with = "address_and_port")] SocketAddr);
    Ok(Option::<Address>::deserialize(deserializer)?.map(|Address(address)| address))
}

/// Connection to the container runtime, for placing containers before they start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own")]
pub struct NriSettings {
    /// Connect to the runtime whenever it is available: containers get the names of their pods.
    pub enabled: bool,
    /// Place containers when they are created, in enforce mode. Exclusive CPUs and memory nodes from the
    /// kubelet's static managers are never changed. Other plugins that set cpusets must be off.
    pub place: bool,
    /// Let containers that are placed at creation read their placement in a file below `/.numa-enforcer`.
    pub expose: bool,
    /// Do not change pods with the mark of another controller (Koordinator, Katalyst, a DRA driver). Every
    /// user that may create pods can write such a mark: set this to false if none of these controllers runs.
    pub honour_marks: bool,
    /// Path of the runtime's plugin socket.
    pub socket: PathBuf,
    /// Position among the plugins, 0 to 99: lower numbers are called first.
    #[serde(deserialize_with = "whole::within::<_, _, 0, 99>")]
    #[schemars(range(max = 99))]
    pub index: u8,
}

/// Reading the assignments of the kubelet's static managers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KubeletSettings {
    /// Read them. Without it, the daemon does not know what a kubelet owns.
    pub enabled: bool,
    /// The kubelet's directory, with the state files of its CPU and memory managers.
    pub root_dir: PathBuf,
    /// Path of its podresources socket.
    pub podresources: PathBuf,
}

/// The socket through which `status`, `explain`, `pause`, `resume` and `log-level` reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSettings {
    /// Listen on the socket.
    pub enabled: bool,
    /// Path of the socket, in a directory that only its owner may write.
    pub socket: PathBuf,
}

/// Values from which a measurement is a finding. Ratios are from 0 to 1.
///
/// The ratios are those of the usual alert rules for cross-node memory access: warn from a fifth, act from a
/// half.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Thresholds {
    /// Share of memory on remote nodes that is a warning.
    pub remote_residency_warning: f64,
    /// Share of memory on remote nodes that is critical.
    pub remote_residency_critical: f64,
    /// Share of remote accesses that is a warning.
    pub remote_traffic_warning: f64,
    /// Share of remote accesses that is critical.
    pub remote_traffic_critical: f64,
    /// Workloads with less memory than this get no finding about its location.
    pub min_memory: ByteSize,
    /// Minimum number of observations for a finding about traffic.
    #[serde(deserialize_with = "whole::within::<_, _, 0, { whole::MOST }>")]
    pub min_samples: u64,
}

impl Policy {
    /// Checks relations that types cannot express: the interval is in range, the state directory is absolute,
    /// ratios are in order, placement is consistent, and each workload entry can match something and can be
    /// granted.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if self.interval.is_zero() {
            return Err(refused("interval", self.interval, "it must be longer than zero"));
        }
        if self.interval.get() > LONGEST_INTERVAL {
            return Err(refused("interval", self.interval, "it must not be longer than 24h"));
        }
        if self.idle_interval.get() > LONGEST_INTERVAL {
            return Err(refused("idle_interval", self.idle_interval, "it must not be longer than 24h"));
        }
        Self::check_state_dir(&self.state_dir)
            .map_err(|problem| refused("state_dir", quoted(&self.state_dir.to_string_lossy()), problem))?;
        for (key, path) in [
            ("nri.socket", &self.nri.socket),
            ("kubelet.root_dir", &self.kubelet.root_dir),
            ("kubelet.podresources", &self.kubelet.podresources),
            ("control.socket", &self.control.socket),
        ] {
            can_be_opened(path).map_err(|problem| refused(key, quoted(&path.to_string_lossy()), problem))?;
        }
        self.metrics.validate()?;
        if self.nri.index > 99 {
            return Err(refused("nri.index", self.nri.index, "at most 99 is expected"));
        }
        self.control.validate()?;
        self.cluster.validate(&self.kubelet)?;
        self.dra.validate(&self.nri)?;
        self.thresholds.validate()?;
        self.placement.validate()?;
        self.memory.validate(&self.workloads)?;
        self.rebalance.validate()?;
        workload::validate(&self.workloads, &self.placement)
    }

    /// Can the daemon keep its journal in `path`? The error is the reason why not.
    pub fn check_state_dir(path: &Path) -> Result<(), &'static str> {
        // A relative one would be another directory for a restore that is started elsewhere.
        can_be_opened(path)?;
        // The files of others are in `/`.
        if path.file_name().is_none() {
            return Err("a directory of its own is expected");
        }
        Ok(())
    }

    /// The entry of a workload and its position: the first matching one in the file.
    pub fn rule(&self, subject: &RuleSubject<'_>) -> Option<(usize, &WorkloadRule)> {
        self.workloads.iter().enumerate().find(|(_, rule)| rule.is_about(subject))
    }
}

impl Policy {
    /// Does any entry declare a partition?
    pub fn wants_partitions(&self) -> bool {
        let mut rules = self.workloads.iter().filter(|rule| rule.enforce);
        rules.any(|rule| rule.partition.is_some_and(|kind| kind != Partition::Member))
    }

    /// May a turn have to place this cgroup? Only its path is known yet. False for containers that are placed
    /// at creation.
    pub fn may_place(&self, cgroup: &CgroupPath) -> bool {
        self.interest(cgroup).itself
    }

    /// Whether a turn may have to place the cgroup, or a descendant of it.
    pub fn interest(&self, cgroup: &CgroupPath) -> Interest {
        let rules = || self.workloads.iter().filter(|rule| rule.enforce);
        let itself = rules().any(|rule| rule.may_be_about(cgroup));
        let below = rules().any(|rule| rule.may_be_about_one_below(cgroup));
        if (itself || below) && self.nri.place && matches!(identify(cgroup).origin, Origin::Pod { .. }) {
            return Interest::default();
        }
        Interest { itself, below }
    }
}

/// Which cgroups a turn may have to place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interest {
    /// The cgroup itself.
    pub itself: bool,
    /// A descendant.
    pub below: bool,
}

impl MetricsSettings {
    /// Checks that the addresses can be used at the same time, that the reports are on loopback, and that the
    /// path of the token file can be opened. Flags may change the addresses after the file was read.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if let Some(path) = &self.token_file {
            let path_of = || quoted(&path.to_string_lossy());
            can_be_opened(path).map_err(|problem| refused("metrics.token_file", path_of(), problem))?;
        }
        if let Some(reports) = self.reports.filter(|reports| !reports.ip().to_canonical().is_loopback()) {
            return Err(refused(
                "metrics.reports",
                quoted(&reports.to_string()),
                "an address on loopback is expected: other pods and hosts must not reach the reports",
            ));
        }
        let listen = ("metrics.listen", Some(self.listen).filter(|_| self.enabled));
        let probes = ("metrics.probes", self.probes);
        let reports = ("metrics.reports", self.reports.filter(|_| self.enabled));
        for ((key, address), (other, taken)) in [(probes, listen), (reports, listen), (reports, probes)] {
            let (Some(address), Some(taken)) = (address, taken) else { continue };
            if exclude_each_other(address, taken) {
                let relation = Relation::excludes(
                    "both would listen on the same port of the same address: another port is expected",
                );
                let [address, taken] = [address, taken].map(|address| quoted(&address.to_string()));
                return Err(at_odds((key, address), relation, (other, taken)));
            }
        }
        Ok(())
    }
}

/// Does listening on one address prevent listening on the other? Port 0 is any free port. `::` includes all
/// IPv4 addresses (`IPV6_V6ONLY` of ipv6(7) is off by default).
fn exclude_each_other(one: SocketAddr, other: SocketAddr) -> bool {
    let [one_ip, other_ip] = [one, other].map(|address| address.ip().to_canonical());
    let covers = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    one.port() != 0
        && one.port() == other.port()
        && (one_ip == other_ip || covers(one_ip, other_ip) || covers(other_ip, one_ip))
}

impl ControlSettings {
    /// Maximum length of a socket path in bytes: `sun_path` of unix(7) holds 108, including the terminating
    /// 0.
    pub const LONGEST: usize = 107;

    fn validate(&self) -> Result<(), PolicyError> {
        let refused = |problem| refused("control.socket", quoted(&self.socket.to_string_lossy()), problem);
        if self.socket.file_name().is_none() {
            return Err(refused("a file name is expected at its end"));
        }
        if self.socket.as_os_str().len() > Self::LONGEST {
            return Err(refused("the kernel takes paths of sockets of at most 107 bytes"));
        }
        Ok(())
    }
}

impl Thresholds {
    fn validate(&self) -> Result<(), PolicyError> {
        for (name, warning, critical) in [
            ("remote_residency", self.remote_residency_warning, self.remote_residency_critical),
            ("remote_traffic", self.remote_traffic_warning, self.remote_traffic_critical),
        ] {
            for (level, value) in [("warning", warning), ("critical", critical)] {
                // Written so that NaN, which TOML can spell, is refused as well.
                if !(value > 0.0 && value <= 1.0) {
                    let key = format!("thresholds.{name}_{level}");
                    return Err(refused(key, value, "a ratio above 0 and at most 1 is expected"));
                }
            }
            if critical < warning {
                let [critical, warning] = [("critical", critical), ("warning", warning)]
                    .map(|(level, value)| (format!("thresholds.{name}_{level}"), value));
                return Err(at_odds(critical, Relation::AT_LEAST, warning));
            }
        }
        Ok(())
    }
}

fn can_be_opened(path: &Path) -> Result<(), &'static str> {
    if !path.is_absolute() {
        return Err("an absolute path is expected");
    }
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err("no path has a NUL in it");
    }
    Ok(())
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            interval: HumanDuration::from_secs(10),
            idle_interval: HumanDuration::from_secs(300),
            cool_down: HumanDuration::from_secs(60),
            self_placement: SelfPlacement::default(),
            state_dir: "/run/numa-enforcer".into(),
            sample: SampleSettings::default(),
            metrics: MetricsSettings::default(),
            nri: NriSettings::default(),
            kubelet: KubeletSettings::default(),
            cluster: ClusterSettings::default(),
            dra: DraSettings::default(),
            control: ControlSettings::default(),
            thresholds: Thresholds::default(),
            placement: placement::PlacementSettings::default(),
            memory: MemorySettings::default(),
            rebalance: RebalanceSettings::default(),
            interrupts: InterruptSettings::default(),
            workloads: Vec::new(),
        }
    }
}

impl Default for SampleSettings {
    fn default() -> Self {
        Self { bpf: true, bpf_log: false, run_time: RunTimeSource::Clock, numa_maps: false }
    }
}

impl Default for MetricsSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: (Ipv4Addr::LOCALHOST, 9477).into(),
            probes: None,
            reports: None,
            token_file: None,
            workload_counters: false,
        }
    }
}

impl Default for NriSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            place: false,
            expose: false,
            honour_marks: true,
            socket: "/var/run/nri/nri.sock".into(),
            index: 50,
        }
    }
}

impl Default for KubeletSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            root_dir: "/var/lib/kubelet".into(),
            podresources: "/var/lib/kubelet/pod-resources/kubelet.sock".into(),
        }
    }
}

impl Default for ControlSettings {
    fn default() -> Self {
        Self { enabled: true, socket: "/run/numa-enforcer/control.sock".into() }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            remote_residency_warning: 0.2,
            remote_residency_critical: 0.5,
            remote_traffic_warning: 0.2,
            remote_traffic_critical: 0.5,
            min_memory: ByteSize(16 << 20),
            min_samples: 20,
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_tests;
