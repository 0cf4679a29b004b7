//! Writes events of the node and its pods (events.k8s.io/v1), one request at a time.
//!
//! Problem: a namespace whose admission webhook does not answer must not hold up the events of all others.
//! Idea: a write that failed waits behind the others, with the later ones of its namespace ([`EventQueue`]).
//!
//! Invariants: an event is written once, also when the answer of the first try is lost: its name tells the
//! server that it is the same one. A write that the server does not take within [`TRIES`] tries goes back to
//! the sender; one that the server refuses is dropped and counted. Nothing waits for the writer: its queue is
//! bounded, and full it takes no more. What one namespace refuses is no fault of the node's events.
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
    sync::{
        mpsc::{Receiver, Sender as CallSender},
        watch::Sender,
    },
    time::{Instant, sleep_until},
};

use self::queue::EventQueue;
use crate::{
    api_error::ApiError,
    connection::{ApiConnection, JSON},
    newest::send_if_different,
    publish::WriteEnd,
};

mod queue;

/// Media type of a patch by RFC 7396.
const MERGE: &str = "application/merge-patch+json";
/// Tries of one event.
const TRIES: u32 = 6;
/// Longest part of a name before the number, so that the whole is a name.
const STEM: usize = 220;
/// Longest name of an instance.
const INSTANCE: usize = 128;
/// Effect of events that are not written.
const NO_EVENTS: &str = "kubectl describe does not show what numa-enforcer does to pods and their node";

/// Events since the daemon started.
#[derive(Debug, Default)]
pub struct EventTally {
    /// Writes that the server has taken: new events, and new counts of repeated ones.
    pub written: AtomicU64,
    /// Events beyond the rate or the queue, or without a known pod, and writes that the server did not take.
    pub dropped: AtomicU64,
}

impl EventTally {
    /// Adds dropped events.
    pub fn drop_events(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

/// Which program an event comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSource {
    controller: &'static str,
    instance: String,
}

impl EventSource {
    /// The daemon of this node.
    pub fn agent(node: &str) -> Self {
        Self::new("numa-enforcer.io/agent", node)
    }

    /// The extender of a scheduler in this pod.
    pub fn scheduler(pod: &str) -> Self {
        Self::new("numa-enforcer.io/scheduler", pod)
    }

