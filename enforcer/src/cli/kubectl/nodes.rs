//! The daemons of a cluster: which there are, a connection to one, and the answers of all.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context as _, bail};
use enforcer_cluster::{DaemonPod, Kubectl, KubectlError, NodeDaemon, PortForward, Unreachable, by_node};

use super::{
    super::{
        UsageError,
        client::{NoNodeDaemon, NodePort, Refused, get_from_node},
        terminal,
    },
    args::ClusterArgs,
};
use crate::serve::api::SocketAnswer;
use enforcer_report::{
    cluster::{AskedNode, NodeProblem},
    units,
};

/// Nodes that are asked at a time: each takes a kubectl, and an answer in memory.
pub(super) const AT_A_TIME: usize = 8;
/// Nodes that are named in an error.
const NAMED: usize = 5;
/// Largest token file in bytes: the daemon takes no longer token.
const LONGEST_TOKEN: usize = 4096;

/// A cluster, its daemons, and the rights to ask them.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    kubectl: Kubectl,
    namespace: String,
    selector: String,
    token: Option<String>,
    has_kubeconfig: bool,
}

/// A connection to the daemon of a node.
pub(super) struct NodeConnection {
    forward: PortForward,
    token: Option<String>,
}

impl Cluster {
    /// What was typed; reads the token, and asks nothing.
    pub(super) fn of(args: ClusterArgs) -> anyhow::Result<Self> {
        let has_kubeconfig = args.kubeconfig.is_some() || finds_kubeconfig();
        let mut flags = Vec::new();
        if let Some(path) = args.kubeconfig {
            let mut flag = std::ffi::OsString::from("--kubeconfig=");
            flag.push(path);
            flags.push(flag);
        }
        let named = [
            ("context", args.context),
            ("cluster", args.cluster),
            ("user", args.user),
            ("as", args.impersonated),
        ];
        flags.extend(
            named.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value?).into())),
        );
        Ok(Self {
            kubectl: Kubectl::new(args.kubectl, flags),
            namespace: args.enforcer_namespace,
            selector: args.selector,
            token: args.token_file.as_deref().map(token).transpose()?,
            has_kubeconfig,
        })
    }

    /// How kubectl is run.
    pub(super) fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Every node of the cluster and its daemon.
    pub(super) fn nodes(&self) -> anyhow::Result<Vec<NodeDaemon>> {
        let pods = self.daemon_pods()?;
        let nodes = self.kubectl.nodes().unwrap_or_else(|error| {
            terminal::note_by("kubectl numa", &format!("{error}; nodes without a daemon are not shown"));
            Vec::new()
        });
        Ok(by_node(pods, nodes))
    }

    /// The daemon of `node`; without a name, that of the only node that has one.
    pub(super) fn node(&self, node: Option<&str>) -> anyhow::Result<NodeDaemon> {
        let mut all = by_node(self.daemon_pods()?, node.map(str::to_owned).into_iter().collect());
        let names: Vec<String> = all.iter().map(|one| one.node.clone()).collect();
        let Some(node) = node else {
            if let (Some(one), true) = (all.pop(), all.is_empty()) {
                return Ok(one);
            }
            if names.is_empty() {
                bail!(NoNodeDaemon("no pod of a daemon is on a node yet".to_owned()));
            }
            let listed = units::first_few(&names, NAMED);
            bail!(UsageError(format!("which node? --node NAME is expected; there are: {listed}")))
        };
        let found = all.into_iter().find(|one| one.node == node).filter(|one| one.pod().is_some());
        let others: Vec<String> = names.into_iter().filter(|name| name != node).collect();
        found.ok_or_else(|| {
            let listed = units::first_few(&others, NAMED);
            let elsewhere =
                if others.is_empty() { String::new() } else { format!("; daemons run on: {listed}") };
            NoNodeDaemon(format!("node {node}: no daemon runs on it{elsewhere}")).into()
        })
    }

    /// A connection to a node's daemon.
    pub(super) fn connect(&self, node: &NodeDaemon) -> anyhow::Result<NodeConnection> {
        let (pod, port) = reachable(node).map_err(|error| no_way(node, error))?;
        let forward = self.kubectl.forward(pod, port).with_context(|| format!("node {}", node.node))?;
        Ok(NodeConnection { forward, token: self.token.clone() })
    }

    /// A pod, in the namespace of the context if none is named.
    pub(super) fn pod(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> anyhow::Result<enforcer_cluster::WorkloadPod> {
        self.kubectl.pod(namespace, name).map_err(|error| self.explained(error))
    }

    /// The answers of all `nodes` to one request, each made into what is kept of it as soon as it is there.
    pub(super) fn ask_all<T: SocketAnswer, R: Send>(
        &self,
        nodes: &[NodeDaemon],
        path: &str,
        keep: impl Fn(AskedNode, Option<T>) -> R + Sync,
    ) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let kept: Mutex<Vec<(usize, R)>> = Mutex::default();
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(node) = nodes.get(at) else { return };
                let (asked, answer) = self.ask(node, path);
                let one = keep(asked, answer);
                kept.lock().unwrap_or_else(PoisonError::into_inner).push((at, one));
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME.min(nodes.len()) {
                scope.spawn(work);
            }
        });
        let mut kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        kept.sort_by_key(|(at, _one)| *at);
        kept.into_iter().map(|(_at, one)| one).collect()
    }

    fn ask<T: SocketAnswer>(&self, node: &NodeDaemon, path: &str) -> (AskedNode, Option<T>) {
        let pod = node.pod().map(str::to_owned);
        let asked = AskedNode { node: node.node.clone(), pod, version: None, problem: None };
        let answer = match reachable(node) {
            Err(error) => {
                let no_daemon = *error == Unreachable::NoDaemon;
                let problem = Some(NodeProblem { no_daemon, reason: error.to_string() });
                return (AskedNode { problem, ..asked }, None);
            }
            Ok((pod, port)) => self
                .kubectl
                .forward(pod, port)
                .map_err(anyhow::Error::new)
                .and_then(|forward| NodeConnection { forward, token: self.token.clone() }.get(path)),
        };
        match answer {
            Ok(answer) => (asked, Some(answer)),
            Err(error) => {
                let problem = Some(NodeProblem { no_daemon: false, reason: format!("{error:#}") });
                (AskedNode { problem, ..asked }, None)
            }
        }
    }

    fn daemon_pods(&self) -> anyhow::Result<Vec<DaemonPod>> {
        let pods = self.kubectl.daemon_pods(&self.namespace, &self.selector);
        let pods = pods.map_err(|error| self.explained(error))?;
        if pods.is_empty() {
            let Self { namespace, selector, .. } = self;
            bail!(NoNodeDaemon(format!(
                "no pod with the labels {selector} is in the namespace {namespace} (--selector, \
                 --enforcer-namespace)"
            )));
        }
        Ok(pods)
    }

    /// Without a kubeconfig, kubectl complains of a server on this machine that was never meant.
    fn explained(&self, error: KubectlError) -> anyhow::Error {
        let is_refusal = matches!(error, KubectlError::Failed { .. });
        let error = anyhow::Error::new(error);
        if self.has_kubeconfig || !is_refusal {
            return error;
        }
        error.context("there is no kubeconfig (--kubeconfig FILE, KUBECONFIG, ~/.kube/config)")
    }
}

