//! The publisher against Kubernetes' own server, and against a stub that fails as it is told.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{fs, sync::Arc, time::Duration};

use enforcer_cluster::{
    ApiConnection, ApiError, LeaseConditions, PaceLimits, Published, PublishedKind, PublishedObject,
    Publisher, PublisherSettings, RenewalTimes, keep_lease, notice_returns, publish_changes, unpublished,
};
use enforcer_test_api::{ApiServer, ApiStub, Fault, StubKind, accept, define};
use hyper::{Method, StatusCode};
use numa_topology::degraded::Degraded;
use serde_json::{Value, json};
use tokio::sync::watch;

const PATH: &str = "/apis/test.numa-enforcer.io/v1/probes/a";
const NODE: &str = "/api/v1/nodes/a";
const PROBE: StubKind = StubKind {
    group: "test.numa-enforcer.io",
    version: "v1",
    plural: "probes",
    kind: "Probe",
    namespaced: false,
};
/// Longest wait for what has to happen in the end, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(2);
/// Time between two renewals of a lease.
const RENEWAL: Duration = Duration::from_millis(50);
/// Time until writes after the return of the server.
const AFTER_RETURN: Duration = Duration::from_millis(300);

fn kind(own: bool) -> PublishedKind {
    PublishedKind {
        group: PROBE.group.into(),
        version: PROBE.version.into(),
        plural: PROBE.plural.into(),
        kind: PROBE.kind.into(),
        own,
    }
}

fn object(count: u32) -> PublishedObject {
    let Value::Object(content) = json!({"spec": {"count": count}}) else { unreachable!() };
    PublishedObject { content }
}

fn settings() -> PublisherSettings {
    let limits = PaceLimits::default();
    let check = Duration::from_mins(10);
    PublisherSettings { limits, first: Duration::ZERO, after_return: AFTER_RETURN, check }
}

fn renewals() -> RenewalTimes {
    RenewalTimes { renewal: RENEWAL, after_return: AFTER_RETURN }
}

