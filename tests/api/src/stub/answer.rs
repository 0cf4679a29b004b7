//! One request and its answer.

use std::{convert::Infallible, io, time::Instant};

use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Incoming},
    header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
};
use serde_json::{Value, json};

use super::{
    Shared, StubBinding, StubState, binding,
    fault::Fault,
    json_patch,
    request::{Target, parameter},
    store::{Store, merge},
    watch,
};

type StubBody = BoxBody<Bytes, Infallible>;

/// Answers a request; an error closes the connection.
pub(crate) async fn answer(shared: Shared, request: Request<Incoming>) -> io::Result<Response<StubBody>> {
    let is_write = request.method() != Method::GET;
    let (fault, orders) = {
        let mut state = shared.state();
        if is_write {
            state.attempts.push(Instant::now());
        }
        state.requests.push((Instant::now(), format!("{} {}", request.method(), request.uri())));
        let authorization = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        state.authorizations.push(authorization.map(str::to_owned));
        (state.faults.next(is_write), state.watch_orders())
    };
    let closed = || io::Error::new(io::ErrorKind::ConnectionAborted, "the test asked for it");
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    match &fault {
        Some(Fault::Status { code, reason, message, causes, retry_after }) => {
            let mut answer = refused(*code, reason, message, causes);
            if let Some(after) = retry_after {
                answer.headers_mut().insert(RETRY_AFTER, after.as_secs().into());
            }
            return Ok(answer);
        }
        Some(Fault::Drop) => return Err(closed()),
        Some(Fault::Slow(time)) => tokio::time::sleep(*time).await,
        Some(Fault::DropAnswer) | None => {}
    }
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    let is_watch = matches!(parameter(query, "watch"), Some("1" | "true"));
    let bound = binding::pod_of(path).filter(|_| parts.method == Method::POST);
    let target = shared.state().store.target(bound.unwrap_or(path));
    let answer = match target {
        Some(pod) if bound.is_some() => {
            let answer = bind(&mut shared.state(), &pod, &body);
            shared.notify();
            answer
        }
        Some(target) if is_watch && !is_write => watch::watch(shared, orders, target, query),
        Some(target) => {
            let media =
                parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let answer = serve(&mut shared.state(), &parts.method, target, query, media, &body);
            shared.notify();
            answer
        }
        None => page(&shared.state(), &parts.method, path),
    };
    if fault == Some(Fault::DropAnswer) { Err(closed()) } else { Ok(answer) }
}

