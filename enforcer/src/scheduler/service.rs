//! HTTP of the extender.
//!
//! kube-scheduler keeps its connections and gives up after a time, so a connection has no end of its own
//! here. Requests are bounded in length and number. Any status but 200 is a failure to kube-scheduler, and
//! the pod is tried again.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use enforcer_cluster::{
    ApiConnection,
    extender::{BindRequest, ExtenderRequest, ProtocolError, SharedExtender, bind_reply},
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::Readiness;

/// Longest request: 5,000 names are some 300 kB, and a pod has 1.5 MiB at most.
const LONGEST: usize = 4 << 20;
/// Most calls at a time that ask; kube-scheduler sends one after another.
const ASKING: usize = 4;
/// Most bindings at a time.
const BINDING: usize = 64;

struct Service {
    shared: Arc<SharedExtender>,
    connection: Arc<ApiConnection>,
    readiness: Arc<Readiness>,
    asking: Semaphore,
    binding: Semaphore,
}

/// A call that is not answered.
enum Unanswered {
    /// It is no call of the protocol.
    Faulty(ProtocolError),
    /// Not now.
    NotReady(String),
}

impl IntoResponse for Unanswered {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Faulty(error) => (StatusCode::BAD_REQUEST, error.to_string()),
            Self::NotReady(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        };
        (status, text + "\n").into_response()
    }
}

impl From<ProtocolError> for Unanswered {
    fn from(error: ProtocolError) -> Self {
        Self::Faulty(error)
    }
}

impl Service {
    /// A place for a call, if it can be answered now.
    fn enter<'a>(&self, places: &'a Semaphore) -> Result<SemaphorePermit<'a>, Unanswered> {
        if let Some(obstacle) = self.readiness.obstacle() {
            return Err(Unanswered::NotReady(obstacle));
        }
        places.try_acquire().map_err(|_full| Unanswered::NotReady("too many calls at a time".to_owned()))
    }
}

/// The verbs of the protocol, and probes.
pub(super) fn router(
    shared: Arc<SharedExtender>,
    connection: Arc<ApiConnection>,
    readiness: Arc<Readiness>,
) -> Router {
    let (asking, binding) = (Semaphore::new(ASKING), Semaphore::new(BINDING));
    Router::new()
        .route("/v1/filter", post(filter))
        .route("/v1/prioritize", post(prioritize))
        .route("/v1/bind", post(bind))
        .route("/live", get(async || "alive\n"))
        .route("/ready", get(ready))
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(Arc::new(Service { shared, connection, readiness, asking, binding }))
}

/// The probes alone, for a port that the kubelet reaches.
pub(super) fn probes(readiness: Arc<Readiness>) -> Router {
    let is_ready = move || {
        let obstacle = readiness.obstacle();
        async move { readiness_of(obstacle) }
    };
    Router::new().route("/live", get(async || "alive\n")).route("/ready", get(is_ready))
}

async fn filter(State(service): State<Arc<Service>>, body: Bytes) -> Result<Response, Unanswered> {
    let _place = service.enter(&service.asking)?;
    let request = ExtenderRequest::read(&body)?;
    Ok(json(service.shared.filter(&request)))
}

async fn prioritize(State(service): State<Arc<Service>>, body: Bytes) -> Result<Response, Unanswered> {
    let _place = service.enter(&service.asking)?;
    let request = ExtenderRequest::read(&body)?;
    Ok(json(service.shared.prioritize(&request)))
}

async fn bind(State(service): State<Arc<Service>>, body: Bytes) -> Result<Response, Unanswered> {
    let accepted = Instant::now();
    let request = BindRequest::read(&body)?;
    let place = service.enter(&service.binding);
    // A call that kube-scheduler has given up goes on to its end: its binding is on its way.
    drop(place?);
    let task = tokio::spawn(async move {
        let _place = service.binding.acquire().await;
        service.shared.bind(&service.connection, &request, accepted).await
    });
    let bound = task.await.unwrap_or_else(|error| Err(error.to_string()));
    Ok(json(bind_reply(&bound.err().unwrap_or_default())))
}

async fn ready(State(service): State<Arc<Service>>) -> Response {
    readiness_of(service.readiness.obstacle())
}

fn readiness_of(obstacle: Option<String>) -> Response {
    match obstacle {
        None => "ready\n".into_response(),
        Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, obstacle + "\n").into_response(),
    }
}

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}
