//! Objects of the node for a command that runs once: read, compared with the cluster's, or written.
//!
//! The node is read as the daemon reads it. Without the API server the version of the kubelet and devices
//! that are not healthy are unknown, and the state says so.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use enforcer_cluster::{ApiConnection, PublishedKind, PublishedObject, Publisher, WatchedPods, daemon_life};
use enforcer_core::{
    cluster::{
        age::DaemonLife,
        exported::ExportedKind,
        state::{GROUP, KIND, PLURAL, VERSION},
    },
    policy::{Mode, Policy},
};
use enforcer_host::HostRoot;
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    sync::Notify,
};

use super::{
    ClusterAnswers,
    capacity::OfferedDevices,
    node_name,
    observe::{NodeObserver, ReadNode},
    session::{ClusterSession, of_boot},
};
use crate::engine::SharedLedger;

/// An object that a node may publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrittenObject {
    /// `NumaNodeState`.
    Own,
    /// That of another scheduler.
    Exported(ExportedKind),
}

impl WrittenObject {
    /// Name in paths.
    pub(crate) const fn plural(self) -> &'static str {
        match self {
            Self::Own => PLURAL,
            Self::Exported(kind) => kind.plural(),
        }
    }

    pub(super) fn kind(self) -> PublishedKind {
        let (group, version, plural, kind) = match self {
            Self::Own => (GROUP, VERSION, PLURAL, KIND),
            Self::Exported(kind) => (kind.group(), kind.version(), kind.plural(), kind.kind()),
        };
        PublishedKind {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            own: self == Self::Own,
        }
    }
}

/// A node that was read once.
pub(crate) struct NodeOnce {
    node: String,
    host: HostRoot,
    read: ReadNode,
    cluster: Option<AskedCluster>,
}

/// The cluster that was asked.
struct AskedCluster {
    runtime: Runtime,
    connection: Arc<ApiConnection>,
}

impl NodeOnce {
    /// Reads the node, and asks no API server.
    ///
    /// # Errors
    /// The machine cannot be read, or exceeds the limits of a state.
    pub(crate) fn read(host: &HostRoot, policy: &Policy) -> anyhow::Result<Self> {
        let read = read(host, policy, &ClusterAnswers::default(), &WatchedPods::Unknown)?;
        Ok(Self { node: node_name(host, &policy.cluster), host: host.clone(), read, cluster: None })
    }

    /// Asks the API server for what only it knows, and reads the node.
    ///
    /// # Errors
    /// As [`Self::read`], or no answer of the server.
    pub(crate) fn ask(host: &HostRoot, policy: &Policy) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let node = node_name(host, &policy.cluster);
        let session = ClusterSession {
            node: node.clone(),
            kubeconfig: policy.cluster.kubeconfig.clone(),
            host: host.clone(),
            kubelet: policy.kubelet.clone(),
            outdated: Arc::new(Notify::new()),
            lease: Arc::default(),
            newer: Arc::default(),
        };
        let (connection, answers, pods) =
            runtime.block_on(session.ask_once()).map_err(|error| anyhow!(error))?;
        let read = read(host, policy, &answers, &pods)?;
        Ok(Self { node, host: host.clone(), read, cluster: Some(AskedCluster { runtime, connection }) })
    }

    /// Name of the node.
    pub(crate) fn node(&self) -> &str {
        &self.node
    }

    /// The object as a whole, without what the server adds to it.
    ///
    /// # Errors
    /// The object would say what is not so.
    pub(crate) fn object(&self, object: WrittenObject) -> anyhow::Result<Value> {
        let kind = object.kind();
        let mut whole = self.content(object)?.content;
        whole.insert("apiVersion".into(), json!(format!("{}/{}", kind.group, kind.version)));
        whole.insert("kind".into(), json!(kind.kind));
        whole.insert("metadata".into(), json!({"name": self.node}));
        Ok(Value::Object(whole))
    }

    /// The object in the cluster, if there is one, and that of the node, both without what differs
    /// between equal ones: metadata, and the revision of a state.
    ///
    /// # Errors
    /// As [`Self::object`], no answer of the server, or the cluster was not asked before.
    pub(crate) fn both(&self, object: WrittenObject) -> anyhow::Result<(Option<Value>, Value)> {
        let now = self.object(object)?;
        let live = self.asked()?.runtime.block_on(self.publisher(object)?.read())?;
        Ok((live.map(comparable), comparable(now)))
    }

    /// Writes the object if the cluster has another one; whether it was written.
    ///
    /// # Errors
    /// As [`Self::both`], a refusal, or a daemon of the cluster that publishes the state by itself.
    pub(crate) fn write(&self, object: WrittenObject) -> anyhow::Result<bool> {
        let AskedCluster { runtime, connection } = self.asked()?;
        let mut publisher = self.publisher(object)?;
        let live = runtime.block_on(publisher.read())?;
        if let Some(live) = live.as_ref().filter(|_| object == WrittenObject::Own) {
            // A newer epoch would silence that daemon.
            let life = runtime.block_on(daemon_life(connection, &self.node, live));
            if life.context("it is not known whether a daemon publishes this node; nothing is written")?
                == DaemonLife::Alive
            {
                let node = &self.node;
                bail!("a daemon that publishes node {node} has renewed its lease; nothing is written");
            }
            publisher = of_boot(publisher.with_annotations_of(live), &self.host);
        }
        if live.map(comparable) == Some(comparable(self.object(object)?)) {
            return Ok(false);
        }
        let content = self.content(object)?;
        runtime.block_on(publisher.publish(&content))?;
        Ok(true)
    }

    fn content(&self, object: WrittenObject) -> anyhow::Result<PublishedObject> {
        let content = match object {
            WrittenObject::Own => self.read.own(),
            WrittenObject::Exported(kind) => self.read.exported(kind),
        };
        content.map_err(|error| anyhow!(error)).with_context(|| format!("making {}", object.kind().kind))
    }

    fn asked(&self) -> anyhow::Result<&AskedCluster> {
        self.cluster.as_ref().context("the cluster was not asked")
    }

    fn publisher(&self, object: WrittenObject) -> anyhow::Result<Publisher> {
        let connection = Arc::clone(&self.asked()?.connection);
        Ok(Publisher::new(connection, object.kind(), self.node.clone()))
    }
}

fn read(
    host: &HostRoot,
    policy: &Policy,
    answers: &ClusterAnswers,
    pods: &WatchedPods,
) -> anyhow::Result<ReadNode> {
    let outdated = Arc::new(Notify::new());
    let observer = NodeObserver {
        host: host.clone(),
        kubelet: policy.kubelet.clone(),
        turns: None,
        placed: SharedLedger::default(),
        is_beside_engine: policy.nri.enabled && policy.nri.place && policy.mode == Mode::Enforce,
        outdated,
        lease: Arc::default(),
        newer: Arc::default(),
        offered: OfferedDevices::default(),
        features: None,
        predictions: None,
    };
    observer.read_once(answers, pods).map_err(|error| anyhow!(error))
}

/// The object without what differs between two equal ones: what the server adds, and the order of states.
fn comparable(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        let name = fields.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
        fields.insert("metadata".into(), json!({"name": name}));
        if let Some(state) = fields.get_mut("state").and_then(Value::as_object_mut) {
            state.remove("revision");
            state.remove("hash");
        }
    }
    object
}