fn bind(state: &mut StubState, pod: &Target, body: &[u8]) -> Response<StubBody> {
    let Ok(sent) = serde_json::from_slice::<Value>(body) else {
        return refused(400, "BadRequest", "the body is no JSON", &[]);
    };
    match binding::bind(&mut state.store, pod, &sent) {
        Ok(node) => {
            state.bindings.push(StubBinding { pod: pod.name.clone().unwrap_or_default(), node });
            object(201, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
        }
        Err((code, reason, message)) => refused(code, reason, message, &[]),
    }
}

fn serve(
    state: &mut StubState,
    method: &Method,
    mut target: Target,
    query: &str,
    media: &str,
    body: &[u8],
) -> Response<StubBody> {
    let store = &mut state.store;
    if *method == Method::GET {
        if target.name.is_none() {
            return list(store, &target, query);
        }
        return store.get(&target).map_or_else(|| not_found(&target), |found| object(200, found));
    }
    if *method == Method::DELETE {
        return match store.remove(&target) {
            Some(_) => {
                store.count_write();
                object(200, &json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            None => not_found(&target),
        };
    }
    let Ok(sent) = serde_json::from_slice::<Value>(body) else {
        return refused(400, "BadRequest", "the body is no JSON", &[]);
    };
    let old = store.get(&target).cloned();
    let (code, wanted) = match (method, old) {
        (&Method::POST, _) => {
            let name = sent.pointer("/metadata/name").and_then(Value::as_str);
            target.name = name.map(str::to_owned);
            if store.get(&target).is_some() {
                return refused(409, "AlreadyExists", "the object exists", &[]);
            }
            (201, sent)
        }
        (&Method::PUT, Some(old)) => {
            let version = |object: &Value| object.pointer("/metadata/resourceVersion").cloned();
            if version(&sent).is_some_and(|sent| Some(sent) != version(&old)) {
                return refused(409, "Conflict", "the object has been modified", &[]);
            }
            (200, sent)
        }
        (&Method::PATCH, Some(old)) if media.starts_with("application/json-patch") => {
            let mut wanted = old.clone();
            if let Err(fault) = json_patch::apply(&mut wanted, &sent) {
                return refused(422, "Invalid", &fault, &[]);
            }
            if wanted["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] {
                return refused(409, "Conflict", "the object has been modified", &[]);
            }
            if let Some(fault) = json_patch::forbidden_change(&old, &wanted) {
                return refused(422, "Invalid", fault, &[]);
            }
            (200, wanted)
        }
        (&Method::PATCH, Some(mut old)) => {
            merge(&mut old, &sent);
            (200, old)
        }
        (&Method::PATCH, None) if media.starts_with("application/apply-patch") => (201, sent),
        _ => return not_found(&target),
    };
    if target.name.is_none() {
        return refused(422, "Invalid", "metadata.name: Required value", &[]);
    }
    let (stored, changed) = store.put(&target, wanted);
    if changed {
        store.count_write();
    }
    object(code, &stored)
}

/// A page of a collection. As at a real server, objects of a built-in kind do not say which it is.
fn list(store: &Store, target: &Target, query: &str) -> Response<StubBody> {
    let number = |name: &str| parameter(query, name).and_then(|text| text.parse::<usize>().ok());
    let (from, limit) = (number("continue").unwrap_or(0), number("limit").filter(|limit| *limit > 0));
    let (mut items, rest) = store.page(target, from, limit);
    let end = from.saturating_add(items.len());
    if !target.kind.group.contains("numa-enforcer") {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.remove("kind");
            item.remove("apiVersion");
        }
    }
    let mut metadata = json!({"resourceVersion": store.version().to_string()});
    if rest > 0 {
        metadata["continue"] = json!(end.to_string());
        metadata["remainingItemCount"] = json!(rest);
    }
    object(200, &json!({"kind": format!("{}List", target.kind.kind), "metadata": metadata, "items": items}))
}

fn page(state: &StubState, method: &Method, path: &str) -> Response<StubBody> {
    let found = state.pages.iter().find(|(of, _)| of == path && *method == Method::GET);
    let missing = || refused(404, "NotFound", "the server could not find the requested resource", &[]);
    found.map_or_else(missing, |(_, value)| object(200, value))
}

fn not_found(target: &Target) -> Response<StubBody> {
    let name = target.name.as_deref().unwrap_or_default();
    refused(404, "NotFound", &format!("{} \"{name}\" not found", target.kind.plural), &[])
}

/// A `Status` that tells of a failure.
pub(crate) fn status_object(code: u16, reason: &str, message: &str, causes: &[String]) -> Value {
    let cause =
        |field: &String| json!({"reason": "FieldManagerConflict", "message": message, "field": field});
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    if !causes.is_empty() {
        status["details"] = json!({"causes": causes.iter().map(cause).collect::<Vec<_>>()});
    }
    status
}

fn refused(code: u16, reason: &str, message: &str, causes: &[String]) -> Response<StubBody> {
    object(code, &status_object(code, reason, message, causes))
}

fn object(code: u16, value: &Value) -> Response<StubBody> {
    let body = Full::new(Bytes::from(value.to_string())).boxed();
    let answer = Response::builder().status(code).header(CONTENT_TYPE, "application/json").body(body);
    answer.expect("a status and a header that are valid")
}
