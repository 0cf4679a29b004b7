//! What the daemon asks the API server and the kubelet's own server, and the publishing itself.
//!
//! The node's object is read at the start and then every [`REFRESH`]; the kubelet's configuration with it.
//! Until the first answer, the server is asked again after [`RETRY`], and after that also while the answers
//! are older than what they describe: another process of the kubelet runs, or other devices are there. These
//! questions become ever more rare too, because the kubelet may be unable to write the object.

use std::{
    convert::Infallible,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use enforcer_act::actuator::read_boot_id;
use enforcer_cluster::{
    ApiConnection, ApiError, Backoff, ClusterNode, KubeletServer, LeaseConditions, NewerEpoch, PaceLimits,
    PublishedObject, Publisher, PublisherSettings, RenewalTimes, WatchLimits, WatchedPods, fetch_configz,
    keep_lease, notice_returns, publish_changes, send_if_different, unpublished, watch_pods,
};
use enforcer_core::{
    cluster::{events::StateFacts, state::PLURAL},
    policy::KubeletSettings,
};
use enforcer_host::HostRoot;
use enforcer_runtime::kubelet::settings::{self, ReadConfiguration, parse_configz};
use numa_topology::degraded::Degraded;
use serde::Deserialize as _;
use serde_json::Value;
use thiserror::Error;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::sleep,
};

use super::{
    ChangingObject, ClusterAnswers, KubeletProcess, WrittenObject,
    events::{EventInputs, EventOutput},
    process_of,
};

/// Time between two reads of the node's object: a new version of the kubelet means a restart of the node's
/// pods in most clusters.
const REFRESH: Duration = Duration::from_mins(5);
/// First and longest time between two tries for the first answer.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// Part of a wait that differs from node to node.
const SPREAD: f64 = 0.25;
/// Time between two looks whether another program changed the object.
const CHECK: Duration = Duration::from_mins(5);
/// Time between two signs of life: of three, two may fail before readers take the daemon as ended.
const RENEWAL: Duration = Duration::from_secs(20);
/// Effect of a cluster that is not reached.
const UNKNOWN: &str = "the cluster does not know the state of this node";
/// Milliseconds within which daemons of a cluster that start at once write.
const JITTER_MS: u64 = 30_000;
/// Milliseconds within which daemons write after the server has come back.
const AFTER_RETURN_MS: u64 = 900;
/// Port of a kubelet that is not configured otherwise.
const KUBELET_PORT: u16 = 10_250;

/// Why nothing can be published yet.
#[derive(Debug, Error)]
enum NoAnswers {
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A name that is wrong would make this machine that of another node.
    #[error(
        "node {node} of the cluster is another machine, or has not written since this one booted: its boot is {boot_id}"
    )]
    OtherMachine { node: String, boot_id: String },
}