impl NodeConnection {
    /// The daemon's answer.
    pub(super) fn get<T: SocketAnswer>(&self, path: &str) -> anyhow::Result<T> {
        let port = NodePort { address: self.forward.address(), token: self.token.as_deref() };
        get_from_node(port, path).map_err(|error| {
            // A daemon that refuses has been reached.
            let said = if error.is::<Refused>() { String::new() } else { self.forward.complaint() };
            if said.is_empty() { error } else { error.context(said) }
        })
    }
}

fn reachable(node: &NodeDaemon) -> Result<(&DaemonPod, u16), &Unreachable> {
    node.daemon.as_ref().map(|(pod, port)| (pod, *port))
}

/// The error of a command that is about one node.
pub(super) fn no_way(node: &NodeDaemon, error: &Unreachable) -> anyhow::Error {
    let said = format!("node {}: {error}", node.node);
    if *error == Unreachable::NoDaemon { NoNodeDaemon(said).into() } else { anyhow::Error::msg(said) }
}

/// Where kubectl looks for a kubeconfig, or finds the cluster that it runs in.
fn finds_kubeconfig() -> bool {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let home = set("HOME").is_some_and(|home| PathBuf::from(home).join(".kube/config").exists());
    home || set("KUBECONFIG").is_some() || set("KUBERNETES_SERVICE_HOST").is_some()
}

fn token(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("--token-file {}", path.display()))?;
    let token = text.trim();
    if token.is_empty() || token.len() > LONGEST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let path = path.display();
        bail!(UsageError(format!("--token-file {path}: a token of visible ASCII characters is expected")));
    }
    Ok(token.to_owned())
}
