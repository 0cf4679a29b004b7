//! Events of this node and its pods: what turns and published states tell, through the rate limit, to the
//! writer.
//!
//! Invariants: nothing waits for the API server. Events that find no room are dropped and counted. What turns
//! tell of pods waits until the API server has said which pods the node has.

use std::{sync::Arc, time::Duration};

use enforcer_cluster::{ApiConnection, EventRetries, EventTally, PublishedObject, WatchedPods, write_events};
use enforcer_core::cluster::events::{
    EventCall, EventLimits, EventLog, EventObject, NodeEvent, StateEvents, StateFacts,
};
use enforcer_report::turn_events::TurnEvents;
use numa_topology::degraded::Degraded;
use serde::Deserialize as _;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, interval},
};

use super::ClusterAnswers;
use crate::{serve::Latest, wall_clock};

/// Most writes that wait: as many as a server that is away for a minute leaves behind.
const QUEUE: usize = 64;
/// Time between two looks for series that have ended and for states that stay inexact.
const LOOK: Duration = Duration::from_secs(5);

/// Where events come from beside the cluster, and where they are counted.
pub(super) struct EventOutput {
    pub(super) turns: Latest,
    pub(super) tally: Arc<EventTally>,
    /// Why the server takes no events.
    pub(super) unwritten: watch::Sender<Option<Degraded>>,
}

/// What the session knows that events are made from.
pub(super) struct EventInputs {
    pub(super) node: String,
    pub(super) answers: watch::Receiver<Option<ClusterAnswers>>,
    pub(super) states: watch::Receiver<Option<PublishedObject>>,
    pub(super) pods: watch::Receiver<WatchedPods>,
}

impl EventOutput {
    /// Starts what makes events and what writes them; both end with the set.
    pub(super) fn start(self, inputs: EventInputs, connection: Arc<ApiConnection>, tasks: &mut JoinSet<()>) {
        let Self { turns, tally, unwritten } = self;
        let (calls, queue) = mpsc::channel(QUEUE);
        let (node, counts) = (inputs.node.clone(), Arc::clone(&tally));
        tasks.spawn(note_events(inputs, turns, calls, tally));
        tasks.spawn(async move {
            write_events(&connection, &node, EventRetries::default(), queue, &counts, &unwritten).await;
        });
    }
}

/// Sends the writes that each turn and each state takes, until the daemon ends.
async fn note_events(
    mut inputs: EventInputs,
    mut turns: Latest,
    calls: mpsc::Sender<EventCall>,
    tally: Arc<EventTally>,
) {
    let start = Instant::now();
    let (mut of_turns, mut of_states) = (TurnEvents::default(), StateEvents::default());
    let mut log = EventLog::new(EventLimits::default());
    let mut look = interval(LOOK);
    let mut dropped = 0;
    loop {
        let mut events: Vec<NodeEvent> = Vec::new();
        tokio::select! {
            changed = turns.changed() => {
                if changed.is_err() {
                    return;
                }
                let turn = turns.borrow_and_update().clone();
                let pods = inputs.pods.borrow().clone();
                if let Some(turn) = turn {
                    events = of_turns.note(&turn, &|uid| pod_of(&pods, uid));
                }
            }
            changed = inputs.states.changed() => {
                if changed.is_err() {
                    return;
                }
                let facts = facts(inputs.states.borrow_and_update().as_ref());
                if let Some(facts) = facts {
                    events.extend(of_states.note(&inputs.object(), &facts, start.elapsed()));
                }
            }
            _ = look.tick() => events.extend(of_states.lasting(&inputs.object(), start.elapsed())),
        }
        let now = start.elapsed();
        let mut writes = log.end_series(now);
        writes.extend(events.into_iter().filter_map(|event| log.note(event, now, wall_clock::unix_ns())));
        let unsent = writes.into_iter().filter_map(|call| calls.try_send(call).err()).count();
        tally.drop_events(log.dropped() - dropped + unsent as u64);
        dropped = log.dropped();
    }
}

impl EventInputs {
    /// The node as the object of events.
    fn object(&self) -> EventObject {
        let answers = self.answers.borrow();
        let uid = answers.as_ref().map(|answers| answers.node_uid.clone()).unwrap_or_default();
        EventObject::Node { name: self.node.clone(), uid }
    }
}

fn facts(object: Option<&PublishedObject>) -> Option<StateFacts> {
    StateFacts::deserialize(object?.content.get("state")?).ok()
}

/// The pod with this uid in the kubelet.
fn pod_of(pods: &WatchedPods, uid: &str) -> Option<EventObject> {
    let WatchedPods::Known(known) = pods else { return None };
    let pod = known.pods.iter().find(|pod| pod.kubelet_uid() == uid)?;
    Some(EventObject::Pod { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() })
}
