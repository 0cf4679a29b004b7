//! Publishes the state of this node in the cluster.
//!
//! Problem: what a node has for pods of their own CPUs, memory and devices is in the kubelet's files, which
//! have to be read without waiting for a network, and what only the API server knows (the kubelet's version,
//! devices that are not healthy) comes late or not at all.
//!
//! Idea: two threads, joined by channels that hold the newest value alone. `cluster` speaks to the API server
//! and to the kubelet's own server ([`session`]); `node-state` reads files and the kubelet's socket and makes
//! states ([`observe`]). Neither waits for the other: while the server is away, states are made
//! from what it said last.
//!
//! Invariants: the threads have no capability. They end with the daemon. Nothing is published before the
//! server has said which node this is, because a state without the kubelet's version is never exact.

mod observe;
mod session;

use std::io;

use enforcer_core::{
    cluster::observed::NodeInApi,
    policy::{ClusterSettings, KubeletSettings},
};
use enforcer_host::HostRoot;
use enforcer_runtime::kubelet::settings::ReadConfiguration;
use numa_topology::degraded::Degraded;
use tokio::{runtime::Builder, sync::watch};

use crate::threads::{self, Role};

/// What states are made from beside the node itself.
#[derive(Debug, Clone, Default)]
struct ClusterAnswers {
    /// Version of the kubelet, from the node's object.
    version: String,
    /// Devices and pods that the API knows of.
    node: NodeInApi,
    /// The configuration that the kubelet itself answered with.
    configz: Option<ReadConfiguration>,
    /// The epoch of the state that the server has; a state of this daemon has to be newer.
    published_epoch: i64,
}

/// Starts both threads. The channel has what keeps the cluster from knowing the state, if anything does.
///
/// # Errors
/// A thread or its runtime cannot be made.
pub(crate) fn publish_node(
    host: &HostRoot,
    cluster: &ClusterSettings,
    kubelet: &KubeletSettings,
) -> io::Result<watch::Receiver<Option<Degraded>>> {
    let (degraded, missing) = watch::channel(None);
    let (answers, received) = watch::channel(None);
    let (states, changes) = watch::channel(None);
    let session = session::ClusterSession {
        node: cluster.node_name.clone().unwrap_or_else(|| session::host_name(host)),
        kubeconfig: cluster.kubeconfig.clone(),
        host: host.clone(),
        kubelet: kubelet.clone(),
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    threads::spawn(Role::Cluster, move || runtime.block_on(session.keep_up(answers, changes, degraded)))?;
    let observer = observe::NodeObserver { host: host.clone(), kubelet: kubelet.clone() };
    threads::spawn(Role::NodeState, move || observer.watch(&received, &states))?;
    Ok(missing)
}
