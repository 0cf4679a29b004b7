//! The writer of events against a stub of an API server, which fails in all ways that the writer has to
//! survive.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use enforcer_cluster::{ApiConnection, EventRetries, EventTally, write_events};
use enforcer_core::cluster::events::{EventCall, EventLimits, EventLog, EventObject, EventReason, NodeEvent};
use enforcer_test_api::{ApiStub, Fault};
use numa_topology::degraded::Degraded;
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

/// Longest wait for what has to happen in the end, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(2);
/// 2026-11-28T02:00:00Z in nanoseconds.
const START: i64 = 1_795_831_200_000_000_000;
/// So that a test does not wait.
const SOON: EventRetries = EventRetries { backoff: (Duration::from_millis(1), Duration::from_millis(5)) };

/// A running writer, and the log that it gets its calls from.
struct Writer {
    log: EventLog,
    now: Duration,
    calls: Option<mpsc::Sender<EventCall>>,
    tally: Arc<EventTally>,
    degraded: watch::Receiver<Option<Degraded>>,
    task: JoinHandle<()>,
}

impl Writer {
    fn start(stub: &ApiStub) -> Self {
        let connection = ApiConnection::new(stub.config()).unwrap();
        let (calls, queue) = mpsc::channel(8);
        let (tell, degraded) = watch::channel(None);
        let tally = Arc::new(EventTally::default());
        let counts = Arc::clone(&tally);
        let task =
            tokio::spawn(async move { write_events(&connection, "a", SOON, queue, &counts, &tell).await });
        let log = EventLog::new(EventLimits::default());
        Self { log, now: Duration::ZERO, calls: Some(calls), tally, degraded, task }
    }

    /// Notes an event of a pod a second later.
    async fn note(&mut self, pod: &str, note: &str) {
        let object = EventObject::Pod { namespace: "shop".into(), name: pod.into(), uid: "u1".into() };
        self.note_of(object, EventReason::NumaMisaligned, note).await;
    }

    async fn note_of(&mut self, object: EventObject, reason: EventReason, note: &str) {
        self.now += Duration::from_secs(1);
        let at_ns = START + i64::try_from(self.now.as_nanos()).unwrap();
        let call = self.log.note(NodeEvent::new(object, reason, note), self.now, at_ns).unwrap();
        self.calls.as_ref().unwrap().send(call).await.unwrap();
    }

    /// Waits until everything is written or dropped; how many writes that is each.
    async fn end(mut self) -> (u64, u64, Option<Degraded>) {
        self.calls = None;
        tokio::time::timeout(LIMIT, &mut self.task).await.unwrap().unwrap();
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        let degraded = self.degraded.borrow().clone();
        (count(&self.tally.written), count(&self.tally.dropped), degraded)
    }
}

/// Methods and paths of all requests.
fn requests(stub: &ApiStub) -> Vec<String> {
    stub.requests().into_iter().map(|(_, text)| text).collect()
}

/// The events of a namespace.
fn events(stub: &ApiStub, namespace: &str) -> Vec<Value> {
    let created = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    stub.objects(&created)
}

#[tokio::test]
async fn first_event_is_created_and_repetitions_are_its_series() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    writer.note("web", "memory is remote").await;
    writer.note("web", "memory is remote").await;
    writer.note("web", "memory is remote").await;
    assert_eq!(writer.end().await, (3, 0, None));
    let [event] = events(&stub, "shop").try_into().unwrap();
    let mut metadata = event["metadata"].clone();
    let name = metadata["name"].take();
    assert!(name.as_str().unwrap().starts_with("web.18ec"), "{name}");
    let mut event = event;
    event["metadata"] = json!(null);
    assert_eq!(
        event,
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": null,
            "eventTime": "2026-11-28T02:00:01.000000Z",
            "reportingController": "numa-enforcer.io/agent", "reportingInstance": "a",
            "action": "Observing", "reason": "NumaMisaligned", "type": "Warning", "note": "memory is remote",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u1"},
            "series": {"count": 3, "lastObservedTime": "2026-11-28T02:00:03.000000Z"},
        })
    );
    let asked = requests(&stub);
    assert_eq!(asked.len(), 3, "{asked:?}");
    let of_event = format!("PATCH /apis/events.k8s.io/v1/namespaces/shop/events/{}", name.as_str().unwrap());
    assert_eq!(asked[1..], [of_event.clone(), of_event]);
}

