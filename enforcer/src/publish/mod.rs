//! Publishes the state of this node in the cluster.
//!
//! Problem: what a node has for pods of their own CPUs, memory and devices is in the kubelet's files, which
//! have to be read without waiting for a network, and what only the API server knows (the kubelet's version,
//! devices that are not healthy) comes late or not at all.
//!
//! The pods that are bound to the node are followed by a watch, because only the API has their names, the
//! kinds of their containers and their refusals.
//!
//! Idea: two threads, joined by channels that hold the newest value alone. `cluster` speaks to the API server
//! and to the kubelet's own server ([`session`]); `node-state` reads files and the kubelet's socket and makes
//! states ([`observe`]). Neither waits for the other: while the server is away, states are made
//! from what it said last.
//!
//! Invariants: what the servers said counts for the process of the kubelet that said it, and for no later
//! one: until the next one has answered, a state is not exact. The threads have no capability. They end with
//! the daemon. Nothing is published before the server has said which node this is, because a state without
//! the kubelet's version is never exact.
//!
//! With `cluster.events`, [`events`] tells the owners of pods and of the node what states and turns show.
//! [`predictions`] compares what the node does with what its states predict.
//! With `cluster.feature_file`, [`features`] writes what of a state stays as it is.

mod capacity;
mod events;
mod features;
mod observe;
mod once;
mod predictions;
mod session;

pub(crate) use self::{
    events::EventNotes,
    features::FeatureFile,
    once::{NodeOnce, WrittenObject},
    predictions::{NodeEvents, PredictionTally},
    session::jitter,
};

use std::{collections::BTreeMap, io, sync::Arc, time::Instant};

use enforcer_cluster::{EventTally, LeaseConditions, NewerEpoch, PublishedObject, WatchedPods};
use enforcer_core::{
    cluster::{events::StateFacts, exported::ExportedKind},
    policy::{ClusterSettings, KubeletSettings},
};
use enforcer_host::HostRoot;
use enforcer_runtime::kubelet::settings::{ReadConfiguration, RunningKubelet};
use numa_topology::degraded::Degraded;
use tokio::{
    runtime::Builder,
    sync::{Notify, watch},
};

use crate::{
    engine::SharedLedger,
    serve::Latest,
    threads::{self, Role},
};

/// What states are made from beside the node itself.
#[derive(Debug, Clone, Default, PartialEq)]
struct ClusterAnswers {
    /// When the node's object was asked for; `None` if no server was asked.
    asked_at: Option<Instant>,
    /// Uid of the node's object.
    node_uid: String,
    /// Version of the kubelet in the node's object.
    version: String,
    /// When the kubelet wrote the object, in seconds since 1970.
    reported_at: Option<i64>,
    /// Number of each extended resource of the node, unhealthy devices included; `None` if no server was
    /// asked.
    device_capacity: Option<BTreeMap<String, u64>>,
    /// The configuration that the kubelet itself answered with, and the process that answered.
    configz: Option<(KubeletProcess, ReadConfiguration)>,
    /// Why the kubelet itself gave no answer, if it was asked.
    no_configz: Option<String>,
    /// The epoch of the state that the server has; a state of this daemon has to be newer.
    published_epoch: i64,
    /// What that state says of the kubelet, if it is one of this node; only in the first answer.
    published: Option<StateFacts>,
}

/// A process of the kubelet: its id and its start in ticks since boot.
type KubeletProcess = (u32, u64);

/// What tells one process of the kubelet from the next.
fn process_of(kubelet: &RunningKubelet) -> KubeletProcess {
    (kubelet.pid, kubelet.start_ticks)
}

impl ClusterAnswers {
    /// The version of this process, if the object was written by it: a kubelet that starts again may be
    /// another version, and writes the object some seconds later.
    fn version_of(&self, kubelet: &RunningKubelet) -> Option<&str> {
        let is_of_process = self.reported_at? >= kubelet.started_at?;
        Some(self.version.as_str()).filter(|version| is_of_process && !version.is_empty())
    }

    /// Whether these answers say the same as others, which were asked for at another time.
    fn says_the_same(&self, other: &Self) -> bool {
        *other == Self { asked_at: other.asked_at, ..self.clone() }
    }

    /// The answer of this process.
    fn configz_of(&self, kubelet: &RunningKubelet) -> Option<&ReadConfiguration> {
        let (process, read) = self.configz.as_ref()?;
        (*process == process_of(kubelet)).then_some(read)
    }

    /// Whether the answers are of an earlier process of the kubelet.
    fn is_outdated(&self, kubelet: &RunningKubelet) -> bool {
        let is_of_earlier = self.configz.is_some() && self.configz_of(kubelet).is_none();
        is_of_earlier || self.version_of(kubelet).is_none()
    }
}

/// Name of the node in the cluster.
pub(crate) fn node_name(host: &HostRoot, cluster: &ClusterSettings) -> String {
    cluster.node_name.clone().unwrap_or_else(|| session::host_name(host))
}

