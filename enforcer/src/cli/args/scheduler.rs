//! Arguments of `scheduler`.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use clap::{Subcommand, ValueEnum};
use enforcer_cluster::extender::OwnPod;
use enforcer_core::policy::HumanDuration;

use super::{YamlOrJson, address_and_port};

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
    /// Answer the kube-scheduler in the same pod, or that of the cluster.
    ///
    /// An extender (filter, prioritize, bind) that sends a pod only to a node that has its CPUs, memory and
    /// devices free together, by the states that the daemons of the nodes publish.
    Serve(SchedulerServeArgs),
    /// Print the configuration of that kube-scheduler.
    Config(SchedulerConfigArgs),
    /// Give gated pods their nodes, where the scheduler cannot be configured.
    ///
    /// A pod with the scheduling gate numa-enforcer.io/placement gets a node that has its CPUs, memory and
    /// devices free together, as a required node affinity, and loses the gate; any scheduler then binds it
    /// there.
    Gate(SchedulerGateArgs),
}

/// Arguments of `scheduler serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 ended by a signal, 2 failed, 64 usage

Examples:
  numa-enforcer scheduler serve
  numa-enforcer scheduler serve --filter-only --kubeconfig ~/.kube/config
  numa-enforcer scheduler serve --filter-only --listen 0.0.0.0:9443 --probes 0.0.0.0:9481 \\
    --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt --lease numa-enforcer/attached-scheduler \\
    --settles 0s --call-limit 1s")]
pub struct SchedulerServeArgs {
    /// Listen there; only on loopback unless clients show certificates
    #[arg(long, value_name = "ADDRESS", value_parser = address_and_port, default_value = LISTEN)]
    pub listen: SocketAddr,
    /// Speak TLS with this certificate (PEM), and read it again when it is renewed
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "client_ca")]
    pub tls_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Answer only clients with a certificate of one of these authorities (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub client_ca: Option<PathBuf>,
    /// With --filter-only: be one of several replicas; the one with this lease answers, and is ready.
    ///
    /// Not where this program binds: a replica that has lost the lease could still send a binding.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "filter_only")]
    pub lease: Option<LeaseName>,
    /// Answer /live, /ready and /metrics there, too, for the kubelet and Prometheus; nothing else.
    #[arg(long, value_name = "ADDRESS", value_parser = address_and_port)]
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
    /// The pod of this program: set a condition there when pods without a place are to be tried again.
    ///
    /// kube-scheduler does not watch the states of nodes. Without this it tries such pods when another object
    /// changes, or after five minutes. The account needs the verb `patch` on `pods/status` in that namespace.
    #[arg(long, value_name = "NAMESPACE/POD")]
    pub wake_with: Option<OwnPod>,
    /// With --filter-only: answer no call for so long after the start, and after another replica led.
    ///
    /// Pods that were chosen before may still be bound, and their places are not known.
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub settles: HumanDuration,
    /// Time after which the scheduler gives a call up: then the call holds no place, and binds nothing.
    ///
    /// The `httpTimeout` of its configuration.
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub call_limit: HumanDuration,
}

/// Namespace and name of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl FromStr for LeaseName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // What a path of the API may have; the API server checks the rest.
        let is_name = |name: &str| {
            let allowed = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
            name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && name.chars().all(allowed)
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err("a lease is NAMESPACE/NAME"),
        }
    }
}

/// Arguments of `scheduler gate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 ended by a signal, 2 failed, 64 usage

Examples:
  numa-enforcer scheduler gate --lease numa-enforcer/gate
  numa-enforcer scheduler gate --uncomputed hold --kubeconfig ~/.kube/config")]
pub struct SchedulerGateArgs {
    /// Answer /live, /ready and /metrics there
    #[arg(long, value_name = "ADDRESS", value_parser = address_and_port, default_value = "127.0.0.1:9481")]
    pub probes: SocketAddr,
    /// Ask this API server [default: that of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Prefer nodes with much left over to nodes with little
    #[arg(long)]
    pub spread: bool,
    /// Whether nodes are used that have never published a state
    #[arg(long, value_enum, value_name = "ANSWER", default_value = "allow")]
    pub unknown_nodes: UnknownNodes,
    /// Fate of pods with requirements that are not computed.
    ///
    /// These are required affinity to other pods, constraints of their spread, host ports,
    /// claims and their volumes, and claims of devices.
    #[arg(long, value_enum, value_name = "FATE", default_value = "release")]
    pub uncomputed: Uncomputed,
    /// A pod that is not bound so long after it got its node is late
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub late: HumanDuration,
    /// Be one of several replicas: only the one that holds this lease changes pods
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub lease: Option<LeaseName>,
    /// Change no pod for so long after the start, and after another replica led.
    ///
    /// A change that a former process has sent may still land: the API server gives a request 60 s.
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub settles: HumanDuration,
}

/// What becomes of gated pods that are not computed whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Uncomputed {
    /// They lose the gate and get no node: the scheduler chooses one by sums.
    Release,
    /// They stay gated.
    Hold,
    /// They get a node as if they had no such requirement.
    Place,
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
  numa-enforcer scheduler config --filter-only --scheduler-name numa
  numa-enforcer scheduler config --attached --extender 10.96.0.77:443")]
pub struct SchedulerConfigArgs {
    /// Name by which pods choose the scheduler
    #[arg(long, value_name = "NAME", default_value = "numa-scheduler")]
    pub scheduler_name: String,
    /// Namespace of its lease
    #[arg(long, value_name = "NAME", default_value = "numa-enforcer")]
    pub namespace: String,
    /// Address of the extender
    #[arg(long, value_name = "ADDRESS", value_parser = address_and_port, default_value = LISTEN)]
    pub extender: SocketAddr,
    /// Leave binding to the scheduler, as `serve --filter-only`
    #[arg(long)]
    pub filter_only: bool,
    /// What to add to the configuration of the cluster's own scheduler.
    ///
    /// It asks over TLS, for filter alone, and goes on without an answer. --scheduler-name and --namespace do
    /// not count.
    #[arg(long, requires = "extender", conflicts_with = "filter_only")]
    pub attached: bool,
    /// With --attached: name in the extender's certificate
    #[arg(long, value_name = "NAME", default_value = "numa-enforcer-attached-scheduler.numa-enforcer.svc")]
    #[arg(requires = "attached")]
    pub server_name: String,
    /// With --attached: folder with ca.crt, tls.crt and tls.key where the scheduler runs
    #[arg(long, value_name = "FOLDER", default_value = "/etc/kubernetes/numa-enforcer")]
    #[arg(requires = "attached")]
    pub certificates: String,
    /// How to show it
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub output: YamlOrJson,
}
