//! Answers on a port: metrics, the latest report as JSON and as a page, and the probes.
//!
//! `/live` reports on the turn thread, not on the answering one: it fails if the turn thread has not passed
//! for long ([`LastAlive`]). A report is rendered once for all its readers.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    middleware::{from_fn, from_fn_with_state, map_response},
    response::{IntoResponse, Response},
    routing::get,
};

use super::{
    ControlState, LONGEST_SILENCE, LastAlive, Latest, api, control, host_header,
    token::{self, PortAccess},
};
use enforcer_report::{
    metrics::{self, Metrics, MetricsError},
    page,
    tick::TickReport,
};

/// State of the answers.
#[derive(Clone)]
struct Answers {
    latest: Latest,
    alive: LastAlive,
    metrics: Option<Metrics>,
    json: RenderedReport,
    page: RenderedReport,
    audit: RenderedReport,
}

/// The latest report's text, rendered once for all readers.
#[derive(Debug, Clone, Default)]
struct RenderedReport(Arc<Mutex<Option<KeptText>>>);

/// A report, and its text.
type KeptText = (Weak<TickReport>, Bytes);

impl RenderedReport {
    fn text<E>(&self, of: &Arc<TickReport>, make: impl FnOnce() -> Result<String, E>) -> Result<Bytes, E> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((report, text)) = &*kept
            && Weak::ptr_eq(report, &Arc::downgrade(of))
        {
            return Ok(text.clone());
        }
        let text = Bytes::from(make()?);
        *kept = Some((Arc::downgrade(of), text.clone()));
        Ok(text)
    }
}

/// All paths, for requests that `access` allows.
pub(super) fn router(
    latest: Latest,
    alive: LastAlive,
    workload_counters: bool,
    on_loopback: bool,
    access: PortAccess,
) -> Result<Router, MetricsError> {
    let source = latest.clone();
    let metrics = Metrics::of(move || source.borrow().clone(), workload_counters)?;
    let answers = Answers {
        latest,
        alive,
        metrics: Some(metrics),
        json: RenderedReport::default(),
        page: RenderedReport::default(),
        audit: RenderedReport::default(),
    };
    let router = probe_routes()
        .route("/metrics", get(metrics_text))
        .merge(report_routes())
        .layer(from_fn_with_state(access, token::only_allowed));
    let router = if on_loopback { router.layer(from_fn(host_header::only_ours)) } else { router };
    Ok(router.layer(map_response(as_it_is_now)).with_state(answers))
}

/// The probes alone.
pub(super) fn probes(latest: Latest, alive: LastAlive) -> Router {
    probe_routes().layer(map_response(as_it_is_now)).with_state(Answers::without_metrics(latest, alive))
}

/// The reports, and what the control socket answers to readers, for requests that `access` allows.
pub(super) fn reports(control: ControlState, alive: LastAlive, access: PortAccess) -> Router {
    let answers = Answers::without_metrics(control.latest.clone(), alive);
    let reports = report_routes().route(api::AUDIT, get(audit)).merge(probe_routes()).with_state(answers);
    control::readers_of(Arc::new(control))
        .merge(reports)
        .layer(from_fn_with_state(access, token::only_allowed))
        .layer(from_fn(host_header::only_ours))
        .layer(map_response(as_it_is_now))
}

impl Answers {
    fn without_metrics(latest: Latest, alive: LastAlive) -> Self {
        Self {
            latest,
            alive,
            metrics: None,
            json: RenderedReport::default(),
            page: RenderedReport::default(),
            audit: RenderedReport::default(),
        }
    }
}

fn probe_routes() -> Router<Answers> {
    Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .fallback(async || (StatusCode::NOT_FOUND, "there is no such path\n"))
}

fn report_routes() -> Router<Answers> {
    Router::new().route("/report.json", get(report)).route("/report.html", get(report_page))
}

/// Marks an answer as typed and not cacheable: it is true of the latest turn only.
async fn as_it_is_now(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

async fn metrics_text(State(Answers { latest, metrics, .. }): State<Answers>) -> Response {
    let Some(metrics) = metrics.filter(|_| latest.borrow().is_some()) else { return not_yet() };
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => failed(&error),
    }
}

async fn report(State(Answers { latest, json, .. }): State<Answers>) -> Response {
    let Some(report) = latest.borrow().clone() else { return not_yet() };
    match json.text(&report, || enforcer_report::json::in_one_line(&*report)) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => failed(&error),
    }
}

/// The audit of the latest turn, as `audit -o json` prints one.
async fn audit(State(Answers { latest, audit, .. }): State<Answers>) -> Response {
    let Some(report) = latest.borrow().clone() else { return not_yet() };
    match audit.text(&report, || enforcer_report::json::in_one_line(&report.audit)) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => failed(&error),
    }
}

async fn report_page(State(Answers { latest, page: kept, .. }): State<Answers>) -> Response {
    let Some(report) = latest.borrow().clone() else { return not_yet() };
    let moves = report.rebalanced.as_ref().map(|rebalanced| &rebalanced.report);
    let Ok(text) = kept.text(&report, || Ok::<_, Infallible>(page::render(&report.audit, moves)));
    // The page says the same itself, but headers apply before its first byte.
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, page::POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    (headers, text).into_response()
}

async fn live(State(Answers { alive, .. }): State<Answers>) -> Response {
    let last = *alive.borrow();
    let Some(silence) = overdue(last, Instant::now()) else { return "alive\n".into_response() };
    let (seconds, longest) = (silence.as_secs(), LONGEST_SILENCE.as_secs());
    let text = format!("current turn has run {seconds} s (limit {longest} s)\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// How long the turn thread has not passed, if too long. It passes every few seconds unless a turn is longer.
fn overdue(last: Instant, now: Instant) -> Option<Duration> {
    Some(now.saturating_duration_since(last)).filter(|silence| *silence > LONGEST_SILENCE)
}

async fn ready(State(answers): State<Answers>) -> Response {
    if answers.latest.borrow().is_some() { "ready\n".into_response() } else { not_yet() }
}

fn not_yet() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the first turn is not over yet\n").into_response()
}

fn failed(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_overdue_after_its_longest_time_and_not_before() {
        let last = Instant::now();
        let second = Duration::from_secs(1);
        for (after, expected) in [
            (Duration::ZERO, None),
            (LONGEST_SILENCE, None),
            (LONGEST_SILENCE + second, Some(LONGEST_SILENCE + second)),
        ] {
            assert_eq!(overdue(last, last + after), expected, "{after:?}");
        }
        assert_eq!(overdue(last + second, last), None, "it has come by since it was asked");
    }
}
