//! The real server does what the publisher relies on: field managers, conflicts, watches, CEL rules.

use enforcer_test_api::{ApiServer, accept, define};
use http_body_util::BodyExt as _;
use hyper::{Method, Request, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

const OBJECT: &str = "/apis/test.numa-enforcer.io/v1/probes/a";

/// A kind whose counter never goes back.
fn definition() -> Value {
    let rule = json!({"rule": "self.count >= oldSelf.count", "message": "count goes back"});
    let spec = json!({
        "type": "object",
        "properties": {"count": {"type": "integer"}, "zones": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": [rule],
    });
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "probes.test.numa-enforcer.io"},
        "spec": {
            "group": "test.numa-enforcer.io", "scope": "Cluster",
            "names": {"plural": "probes", "singular": "probe", "kind": "Probe"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}

fn probe(spec: &Value) -> Value {
    json!({
        "apiVersion": "test.numa-enforcer.io/v1", "kind": "Probe", "metadata": {"name": "a"}, "spec": spec,
    })
}

#[tokio::test]
async fn server_keeps_field_managers_apart_and_tells_watches() {
    let Some(mut server) = ApiServer::start() else { return };
    let client = server.client().await;
    define(&client, &definition()).await;
    let apply = |manager: &str, force: bool, spec: Value| {
        let path = format!("{OBJECT}?fieldManager={manager}&force={force}");
        let client = client.clone();
        async move { accept(&client, Method::PATCH, &path, Some(&probe(&spec))).await }
    };

    let (status, made) = apply("one", false, json!({"count": 1, "zones": ["a"]})).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watched = format!(
        "/apis/test.numa-enforcer.io/v1/probes?watch=1&resourceVersion={}&timeoutSeconds=60",
        version(&made)
    );

    let (status, same) = apply("one", false, json!({"count": 1, "zones": ["a"]})).await;
    assert_eq!((status, version(&same)), (StatusCode::OK, version(&made)), "equal content is no write");

    let (status, refused) = apply("two", false, json!({"count": 2, "zones": ["b"]})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    assert_eq!(refused["reason"], "Conflict");
    let causes = refused["details"]["causes"].as_array().unwrap();
    let causes: Vec<_> = causes.iter().map(|cause| (&cause["reason"], &cause["field"])).collect();
    let (kind, zones, count) = (json!("FieldManagerConflict"), json!(".spec.zones"), json!(".spec.count"));
    assert!(causes.contains(&(&kind, &zones)) && causes.contains(&(&kind, &count)), "{causes:?}");
    assert!(refused["message"].as_str().unwrap().contains("\"one\""), "{refused}");

    let (status, forced) = apply("two", true, json!({"count": 2, "zones": ["b"]})).await;
    assert_eq!((status, &forced["spec"]["count"]), (StatusCode::OK, &json!(2)), "{forced}");

    let request = Request::get(&watched).body(Body::empty()).unwrap();
    let mut stream = client.send(request).await.unwrap().into_body();
    let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    let event: Value = serde_json::from_slice(frame.split(|&byte| byte == b'\n').next().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]), (&json!("MODIFIED"), &forced["spec"]), "{event}");

    let (status, refused) = apply("two", true, json!({"count": 1, "zones": ["b"]})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("count goes back"), "{refused}");

    server.kill();
    let request = Request::get(OBJECT).body(Body::empty()).unwrap();
    assert!(client.send(request).await.is_err());
    server.resume();
    let (status, found) = accept(&client, Method::GET, OBJECT, None).await;
    assert_eq!((status, &found["spec"]), (StatusCode::OK, &forced["spec"]));
}
