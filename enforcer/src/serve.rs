//! What is answered over HTTP: the latest report on a port (`/metrics`, `/report.json`, `/report.html`,
//! `/live`, `/ready`), and the control socket, which only some may use.
//!
//! `/live` is about the thread that turns the engine, and not about the one that answers: it fails when the
//! former has not come by for long ([`LastAlive`]).
//!
//! The port is on loopback unless told otherwise, and answers there to no name but `localhost`
//! ([`host_header`]); it has no secrets and no request that changes anything. The socket is [`control`] and
//! knows who is at the other end. What whoever connects to either may take of us is bounded
//! ([`connections`]). Both have one thread of their own, so that they answer while a turn of the engine moves
//! pages. A port or a socket that is taken is no reason for the daemon not to run: it is degraded then.
//! Binding is apart from answering, because it takes privileges that are given up before the thread starts.

pub mod api;
mod connections;
mod control;
mod find;
mod host_header;
pub mod socket;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

pub use self::control::Control;
use axum::{
    Router,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    middleware::{from_fn, map_response},
    response::{IntoResponse, Response},
    routing::get,
};
use enforcer_core::{degraded::Degraded, policy::Policy};
use thiserror::Error;
use tokio::{runtime::Builder, sync::watch};

use self::socket::{ControlSocket, SocketError};
use crate::report::{
    metrics::{self, Metrics, MetricsError},
    page,
    tick::TickReport,
};

/// The latest report; `None` before the first turn is over.
pub type Latest = watch::Receiver<Option<Arc<TickReport>>>;

/// When the thread that turns the engine last came by, after a turn or a look.
pub type LastAlive = watch::Receiver<Instant>;

/// Longest time without it that is no fault: one turn may wait for the kernel to move the memory of a
/// workload. The same as `WatchdogSec` of the unit.
pub const LONGEST_SILENCE: Duration = Duration::from_mins(3);

/// Why nothing is served.
#[derive(Debug, Error)]
#[error("listening on {place}: {cause}")]
pub struct ServeError {
    /// Where.
    pub place: String,
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
        let failed = |cause| ServeError { place: address.to_string(), cause };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens, port 0 resolved.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Can nobody connect but who is on this host?
    fn is_on_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }

    async fn answer(self, router: Router) {
        let Self { listener, address } = self;
        if let Err(error) = connections::answer_port(listener, address, router).await {
            tracing::error!("serving on {address} ended: {error}");
        }
    }
}

/// The port and the socket, as far as they are wanted and could be had.
#[derive(Debug)]
pub struct Endpoints {
    metrics: Option<Server>,
    workload_counters: bool,
    control: Option<ControlSocket>,
    degraded: Vec<Degraded>,
}

impl Endpoints {
    /// Takes them, before privileges are given up. `asked` is the metrics' port wanted for a single turn,
    /// too.
    pub fn open(policy: &Policy, once: bool, asked: bool) -> Self {
        // A single turn is over before anybody asks, but who names an address wants to know that it is good.
        let port = policy.metrics.enabled && (!once || asked);
        let mut degraded = Vec::new();
        let metrics = port.then(|| Server::bind(policy.metrics.listen)).transpose();
        let metrics = metrics.unwrap_or_else(|error| {
            degraded.push(no_metrics(&error));
            None
        });
        let socket = policy.control.enabled && !once;
        let control = socket.then(|| ControlSocket::bind(&policy.control.socket)).transpose();
        let control = control.unwrap_or_else(|error| {
            degraded.push(no_control(&error));
            None
        });
        Self { metrics, workload_counters: policy.metrics.workload_counters, control, degraded }
    }

    /// Answers until the process ends, on one thread. What is missing is told, and the file of the socket
    /// goes with what is returned.
    pub fn answer(mut self, control: Control, alive: LastAlive) -> (Vec<Degraded>, Option<ControlSocket>) {
        if let Err(error) = self.start(control, alive) {
            self.degraded.push(no_metrics(&error));
            self.control = None;
        }
        for one in &self.degraded {
            tracing::error!("{}: {}", one.effect, one.reason);
        }
        (self.degraded, self.control)
    }

    fn start(&mut self, control: Control, alive: LastAlive) -> Result<(), ServeError> {
        let failed = |cause| ServeError { place: "a thread of its own".to_owned(), cause };
        let mut serving: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
        if let Some(server) = self.metrics.take() {
            let latest = control.latest.clone();
            let router = router(latest, alive, self.workload_counters, server.is_on_loopback());
            let router = router.map_err(|error| failed(io::Error::other(error)))?;
            tracing::info!("serving http://{}/metrics", server.address());
            serving.push(Box::pin(server.answer(router)));
        }
        if let Some(socket) = &mut self.control
            && let Some(listener) = socket.take()
        {
            tracing::info!("controlled over {}", socket.path().display());
            let (group, path) = (socket.group, socket.path().to_owned());
            serving.push(Box::pin(async move {
                if let Err(error) = connections::answer(listener, group, control::router(control)).await {
                    tracing::error!("answering on {} ended: {error}", path.display());
                }
            }));
        }
        if serving.is_empty() {
            return Ok(());
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let serve = move || {
            runtime.block_on(async {
                for task in serving.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
                    let _ended = task.await;
                }
            });
        };
        thread::Builder::new().name("serve".into()).spawn(serve).map_err(failed)?;
        Ok(())
    }
}

/// What is missing without the control socket.
pub const CONTROL_EFFECT: &str = "status, explain, pause, resume and log-level do not reach this daemon";

fn no_metrics(error: &ServeError) -> Degraded {
    Degraded::new("metrics", error.to_string(), "no metrics are served")
}

fn no_control(error: &SocketError) -> Degraded {
    Degraded::new("control", error.to_string(), CONTROL_EFFECT)
}

