//! HTTP: the latest report on a port ([`answers`]), the probes on a port of their own, and the control
//! socket, which is for authorized users only ([`control`]).
//!
//! The metrics' port is on loopback by default and answers there to no name but `localhost`
//! ([`host_header`]). Beyond loopback it shows the reports only to requests with a token ([`token`]). No
//! request on it changes anything. The resources of a peer are bounded ([`connections`], [`places`]).
//!
//! `metrics.reports` is a port on loopback for `kubectl numa`, with the reports and those answers of the
//! control socket that change nothing. It is off by default: every process that shares the loopback addresses
//! may read it.
//!
//! Each endpoint has a thread of its own: neither a turn that moves pages, nor the rendering of a report, nor
//! readers of metrics delay a probe or `pause`. If a port or a socket is in use, the daemon runs without it
//! and reports it as degraded. Binding is separate from answering, because it needs privileges that are
//! dropped before the threads start.

mod answers;
pub mod api;
mod connections;
mod control;
pub(crate) mod find;
mod host_header;
mod places;
mod port;
pub mod socket;
mod token;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use self::{connections::BoxedStream, socket::ControlSocket};
pub use self::{control::ControlState, port::ServeError};
use enforcer_core::policy::Policy;
use numa_topology::degraded::Degraded;
use tokio::{runtime::Builder, sync::watch};

use self::{port::PortServer, socket::ControlSocketError, token::PortAccess};
use crate::threads::{self, Role};
use enforcer_report::tick::TickReport;

/// The latest report; `None` before the first turn is over.
pub type Latest = watch::Receiver<Option<Arc<TickReport>>>;

/// Time of the turn thread's latest pass, after a turn or a look.
pub type LastAlive = watch::Receiver<Instant>;

/// Longest time without a pass that is no fault: a turn may wait for the kernel to move a workload's memory.
/// The same as `WatchdogSec` of the unit.
pub const LONGEST_SILENCE: Duration = Duration::from_mins(3);

/// The ports and the socket that are enabled and could be bound.
#[derive(Debug)]
pub struct Endpoints {
    metrics: Option<(PortServer, PortAccess)>,
    probes: Option<PortServer>,
    reports: Option<(PortServer, PortAccess)>,
    workload_counters: bool,
    control: Option<ControlSocket>,
    degraded: Vec<Degraded>,
}

impl Endpoints {
    /// Binds them, before privileges are dropped. `asked`: the metrics' port is wanted for a single turn,
    /// too.
    pub fn open(policy: &Policy, once: bool, asked: bool) -> Self {
        // A single turn ends before a reader comes, but a configured address is still tried.
        let wanted = policy.metrics.enabled && (!once || asked);
        let mut degraded = Vec::new();
        let metrics = wanted.then(|| PortServer::bind(policy.metrics.listen)).transpose();
        let metrics = metrics.unwrap_or_else(|error| {
            degraded.push(no_metrics(&error));
            None
        });
        let file = policy.metrics.token_file.as_deref();
        let metrics = metrics.map(|server| {
            let (access, error) = PortAccess::of(file, server.is_on_loopback());
            degraded.extend(error.map(|reason| {
                Degraded::new("metrics", reason, "no metrics and no reports are served, only probes")
            }));
            (server, access)
        });
        let reports = policy.metrics.reports.filter(|_| policy.metrics.enabled && !once);
        let reports = reports.map(PortServer::bind).transpose().unwrap_or_else(|error| {
            degraded.push(no_reports(&error.to_string()));
            None
        });
        let reports = reports.map(|server| {
            let (access, error) = PortAccess::of(file, server.is_on_loopback());
            degraded.extend(error.map(|reason| no_reports(&reason)));
            (server, access)
        });
        let probes = policy.metrics.probes.filter(|_| !once).map(PortServer::bind).transpose();
        let probes = probes.unwrap_or_else(|error| {
            degraded.push(no_probes(&error));
            None
        });
        let socket = policy.control.enabled && !once;
        let control = socket.then(|| ControlSocket::bind(&policy.control.socket)).transpose();
        let control = control.unwrap_or_else(|error| {
            degraded.push(no_control(&error));
            None
        });
        let workload_counters = policy.metrics.workload_counters;
        Self { metrics, probes, reports, workload_counters, control, degraded }
    }