/// What publishing tells the rest of the daemon.
pub(crate) struct PublishingReports {
    /// What keeps the cluster from knowing the state, or that the daemon lives, if anything does.
    pub(crate) missing: Vec<watch::Receiver<Option<Degraded>>>,
    /// Counts of events, if they are made.
    pub(crate) events: Option<Arc<EventTally>>,
    /// Where events of claims go, if events are made.
    pub(crate) claim_events: Option<NodeEvents>,
    /// Counts of predictions.
    pub(crate) predictions: Arc<PredictionTally>,
    /// The feature file, if one is written.
    pub(crate) features: Option<FeatureFile>,
}

/// Starts both threads. Events are made of `turns`.
///
/// # Errors
/// A thread or its runtime cannot be made.
pub(crate) fn publish_node(
    host: &HostRoot,
    cluster: &ClusterSettings,
    kubelet: &KubeletSettings,
    placed: SharedLedger,
    turns: Latest,
) -> io::Result<PublishingReports> {
    let (unpublished, no_cluster) = watch::channel(None);
    let (unmade, no_state) = watch::channel(None);
    let (unwatched, no_pods) = watch::channel(None);
    let (unrenewed, no_lease) = watch::channel(None);
    let (answers, received) = watch::channel(None);
    let (states, changes) = watch::channel(None);
    let (pods, bound) = watch::channel(WatchedPods::default());
    let mut missing = vec![no_cluster, no_state, no_pods, no_lease];
    let (made, published): (Vec<_>, Vec<_>) =
        cluster.also_publish.iter().map(|kind| exported_object(*kind, &mut missing)).unzip();
    let outdated = Arc::new(Notify::new());
    let lease = Arc::<LeaseConditions>::default();
    let newer = Arc::<NewerEpoch>::default();
    let (mut of_predictions, mut of_claims) = (None, None);
    let events = cluster.events.then(|| {
        let (unwritten, no_events) = watch::channel(None);
        missing.push(no_events);
        let tally = Arc::<EventTally>::default();
        let (predictions, outcomes) = predictions::NodeEvents::channel(Arc::clone(&tally));
        of_claims = Some(predictions.clone());
        of_predictions = Some(predictions);
        events::EventOutput { turns: turns.clone(), outcomes, tally, unwritten }
    });
    let predictions = Arc::<PredictionTally>::default();
    let tally = events.as_ref().map(|output| Arc::clone(&output.tally));
    let session = session::ClusterSession {
        node: node_name(host, cluster),
        kubeconfig: cluster.kubeconfig.clone(),
        host: host.clone(),
        kubelet: kubelet.clone(),
        outdated: Arc::clone(&outdated),
        lease: Arc::clone(&lease),
        newer: Arc::clone(&newer),
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let told = session::SessionOutput { answers, pods, unpublished, unwatched, unrenewed, events };
    threads::spawn(Role::Cluster, move || runtime.block_on(session.keep_up(changes, published, told)))?;
    let features = cluster.feature_file.as_deref().map(FeatureFile::new);
    let writer = features.clone().map(|file| {
        let (unwritten, no_file) = watch::channel(None);
        missing.push(no_file);
        features::FeatureWriter::new(file, unwritten)
    });
    let observer = observe::NodeObserver {
        host: host.clone(),
        kubelet: kubelet.clone(),
        turns: Some(turns),
        placed,
        is_beside_engine: false,
        outdated,
        lease,
        newer,
        offered: capacity::OfferedDevices::default(),
        features: writer,
        predictions: Some(predictions::PredictionWatch::new(Arc::clone(&predictions), of_predictions)),
    };
    threads::spawn(Role::NodeState, move || observer.watch(received, bound, &states, &made, &unmade))?;
    Ok(PublishingReports { missing, events: tally, claim_events: of_claims, predictions, features })
}

/// An object of another scheduler, where it is made.
struct MadeObject {
    kind: ExportedKind,
    objects: watch::Sender<Option<PublishedObject>>,
    /// Why it is not made.
    unmade: watch::Sender<Option<Degraded>>,
}

/// The same where it is published.
struct ChangingObject {
    kind: ExportedKind,
    objects: watch::Receiver<Option<PublishedObject>>,
    /// Why the cluster does not have it.
    unpublished: watch::Sender<Option<Degraded>>,
}

/// Both ends of an object; `missing` gets what keeps the cluster from knowing it.
fn exported_object(
    kind: ExportedKind,
    missing: &mut Vec<watch::Receiver<Option<Degraded>>>,
) -> (MadeObject, ChangingObject) {
    let (objects, changes) = watch::channel(None);
    let (unmade, no_object) = watch::channel(None);
    let (unpublished, no_cluster) = watch::channel(None);
    missing.extend([no_object, no_cluster]);
    (MadeObject { kind, objects, unmade }, ChangingObject { kind, objects: changes, unpublished })
}