/// What the answers are made of.
#[derive(Clone)]
struct Answers {
    latest: Latest,
    alive: LastAlive,
    metrics: Metrics,
}

fn router(
    latest: Latest,
    alive: LastAlive,
    workload_counters: bool,
    on_loopback: bool,
) -> Result<Router, MetricsError> {
    let source = latest.clone();
    let metrics = Metrics::of(move || source.borrow().clone(), workload_counters)?;
    let router = Router::new()
        .route("/metrics", get(metrics_text))
        .route("/report.json", get(report))
        .route("/report.html", get(report_page))
        .route("/live", get(live))
        .route("/ready", get(ready))
        .fallback(async || (StatusCode::NOT_FOUND, "there is no such path\n"));
    let router = if on_loopback { router.layer(from_fn(host_header::only_ours)) } else { router };
    Ok(router.layer(map_response(as_it_is_now)).with_state(Answers { latest, alive, metrics }))
}

/// What was answered is what it says to be, and true of the latest turn alone.
async fn as_it_is_now(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

async fn metrics_text(State(Answers { latest, metrics, .. }): State<Answers>) -> Response {
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
    match crate::report::json::in_one_line(&*report) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => failed(&error),
    }
}

async fn report_page(State(Answers { latest, .. }): State<Answers>) -> Response {
    let Some(report) = latest.borrow().clone() else { return not_yet() };
    let moves = report.rebalanced.as_ref().map(|rebalanced| &rebalanced.report);
    // The page says the same itself; what a header says holds before the first byte of it.
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, page::POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    (headers, page::render(&report.audit, moves)).into_response()
}

async fn live(State(Answers { alive, .. }): State<Answers>) -> Response {
    let last = *alive.borrow();
    let Some(silence) = overdue(last, Instant::now()) else { return "alive\n".into_response() };
    let (seconds, longest) = (silence.as_secs(), LONGEST_SILENCE.as_secs());
    let text = format!("one turn lasts for {seconds} s by now, {longest} s at most are expected\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

/// How long it has not come by, if that is too long. It comes by each few seconds unless a turn lasts longer.
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
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use super::*;
    use crate::{enforce::journal::PauseRecord, host::cgroup::ControllerRoot};

    fn get(address: SocketAddr, path: &str) -> String {
        get_from(address, path, "localhost")
    }

    fn get_from(address: SocketAddr, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A server of that address, before the first turn is over.
    fn serving(listen: [u8; 4]) -> SocketAddr {
        serving_since(listen, Instant::now())
    }

    /// The same of a daemon whose turns were last heard of then.
    fn serving_since(listen: [u8; 4], alive: Instant) -> SocketAddr {
        let mut policy = Policy::default();
        policy.metrics.listen = (listen, 0).into();
        policy.control.enabled = false;
        let endpoints = Endpoints::open(&policy, false, false);
        let address = endpoints.metrics.as_ref().unwrap().address();
        let (_latest, latest) = watch::channel(None);
        let (gate, decisions, log) = Default::default();
        let record = PauseRecord::new(std::path::Path::new("/nonexistent"));
        let cgroups = ControllerRoot { path: "/nonexistent".into(), v2: true, mounted_cgroup: "/".into() };
        let started = Instant::now();
        let control = Control { gate, decisions, latest, log, started, cgroups, record };
        let (_turns, alive) = watch::channel(alive);
        let (degraded, socket) = endpoints.answer(control, alive);
        assert!(degraded.is_empty() && socket.is_none());
        address
    }

    #[test]
    fn is_alive_at_once_and_ready_after_the_first_turn() {
        let address = serving([127, 0, 0, 1]);
        assert!(get(address, "/live").starts_with("HTTP/1.1 200 "));
        for path in ["/ready", "/metrics", "/report.json", "/report.html"] {
            assert!(get(address, path).starts_with("HTTP/1.1 503 "), "{path}");
        }
        assert!(get(address, "/nothing").starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn it_is_not_alive_while_its_turns_do_not_go_on() {
        let stale = Instant::now().checked_sub(LONGEST_SILENCE + Duration::from_secs(20)).unwrap();
        let answer = get(serving_since([127, 0, 0, 1], stale), "/live");
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("one turn lasts for 2") && answer.contains(" 180 s "), "{answer}");
    }

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

    #[test]
    fn on_loopback_no_name_of_another_host_is_answered_to() {
        let address = serving([127, 0, 0, 1]);
        for path in ["/live", "/metrics", "/report.json", "/nothing"] {
            let refused = get_from(address, path, "evil.example:9477");
            assert!(refused.starts_with("HTTP/1.1 421 "), "{path}: {refused}");
        }
        assert!(get_from(address, "/live", &address.to_string()).starts_with("HTTP/1.1 200 "));
        let open = serving([0, 0, 0, 0]);
        let reached = (std::net::Ipv4Addr::LOCALHOST, open.port()).into();
        assert!(get_from(reached, "/live", "host-a:9477").starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn no_answer_is_kept_or_guessed_at() {
        let address = serving([127, 0, 0, 1]);
        let all = ["/live", "/ready", "/metrics", "/report.json", "/report.html", "/nothing"];
        let mut answers: Vec<_> = all.map(|path| get(address, path)).into();
        answers.push(get_from(address, "/live", "evil.example"));
        for answer in answers {
            let head = answer.to_lowercase();
            for line in ["\r\nx-content-type-options: nosniff\r\n", "\r\ncache-control: no-store\r\n"] {
                assert!(head.contains(line), "{answer}");
            }
        }
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_that_names_it() {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = taken.local_addr().unwrap();
        let message = Server::bind(address).unwrap_err().to_string();
        assert!(message.starts_with(&format!("listening on {address}: ")), "{message}");
    }
}
