//! Events of pods without a place, through the rate limit to the writer.
//!
//! Invariants: an answer to kube-scheduler never waits for an event. What finds no room is dropped and
//! counted.

use std::{env, sync::Arc, time::Duration};

use enforcer_cluster::{ApiConnection, EventRetries, EventSource, EventTally, write_events};
use enforcer_core::cluster::events::{EventCall, NodeEvent};
use numa_topology::degraded::Degraded;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, interval},
};

use crate::publish::EventNotes;

/// Most events and most writes that wait.
pub(super) const QUEUE: usize = 64;
/// Time between two looks for series that have ended.
const LOOK: Duration = Duration::from_secs(5);

/// Writes the events that come; it does not end before its future is dropped.
pub(super) async fn write(
    connection: &ApiConnection,
    events: mpsc::Receiver<NodeEvent>,
    tally: &Arc<EventTally>,
    unwritten: &watch::Sender<Option<Degraded>>,
) {
    let (calls, queue) = mpsc::channel(QUEUE);
    let (failures, failed) = mpsc::channel(QUEUE);
    // A pod's name is the name of its host.
    let source = EventSource::scheduler(&env::var("HOSTNAME").unwrap_or_else(|_| "scheduler".to_owned()));
    let notes = EventNotes::new(calls, Arc::clone(tally));
    let retries = EventRetries::default();
    tokio::select! {
        () = note(events, notes, failed, tally) => {}
        () = write_events(connection, &source, retries, queue, &failures, tally, unwritten) => {}
    }
}

async fn note(
    mut events: mpsc::Receiver<NodeEvent>,
    mut notes: EventNotes,
    mut failed: mpsc::Receiver<EventCall>,
    tally: &EventTally,
) {
    let start = Instant::now();
    let mut look = interval(LOOK);
    loop {
        tokio::select! {
            Some(event) = events.recv() => {
                if !notes.accept(event, start.elapsed()) {
                    tally.drop_events(1);
                }
            }
            Some(call) = failed.recv() => notes.take_back(call),
            _ = look.tick() => {}
        }
        notes.settle(start.elapsed());
    }
}
