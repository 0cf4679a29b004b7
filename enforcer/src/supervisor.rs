//! Messages to the service supervisor that started the daemon (`sd_notify(3)`): systemd, or any program that
//! sets `NOTIFY_SOCKET`.
//!
//! One datagram each: ready, reloading, stopping, alive, and a status for people. Only the turn thread feeds
//! the watchdog, so that a turn that hangs is detected; a thread of its own would feed it forever.
//!
//! The supervisor never keeps the daemon from its work: without one nothing is sent, and one that does not
//! read is waited for [`PATIENCE`] at most. The environment is read and never written. The `sd-notify` crate
//! is not used: it opens a socket for each message and sends without a timeout, so the loop could hang in it.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

/// Longest wait for room in the queue of the supervisor's socket.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the supervisor gets no messages.
#[derive(Debug, Error)]
#[error("telling the supervisor at {socket}: {cause}")]
pub struct SupervisorError {
    /// `NOTIFY_SOCKET`.
    pub socket: String,
    /// Cause of the failure.
    #[source]
    pub cause: io::Error,
}

/// The supervisor, if there is one.
#[derive(Debug)]
pub struct Supervisor {
    line: Option<NotifySocket>,
    watchdog: Option<SupervisorWatchdog>,
    /// A failed message was logged already; it would repeat each turn.
    mute: bool,
}

/// The socket of the supervisor.
#[derive(Debug)]
struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddr,
    name: String,
}

/// The supervisor's watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SupervisorWatchdog {
    /// Half of the supervisor's limit.
    every: Duration,
    last: Option<Instant>,
}

impl SupervisorWatchdog {
    /// From `WATCHDOG_USEC` and `WATCHDOG_PID` (`sd_watchdog_enabled(3)`); `None` without a watchdog.
    fn of(microseconds: Option<&str>, pid: Option<&str>, own: u32) -> Option<Self> {
        if pid.is_some_and(|pid| pid.parse() != Ok(own)) {
            return None;
        }
        let microseconds: u64 = microseconds?.parse().ok().filter(|limit| *limit > 0)?;
        Some(Self { every: Duration::from_micros(microseconds) / 2, last: None })
    }

    /// Whether a sign of life is due, if the next chance comes `pause` later.
    fn is_due(&self, now: Instant, pause: Duration) -> bool {
        self.last.is_none_or(|last| now.saturating_duration_since(last) + pause >= self.every)
    }
}

impl Supervisor {
    /// The supervisor named by the environment, if any.
    pub fn of_environment() -> Result<Self, SupervisorError> {
        let text = |name| env::var(name).ok();
        let watchdog = SupervisorWatchdog::of(
            text("WATCHDOG_USEC").as_deref(),
            text("WATCHDOG_PID").as_deref(),
            std::process::id(),
        );
        Self::at(env::var_os("NOTIFY_SOCKET"), watchdog)
    }

    /// No supervisor.
    pub fn absent() -> Self {
        Self { line: None, watchdog: None, mute: false }
    }

    fn at(socket: Option<OsString>, watchdog: Option<SupervisorWatchdog>) -> Result<Self, SupervisorError> {
        let Some(name) = socket.filter(|name| !name.is_empty()) else { return Ok(Self::absent()) };
        let line =
            NotifySocket::to(&name).map_err(|cause| SupervisorError { socket: shown(&name), cause })?;
        Ok(Self { line: Some(line), watchdog, mute: false })
    }

    /// Longest time between two signs of life; `None` without a watchdog.
    pub fn patience(&self) -> Option<Duration> {
        self.watchdog.map(|watchdog| watchdog.every)
    }

    /// Reports that everything is attached and open, and turns begin.
    pub fn ready(&mut self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports that the configuration is being reloaded, until [`ready`](Self::ready).
    pub fn reloading(&mut self) {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}\nSTATUS=reading the configuration"));
    }

    /// Reports that the daemon ends.
    pub fn stopping(&mut self) {
        self.tell("STOPPING=1\nSTATUS=ending");
    }

    /// Sends a status for people.
    pub fn status(&mut self, status: &str) {
        self.tell(&format!("STATUS={}", one_line(status)));
    }

