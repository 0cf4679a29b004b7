//! The latest report over HTTP: `/metrics`, `/report.json`, `/live`, `/ready`.
//!
//! Listens on loopback unless told otherwise, has no secrets and no request that changes anything.
//! It has a thread of its own, so that it answers while a turn of the engine moves pages. A port that
//! is taken is no reason for the daemon not to run: the caller reports it as degraded.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use thiserror::Error;
use tokio::sync::watch;

use crate::report::{metrics, tick::TickReport};

/// The latest report; `None` before the first turn is over.
pub type Latest = watch::Receiver<Option<Arc<TickReport>>>;

/// Why nothing is served.
#[derive(Debug, Error)]
#[error("listening on {address}: {cause}")]
pub struct ServeError {
    /// Where.
    pub address: SocketAddr,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

/// Listens on `address` and answers until the process ends; says where it listens, port 0 resolved.
pub fn start(address: SocketAddr, latest: Latest) -> Result<SocketAddr, ServeError> {
    let failed = |cause| ServeError { address, cause };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let serve = move || {
        let result = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, router(latest)).await
        });
        if let Err(error) = result {
            tracing::error!("serving on {bound} ended: {error}");
        }
    };
    thread::Builder::new().name("serve".into()).spawn(serve).map_err(failed)?;
    Ok(bound)
}

fn router(latest: Latest) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/report.json", get(report))
        .route("/live", get(|| async { "alive\n" }))
        .route("/ready", get(ready))
        .with_state(latest)
}

async fn metrics(State(latest): State<Latest>) -> Response {
    let Some(report) = latest.borrow().clone() else { return not_yet() };
    match metrics::render(&report) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => failed(&error),
    }
}

async fn report(State(latest): State<Latest>) -> Response {
    let Some(report) = latest.borrow().clone() else { return not_yet() };
    match serde_json::to_vec(&*report) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => failed(&error),
    }
}

async fn ready(State(latest): State<Latest>) -> Response {
    if latest.borrow().is_some() { "ready\n".into_response() } else { not_yet() }
}

fn not_yet() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the first turn is not over yet\n").into_response()
}

fn failed(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use super::*;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn is_alive_at_once_and_ready_after_the_first_turn() {
        let (_latest, receiver) = watch::channel(None);
        let address = start(([127, 0, 0, 1], 0).into(), receiver).unwrap();
        assert!(get(address, "/live").starts_with("HTTP/1.1 200 "));
        for path in ["/ready", "/metrics", "/report.json"] {
            assert!(get(address, path).starts_with("HTTP/1.1 503 "), "{path}");
        }
        assert!(get(address, "/nothing").starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_that_names_it() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let (_latest, receiver) = watch::channel(None);
        let message = start(address, receiver).unwrap_err().to_string();
        assert!(message.starts_with(&format!("listening on {address}: ")), "{message}");
    }
}