impl NoAnswers {
    fn asked_wait(&self) -> Duration {
        match self {
            Self::Api(ApiError::Busy { retry_after, .. }) => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    fn degraded(&self) -> Degraded {
        match self {
            Self::Api(error) => unpublished(error, PLURAL),
            other @ Self::OtherMachine { .. } => Degraded::new("publish", other.to_string(), UNKNOWN),
        }
    }
}

/// The same publisher, which names the boot of this machine if that can be read.
pub(super) fn of_boot(publisher: Publisher, host: &HostRoot) -> Publisher {
    match read_boot_id(host) {
        Some(boot_id) => publisher.with_boot(boot_id),
        None => publisher,
    }
}

/// A daemon's part in its cluster.
pub(super) struct ClusterSession {
    pub(super) node: String,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) host: HostRoot,
    pub(super) kubelet: KubeletSettings,
    /// The answers are of an earlier process of the kubelet.
    pub(super) outdated: Arc<Notify>,
    /// What the observer and the publisher say about the lease.
    pub(super) lease: Arc<LeaseConditions>,
    /// The epoch that states have to exceed.
    pub(super) newer: Arc<NewerEpoch>,
}

/// Where a session tells what it hears.
pub(super) struct SessionOutput {
    pub(super) answers: watch::Sender<Option<ClusterAnswers>>,
    pub(super) pods: watch::Sender<WatchedPods>,
    /// Why the cluster does not have the state.
    pub(super) unpublished: watch::Sender<Option<Degraded>>,
    /// Why the pods of the node are not known.
    pub(super) unwatched: watch::Sender<Option<Degraded>>,
    /// Why the cluster does not see that the daemon lives.
    pub(super) unrenewed: watch::Sender<Option<Degraded>>,
    /// Events, if they are made.
    pub(super) events: Option<EventOutput>,
}

impl ClusterSession {
    /// Publishes the newest state until its sender is gone.
    pub(super) async fn keep_up(
        self,
        states: watch::Receiver<Option<PublishedObject>>,
        exports: Vec<ChangingObject>,
        told: SessionOutput,
    ) {
        let SessionOutput { answers, pods, unpublished: degraded, unwatched, unrenewed, events } = told;
        // Daemons of a cluster that start at once do not ask at once.
        sleep(jitter(&self.node, JITTER_MS)).await;
        let mut retry = Backoff::new(RETRY);
        let connection = loop {
            match self.connect().await {
                Ok(connection) => break Arc::new(connection),
                Err(error) => {
                    degraded.send_replace(Some(Degraded::new("publish", error, UNKNOWN)));
                    sleep(retry.next_wait()).await;
                }
            }
        };
        let publisher = Publisher::new(Arc::clone(&connection), WrittenObject::Own.kind(), self.node.clone());
        let publisher = of_boot(publisher.with_lease(Arc::clone(&self.lease)), &self.host)
            .with_newer(Arc::clone(&self.newer));
        let first = loop {
            match self.first_answers(&connection, &publisher).await {
                Ok(first) => break first,
                Err(fault) => {
                    let wait = fault.asked_wait();
                    degraded.send_replace(Some(fault.degraded()));
                    sleep(retry.next_wait().max(wait)).await;
                }
            }
        };
        degraded.send_replace(None);
        let (epoch, published) = (first.published_epoch, first.published.clone());
        let (node_uid, owner) = watch::channel(first.node_uid.clone());
        let publisher = publisher.with_node_uid(owner.clone());
        answers.send_replace(Some(first));
        let after_return = jitter(&self.node, AFTER_RETURN_MS);
        let settings = PublisherSettings {
            limits: PaceLimits::default(),
            first: Duration::ZERO,
            after_return,
            check: CHECK,
        };
        // They end with this function.
        let mut others = JoinSet::new();
        for ChangingObject { kind, objects, unpublished } in exports {
            let kind = WrittenObject::Exported(kind).kind();
            let publisher = Publisher::new(Arc::clone(&connection), kind, self.node.clone());
            let publisher = publisher.with_node_uid(owner.clone());
            others.spawn(async move { publish_changes(publisher, objects, settings, &unpublished).await });
        }
        if let Some(output) = events {
            let inputs = EventInputs {
                node: self.node.clone(),
                answers: answers.subscribe(),
                states: states.clone(),
                pods: pods.subscribe(),
                published,
            };
            output.start(inputs, Arc::clone(&connection), &mut others);
        }
        let refreshing = async {
            let mut again = Backoff::new(RETRY);
            loop {
                tokio::select! {
                    // Nodes that were without a server together do not stay in step.
                    () = sleep(REFRESH + jitter(&self.node, JITTER_MS)) => {}
                    () = self.outdated.notified() => sleep(self.spread(again.next_wait())).await,
                }
                let asked_at = Instant::now();
                // Until the server answers again, what it said last counts.
                if let Ok(node) = connection.node(&self.node).await {
                    send_if_different(&node_uid, node.uid.clone());
                    let newest = self.answers(&connection, node, asked_at, epoch).await;
                    if self.is_outdated(&newest) {
                        self.outdated.notify_one();
                    } else {
                        again.reset();
                    }
                    replace(&answers, newest);
                }
            }
        };
        let path = publisher.path();
        let renewals = RenewalTimes { renewal: RENEWAL, after_return };
        tokio::select! {
            never = refreshing => { let _: Infallible = never; }
            never = watch_pods(&connection, &self.node, WatchLimits::default(), &pods, &unwatched) => {
                let _: Infallible = never;
            }
            never = notice_returns(&connection, &path) => {
                let _: Infallible = never;
            }
            never = keep_lease(&connection, &self.node, renewals, &self.lease, &unrenewed) => {
                let _: Infallible = never;
            }
            () = publish_changes(publisher, states, settings, &degraded) => {}
        }
    }

