//! The latest report over HTTP: `/metrics`, `/report.json`, `/live`, `/ready`.
//!
//! Listens on loopback unless told otherwise, has no secrets and no request that changes anything.
//! It has a thread of its own, so that it answers while a turn of the engine moves pages. A port that
//! is taken is no reason for the daemon not to run: the caller reports it as degraded. Binding is apart
//! from answering, because a low port takes a privilege that is given up before the thread starts.

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
use tokio::{runtime::Builder, sync::watch};

use crate::report::{
    metrics::{self, Metrics, MetricsError},
    tick::TickReport,
};

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

/// An address that is taken and not yet answered on.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes `address`.
    pub fn bind(address: SocketAddr) -> Result<Self, ServeError> {
        let failed = |cause| ServeError { address, cause };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens, port 0 resolved.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until the process ends.
    pub fn start(self, latest: Latest) -> Result<(), ServeError> {
        let Self { listener, address } = self;
        let failed = |cause| ServeError { address, cause };
        let router = router(latest).map_err(|error| failed(io::Error::other(error)))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let serve = move || {
            let result = runtime
                .block_on(async { axum::serve(tokio::net::TcpListener::from_std(listener)?, router).await });
            if let Err(error) = result {
                tracing::error!("serving on {address} ended: {error}");
            }
        };
        thread::Builder::new().name("serve".into()).spawn(serve).map_err(failed)?;
        Ok(())
    }
}

/// What the answers are made of.
#[derive(Clone)]
struct Answers {
    latest: Latest,
    metrics: Metrics,
}

fn router(latest: Latest) -> Result<Router, MetricsError> {
    let source = latest.clone();
    let metrics = Metrics::of(move || source.borrow().clone())?;
    Ok(Router::new()
        .route("/metrics", get(metrics_text))
        .route("/report.json", get(report))
        .route("/live", get(|| async { "alive\n" }))
        .route("/ready", get(ready))
        .with_state(Answers { latest, metrics }))
}

async fn metrics_text(State(Answers { latest, metrics }): State<Answers>) -> Response {
    if latest.borrow().is_none() {
        return not_yet();
    }
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => failed(&error),
    }
}

async fn report(State(Answers { latest, .. }): State<Answers>) -> Response {
    let Some(report) = latest.borrow().clone() else { return not_yet() };
    match serde_json::to_vec(&*report) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => failed(&error),
    }
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
        let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = server.address();
        server.start(receiver).unwrap();
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
        let message = Server::bind(address).unwrap_err().to_string();
        assert!(message.starts_with(&format!("listening on {address}: ")), "{message}");
    }
}
