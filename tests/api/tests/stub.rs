//! The stub answers as a server would, as far as it promises that.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::time::Duration;

use enforcer_test_api::{ApiStub, Fault, StubKind, accept};
use http_body_util::BodyExt as _;
use hyper::{Method, Request, StatusCode, header::RETRY_AFTER};
use kube::{Client, client::Body};
use serde_json::{Value, json};

const POD: &str = "/api/v1/namespaces/shop/pods/web";
const PROBE: StubKind =
    StubKind { group: "test.io", version: "v1", plural: "probes", kind: "Probe", namespaced: false };

async fn events(client: &Client, path: &str, count: usize) -> Vec<Value> {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let mut stream = client.send(request).await.unwrap().into_body();
    let mut text = Vec::new();
    while text.split(|&byte| byte == b'\n').count() <= count {
        let frame = tokio::time::timeout(Duration::from_secs(30), stream.frame()).await.unwrap();
        text.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
    }
    text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[tokio::test]
async fn objects_are_listed_watched_and_counted() {
    let stub = ApiStub::start(&[PROBE]);
    let client = stub.client();
    stub.put(POD, json!({"spec": {"nodeName": "a"}}));
    let (status, list) = accept(&client, Method::GET, "/api/v1/pods", None).await;
    assert_eq!((status, &list["kind"]), (StatusCode::OK, &json!("PodList")));
    assert_eq!(list["items"][0]["metadata"]["namespace"], "shop");
    assert_eq!(stub.writes(), 0, "what the test does is not counted");

    let apply = |value: u64| json!({"metadata": {"name": "a"}, "spec": {"value": value}});
    let path = "/apis/test.io/v1/probes/a?fieldManager=x&force=true";
    assert_eq!(accept(&client, Method::PATCH, path, Some(&apply(1))).await.0, StatusCode::CREATED);
    assert_eq!(accept(&client, Method::PATCH, path, Some(&apply(1))).await.0, StatusCode::OK);
    assert_eq!(stub.writes(), 1, "equal content is no change");
    assert_eq!(accept(&client, Method::PATCH, path, Some(&apply(2))).await.1["spec"]["value"], 2);
    assert_eq!(accept(&client, Method::DELETE, "/apis/test.io/v1/probes/a", None).await.0, StatusCode::OK);
    assert_eq!((stub.writes(), stub.attempts().len()), (3, 4));

    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    stub.bookmark();
    let watch = "/apis/test.io/v1/probes?watch=1&allowWatchBookmarks=true&resourceVersion=";
    let told = events(&client, &format!("{watch}{version}"), 4).await;
    let told: Vec<_> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(told, ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]);
    stub.compact();
    let told = events(&client, &format!("{watch}{version}"), 1).await;
    assert_eq!((&told[0]["type"], &told[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
}

#[tokio::test]
async fn failures_come_as_they_were_asked_for() {
    let stub = ApiStub::start(&[]);
    let client = stub.client();
    let node = json!({"metadata": {"name": "a"}});
    stub.fail_writes([
        Fault::too_many(Duration::from_secs(7)),
        Fault::conflict("nfd", &[".zones"]),
        Fault::Drop,
        Fault::DropAnswer,
    ]);
    let create = || Request::post("/api/v1/nodes").body(Body::from(node.to_string().into_bytes())).unwrap();
    let refused = client.send(create()).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[RETRY_AFTER], "7");
    let (status, conflict) = accept(&client, Method::POST, "/api/v1/nodes", Some(&node)).await;
    assert_eq!(
        (status, &conflict["details"]["causes"][0]["field"]),
        (StatusCode::CONFLICT, &json!(".zones"))
    );
    assert!(client.send(create()).await.is_err());
    assert!(stub.object("/api/v1/nodes/a").is_none());
    assert!(client.send(create()).await.is_err());
    assert!(stub.object("/api/v1/nodes/a").is_some(), "served, but not answered");

    stub.page("/api/v1/nodes/a/proxy/configz", json!({"kubeletconfig": {}}));
    let configz = "/api/v1/nodes/a/proxy/configz";
    assert_eq!(accept(&client, Method::GET, configz, None).await.0, StatusCode::OK);
    let (status, missing) = accept(&client, Method::GET, "/apis/apps/v1/deployments", None).await;
    assert_eq!((status, &missing["kind"]), (StatusCode::NOT_FOUND, &json!("Status")));
    stub.fail_always(Some(Fault::status(401, "Unauthorized")));
    assert_eq!(accept(&client, Method::GET, configz, None).await.0, StatusCode::UNAUTHORIZED);
    stub.fail_always(None);
    assert_eq!(accept(&client, Method::GET, configz, None).await.0, StatusCode::OK);
}