    /// Sends a sign of life if due. The turn thread comes back in `pause` unless a turn takes longer.
    pub fn alive(&mut self, now: Instant, pause: Duration) {
        let due = self.watchdog.as_mut().filter(|watchdog| watchdog.is_due(now, pause));
        if let Some(watchdog) = due {
            watchdog.last = Some(now);
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&mut self, message: &str) {
        let Some(line) = &self.line else { return };
        match line.send(message) {
            Ok(()) => self.mute = false,
            Err(error) if !self.mute => {
                self.mute = true;
                tracing::warn!("{error}");
            }
            Err(_said) => {}
        }
    }
}

impl NotifySocket {
    fn to(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => {
                let reason = "neither an absolute path nor an abstract socket (@NAME)";
                return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
            }
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, address, name: shown(name) })
    }

    fn send(&self, message: &str) -> Result<(), SupervisorError> {
        let sent = self.socket.send_to_addr(message.as_bytes(), &self.address);
        sent.map(drop).map_err(|cause| SupervisorError { socket: self.name.clone(), cause })
    }
}

fn shown(name: &OsStr) -> String {
    name.to_string_lossy().escape_debug().to_string()
}

/// A line end would begin another message.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn is_told_over_a_path_and_over_an_abstract_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let hidden = format!("numa-enforcer-test-{}", std::process::id());
        let addresses = [
            (SocketAddr::from_pathname(&path).unwrap(), path.clone().into_os_string()),
            (SocketAddr::from_abstract_name(&hidden).unwrap(), format!("@{hidden}").into()),
        ];
        for (address, name) in addresses {
            let socket = UnixDatagram::bind_addr(&address).unwrap();
            let mut supervisor = Supervisor::at(Some(name), None).unwrap();
            supervisor.ready("1 workload\nSTOPPING=1");
            assert_eq!(receive(&socket), "READY=1\nSTATUS=1 workload STOPPING=1");
            let before = clock_gettime(ClockId::Monotonic).tv_sec;
            supervisor.reloading();
            let told = receive(&socket);
            let (_, rest) = told.split_once("RELOADING=1\nMONOTONIC_USEC=").unwrap();
            let seconds = rest.split('\n').next().unwrap().parse::<i64>().unwrap() / 1_000_000;
            assert!((before..=before + 3600).contains(&seconds), "{told}");
            supervisor.stopping();
            assert!(receive(&socket).starts_with("STOPPING=1\n"));
        }
    }

    #[test]
    fn is_told_that_the_daemon_lives_before_half_of_its_time_is_over() {
        let start = Instant::now();
        let mut watchdog = SupervisorWatchdog::of(Some("10000000"), None, 7).unwrap();
        assert!(watchdog.is_due(start, Duration::ZERO), "the first time at once");
        watchdog.last = Some(start);
        for (after, pause, due) in [(4, 0, false), (5, 0, true), (4, 1, true), (3, 1, false), (0, 6, true)] {
            assert_eq!(watchdog.is_due(start + after * SECOND, pause * SECOND), due, "{after} {pause}");
        }
    }

    #[test]
    fn watchdog_for_another_process_or_without_a_time_is_ignored() {
        for (microseconds, pid, expected) in [
            (Some("10000000"), None, Some(5 * SECOND)),
            (Some("10000000"), Some("7"), Some(5 * SECOND)),
            (Some("10000000"), Some("8"), None),
            (Some("10000000"), Some("x"), None),
            (Some("0"), None, None),
            (Some("-1"), None, None),
            (Some("soon"), Some("7"), None),
            (None, Some("7"), None),
        ] {
            let found = SupervisorWatchdog::of(microseconds, pid, 7).map(|watchdog| watchdog.every);
            assert_eq!(found, expected, "{microseconds:?} {pid:?}");
        }
    }

    #[test]
    fn absent_supervisor_is_accepted_and_an_invalid_socket_is_named() {
        for absent in [None, Some(OsString::new())] {
            assert!(Supervisor::at(absent, None).unwrap().line.is_none());
        }
        for name in ["notify", "vsock:2:1", "./notify"] {
            let message = Supervisor::at(Some(name.into()), None).unwrap_err().to_string();
            assert!(message.starts_with(&format!("telling the supervisor at {name}: ")), "{message}");
        }
        // Logged once, and the daemon goes on.
        let mut gone = Supervisor::at(Some("/no/such/socket".into()), None).unwrap();
        gone.ready("");
        assert!(gone.mute);
    }
}
