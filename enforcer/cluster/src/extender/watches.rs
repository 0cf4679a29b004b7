//! The watches that feed an extender.
//!
//! Invariant: the first list of pods begins after the first list of states has been read: only so a pod of a
//! state that the list does not have is gone.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use enforcer_core::cluster::{
    gate::UnreadPod,
    state::{GROUP, PLURAL, VERSION},
};
use jiff::Timestamp;
use numa_placement::PodName;
use numa_topology::degraded::Degraded;
use serde::Deserialize;
use tokio::{
    sync::watch::{self, Receiver, Sender},
    time::{MissedTickBehavior, interval},
};

use super::{SharedExtender, protocol::check_containers};
use crate::{
    connection::ApiConnection,
    objects::{LEASE_PREFIX, read_lease, read_node, read_pod, read_state},
    pod_object::GatePositions,
    watch::{Collection, GoneObject, ObjectSink, Piece, WatchLimits, follow, name_in},
};

/// Time between two looks at what time alone changes.
const TICK: Duration = Duration::from_secs(2);

/// Time between two looks at bindings without a reply.
const SETTLE: Duration = Duration::from_secs(10);

/// Effect of a collection that is not known.
const WITHOUT: &str = "the extender answers no call";
/// Effect of a collection of which no change is told.
const OUTDATED: &str = "the extender's answers are as old as the last list";
/// The same of leases.
const NO_LEASES: &str = "a state counts for 180 s after its last change";

/// Which lists have been read once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Synced {
    /// That of nodes.
    pub nodes: bool,
    /// That of published states.
    pub states: bool,
    /// That of pods.
    pub pods: bool,
}

impl Synced {
    /// Have all been read?
    pub const fn is_whole(self) -> bool {
        self.nodes && self.states && self.pods
    }
}

/// What the API server does not tell, by collection.
#[derive(Debug)]
pub struct WatchFaults {
    /// Of nodes, states, pods, and leases.
    pub degraded: [Sender<Option<Degraded>>; 4],
}