    /// Answers until the process ends, each endpoint on a thread of its own. Returns the degraded endpoints,
    /// and the guard that removes the socket's file.
    pub fn answer(
        mut self,
        control: ControlState,
        alive: LastAlive,
    ) -> (Vec<Degraded>, Option<ControlSocket>) {
        let latest = control.latest.clone();
        let alive_of_reports = alive.clone();
        if let Some(server) = self.probes.take() {
            tracing::info!("serving http://{}/live", server.address());
            let router = answers::probes(latest.clone(), alive.clone());
            if let Err(error) = start(Role::Probes, server.answer(router)) {
                self.degraded.push(no_probes(&error));
            }
        }
        if let Some((server, access)) = self.metrics.take()
            && let Err(error) = self.answer_metrics(server, access, latest, alive)
        {
            self.degraded.push(no_metrics(&error));
        }
        if let Some((server, access)) = self.reports.take() {
            tracing::info!("serving http://{}/v1/audit", server.address());
            let router = answers::reports(control.clone(), alive_of_reports, access);
            if let Err(error) = start(Role::Reports, server.answer(router)) {
                self.degraded.push(no_reports(&error.to_string()));
            }
        }
        if let Err(error) = self.answer_control(control) {
            self.degraded.push(Degraded::new("control", error.to_string(), CONTROL_EFFECT));
            self.control = None;
        }
        for one in &self.degraded {
            tracing::error!("{}: {}", one.effect, one.reason);
        }
        (self.degraded, self.control)
    }

    fn answer_metrics(
        &self,
        server: PortServer,
        access: PortAccess,
        latest: Latest,
        alive: LastAlive,
    ) -> Result<(), ServeError> {
        let router = answers::router(latest, alive, self.workload_counters, server.is_on_loopback(), access);
        let router = router.map_err(|error| no_thread(io::Error::other(error)))?;
        tracing::info!("serving http://{}/metrics", server.address());
        start(Role::Serve, server.answer(router))
    }

    fn answer_control(&mut self, control: ControlState) -> Result<(), ServeError> {
        let Some(socket) = &mut self.control else { return Ok(()) };
        let Some(listener) = socket.take() else { return Ok(()) };
        tracing::info!("controlled over {}", socket.path().display());
        let (group, path) = (socket.group, socket.path().to_owned());
        start(Role::Control, async move {
            if let Err(error) = connections::answer(listener, group, control::router(control)).await {
                tracing::error!("answering on {} ended: {error}", path.display());
            }
        })
    }
}

/// Runs `serving` on a thread of its own.
fn start(role: Role, serving: impl Future<Output = ()> + Send + 'static) -> Result<(), ServeError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
    threads::spawn(role, move || runtime.block_on(serving)).map_err(no_thread)?;
    Ok(())
}

fn no_thread(cause: io::Error) -> ServeError {
    ServeError { place: "a thread of its own".to_owned(), cause }
}

/// Effect of a missing control socket.
pub const CONTROL_EFFECT: &str = "status, explain, pause, resume and log-level do not reach this daemon";

fn no_metrics(error: &ServeError) -> Degraded {
    Degraded::new("metrics", error.to_string(), "no metrics are served")
}

fn no_reports(reason: &str) -> Degraded {
    Degraded::new("reports", reason, "kubectl numa does not reach this daemon")
}

fn no_probes(error: &ServeError) -> Degraded {
    Degraded::new("probes", error.to_string(), "/live and /ready are not served on a port of their own")
}