#[tokio::test]
async fn events_of_the_node_are_in_the_default_namespace() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    let node = EventObject::Node { name: "a".into(), uid: "node-uid".into() };
    writer.note_of(node, EventReason::KubeletConfigurationChanged, "other settings").await;
    assert_eq!(writer.end().await, (1, 0, None));
    let [event] = events(&stub, "default").try_into().unwrap();
    assert_eq!(
        event["regarding"],
        json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "node-uid"})
    );
    assert_eq!((&event["type"], &event["action"]), (&json!("Normal"), &json!("Publishing")));
}

#[tokio::test]
async fn forgotten_event_is_created_anew_with_its_series() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    stub.fail_writes([Fault::status(422, "Invalid")]);
    writer.note("web", "first").await;
    writer.note("web", "second").await;
    let (written, dropped, degraded) = writer.end().await;
    assert_eq!((written, dropped, degraded), (1, 1, None));
    let [event] = events(&stub, "shop").try_into().unwrap();
    assert_eq!((&event["note"], &event["series"]["count"]), (&json!("second"), &json!(2)));
    assert_eq!(event["eventTime"], "2026-11-28T02:00:01.000000Z");
    let verbs: Vec<_> =
        requests(&stub).iter().map(|text| text.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(verbs, ["POST", "PATCH", "POST"]);
}

#[tokio::test]
async fn missing_rule_is_named_and_the_event_dropped_at_once() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    stub.fail_writes([Fault::status(403, "Forbidden")]);
    writer.note("web", "memory is remote").await;
    let (written, dropped, degraded) = writer.end().await;
    assert_eq!((written, dropped, requests(&stub).len()), (0, 1, 1));
    let degraded = degraded.unwrap();
    assert_eq!(degraded.source, "events");
    let rule = "a role needs the verb create on events of group \"events.k8s.io\"";
    assert!(degraded.reason.contains(rule), "{}", degraded.reason);
}

#[tokio::test]
async fn namespace_that_ends_is_no_fault() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    let message = "events.events.k8s.io \"x\" is forbidden: unable to create new content in namespace shop \
                   because it is being terminated";
    let ends = |code, reason, message: &str| Fault::Status {
        code,
        reason,
        message: message.to_owned(),
        causes: Vec::new(),
        retry_after: None,
    };
    stub.fail_writes([
        ends(403, "Forbidden", message),
        ends(404, "NotFound", "namespaces \"shop\" not found"),
    ]);
    writer.note("web", "memory is remote").await;
    writer.note("db", "memory is remote").await;
    assert_eq!(writer.end().await, (0, 2, None));
    assert_eq!(requests(&stub).len(), 2);
}

#[tokio::test]
async fn busy_server_is_asked_again_and_a_lost_answer_is_no_second_event() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    stub.fail_writes([
        Fault::too_many(Duration::from_secs(1)),
        Fault::status(500, "InternalError"),
        Fault::Drop,
        Fault::DropAnswer,
        Fault::Slow(Duration::from_millis(300)),
    ]);
    writer.note("web", "memory is remote").await;
    writer.note("db", "memory is remote").await;
    assert_eq!(writer.end().await, (2, 0, None));
    assert_eq!(events(&stub, "shop").len(), 2);
    let attempts = stub.attempts();
    assert_eq!(attempts.len(), 6, "five for the first event");
    assert!(attempts[1].duration_since(attempts[0]) >= Duration::from_secs(1), "as the server asked");
}

#[tokio::test]
async fn event_that_the_server_never_takes_is_dropped_after_six_tries() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    stub.fail_writes(vec![Fault::status(500, "InternalError"); 6]);
    writer.note("web", "memory is remote").await;
    let (written, dropped, degraded) = writer.end().await;
    assert_eq!((written, dropped, stub.attempts().len()), (0, 1, 6));
    assert!(degraded.unwrap().reason.contains("500"));
}
