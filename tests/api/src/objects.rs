//! Definitions of kinds at a server, which serves objects of a kind a moment after it has accepted the kind.

use std::time::{Duration, Instant};

use hyper::{Method, Request, StatusCode};
use kube::{Client, client::Body};
use serde_json::Value;

/// Longest wait for a kind.
const LIMIT: Duration = Duration::from_secs(30);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Sends a request with a body as JSON; status and body of the answer (`Null` if that is no JSON).
///
/// # Panics
///
/// If there is no answer.
pub async fn accept(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (StatusCode, Value) {
    let is_apply = method == Method::PATCH;
    let media = if is_apply { "application/apply-patch+yaml" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let answer = client.send(request.body(Body::from(bytes)).expect("a request")).await.expect("an answer");
    let status = answer.status();
    let bytes = answer.into_body().collect_bytes().await.expect("the rest of the answer");
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

/// Creates a definition of a kind, and waits until its objects are served.
///
/// # Panics
///
/// If the server refuses it, or does not serve it in time.
pub async fn define(client: &Client, definition: &Value) {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (status, answer) = accept(client, Method::POST, definitions, Some(definition)).await;
    assert!(status.is_success(), "{status}: {answer}");
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).expect(pointer);
    let (group, version) = (text("/spec/group"), text("/spec/versions/0/name"));
    let objects = format!("/apis/{group}/{version}/{}", text("/spec/names/plural"));
    let until = Instant::now() + LIMIT;
    while accept(client, Method::GET, &objects, None).await.0 != StatusCode::OK {
        assert!(Instant::now() < until, "{objects} is not served");
        tokio::time::sleep(LOOK).await;
    }
}