    fn new(controller: &'static str, instance: &str) -> Self {
        Self { controller, instance: instance.chars().take(INSTANCE).collect() }
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

/// Writes what comes until the sender is gone. `failed` gets the writes that failed in all their tries.
/// `degraded` is set while the server takes no events.
pub async fn write_events(
    connection: &ApiConnection,
    source: &EventSource,
    retries: EventRetries,
    mut calls: Receiver<EventCall>,
    failed: &CallSender<EventCall>,
    tally: &EventTally,
    degraded: &Sender<Option<Degraded>>,
) {
    let mut queue = EventQueue::new(retries);
    let mut is_open = true;
    loop {
        while let Some(call) = if queue.has_room() { calls.try_recv().ok() } else { None } {
            queue.push(call, Instant::now());
        }
        if let Some(mut pending) = queue.take_due(Instant::now()) {
            let ended = write_once(connection, source, &pending.call).await;
            match TryEnd::of(ended.as_ref().err(), &pending.call.event.object) {
                TryEnd::Written => {
                    tally.written.fetch_add(1, Ordering::Relaxed);
                    send_if_different(degraded, None);
                    continue;
                }
                TryEnd::Refused { is_fault } => {
                    report(degraded, &ended, is_fault);
                    tally.drop_events(1);
                    continue;
                }
                TryEnd::Failed { asked, is_of_server, is_fault } => {
                    report(degraded, &ended, is_fault);
                    pending.tries += 1;
                    let is_last = pending.tries >= TRIES;
                    let returned = queue.put_back(pending, Instant::now(), asked, is_of_server, is_last);
                    if returned.is_some_and(|call| failed.try_send(call).is_err()) {
                        tally.drop_events(1);
                    }
                    continue;
                }
            }
        }
        let due = queue.next_due();
        if due.is_none() && !is_open {
            return;
        }
        tokio::select! {
            call = calls.recv(), if is_open && queue.has_room() => match call {
                Some(call) => queue.push(call, Instant::now()),
                None => is_open = false,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
}

/// Sets why the server takes no events, if that is a fault.
fn report(degraded: &Sender<Option<Degraded>>, ended: &Result<(), ApiError>, is_fault: bool) {
    if let Err(error) = ended
        && is_fault
    {
        send_if_different(degraded, Some(Degraded::new("events", error.to_string(), NO_EVENTS)));
    }
}

/// How a try ended. `is_fault` is what concerns the events of the whole node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TryEnd {
    Written,
    /// Another try would end the same.
    Refused {
        is_fault: bool,
    },
    Failed {
        /// When to come back, if the server said that.
        asked: Duration,
        /// Whether no event can be written for that time.
        is_of_server: bool,
        is_fault: bool,
    },
}

impl TryEnd {
    fn of(error: Option<&ApiError>, object: &EventObject) -> Self {
        let Some(error) = error else { return Self::Written };
        let is_of_node = matches!(object, EventObject::Node { .. });
        let asked = match WriteEnd::of(error) {
            WriteEnd::Busy(asked) => asked.unwrap_or_default(),
            WriteEnd::Unreachable => Duration::ZERO,
            WriteEnd::Refused | WriteEnd::Written => {
                let is_fault = !is_of_ended_namespace(error) && (is_of_node || !is_of_tenant(error));
                return Self::Refused { is_fault };
            }
        };
        let is_of_server = matches!(
            error,
            ApiError::Unreachable { .. } | ApiError::Unauthorized { .. } | ApiError::Busy { code: 429, .. }
        );
        Self::Failed { asked, is_of_server, is_fault: is_of_node || !is_of_tenant(error) }
    }
}

/// Whether what serves or guards one namespace (its quota, a webhook, a policy) refuses or fails, as
/// `k8s.io/apiserver/pkg/admission` says it. A missing rule of RBAC reads `User "x" cannot create resource`.
fn is_of_tenant(error: &ApiError) -> bool {
    match error {
        ApiError::Forbidden { verb, message, .. } => !message.contains(&format!("cannot {verb} resource")),
        ApiError::Refused { code: 404, message, .. } => message.contains("admission webhook"),
        ApiError::Refused { .. } => true,
        ApiError::Busy { message, .. } => {
            message.contains("failed calling webhook") || message.contains("admission webhook")
        }
        _ => false,
    }
}

/// A namespace that ends takes no new objects. That is no fault.
fn is_of_ended_namespace(error: &ApiError) -> bool {
    match error {
        ApiError::Forbidden { message, .. } => message.contains("because it is being terminated"),
        ApiError::Refused { code: 404, message, .. } => message.starts_with("namespaces "),
        _ => false,
    }
}

async fn write_once(
    connection: &ApiConnection,
    source: &EventSource,
    call: &EventCall,
) -> Result<(), ApiError> {
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
        "reportingController": source.controller,
        "reportingInstance": source.instance,
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
        EventObject::Pod { namespace, .. } | EventObject::Claim { namespace, .. } => namespace,
    }
}

/// The object's name with what no other event of it has.
fn name_of(call: &EventCall) -> String {
    let (EventObject::Node { name, .. } | EventObject::Pod { name, .. } | EventObject::Claim { name, .. }) =
        &call.event.object;
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
        EventObject::Claim { namespace, name, uid } => json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "namespace": namespace,
            "name": name,
            "uid": uid,
        }),
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
    fn claim_is_regarded_as_an_object_of_its_group() {
        let claim = EventObject::Claim { namespace: "shop".into(), name: "place".into(), uid: "u".into() };
        assert_eq!(namespace_of(&claim), "shop");
        let object = regarding(&claim);
        assert_eq!(
            (&object["apiVersion"], &object["kind"]),
            (&json!("resource.k8s.io/v1"), &json!("ResourceClaim"))
        );
    }

    #[test]
    fn names_are_names_of_objects() {
        let name = |object: EventObject, serial: u64, first_ns: i64| {
            let event = NodeEvent::new(object, EventReason::NumaCorrected, "");
            name_of(&EventCall { serial, event, first_ns, count: 1, told: 0, last_ns: first_ns })
        };
        let node = EventObject::Node { name: "n".repeat(253), uid: "u".into() };
        let long = name(node, 70_000, 1_795_831_200_123_456_789);
        assert!(long.len() <= 253 && long.ends_with("nnn.18ec12f637ec0d151170"), "{long}");
        let pod = format!("{}.x", "p".repeat(STEM - 1));
        let pod = EventObject::Pod { namespace: "shop".into(), name: pod, uid: "u".into() };
        assert!(!name(pod, 1, 0).contains(".."), "a word between two dots has a character");
    }
}
