//! The shipped definition of the kind on Kubernetes' own server: it is established, it takes what the daemon
//! publishes, and refuses what no daemon may.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::sync::Arc;

use enforcer_cluster::{
    ApiConnection, ApiError, NewerEpoch, Published, PublishedKind, PublishedObject, Publisher,
};
use enforcer_core::cluster::state::{GROUP, KIND, NodeState, PLURAL, VERSION};
use enforcer_test_api::{ApiServer, accept, define};
use http_body_util::BodyExt as _;
use hyper::{Method, Request, StatusCode};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::watch;

const DEFINITION: &str = include_str!("../../../deploy/helm/numa-enforcer/files/node-state-definition.yaml");
const EXAMPLE: &str = include_str!("../../../docs/examples/plan/cluster.json");
const PATH: &str = "/apis/numa-enforcer.io/v1alpha1/numanodestates";

/// The object of a node as the documents have it.
fn example() -> Value {
    let list: Value = serde_json::from_str(EXAMPLE).unwrap();
    let is_state = |object: &&Value| object["kind"] == "NumaNodeState";
    list["items"].as_array().unwrap().iter().find(is_state).unwrap().clone()
}

async fn apply(client: &Client, object: &Value) -> (StatusCode, Value) {
    let name = object["metadata"]["name"].as_str().unwrap();
    let path = format!("{PATH}/{name}?fieldManager=numa-enforcer&force=true&fieldValidation=Strict");
    accept(client, Method::PATCH, &path, Some(object)).await
}

/// What `kubectl get numanodestates` prints.
async fn table(client: &Client) -> Value {
    let request = Request::get(PATH).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let answer = client.send(request.body(Body::empty()).unwrap()).await.unwrap();
    serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[tokio::test]
async fn server_keeps_the_whole_state_and_refuses_wrong_ones() {
    let Some(server) = ApiServer::start() else { return };
    let client = server.client().await;
    define(&client, &serde_saphyr::from_str(DEFINITION).unwrap()).await;
    let object = example();
    let name = object["metadata"]["name"].as_str().unwrap();

    let (status, made) = apply(&client, &object).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    assert_eq!(made["state"], object["state"], "the server prunes nothing and adds nothing");
    let (_, read) = accept(&client, Method::GET, &format!("{PATH}/{name}"), None).await;
    let state: NodeState = serde_json::from_value(read["state"].clone()).unwrap();
    assert_eq!(serde_json::to_value(&state).unwrap(), object["state"]);

    let table = table(&client).await;
    let columns = table["columnDefinitions"].as_array().unwrap();
    let names: Vec<_> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Name", "Policy", "Scope", "Exact", "Pods", "Exclusive", "Age"]);
    let profile = &state.kubelet;
    let cells = json!([name, profile.topology_policy, profile.topology_scope, state.exact]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..4], cells.as_array().unwrap()[..]);

    let inexact = format!("{PATH}?fieldSelector=state.exact%3Dfalse");
    let (_, found) = accept(&client, Method::GET, &inexact, None).await;
    assert_eq!(found["items"], json!([]), "{found}");

    let long = "x".repeat(600);
    for (pointer, value, words) in [
        ("/state/revision/epoch", json!(1), "the revision is older"),
        ("/state/revision/counter", json!(1), "the revision is older"),
        ("/state/exact", json!(false), "names its sources"),
        ("/state/inexact", json!([{"source": "a", "reason": "b"}]), "an exact state has no inexact source"),
        ("/state/inexact", json!([{"source": "a", "reason": long}]), "may not be more than 512"),
        ("/state/machine/nodes", json!([]), "should have at least 1 items"),
        ("/state/memory/0/free", json!(-1), "should be greater than or equal to 0"),
        ("/state/sharedCpus", json!("0-"), "should match"),
        ("/state/decidedBy", json!("somewhere"), "Unsupported value"),
        ("/state/unknown", json!(1), "field not declared in schema"),
        ("/state/hash", json!(7), "hash"),
    ] {
        let mut wrong = object.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        wrong.pointer_mut(parent).unwrap()[field] = value.clone();
        let (status, refused) = apply(&client, &wrong).await;
        assert!(!status.is_success(), "{pointer} = {value}: {status} {refused}");
        assert!(refused["message"].as_str().unwrap().contains(words), "{pointer} = {value}: {refused}");
    }
    let (_, now) = accept(&client, Method::GET, &format!("{PATH}/{name}"), None).await;
    assert_eq!(now["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
}

/// The server accepts no older revision, so a daemon goes on after the state of a writer that is gone.
#[tokio::test]
async fn daemon_goes_on_after_the_later_state_of_another_program() {
    let Some(server) = ApiServer::start() else { return };
    let client = server.client().await;
    define(&client, &serde_saphyr::from_str(DEFINITION).unwrap()).await;
    let connection = Arc::new(ApiConnection::new(server.config().await).unwrap());
    let (_replaced, uid) = watch::channel("node-1".to_owned());
    let newer = [(); 2].map(|()| Arc::<NewerEpoch>::default());
    let mut daemons = newer.clone().map(|newer| {
        let kind = PublishedKind {
            group: GROUP.into(),
            version: VERSION.into(),
            plural: PLURAL.into(),
            kind: KIND.into(),
            own: true,
        };
        let publisher = Publisher::new(Arc::clone(&connection), kind, "two".into());
        publisher.with_node_uid(uid.clone()).with_newer(newer)
    });
    let state = |epoch: i64, counter: i64| {
        let mut state = example()["state"].clone();
        state["revision"] = json!({"epoch": epoch, "counter": counter});
        PublishedObject { content: [("state".to_owned(), state)].into_iter().collect() }
    };
    let [first, second] = &mut daemons;
    let is_refused = |ended: Result<Published, ApiError>| {
        let refused = ended.unwrap_err();
        assert!(matches!(refused, ApiError::Refused { code: 422, .. }), "{refused}");
    };
    first.publish(&state(5, 0)).await.unwrap();
    second.publish(&state(10, 0)).await.unwrap();
    is_refused(first.publish(&state(5, 1)).await);
    second.publish(&state(10, 1)).await.unwrap();
    is_refused(first.publish(&state(5, 1)).await);
    assert_eq!(newer[0].epoch(), 0, "the other one still writes");
    is_refused(first.publish(&state(5, 1)).await);
    assert_eq!(newer[0].epoch(), 10);
    first.publish(&state(newer[0].epoch() + 1, 0)).await.unwrap();
    assert_eq!(newer[1].epoch(), 0);
}