/// A definition of the kind, for a server.
fn definition() -> Value {
    let spec = json!({"type": "object", "properties": {"count": {"type": "integer", "maximum": 1000}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.test.numa-enforcer.io"},
        "spec": {
            "group": PROBE.group, "scope": "Cluster",
            "names": {"plural": PROBE.plural, "singular": "probe", "kind": PROBE.kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

/// A running loop.
struct Loop {
    states: watch::Sender<Option<PublishedObject>>,
    degraded: watch::Receiver<Option<Degraded>>,
}

impl Loop {
    fn start(publisher: Publisher, settings: PublisherSettings) -> Self {
        let (states, changes) = watch::channel(None);
        let (tell, degraded) = watch::channel(None);
        tokio::spawn(async move { publish_changes(publisher, changes, settings, &tell).await });
        Self { states, degraded }
    }

    fn change(&self, count: u32) {
        self.states.send_replace(Some(object(count)));
    }

    async fn degraded(&mut self, is: impl Fn(Option<&Degraded>) -> bool) -> Option<Degraded> {
        let wanted = self.degraded.wait_for(|now| is(now.as_ref()));
        tokio::time::timeout(LIMIT, wanted).await.unwrap().unwrap().clone()
    }
}

/// Waits until `is` holds.
async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waits).await.is_ok(), "never: {what}");
}

fn stub_publisher(stub: &ApiStub, own: bool) -> Publisher {
    stub.put(NODE, json!({"metadata": {"uid": "node-1"}}));
    let connection = ApiConnection::new(stub.config()).unwrap();
    Publisher::new(Arc::new(connection), kind(own), "a".into())
}

fn count_in(stub: &ApiStub) -> Option<Value> {
    Some(stub.object(PATH)?["spec"]["count"].clone())
}

#[tokio::test]
async fn server_has_one_write_for_each_change_and_managers_stay_apart() {
    let Some(mut server) = ApiServer::start() else { return };
    let client = server.client().await;
    define(&client, &definition()).await;
    let connection = Arc::new(ApiConnection::new(server.config().await).unwrap());
    let (_replaced, uid) = watch::channel("node-1".to_owned());
    let publisher =
        |own| Publisher::new(Arc::clone(&connection), kind(own), "a".into()).with_node_uid(uid.clone());
    let mut ours = publisher(true);

    let Published::Written(first) = ours.publish(&object(1)).await.unwrap() else {
        panic!("nothing written")
    };
    assert_eq!(ours.publish(&object(1)).await.unwrap(), Published::Equal);
    let restarted = publisher(true).publish(&object(1)).await.unwrap();
    assert_eq!(restarted, Published::Written(first), "another daemon's equal write is none for the server");
    let (_, stored) = accept(&client, Method::GET, PATH, None).await;
    assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], "node-1", "{stored}");
    assert_eq!(stored["metadata"]["managedFields"][0]["manager"], "numa-enforcer");

    // Another program takes the field.
    let mut theirs = json!({"apiVersion": "test.numa-enforcer.io/v1", "kind": "Probe"});
    theirs["metadata"] = json!({"name": "a"});
    theirs["spec"] = json!({"count": 99});
    let forced = format!("{PATH}?fieldManager=other&force=true");
    assert_eq!(accept(&client, Method::PATCH, &forced, Some(&theirs)).await.0, StatusCode::OK);
    let refused = publisher(false).publish(&object(2)).await.unwrap_err();
    let ApiError::OwnedByOther { managers, fields, .. } = &refused else { panic!("{refused}") };
    assert_eq!((managers.as_str(), fields.as_slice()), ("other", &[".spec.count".to_owned()][..]));
    let (_, stored) = accept(&client, Method::GET, PATH, None).await;
    assert_eq!(stored["spec"]["count"], 99, "no force in kinds of others");
    assert!(ours.check().await.unwrap(), "the look shows that it was changed");
    ours.publish(&object(1)).await.unwrap();
    let (_, stored) = accept(&client, Method::GET, PATH, None).await;
    assert_eq!(stored["spec"]["count"], 1);
    let invalid = ours.publish(&object(2000)).await.unwrap_err();
    assert!(matches!(invalid, ApiError::Refused { code: 422, .. }), "{invalid}");

    // The server goes away and comes back.
    let generation = |stored: &Value| stored["metadata"]["generation"].as_u64().unwrap();
    let before = generation(&stored);
    let mut running = Loop::start(ours, settings());
    server.kill();
    for count in 2..=50 {
        running.change(count);
    }
    let entry = running.degraded(|entry| entry.is_some()).await.unwrap();
    assert_eq!(entry.source, "publish:probes");
    server.resume();
    running.degraded(|entry| entry.is_none()).await;
    let (_, stored) = accept(&client, Method::GET, PATH, None).await;
    assert_eq!((&stored["spec"]["count"], generation(&stored)), (&json!(50), before + 1));
}

#[tokio::test]
async fn failures_of_the_server_lose_nothing_and_are_repeated_later() {
    let stub = ApiStub::start(&[PROBE]);
    let mut running = Loop::start(stub_publisher(&stub, true), settings());
    stub.fail_writes([Fault::status(500, "InternalError"), Fault::too_many(Duration::from_secs(2))]);
    running.change(1);
    let entry = running.degraded(|entry| entry.is_some()).await.unwrap();
    assert!(entry.reason.starts_with("patch /apis/test.numa-enforcer.io/v1/probes/a: 500"), "{entry}");
    running.change(2);
    running.degraded(|entry| entry.is_none()).await;
    assert_eq!((count_in(&stub), stub.writes()), (Some(json!(2)), 1));
    let attempts = stub.attempts();
    assert_eq!(attempts.len(), 3);
    assert!(attempts[1] - attempts[0] >= Duration::from_secs(1), "{attempts:?}");
    assert!(attempts[2] - attempts[1] >= Duration::from_secs(2), "as the server asked: {attempts:?}");
}

/// The wait after so many failures would be half a minute, and the lease has one of an hour.
#[tokio::test]
async fn server_that_comes_back_has_state_and_lease_at_once() {
    for fault in [
        Fault::status(409, "Conflict"),
        Fault::status(410, "Expired"),
        Fault::status(500, "InternalError"),
        Fault::Drop,
        Fault::Slow(Duration::from_mins(10)),
    ] {
        let stub = ApiStub::start(&[PROBE]);
        let connection = Arc::new(ApiConnection::new(stub.config()).unwrap());
        stub.put(NODE, json!({"metadata": {"uid": "node-1"}}));
        let conditions = Arc::<LeaseConditions>::default();
        let publisher = Publisher::new(Arc::clone(&connection), kind(true), "a".into());
        let publisher = publisher.with_lease(Arc::clone(&conditions));
        let path = publisher.path();
        let hour = Duration::from_hours(1);
        let limits = PaceLimits { backoff: (hour, hour), unreachable: hour, ..PaceLimits::default() };
        let running = Loop::start(publisher, PublisherSettings { limits, ..settings() });
        let (unrenewed, _told) = watch::channel(None::<Degraded>);
        let times = RenewalTimes { renewal: hour, ..renewals() };
        let renewed = || Some(stub.object(LEASE)?["spec"]["renewTime"].clone());
        let seen = async {
            running.change(1);
            until("the first lease", async || renewed().is_some()).await;
            let first = renewed();
            stub.fail_always(Some(fault.clone()));
            running.change(2);
            let reads = || stub.requests().iter().filter(|(_, text)| text.starts_with("GET")).count();
            let before = reads();
            until("questions that fail", async || reads() >= before + 2).await;
            let attempts = stub.attempts().len();
            stub.fail_always(None);
            until("the state", async || count_in(&stub) == Some(json!(2))).await;
            until("the lease", async || renewed() != first).await;
            assert!(stub.attempts().len() <= attempts + 3, "{fault:?}: {:?}", stub.attempts());
        };
        tokio::select! {
            never = keep_lease(&connection, "a", times, &conditions, &unrenewed) => match never {},
            never = notice_returns(&connection, &path) => match never {},
            ended = tokio::time::timeout(LIMIT, seen) => ended.unwrap(),
        }
    }
}

/// Questions are answered and writes are not: the server has too much to do.
#[tokio::test]
async fn writes_that_fail_alone_keep_their_waits() {
    let stub = ApiStub::start(&[PROBE]);
    let connection = Arc::new(ApiConnection::new(stub.config()).unwrap());
    stub.put(NODE, json!({"metadata": {"uid": "node-1"}}));
    let publisher = Publisher::new(Arc::clone(&connection), kind(true), "a".into());
    let path = publisher.path();
    let hour = Duration::from_hours(1);
    let limits = PaceLimits { backoff: (hour, hour), ..PaceLimits::default() };
    let running = Loop::start(publisher, PublisherSettings { limits, ..settings() });
    stub.fail_writes([Fault::status(500, "InternalError")]);
    running.change(1);
    let reads = || stub.requests().iter().filter(|(_, text)| text.contains(PATH)).count();
    let seen = async {
        until("a question", async || reads() >= 2).await;
        tokio::time::sleep(AFTER_RETURN * 4).await;
        assert_eq!((stub.attempts().len(), count_in(&stub)), (1, None));
    };
    tokio::select! {
        never = notice_returns(&connection, &path) => match never {},
        ended = tokio::time::timeout(LIMIT, seen) => ended.unwrap(),
    }
}

#[tokio::test]
async fn answer_that_was_lost_is_no_second_change() {
    let stub = ApiStub::start(&[PROBE]);
    let mut running = Loop::start(stub_publisher(&stub, true), settings());
    stub.fail_writes([Fault::DropAnswer]);
    running.change(1);
    running.degraded(|entry| entry.is_some()).await;
    running.degraded(|entry| entry.is_none()).await;
    assert_eq!((count_in(&stub), stub.writes(), stub.attempts().len()), (Some(json!(1)), 1, 2));
}

#[tokio::test]
async fn connections_that_break_are_made_ever_more_rarely() {
    let stub = ApiStub::start(&[PROBE]);
    let mut running = Loop::start(stub_publisher(&stub, true), settings());
    stub.fail_writes([Fault::Drop, Fault::Drop]);
    running.change(1);
    let entry = running.degraded(|entry| entry.is_some()).await.unwrap();
    assert!(entry.reason.contains("the connection to the API server broke"), "{entry}");
    running.degraded(|entry| entry.is_none()).await;
    let attempts = stub.attempts();
    assert_eq!(attempts.len(), 3);
    assert!(attempts[2] - attempts[1] >= Duration::from_secs(2), "{attempts:?}");
}

#[tokio::test]
async fn state_that_returns_after_a_lost_answer_is_written_again() {
    let stub = ApiStub::start(&[PROBE]);
    let mut publisher = stub_publisher(&stub, true);
    publisher.publish(&object(1)).await.unwrap();
    stub.fail_writes([Fault::DropAnswer]);
    publisher.publish(&object(2)).await.unwrap_err();
    assert_eq!(count_in(&stub), Some(json!(2)), "the server has what the publisher does not know of");
    publisher.publish(&object(1)).await.unwrap();
    assert_eq!(count_in(&stub), Some(json!(1)));
}

#[tokio::test]
async fn changes_of_a_moment_are_few_writes_and_the_last_one_stays() {
    let stub = ApiStub::start(&[PROBE]);
    let running = Loop::start(stub_publisher(&stub, true), settings());
    for count in 1..=200 {
        running.change(count);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    until("the newest state", async || count_in(&stub) == Some(json!(200))).await;
    let attempts = stub.attempts();
    for (index, first) in attempts.iter().enumerate() {
        for (more, last) in (1..).zip(&attempts[index..]) {
            let earned = (*last - *first).as_millis().div_ceil(5000);
            assert!(more <= 3 + earned, "{attempts:?}");
        }
    }
}

#[tokio::test]
async fn object_that_was_deleted_is_created_again_for_the_node_of_now() {
    let stub = ApiStub::start(&[PROBE]);
    let check = Duration::from_millis(50);
    let mut running = Loop::start(stub_publisher(&stub, true), PublisherSettings { check, ..settings() });
    running.change(1);
    until("the first write", async || stub.object(PATH).is_some()).await;
    stub.remove(NODE);
    stub.put(NODE, json!({"metadata": {"uid": "node-2"}}));
    stub.remove(PATH);
    until("the second write", async || stub.object(PATH).is_some()).await;
    assert_eq!(stub.object(PATH).unwrap()["metadata"]["ownerReferences"][0]["uid"], "node-2");
    running.degraded(|entry| entry.is_none()).await;
}

#[tokio::test]
async fn node_that_takes_the_name_gets_the_object_at_once() {
    let stub = ApiStub::start(&[PROBE]);
    let (replaced, uid) = watch::channel("node-1".to_owned());
    let running = Loop::start(stub_publisher(&stub, true).with_node_uid(uid), settings());
    let owner = || Some(stub.object(PATH)?["metadata"]["ownerReferences"][0]["uid"].clone());
    running.change(1);
    until("the first write", async || owner() == Some(json!("node-1"))).await;
    replaced.send_replace("node-2".to_owned());
    until("the second write", async || owner() == Some(json!("node-2"))).await;
}

#[tokio::test]
async fn refusals_are_named() {
    let stub = ApiStub::start(&[PROBE]);
    let mut publisher = stub_publisher(&stub, false);
    stub.fail_writes([Fault::status(403, "Forbidden"), Fault::conflict("nfd", &[".zones"])]);
    let forbidden = publisher.publish(&object(1)).await.unwrap_err().to_string();
    let rule = "a role needs the verb patch on probes of group \"test.numa-enforcer.io\"";
    assert!(forbidden.contains(rule), "{forbidden}");
    let refused = publisher.publish(&object(1)).await.unwrap_err();
    let owned = unpublished(&refused, "noderesourcetopologies");
    assert_eq!(owned.source, "nrt-owned-by-other");
    assert!(owned.reason.contains("nfd owns .zones"), "{owned}");
    publisher.publish(&object(1)).await.unwrap();
}

#[tokio::test]
async fn refused_token_is_read_again_at_once() {
    let stub = ApiStub::start(&[PROBE]);
    stub.put(NODE, json!({"metadata": {"uid": "node-1"}}));
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "old").unwrap();
    let mut config = stub.config();
    config.auth_info.token_file = Some(token.display().to_string());
    let connection = ApiConnection::new(config).unwrap();
    let mut publisher = Publisher::new(Arc::new(connection), kind(true), "a".into());
    publisher.publish(&object(1)).await.unwrap();
    fs::write(&token, "new").unwrap();
    stub.fail_writes([Fault::status(401, "Unauthorized")]);
    publisher.publish(&object(2)).await.unwrap();
    let sent = stub.authorizations();
    let sent: Vec<_> = sent.iter().rev().take(2).map(|value| value.as_deref().unwrap()).collect();
    assert_eq!(sent, ["Bearer new", "Bearer old"]);
}

#[tokio::test]
async fn object_names_the_lease_beside_it_and_the_boot_of_its_machine() {
    let stub = ApiStub::start(&[PROBE]);
    for (publisher, expected) in [
        (stub_publisher(&stub, false).with_lease(Arc::default()).with_boot("b".into()), Value::Null),
        (stub_publisher(&stub, true), Value::Null),
        (
            stub_publisher(&stub, true).with_lease(Arc::default()).with_boot("b".into()),
            json!({"numa-enforcer.io/boot-id": "b", "numa-enforcer.io/lease-namespace": "default"}),
        ),
    ] {
        let mut publisher = publisher;
        publisher.publish(&object(1)).await.unwrap();
        let metadata = stub.object(PATH).unwrap()["metadata"].clone();
        assert_eq!(metadata["annotations"], expected, "{metadata}");
    }
}

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/numa-enforcer-a";

#[tokio::test]
async fn lease_is_renewed_and_a_refusal_is_named() {
    let stub = ApiStub::start(&[PROBE]);
    let connection = ApiConnection::new(stub.config()).unwrap();
    let (degraded, mut told) = watch::channel(None::<Degraded>);
    let conditions = Arc::new(LeaseConditions::default());
    let mut publisher = stub_publisher(&stub, true).with_lease(Arc::clone(&conditions));
    publisher.publish(&object(1)).await.unwrap();
    stub.fail_always(Some(Fault::status(403, "Forbidden")));
    let seen = async {
        told.changed().await.unwrap();
        let reason = told.borrow_and_update().clone().unwrap().reason;
        let rule = "a role needs the verb patch on leases of group \"coordination.k8s.io\"";
        assert!(reason.contains(rule), "{reason}");
        assert_eq!(stub.object(LEASE), None);
        stub.fail_always(None);
        told.changed().await.unwrap();
        assert_eq!(*told.borrow(), None);
    };
    tokio::select! {
        never = keep_lease(&connection, "a", renewals(), &conditions, &degraded) => match never {},
        ended = tokio::time::timeout(LIMIT, seen) => ended.unwrap(),
    }
    let lease = stub.object(LEASE).unwrap();
    assert_eq!(
        (&lease["spec"]["leaseDurationSeconds"], &lease["spec"]["holderIdentity"]),
        (&json!(60), &json!("a"))
    );
    let renewed = lease["spec"]["renewTime"].as_str().unwrap();
    assert_eq!(renewed.len(), "2026-11-28T05:00:00.000000Z".len(), "{renewed}");
    assert!(stub.writes() >= 1);
}

/// A state that cannot be replaced is not to look alive.
#[tokio::test]
async fn lease_is_not_renewed_while_states_are_refused() {
    let stub = ApiStub::start(&[PROBE]);
    let connection = ApiConnection::new(stub.config()).unwrap();
    let (degraded, mut told) = watch::channel(None::<Degraded>);
    let conditions = Arc::new(LeaseConditions::default());
    let mut publisher = stub_publisher(&stub, true).with_lease(Arc::clone(&conditions));
    let renewed = || Some(stub.object(LEASE)?["spec"]["renewTime"].clone());
    let keeping = keep_lease(&connection, "a", renewals(), &conditions, &degraded);
    let seen = async {
        tokio::time::sleep(RENEWAL * 4).await;
        assert_eq!(renewed(), None, "the state there is not one of this daemon");
        publisher.publish(&object(1)).await.unwrap();
        until("a lease", async || renewed().is_some()).await;
        for code in [422, 403] {
            stub.fail_writes([Fault::status(code, "Refused")]);
            // A renewal may take the fault instead.
            while publisher.publish(&object(2)).await.is_ok() {
                stub.fail_writes([Fault::status(code, "Refused")]);
                publisher.publish(&object(1)).await.ok();
            }
            let reason = told.wait_for(|entry| {
                entry.as_ref().is_some_and(|entry| entry.reason.contains("the last state was refused"))
            });
            reason.await.unwrap();
            let last = renewed();
            tokio::time::sleep(RENEWAL * 4).await;
            assert_eq!(renewed(), last, "{code}");
            publisher.publish(&object(1)).await.unwrap();
            until("a newer renewal", async || renewed() != last).await;
            told.wait_for(Option::is_none).await.unwrap();
        }
    };
    tokio::select! {
        never = keeping => match never {},
        ended = tokio::time::timeout(LIMIT, seen) => ended.unwrap(),
    }
}