fn no_control(error: &ControlSocketError) -> Degraded {
    Degraded::new("control", error.to_string(), CONTROL_EFFECT)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{SocketAddr, TcpStream},
    };

    use super::*;
    use enforcer_act::journal::PauseRecord;
    use enforcer_host::{HostRoot, cgroup::ControllerRoot};

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

    /// A server on that address, before the first turn is over.
    fn serving(listen: [u8; 4]) -> SocketAddr {
        serving_since(listen, Instant::now())
    }

    /// The same with the turn thread's latest pass at `alive`.
    fn serving_since(listen: [u8; 4], alive: Instant) -> SocketAddr {
        serving_with(listen, alive, |_| {}).0
    }

    /// The same with other settings, and the ports of the probes and of the reports.
    fn serving_with(
        listen: [u8; 4],
        alive: Instant,
        change: impl FnOnce(&mut Policy),
    ) -> (SocketAddr, Option<SocketAddr>, Option<SocketAddr>) {
        let mut policy = Policy::default();
        policy.metrics.listen = (listen, 0).into();
        policy.control.enabled = false;
        change(&mut policy);
        let endpoints = Endpoints::open(&policy, false, false);
        let address = endpoints.metrics.as_ref().unwrap().0.address();
        let probes = endpoints.probes.as_ref().map(PortServer::address);
        let reports = endpoints.reports.as_ref().map(|(server, _access)| server.address());
        let (_latest, latest) = watch::channel(None);
        let (gate, decisions, log) = Default::default();
        let record = PauseRecord::new(std::path::Path::new("/nonexistent"));
        let path = HostRoot::live().at("/nonexistent");
        let cgroups = ControllerRoot { path, v2: true, mounted_cgroup: "/".into() };
        let started = Instant::now();
        let control = ControlState { gate, decisions, latest, log, started, cgroups, record };
        let (_turns, alive) = watch::channel(alive);
        let (degraded, socket) = endpoints.answer(control, alive);
        assert!(degraded.is_empty() && socket.is_none());
        (address, probes, reports)
    }

    #[test]
    fn the_port_of_the_probes_answers_the_probes_alone() {
        let (_metrics, probes, _) = serving_with([127, 0, 0, 1], Instant::now(), |policy| {
            policy.metrics.probes = Some(([127, 0, 0, 1], 0).into());
        });
        let probes = probes.unwrap();
        assert!(get(probes, "/live").starts_with("HTTP/1.1 200 "));
        assert!(get(probes, "/ready").starts_with("HTTP/1.1 503 "), "the first turn is not over");
        for path in ["/metrics", "/report.json", "/report.html"] {
            assert!(get(probes, path).starts_with("HTTP/1.1 404 "), "{path}");
        }
    }

    #[test]
    fn reports_on_loopback_have_what_reads_and_nothing_that_changes() {
        let (open, _, reports) = serving_with([0, 0, 0, 0], Instant::now(), |policy| {
            policy.metrics.reports = Some(([127, 0, 0, 1], 0).into());
        });
        let address = reports.unwrap();
        for (path, status) in [
            ("/live", 200),
            ("/v1/status", 200),
            ("/v1/top", 200),
            ("/v1/explain?workload=x", 404),
            ("/v1/explain", 400),
            ("/v1/audit", 503),
            ("/report.json", 503),
            ("/v1/pause", 404),
            ("/v1/log-level", 404),
            ("/metrics", 404),
        ] {
            let answer = get(address, path);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
        assert!(get_from(address, "/v1/status", "evil.example").starts_with("HTTP/1.1 421 "));
        // The other port is as before.
        let reached: SocketAddr = (std::net::Ipv4Addr::LOCALHOST, open.port()).into();
        for (path, status) in [("/report.json", 403), ("/v1/status", 404), ("/v1/audit", 404)] {
            let answer = get(reached, path);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
    }

    #[test]
    fn token_is_needed_for_reports_on_loopback_too() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        let (.., reports) = serving_with([127, 0, 0, 1], Instant::now(), |policy| {
            policy.metrics.reports = Some(([127, 0, 0, 1], 0).into());
            policy.metrics.token_file = Some(file);
        });
        let address = reports.unwrap();
        assert!(get(address, "/v1/status").starts_with("HTTP/1.1 401 "));
        let with_token =
            get_from(address, "/v1/status", "localhost\r\nAuthorization: Bearer 0123456789abcdef");
        assert!(with_token.starts_with("HTTP/1.1 200 "), "{with_token}");
    }

    #[test]
    fn beyond_loopback_reports_are_refused_without_a_token_file() {
        let open = serving([0, 0, 0, 0]);
        let reached: SocketAddr = (std::net::Ipv4Addr::LOCALHOST, open.port()).into();
        for (path, status) in
            [("/report.json", 403), ("/report.html", 403), ("/metrics", 503), ("/ready", 503), ("/live", 200)]
        {
            let answer = get(reached, path);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        }
    }

    #[test]
    fn a_token_file_closes_everything_but_the_probes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        let (address, ..) = serving_with([127, 0, 0, 1], Instant::now(), |policy| {
            policy.metrics.token_file = Some(file);
        });
        assert!(get(address, "/live").starts_with("HTTP/1.1 200 "));
        for path in ["/metrics", "/report.json", "/report.html"] {
            let answer = get(address, path);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
            let with_token = get_from(address, path, "localhost\r\nAuthorization: Bearer 0123456789abcdef");
            assert!(with_token.starts_with("HTTP/1.1 503 "), "{path}: {with_token}");
        }
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
        assert!(answer.contains("current turn has run 2") && answer.contains("limit 180 s"), "{answer}");
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
}
