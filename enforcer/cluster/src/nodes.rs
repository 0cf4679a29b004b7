//! Which pod answers for which node, and why a node has none: pure.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::pods::DaemonPod;

/// A node and its daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDaemon {
    /// Name of the node.
    pub node: String,
    /// The pod and its port for reports, or why the daemon cannot be asked.
    pub daemon: Result<(DaemonPod, u16), Unreachable>,
}

/// Why the daemon of a node cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unreachable {
    /// No pod of a daemon is on the node.
    #[error("no daemon runs on this node")]
    NoDaemon,
    /// There is one, and it is not ready.
    #[error("its daemon is not ready: pod {pod} is {state}")]
    NotReady {
        /// The pod.
        pod: String,
        /// Its state.
        state: String,
    },
    /// The daemon serves no reports to port-forwards.
    #[error(
        "its daemon serves no reports on loopback (pod {pod} has no port `reports`): set kubectlPlugin.enabled in \
         the values of the chart"
    )]
    NoReports {
        /// The pod.
        pod: String,
    },
}

impl NodeDaemon {
    /// Name of the pod, if there is one.
    pub fn pod(&self) -> Option<&str> {
        match &self.daemon {
            Ok((pod, _port)) => Some(&pod.name),
            Err(Unreachable::NoDaemon) => None,
            Err(Unreachable::NotReady { pod, .. } | Unreachable::NoReports { pod }) => Some(pod),
        }
    }
}

/// Every node, by name: `nodes` and those that have a pod. Of several pods of a node, as during a rollout, a
/// ready one answers.
pub fn by_node(pods: Vec<DaemonPod>, nodes: Vec<String>) -> Vec<NodeDaemon> {
    let mut of_node: BTreeMap<String, Vec<DaemonPod>> = BTreeMap::new();
    for pod in pods {
        if let Some(node) = pod.node.clone() {
            of_node.entry(node).or_default().push(pod);
        }
    }
    let names: BTreeSet<String> = nodes.into_iter().chain(of_node.keys().cloned()).collect();
    let daemon = |node: String| {
        let pods = of_node.remove(&node).unwrap_or_default();
        NodeDaemon { daemon: best(pods), node }
    };
    names.into_iter().map(daemon).collect()
}

fn best(pods: Vec<DaemonPod>) -> Result<(DaemonPod, u16), Unreachable> {
    let best = pods.into_iter().max_by_key(|pod| (pod.ready, pod.reports_port.is_some()));
    let pod = best.ok_or(Unreachable::NoDaemon)?;
    if !pod.ready {
        let state = if pod.state.is_empty() { "in no known state".to_owned() } else { pod.state };
        return Err(Unreachable::NotReady { pod: pod.name, state });
    }
    match pod.reports_port {
        Some(port) => Ok((pod, port)),
        None => Err(Unreachable::NoReports { pod: pod.name }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, node: Option<&str>, ready: bool, reports_port: Option<u16>) -> DaemonPod {
        let state = if ready { "Running" } else { "Pending" };
        DaemonPod {
            namespace: "numa-enforcer".into(),
            name: name.into(),
            node: node.map(str::to_owned),
            reports_port,
            ready,
            state: state.into(),
        }
    }

    #[test]
    fn each_node_has_a_ready_pod_or_a_reason() {
        let pods = vec![
            pod("old", Some("a"), false, Some(9479)),
            pod("new", Some("a"), true, Some(9479)),
            pod("starts", Some("c"), false, Some(9479)),
            pod("plain", Some("d"), true, None),
            pod("unscheduled", None, false, Some(9479)),
            pod("unlisted", Some("e"), true, Some(1)),
        ];
        let told: Vec<_> = by_node(pods, ["d", "c", "b", "a"].map(str::to_owned).into())
            .into_iter()
            .map(|one| {
                let pod = one.pod().map(str::to_owned);
                (one.node, pod, one.daemon.map(|(_pod, port)| port).map_err(|error| error.to_string()))
            })
            .collect();
        let row = |node: &str, pod: Option<&str>, daemon: Result<u16, &str>| {
            (node.to_owned(), pod.map(str::to_owned), daemon.map_err(str::to_owned))
        };
        let no_reports = "its daemon serves no reports on loopback (pod plain has no port `reports`): set \
                          kubectlPlugin.enabled in the values of the chart";
        assert_eq!(
            told,
            [
                row("a", Some("new"), Ok(9479)),
                row("b", None, Err("no daemon runs on this node")),
                row("c", Some("starts"), Err("its daemon is not ready: pod starts is Pending")),
                row("d", Some("plain"), Err(no_reports)),
                row("e", Some("unlisted"), Ok(1)),
            ]
        );
    }
}