    /// The connection, and the answers and pods of now, for a command that runs once.
    pub(super) async fn ask_once(&self) -> Result<(Arc<ApiConnection>, ClusterAnswers, WatchedPods), String> {
        let connection = Arc::new(self.connect().await?);
        let publisher = Publisher::new(Arc::clone(&connection), WrittenObject::Own.kind(), self.node.clone());
        let asked = self.first_answers(&connection, &publisher).await;
        let answers = asked.map_err(|fault| fault.degraded().reason)?;
        let (pods, mut bound) = watch::channel(WatchedPods::default());
        let (unwatched, why) = watch::channel(None);
        let known = tokio::select! {
            never = watch_pods(&connection, &self.node, WatchLimits::default(), &pods, &unwatched) => match never {},
            known = bound.wait_for(|pods| *pods != WatchedPods::Asked) => known.map(|pods| pods.clone()),
        };
        let known = known.unwrap_or(WatchedPods::Unknown);
        if let (WatchedPods::Unknown, Some(Degraded { reason, effect, .. })) = (&known, why.borrow().clone())
        {
            tracing::warn!("{reason}; {effect}");
        }
        Ok((connection, answers, known))
    }

    /// This wait and a part of it that differs from node to node.
    fn spread(&self, wait: Duration) -> Duration {
        let most = wait.mul_f64(SPREAD).as_millis();
        wait + jitter(&self.node, u64::try_from(most).unwrap_or(u64::MAX).max(1))
    }

    /// Whether the answers are of an earlier process of the kubelet than the one that runs.
    fn is_outdated(&self, answers: &ClusterAnswers) -> bool {
        settings::find(&self.host, &self.kubelet).is_ok_and(|kubelet| answers.is_outdated(&kubelet))
    }

    async fn connect(&self) -> Result<ApiConnection, String> {
        let connection = ApiConnection::of_account(self.kubeconfig.as_deref()).await;
        connection.map_err(|error| error.to_string())
    }

    async fn first_answers(
        &self,
        connection: &ApiConnection,
        publisher: &Publisher,
    ) -> Result<ClusterAnswers, NoAnswers> {
        let asked_at = Instant::now();
        let node = connection.node(&self.node).await?;
        let boot_id = read_boot_id(&self.host).unwrap_or_default();
        if ![&node.boot_id, &boot_id].into_iter().any(String::is_empty) && node.boot_id != boot_id {
            return Err(NoAnswers::OtherMachine { node: self.node.clone(), boot_id: node.boot_id });
        }
        let published = publisher.read().await?;
        let epoch = published.as_ref().and_then(|object| object.pointer("/state/revision/epoch")?.as_i64());
        let facts = published.as_ref().and_then(|object| facts_of_node(object, &node.uid));
        let answers = self.answers(connection, node, asked_at, epoch.unwrap_or(0)).await;
        Ok(ClusterAnswers { published: facts, ..answers })
    }

    async fn answers(
        &self,
        connection: &ApiConnection,
        node: ClusterNode,
        asked_at: Instant,
        epoch: i64,
    ) -> ClusterAnswers {
        let (configz, no_configz) = match self.configz(connection, &node).await {
            Ok(answered) => (answered, None),
            Err(reason) => (None, Some(reason)),
        };
        ClusterAnswers {
            asked_at: Some(asked_at),
            node_uid: node.uid,
            version: node.kubelet_version,
            reported_at: node.reported_at,
            device_capacity: Some(node.capacity),
            configz,
            no_configz,
            published_epoch: epoch,
            published: None,
        }
    }