impl Default for WatchFaults {
    fn default() -> Self {
        Self { degraded: std::array::from_fn(|_| watch::channel(None).0) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchedKind {
    Nodes,
    States,
    Pods,
    Leases,
}

/// What is read of a pod that cannot be read whole.
#[derive(Default, Deserialize)]
#[serde(default)]
struct UnreadFields {
    metadata: GoneObject,
    spec: UnreadSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct UnreadSpec {
    node_name: String,
    scheduling_gates: GatePositions,
}

struct ClusterSink<'a> {
    shared: &'a SharedExtender,
    kind: WatchedKind,
    /// Names of the objects of the list that is being read.
    listed: Option<BTreeSet<String>>,
    /// Names of the objects that are known.
    known: BTreeSet<String>,
    synced: &'a Sender<Synced>,
}

/// Keeps the extender at what the API server has.
pub async fn watch_cluster(
    connection: &ApiConnection,
    shared: &SharedExtender,
    limits: WatchLimits,
    synced: &Sender<Synced>,
    faults: &WatchFaults,
) {
    let states_path = format!("/apis/{GROUP}/{VERSION}/{PLURAL}");
    let [nodes_fault, states_fault, pods_fault, leases_fault] = &faults.degraded;
    let of = |path, selector, source| Collection {
        path,
        selector,
        first_version: "0",
        source,
        without: WITHOUT,
        outdated: OUTDATED,
    };
    let nodes = of("/api/v1/nodes", "", "scheduler:nodes");
    let states = of(&states_path, "", "scheduler:states");
    // A cache that lacks a pod of a state would show the pod as gone.
    let pods = Collection { first_version: "", ..of("/api/v1/pods", "", "scheduler:pods") };
    let leases = Collection {
        without: NO_LEASES,
        outdated: NO_LEASES,
        ..of(
            "/apis/coordination.k8s.io/v1/leases",
            "labelSelector=app.kubernetes.io%2Fname%3Dnuma-enforcer",
            "scheduler:leases",
        )
    };
    let sink = |kind| ClusterSink { shared, kind, listed: None, known: BTreeSet::new(), synced };
    let (mut of_nodes, mut of_states, mut of_pods, mut of_leases) = (
        sink(WatchedKind::Nodes),
        sink(WatchedKind::States),
        sink(WatchedKind::Pods),
        sink(WatchedKind::Leases),
    );
    let after_states = async {
        wait_until(synced.subscribe(), |synced| synced.nodes && synced.states).await;
        follow(connection, pods, limits, &mut of_pods, pods_fault).await
    };
    // Each of them is some kilobytes, too much for the one that awaits them all.
    tokio::select! {
        _ = Box::pin(follow(connection, nodes, limits, &mut of_nodes, nodes_fault)) => {}
        _ = Box::pin(follow(connection, states, limits, &mut of_states, states_fault)) => {}
        _ = Box::pin(after_states) => {}
        _ = Box::pin(follow(connection, leases, limits, &mut of_leases, leases_fault)) => {}
        _ = pass_time(connection, shared) => {}
        _ = settle_bindings(connection, shared) => {}
    }
}

/// Waits for lists to be read.
async fn wait_until(mut synced: Receiver<Synced>, is_enough: impl Fn(Synced) -> bool) {
    // The sender lives as long as this.
    let _ = synced.wait_for(|synced| is_enough(*synced)).await;
}

async fn pass_time(connection: &ApiConnection, shared: &SharedExtender) -> Infallible {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let server_now = connection.server_time().unwrap_or_else(|| Timestamp::now().as_second());
        shared.lock().tick(shared.now(), server_now);
    }
}

async fn settle_bindings(connection: &ApiConnection, shared: &SharedExtender) -> Infallible {
    let mut looks = interval(SETTLE);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        shared.settle(connection).await;
    }
}

impl ClusterSink<'_> {
    fn take(&mut self, text: &str) -> Result<(), String> {
        let now = self.shared.now();
        let name = match self.kind {
            WatchedKind::Nodes => {
                let (node, _) = read_node(text)?;
                let name = node.name.clone();
                self.shared.lock().observe_node(node, now);
                name
            }
            WatchedKind::States => {
                let (state, _) = read_state(text)?;
                let name = state.name.clone();
                self.shared.lock().observe_state(state, now);
                name
            }
            WatchedKind::Pods => {
                let pod = self.shared.completed(read_pod(text)?);
                check_containers(&pod).map_err(|error| error.to_string())?;
                let mut extender = self.shared.lock();
                if let Some(gate) = &self.shared.gate {
                    self.shared.observe_gated(gate, &pod, &mut extender, now);
                }
                extender.observe_pod(pod, now);
                return Ok(());
            }
            WatchedKind::Leases => {
                let Some(lease) = read_lease(text)?.and_then(|read| read.of_daemon) else { return Ok(()) };
                let name = format!("{}/{}", lease.namespace, lease.node);
                let mut extender = self.shared.lock();
                if self.listed.is_some() {
                    extender.observe_listed_lease(lease, now);
                } else {
                    extender.observe_lease(lease, now);
                }
                drop(extender);
                name
            }
        };
        self.listed.as_mut().unwrap_or(&mut self.known).insert(name);
        Ok(())
    }

    /// A pod that cannot be read is not gone.
    fn note_unread(&self, text: &[u8], fault: &str) {
        let pod: UnreadFields = serde_json::from_slice(text).unwrap_or_default();
        let UnreadFields { metadata: GoneObject { uid, namespace, name }, spec } = pod;
        let why = format!("pod {namespace}/{name} cannot be read: {fault}");
        let mut extender = self.shared.lock();
        if let Some(gate) = &self.shared.gate {
            let pod = UnreadPod {
                name: PodName::new(namespace, name).with_uid(uid.clone()),
                is_bound: !spec.node_name.is_empty(),
                is_gated: !spec.scheduling_gates.is_empty(),
            };
            gate.lock().observe_unread(pod, fault, &mut extender);
        }
        extender.observe_unread_pod(&uid, &spec.node_name, why);
    }

