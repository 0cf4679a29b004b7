//! The writer of events against a stub of an API server, which fails in all ways that the writer has to
//! survive.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use enforcer_cluster::{ApiConnection, EventRetries, EventSource, EventTally, write_events};
use enforcer_core::cluster::events::{
    EventCall, EventLimits, EventLog, EventObject, EventReason, NodeEvent, NotedEvent,
};
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
    failed: mpsc::Receiver<EventCall>,
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
        let (failures, failed) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let source = EventSource::agent("a");
            write_events(&connection, &source, SOON, queue, &failures, &counts, &tell).await;
        });
        let log = EventLog::new(EventLimits::default());
        Self { log, now: Duration::ZERO, calls: Some(calls), failed, tally, degraded, task }
    }

    /// Notes an event of a pod a second later.
    async fn note(&mut self, pod: &str, note: &str) {
        self.note_in("shop", pod, note).await;
    }

    async fn note_in(&mut self, namespace: &str, pod: &str, note: &str) {
        let object = EventObject::Pod { namespace: namespace.into(), name: pod.into(), uid: "u1".into() };
        self.note_of(object, EventReason::NumaMisaligned, note).await;
    }

    async fn note_of(&mut self, object: EventObject, reason: EventReason, note: &str) {
        self.now += Duration::from_secs(1);
        let at_ns = START + i64::try_from(self.now.as_nanos()).unwrap();
        let noted = self.log.note(NodeEvent::new(object, reason, note), self.now, at_ns, true);
        let NotedEvent::Write(call) = noted else { panic!("{noted:?}") };
        self.calls.as_ref().unwrap().send(call).await.unwrap();
    }

    /// Waits until everything is written or dropped; how many writes that is each.
    async fn end(&mut self) -> (u64, u64, Option<Degraded>) {
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
    let message = "events.events.k8s.io is forbidden: User \"system:serviceaccount:numa:agent\" cannot create \
                   resource \"events\" in API group \"events.k8s.io\" in the namespace \"shop\"";
    stub.fail_writes([fault(403, "Forbidden", message)]);
    writer.note("web", "memory is remote").await;
    let (written, dropped, degraded) = writer.end().await;
    assert_eq!((written, dropped, requests(&stub).len()), (0, 1, 1));
    let degraded = degraded.unwrap();
    assert_eq!(degraded.source, "events");
    let rule = "a role needs the verb create on events of group \"events.k8s.io\"";
    assert!(degraded.reason.contains(rule), "{}", degraded.reason);
}

fn fault(code: u16, reason: &'static str, message: &str) -> Fault {
    Fault::Status { code, reason, message: message.to_owned(), causes: Vec::new(), retry_after: None }
}

#[tokio::test]
async fn refusal_of_one_namespace_is_counted_and_degrades_nothing() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    let denied = "admission webhook \"events.shop\" denied the request: no events here";
    stub.fail_writes([
        fault(
            403,
            "Forbidden",
            "events.events.k8s.io \"x\" is forbidden: exceeded quota: few, used: count=9",
        ),
        fault(403, "Forbidden", denied),
        fault(400, "BadRequest", denied),
        fault(404, "NotFound", denied),
    ]);
    for pod in ["web", "db", "cache", "queue"] {
        writer.note(pod, "memory is remote").await;
    }
    assert_eq!(writer.end().await, (0, 4, None));
    assert_eq!(requests(&stub).len(), 4);

    let mut writer = Writer::start(&stub);
    stub.fail_writes([fault(403, "Forbidden", denied)]);
    let node = EventObject::Node { name: "a".into(), uid: "node-uid".into() };
    writer.note_of(node, EventReason::NumaStateInexact, "why").await;
    let (written, dropped, degraded) = writer.end().await;
    assert_eq!((written, dropped), (0, 1));
    assert_eq!(degraded.unwrap().source, "events", "all events of the node are concerned");
}

#[tokio::test]
async fn namespace_whose_webhook_fails_waits_behind_the_others() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    let late = "Internal error occurred: failed calling webhook \"events.slow\": context deadline exceeded";
    stub.fail_writes([fault(500, "InternalError", late)]);
    writer.note_in("slow", "web", "memory is remote").await;
    writer.note_in("slow", "db", "memory is remote").await;
    writer.note_in("shop", "web", "memory is remote").await;
    assert_eq!(writer.end().await, (3, 0, None));
    let asked = requests(&stub);
    let namespaces: Vec<_> = asked.iter().map(|text| text.split('/').nth(5).unwrap()).collect();
    assert_eq!(namespaces, ["slow", "shop", "slow", "slow"]);
}

#[tokio::test]
async fn namespace_that_ends_is_no_fault() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    let message = "events.events.k8s.io \"x\" is forbidden: unable to create new content in namespace shop \
                   because it is being terminated";
    stub.fail_writes([
        fault(403, "Forbidden", message),
        fault(404, "NotFound", "namespaces \"shop\" not found"),
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
    assert_eq!(attempts.len(), 6, "four of them failed");
    assert!(attempts[1].duration_since(attempts[0]) >= Duration::from_secs(1), "as the server asked");
}

#[tokio::test]
async fn event_that_the_server_never_takes_goes_back_after_six_tries() {
    let stub = ApiStub::start(&[]);
    let mut writer = Writer::start(&stub);
    stub.fail_writes(vec![Fault::status(500, "InternalError"); 12]);
    writer.note_in("shop", "web", "memory is remote").await;
    writer.note_in("home", "web", "memory is remote").await;
    let (written, dropped, degraded) = writer.end().await;
    assert_eq!((written, dropped, stub.attempts().len()), (0, 1, 12), "one has no room to go back to");
    assert!(degraded.unwrap().reason.contains("500"));
    let back = writer.failed.recv().await.unwrap();
    writer.log.take_back(back);
    let again = writer.log.end_series(writer.now + Duration::from_mins(6), 2);
    assert_eq!(again.iter().map(|call| (call.told, call.count)).collect::<Vec<_>>(), [(0, 1)]);
}