    /// The configuration that the kubelet answers with; `None` if there is nothing to ask.
    async fn configz(
        &self,
        connection: &ApiConnection,
        node: &ClusterNode,
    ) -> Result<Option<(KubeletProcess, ReadConfiguration)>, String> {
        let (Some(account), Some(address)) = (connection.pod_account(), node.address) else {
            return Ok(None);
        };
        let kubelet = settings::find(&self.host, &self.kubelet).map_err(|none| none.to_string())?;
        let files = settings::read_files(&self.host, &kubelet);
        let own = settings::serving_certificates(&self.host, &kubelet, Some(&files));
        let own = own.unwrap_or_else(|_unusable| Vec::new());
        let server = KubeletServer {
            address: SocketAddr::new(address, files.port().unwrap_or(KUBELET_PORT)),
            node: &self.node,
            own_certificates: &own,
            cluster_authority: &account.authority,
            token: &account.token,
        };
        let body = fetch_configz(&server).await.map_err(|error| error.to_string())?;
        let read = parse_configz(&body).map_err(|fault| fault.to_string())?;
        let answered = process_of(&kubelet);
        let now = settings::find(&self.host, &self.kubelet).map_err(|none| none.to_string())?;
        if process_of(&now) != answered {
            return Err("the kubelet was started again meanwhile".to_owned());
        }
        Ok(Some((answered, read)))
    }
}

/// Replaces the answers; their receivers are woken only for others.
fn replace(answers: &watch::Sender<Option<ClusterAnswers>>, newest: ClusterAnswers) {
    answers.send_if_modified(|last| {
        let differs = !last.as_ref().is_some_and(|last| last.says_the_same(&newest));
        *last = Some(newest);
        differs
    });
}

/// What a published object says of the node with this uid; a node may have been replaced under its name.
fn facts_of_node(object: &Value, node_uid: &str) -> Option<StateFacts> {
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array)?;
    let is_own = owners.iter().any(|owner| owner.get("uid").and_then(Value::as_str) == Some(node_uid));
    StateFacts::deserialize(object.get("state").filter(|_| is_own)?).ok()
}

/// A part of so many milliseconds that differs from node to node.
pub(crate) fn jitter(node: &str, within_ms: u64) -> Duration {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    Duration::from_millis(hasher.finish() % within_ms)
}

/// Name of the host in lower case, as a kubelet calls its node.
pub(super) fn host_name(host: &HostRoot) -> String {
    let name = host.proc.join("sys/kernel/hostname").read_text().unwrap_or_default();
    name.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_that_say_the_same_wake_no_receiver() {
        let (answers, mut received) = watch::channel(None);
        let said = |version: &str| ClusterAnswers {
            asked_at: Some(Instant::now()),
            version: version.into(),
            ..ClusterAnswers::default()
        };
        replace(&answers, said("v1.36.2"));
        let first = received.borrow_and_update().clone().unwrap().asked_at;
        let again = said("v1.36.2");
        replace(&answers, again.clone());
        assert!(!received.has_changed().unwrap());
        assert_eq!(received.borrow().clone().unwrap().asked_at, again.asked_at, "it is known how old it is");
        assert!(again.asked_at >= first);
        replace(&answers, said("v1.36.3"));
        assert!(received.has_changed().unwrap());
    }

    #[test]
    fn settings_of_another_node_of_this_name_are_not_those_of_before() {
        let object = |owner: &str| {
            json!({"metadata": {"name": "a", "ownerReferences": [{"kind": "Node", "uid": owner}]},
                "state": {"kubelet": {"configHash": "h", "startedAt": 7}, "revision": {"epoch": 1}}})
        };
        let facts = facts_of_node(&object("n"), "n").unwrap();
        assert_eq!((facts.kubelet.config_hash.as_str(), facts.kubelet.started_at), ("h", Some(7)));
        assert_eq!(facts_of_node(&object("old"), "n"), None);
        assert_eq!(facts_of_node(&json!({"metadata": {"name": "a"}, "state": {}}), "n"), None);
    }
}