    /// The state from before is not that of the node any more.
    fn note_unread_state(&mut self, name: &str, fault: &str) {
        self.shared.lock().observe_unread_state(name, format!("its object cannot be read: {fault}"));
        self.listed.as_mut().unwrap_or(&mut self.known).insert(name.to_owned());
    }

    fn note_change(&self) {
        if matches!(self.kind, WatchedKind::Nodes | WatchedKind::States)
            && let Some(gate) = &self.shared.gate
        {
            gate.lock().note_nodes_changed();
            gate.note_change();
        }
        self.shared.changes.note(self.kind as usize, self.shared.now());
    }

    fn lose(&self, name: &str) {
        let mut extender = self.shared.lock();
        match self.kind {
            WatchedKind::Nodes => extender.observe_node_gone(name),
            WatchedKind::States => extender.observe_state_gone(name),
            WatchedKind::Pods => {}
            WatchedKind::Leases => {
                let (namespace, node) = name.split_once('/').unwrap_or_default();
                extender.observe_lease_gone(namespace, node);
            }
        }
    }
}

impl ObjectSink for ClusterSink<'_> {
    fn begin_list(&mut self) {
        self.note_change();
        self.listed = Some(BTreeSet::new());
        if self.kind == WatchedKind::Pods {
            self.shared.lock().begin_pod_list(self.shared.now());
            if let Some(gate) = &self.shared.gate {
                gate.lock().begin_list();
            }
        }
    }

    fn put(&mut self, object: Piece<'_>) {
        self.note_change();
        let (head, fault) = match object {
            Piece::Whole(text) => {
                let read = str::from_utf8(text).map_err(|error| error.to_string());
                let Err(fault) = read.and_then(|text| self.take(text)) else { return };
                (text, fault)
            }
            Piece::TooLarge(head) => (head, "it is larger than any object may be".to_owned()),
        };
        let (namespace, name) = name_in(head);
        match self.kind {
            WatchedKind::Pods => self.note_unread(head, &fault),
            WatchedKind::States => self.note_unread_state(&name, &fault),
            WatchedKind::Nodes | WatchedKind::Leases => {}
        }
        self.shared.leave_out(format!("{:?} {namespace}/{name}: {fault}", self.kind));
    }

    fn remove(&mut self, gone: &GoneObject) {
        self.note_change();
        match self.kind {
            WatchedKind::Pods => {
                self.shared.lock().observe_pod_gone(&gone.uid, self.shared.now());
                if let Some(gate) = &self.shared.gate {
                    gate.lock().observe_gone(&gone.uid);
                    gate.note_change();
                }
            }
            WatchedKind::Leases => {
                let Some(node) = gone.name.strip_prefix(LEASE_PREFIX) else { return };
                let name = format!("{}/{node}", gone.namespace);
                self.known.remove(&name);
                self.lose(&name);
            }
            WatchedKind::Nodes | WatchedKind::States => {
                self.known.remove(&gone.name);
                self.lose(&gone.name);
            }
        }
    }

    fn end_list(&mut self) {
        let listed = self.listed.take().unwrap_or_default();
        if self.kind == WatchedKind::Pods {
            self.shared.lock().end_pod_list(self.shared.now());
            if let Some(gate) = &self.shared.gate {
                gate.lock().end_list();
                gate.note_change();
            }
        }
        for gone in self.known.difference(&listed) {
            self.lose(gone);
        }
        self.known = listed;
        if self.kind == WatchedKind::Leases {
            self.shared.lock().observe_leases_known(true);
        }
        self.synced.send_if_modified(|synced| {
            let field = match self.kind {
                WatchedKind::Nodes => &mut synced.nodes,
                WatchedKind::States => &mut synced.states,
                WatchedKind::Pods => &mut synced.pods,
                WatchedKind::Leases => return false,
            };
            !std::mem::replace(field, true)
        });
    }

    fn tell(&mut self) {}

    /// Leases that are no longer told would make daemons look as if they had ended.
    fn fail(&mut self, _is_refused: bool) {
        self.known.extend(self.listed.take().into_iter().flatten());
        if self.kind == WatchedKind::Leases {
            self.shared.lock().observe_leases_known(false);
        }
    }
}
