//! HTTP of the extender.
//!
//! kube-scheduler keeps its connections and gives up after a time, so a connection that is used has no end of
//! its own here. Requests are bounded in length, time and number. Any status but 200 is a failure to
//! kube-scheduler, and the pod is tried again.

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State, rejection::BytesRejection},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use enforcer_cluster::{
    ApiConnection,
    extender::{BindRequest, ExtenderRequest, ProtocolError, SharedExtender, bind_reply},
};
use enforcer_core::cluster::extender::Binder;
use enforcer_report::metrics::{self, Metrics};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::{
    call::{IncomingCall, READING},
    figures::{Figures, Verb},
};

/// Longest request: 5,000 names are some 300 kB, and a pod has 1.5 MiB at most.
const LONGEST: usize = 4 << 20;
/// Most calls at a time that ask; kube-scheduler sends one after another.
const ASKING: usize = 4;
/// Answer to the other verbs where the scheduler binds.
const FILTER_ONLY: &str = "this extender was started with --filter-only; `numa-enforcer scheduler config --filter-only` \
                           prints the configuration for it\n";
/// Most bindings at a time.
const BINDING: usize = 64;

struct Service {
    figures: Arc<Figures>,
    connection: Arc<ApiConnection>,
    asking: Semaphore,
    binding: Semaphore,
}

/// Why a call is not answered.
pub(super) enum Unanswered {
    /// It cannot be read, or is too long.
    Unread(BytesRejection),
    /// It did not come whole in time.
    TooSlow,
    /// It is no call of the protocol.
    Faulty(ProtocolError),
    /// The extender is not ready.
    NotReady(String),
    /// Another replica leads.
    Follows(String),
    /// There are too many at a time.
    TooMany,
}

impl IntoResponse for Unanswered {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Unread(rejection) => return rejection.into_response(),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, format!("the body took longer than {READING:?}")),
            Self::Faulty(error) => (StatusCode::BAD_REQUEST, error.to_string()),
            Self::NotReady(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
            // The next connection of the client is to one that leads.
            Self::Follows(why) => {
                let close = [(header::CONNECTION, HeaderValue::from_static("close"))];
                return (StatusCode::SERVICE_UNAVAILABLE, close, why + "\n").into_response();
            }
            Self::TooMany => (StatusCode::SERVICE_UNAVAILABLE, "too many calls at a time".to_owned()),
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
        let readiness = &self.figures.readiness;
        if let Some(leader) = readiness.follows() {
            return Err(Unanswered::Follows(leader));
        }
        if let Some(obstacle) = readiness.obstacle() {
            return Err(Unanswered::NotReady(obstacle));
        }
        places.try_acquire().map_err(|_full| Unanswered::TooMany)
    }

    /// The reply to a call that asks, without an effect outside.
    fn ask(
        &self,
        body: Result<Bytes, Unanswered>,
        reply: impl FnOnce(&SharedExtender, &ExtenderRequest<'_>) -> String,
    ) -> Reply {
        let _place = self.enter(&self.asking)?;
        let body = body?;
        let request = ExtenderRequest::read(&body)?;
        Ok(reply(&self.figures.shared, &request))
    }

    /// Counts a call, and makes a response of its reply.
    fn respond(&self, verb: Verb, began: Instant, reply: Reply) -> Response {
        match reply {
            Ok(text) => {
                self.figures.note_answer(verb, began.elapsed());
                json(text)
            }
            Err(why) => {
                self.figures.note_unanswered(verb, &why);
                why.into_response()
            }
        }
    }
}

/// Reply to a call, or why there is none.
type Reply = Result<String, Unanswered>;

/// The verbs of the protocol, probes and metrics. A scheduler that binds asks for filter alone.
pub(super) fn router(
    figures: Arc<Figures>,
    connection: Arc<ApiConnection>,
    metrics: Metrics,
    binder: Binder,
) -> Router {
    let beside = probes(Arc::clone(&figures), metrics);
    let (asking, binding) = (Semaphore::new(ASKING), Semaphore::new(BINDING));
    let verbs = Router::new().route("/v1/filter", post(filter));
    let verbs = match binder {
        Binder::Extender => verbs.route("/v1/prioritize", post(prioritize)).route("/v1/bind", post(bind)),
        Binder::Scheduler => {
            let refused = || async { (StatusCode::BAD_REQUEST, FILTER_ONLY) };
            verbs.route("/v1/prioritize", post(refused)).route("/v1/bind", post(refused))
        }
    };
    verbs
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(Arc::new(Service { figures, connection, asking, binding }))
        .merge(beside)
}

/// Probes and metrics, for a port that the kubelet and Prometheus reach.
pub(super) fn probes(figures: Arc<Figures>, metrics: Metrics) -> Router {
    let is_ready = async move || match figures.readiness.refusal() {
        None => "ready\n".into_response(),
        Some(obstacle) => (StatusCode::SERVICE_UNAVAILABLE, obstacle + "\n").into_response(),
    };
    let scrape = async move || match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    };
    Router::new()
        .route("/live", get(async || "alive\n"))
        .route("/ready", get(is_ready))
        .route("/metrics", get(scrape))
}

async fn filter(State(service): State<Arc<Service>>, call: IncomingCall) -> Response {
    let IncomingCall { arrived, body } = call;
    let reply = service.ask(body, |shared, request| shared.filter(request, arrived));
    service.respond(Verb::Filter, arrived, reply)
}

async fn prioritize(State(service): State<Arc<Service>>, call: IncomingCall) -> Response {
    service.respond(Verb::Prioritize, call.arrived, service.ask(call.body, SharedExtender::prioritize))
}

async fn bind(State(service): State<Arc<Service>>, call: IncomingCall) -> Response {
    let IncomingCall { arrived, body } = call;
    let request = body.and_then(|body| Ok(BindRequest::read(&body)?));
    let entered = request.and_then(|request| {
        // A call that kube-scheduler has given up goes on to its end: its binding is on its way.
        drop(service.enter(&service.binding)?);
        Ok(request)
    });
    let reply = match entered {
        Err(why) => Err(why),
        Ok(request) => {
            let serving = Arc::clone(&service);
            let task = tokio::spawn(async move {
                let _place = serving.binding.acquire().await;
                serving.figures.shared.bind(&serving.connection, &request, arrived).await
            });
            let bound = task.await.unwrap_or_else(|error| Err(error.to_string()));
            Ok(bind_reply(&bound.err().unwrap_or_default()))
        }
    };
    service.respond(Verb::Bind, arrived, reply)
}

fn json(text: String) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}
