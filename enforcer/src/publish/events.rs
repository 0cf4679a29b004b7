//! Events of this node and its pods: what turns and published states tell, through the rate limit, to the
//! writer.
//!
//! Invariants: nothing waits for the API server. What turns repeat, and events of the node, wait until the
//! rate and the queue have room; corrections and outcomes of predictions that find none, and corrections
//! whose pod the API server has not told of, are dropped and counted. Writes that the server did not get
//! come back to the log.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use enforcer_cluster::{
    ApiConnection, EventRetries, EventSource, EventTally, PublishedObject, WatchedPods, write_events,
};
use enforcer_core::cluster::events::{
    EventCall, EventLimits, EventLog, EventObject, NodeEvent, NotedEvent, StateEvents, StateFacts,
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
/// Most events of the node that wait for room.
const MOST_WAITING: usize = 8;
/// Time between two looks for series that have ended and for states that stay inexact.
const LOOK: Duration = Duration::from_secs(5);

/// Where events come from beside the cluster, and where they are counted.
pub(super) struct EventOutput {
    pub(super) turns: Latest,
    /// What became of predictions.
    pub(super) outcomes: mpsc::Receiver<NodeEvent>,
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
    /// What the state of an earlier daemon says.
    pub(super) published: Option<StateFacts>,
}

impl EventOutput {
    /// Starts what makes events and what writes them; both end with the set.
    pub(super) fn start(self, inputs: EventInputs, connection: Arc<ApiConnection>, tasks: &mut JoinSet<()>) {
        let Self { turns, outcomes, tally, unwritten } = self;
        let (calls, queue) = mpsc::channel(QUEUE);
        let (failures, failed) = mpsc::channel(QUEUE);
        let (source, counts) = (EventSource::agent(&inputs.node), Arc::clone(&tally));
        let notes = EventNotes::new(calls, tally);
        tasks.spawn(note_events(inputs, (turns, outcomes), notes, failed));
        tasks.spawn(async move {
            let retries = EventRetries::default();
            write_events(&connection, &source, retries, queue, &failures, &counts, &unwritten).await;
        });
    }
}

/// What events go through on their way to the writer.
pub(crate) struct EventNotes {
    log: EventLog,
    /// To the writer. Nothing else sends, so room that is there stays.
    calls: mpsc::Sender<EventCall>,
    tally: Arc<EventTally>,
    /// What the log had dropped when it was counted last.
    dropped: u64,
}

impl EventNotes {
    /// With the way to the writer.
    pub(crate) fn new(calls: mpsc::Sender<EventCall>, tally: Arc<EventTally>) -> Self {
        Self { log: EventLog::new(EventLimits::default()), calls, tally, dropped: 0 }
    }

    /// Notes an event and sends the write that it takes; whether a write tells of it, now or later.
    pub(crate) fn accept(&mut self, event: NodeEvent, now: Duration) -> bool {
        let has_room = self.calls.capacity() > 0;
        match self.log.note(event, now, wall_clock::unix_ns(), has_room) {
            NotedEvent::Write(call) => self.send(call),
            NotedEvent::Joined => {}
            NotedEvent::Refused => return false,
        }
        true
    }

    /// Sends what ended series have not told, and counts what the log has dropped.
    pub(crate) fn settle(&mut self, now: Duration) {
        for call in self.log.end_series(now, self.calls.capacity()) {
            self.send(call);
        }
        self.tally.drop_events(self.log.dropped() - self.dropped);
        self.dropped = self.log.dropped();
    }

    /// Takes back a write that the server did not get.
    pub(crate) fn take_back(&mut self, call: EventCall) {
        self.log.take_back(call);
    }

    fn send(&mut self, call: EventCall) {
        if let Err(unsent) = self.calls.try_send(call) {
            self.log.take_back(unsent.into_inner());
        }
    }
}

/// Sends the writes that each turn and each state takes, until the daemon ends. `failed` are writes that the
/// server did not get.
async fn note_events(
    mut inputs: EventInputs,
    (mut turns, mut outcomes): (Latest, mpsc::Receiver<NodeEvent>),
    mut notes: EventNotes,
    mut failed: mpsc::Receiver<EventCall>,
) {
    let start = Instant::now();
    let mut of_turns = TurnEvents::default();
    let mut of_states = inputs.published.take().map(StateEvents::after).unwrap_or_default();
    let mut of_node = VecDeque::new();
    let mut look = interval(LOOK);
    loop {
        tokio::select! {
            changed = turns.changed() => {
                if changed.is_err() {
                    return;
                }
                let turn = turns.borrow_and_update().clone();
                let pods = inputs.pods.borrow().clone();
                if let Some(turn) = turn {
                    let mut accept = |event| notes.accept(event, start.elapsed());
                    let dropped = of_turns.note(&turn, &|uid| pod_of(&pods, uid), &mut accept);
                    notes.tally.drop_events(dropped);
                }
            }
            changed = inputs.states.changed() => {
                if changed.is_err() {
                    return;
                }
                let facts = facts(inputs.states.borrow_and_update().as_ref());
                if let Some(facts) = facts {
                    of_node.extend(of_states.note(&inputs.object(), &facts, start.elapsed()));
                }
            }
            Some(event) = outcomes.recv() => {
                if !notes.accept(event, start.elapsed()) {
                    notes.tally.drop_events(1);
                }
            }
            Some(call) = failed.recv() => notes.take_back(call),
            _ = look.tick() => of_node.extend(of_states.lasting(&inputs.object(), start.elapsed())),
        }
        while let Some(event) = of_node.front().cloned() {
            if !notes.accept(event, start.elapsed()) {
                break;
            }
            of_node.pop_front();
        }
        while of_node.len() > MOST_WAITING {
            of_node.pop_front();
            notes.tally.drop_events(1);
        }
        notes.settle(start.elapsed());
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
