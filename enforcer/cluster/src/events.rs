//! Writes events of the node and its pods (events.k8s.io/v1), one after another.
//!
//! Invariants: an event is written once, also when the answer of the first try is lost: its name tells the
//! server that it is the same one. An event that the server does not take within [`TRIES`] tries, or
//! refuses, is dropped and counted. Nothing waits for the writer: its queue is bounded, and full it takes no
//! more.
//!
//! A server forgets events, after an hour if it is not told otherwise. Another count of a forgotten one
//! creates it anew, as clients of Kubernetes do (`k8s.io/client-go/tools/events/event_broadcaster.go`).

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use enforcer_core::cluster::events::{EventCall, EventObject};
use hyper::Method;
use jiff::Timestamp;
use numa_topology::degraded::Degraded;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc::Receiver, watch::Sender},
    time::sleep,
};

use crate::{
    api_error::ApiError,
    backoff::Backoff,
    connection::{ApiConnection, JSON},
    newest::send_if_different,
    publish::WriteEnd,
};

/// Media type of a patch by RFC 7396.
const MERGE: &str = "application/merge-patch+json";
/// Name of the controller in events.
const CONTROLLER: &str = "numa-enforcer.io/agent";
/// Tries of one event.
const TRIES: u32 = 6;
/// Longest part of a name before the number, so that the whole is a name.
const STEM: usize = 220;
/// Longest name of an instance.
const INSTANCE: usize = 128;
/// Effect of events that are not written.
const NO_EVENTS: &str = "kubectl describe does not show what the daemon does to pods and their node";

/// Events since the daemon started.
#[derive(Debug, Default)]
pub struct EventTally {
    /// Writes that the server has taken: new events, and new counts of repeated ones.
    pub written: AtomicU64,
    /// Events beyond the rate or the queue, and writes that the server did not take.
    pub dropped: AtomicU64,
}

impl EventTally {
    /// Adds dropped events.
    pub fn drop_events(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// Bounds of the time between two tries of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRetries {
    /// First and longest time.
    pub backoff: (Duration, Duration),
}

impl Default for EventRetries {
    /// 1 to 30 s.
    fn default() -> Self {
        Self { backoff: (Duration::from_secs(1), Duration::from_secs(30)) }
    }
}

/// Writes what comes until the sender is gone. `node` is the name of the node that reports. `degraded` is set
/// while the server takes no events.
pub async fn write_events(
    connection: &ApiConnection,
    node: &str,
    retries: EventRetries,
    mut calls: Receiver<EventCall>,
    tally: &EventTally,
    degraded: &Sender<Option<Degraded>>,
) {
    let instance: String = node.chars().take(INSTANCE).collect();
    while let Some(call) = calls.recv().await {
        if write(connection, &instance, retries, &call, degraded).await {
            tally.written.fetch_add(1, Ordering::Relaxed);
        } else {
            tally.drop_events(1);
        }
    }
}

/// Writes an event, if need be in several tries; whether the server has it.
async fn write(
    connection: &ApiConnection,
    instance: &str,
    retries: EventRetries,
    call: &EventCall,
    degraded: &Sender<Option<Degraded>>,
) -> bool {
    let mut backoff = Backoff::new(retries.backoff);
    for tried in 1..=TRIES {
        let Err(error) = write_once(connection, instance, call).await else {
            send_if_different(degraded, None);
            return true;
        };
        if is_of_ended_namespace(&error) {
            return false;
        }
        send_if_different(degraded, Some(Degraded::new("events", error.to_string(), NO_EVENTS)));
        let asked = match WriteEnd::of(&error) {
            WriteEnd::Busy(asked) => asked.unwrap_or_default(),
            WriteEnd::Unreachable => Duration::ZERO,
            WriteEnd::Refused | WriteEnd::Written => return false,
        };
        if tried < TRIES {
            sleep(backoff.next_wait().max(asked)).await;
        }
    }
    false
}

/// A namespace that ends takes no new objects. That is no fault.
fn is_of_ended_namespace(error: &ApiError) -> bool {
    match error {
        ApiError::Forbidden { message, .. } => message.contains("because it is being terminated"),
        ApiError::Refused { code: 404, message, .. } => message.starts_with("namespaces "),
        _ => false,
    }
}

async fn write_once(connection: &ApiConnection, instance: &str, call: &EventCall) -> Result<(), ApiError> {
    let (namespace, name) = (namespace_of(&call.event.object), name_of(call));
    let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let series = json!({"count": call.count, "lastObservedTime": time_of(call.last_ns)});
    if call.count > 1 {
        let (of_event, body) = (format!("{path}/{name}"), json!({"series": series}).to_string());
        match connection.request("patch", Method::PATCH, &of_event, MERGE, body.as_bytes()).await {
            Err(ApiError::Refused { code: 404, .. }) => {}
            ended => return ended.map(drop),
        }
    }
    let event = &call.event;
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": time_of(call.first_ns),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "action": event.reason.action(),
        "reason": <&str>::from(event.reason),
        "type": if event.reason.is_warning() { "Warning" } else { "Normal" },
        "note": event.note,
        "regarding": regarding(&event.object),
    });
    if call.count > 1 {
        body["series"] = series;
    }
    match connection.request("create", Method::POST, &path, JSON, body.to_string().as_bytes()).await {
        // An earlier try was served, and its answer lost.
        Err(ApiError::Busy { code: 409, .. }) => Ok(()),
        ended => ended.map(drop),
    }
}

/// Events of what has no namespace are in `default`.
fn namespace_of(object: &EventObject) -> &str {
    match object {
        EventObject::Node { .. } => "default",
        EventObject::Pod { namespace, .. } => namespace,
    }
}

/// The object's name with what no other event of it has.
fn name_of(call: &EventCall) -> String {
    let (EventObject::Node { name, .. } | EventObject::Pod { name, .. }) = &call.event.object;
    let stem: String = name.chars().take(STEM).collect();
    format!("{}.{:016x}{:04x}", stem.trim_end_matches(['.', '-']), call.first_ns, call.serial & 0xffff)
}

fn regarding(object: &EventObject) -> Value {
    match object {
        EventObject::Node { name, uid } => {
            json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid})
        }
        EventObject::Pod { namespace, name, uid } => {
            json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid})
        }
    }
}

/// A time of the API: RFC 3339 with microseconds.
fn time_of(ns: i64) -> String {
    let time = Timestamp::from_microsecond(ns / 1_000).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use enforcer_core::cluster::events::{EventReason, NodeEvent};

    use super::*;

    #[test]
    fn times_have_microseconds() {
        assert_eq!(time_of(1_795_831_200_000_000_000), "2026-11-28T02:00:00.000000Z");
        assert_eq!(time_of(1_795_831_200_123_456_789), "2026-11-28T02:00:00.123456Z");
    }

    #[test]
    fn names_are_names_of_objects() {
        let name = |object: EventObject, serial: u64, first_ns: i64| {
            let event = NodeEvent::new(object, EventReason::NumaCorrected, "");
            name_of(&EventCall { serial, event, first_ns, count: 1, last_ns: first_ns })
        };
        let node = EventObject::Node { name: "n".repeat(253), uid: "u".into() };
        let long = name(node, 70_000, 1_795_831_200_123_456_789);
        assert!(long.len() <= 253 && long.ends_with("nnn.18ec12f637ec0d151170"), "{long}");
        let pod = format!("{}.x", "p".repeat(STEM - 1));
        let pod = EventObject::Pod { namespace: "shop".into(), name: pod, uid: "u".into() };
        assert!(!name(pod, 1, 0).contains(".."), "a word between two dots has a character");
    }
}
