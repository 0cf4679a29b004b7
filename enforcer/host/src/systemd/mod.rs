//! systemd, as far as cpusets of its units go: what a unit is set to, and setting it until the next boot.
//!
//! Problem: on a host `systemctl` speaks for us (docs/adr/0010), but an image of a container has no such
//! program, and what a runtime has set of a scope can be taken back by systemd alone. Idea: where there is no
//! program, and systemd's own socket is there because a pod mounts it, the same two questions go over that.
//!
//! Invariants: a unit is named by a [`UnitName`], which can be nothing else. Every question has a bound on
//! its time, every answer one on its size.

mod message;
mod private_socket;
mod systemctl;

use std::{path::Path, time::Duration};

use enforcer_core::workload::UnitName;
use thiserror::Error;

use self::{private_socket::PrivateSocket, systemctl::Systemctl};
use super::HostRoot;

/// There while systemd is process 1 (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";

/// Where systemd itself listens, for root.
const SOCKET: &str = "/run/systemd/private";

/// systemd answers at once, unless it is busy with something that holds it up.
const LIMIT: Duration = Duration::from_secs(10);

/// Units that are asked about at a time.
const AT_A_TIME: usize = 64;

/// Why systemd did not do what it was asked.
#[derive(Debug, Error)]
pub enum SystemdError {
    /// It could not be asked.
    #[error("running {command}: {cause}")]
    Run {
        /// What was run, or sent.
        command: String,
        /// Why not.
        #[source]
        cause: std::io::Error,
    },
    /// systemd said no.
    #[error("{command}: {reason}")]
    Refused {
        /// What was run, or sent.
        command: String,
        /// What it said.
        reason: String,
    },
    /// There was no answer in time.
    #[error("{command}: no answer within {} s", limit.as_secs())]
    TimedOut {
        /// What was run, or sent.
        command: String,
        /// Time that it had.
        limit: Duration,
    },
}

/// What systemd says of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnitState {
    /// Is there such a unit?
    pub known: bool,
    /// `ControlGroup`; empty for a unit that does not run, or is not known.
    pub control_group: String,
    /// `AllowedCPUs`, empty if it is not set.
    pub cpus: String,
    /// `AllowedMemoryNodes`, empty if it is not set.
    pub mems: String,
    /// The files that it is made of, in the order in which they count: the unit's own first, then drop-ins.
    pub files: Vec<String>,
}

/// A way to systemd.
#[derive(Debug, Clone)]
pub enum Systemd {
    /// The program `systemctl`.
    Program(Systemctl),
    /// Its own socket, where there is no such program.
    Socket(PrivateSocket),
}

impl Systemd {
    /// The one of this host; `None` where systemd is not process 1. The error says why it cannot be asked
    /// although it is.
    pub fn of_host(host: &HostRoot) -> Result<Option<Self>, String> {
        if host.captured {
            return Ok(None);
        }
        let first = host.proc.join("1/comm").read_text().unwrap_or_default();
        let programs = systemctl::PROGRAMS.iter().map(Path::new);
        Self::find(first.trim(), Path::new(BOOTED).is_dir(), programs, Path::new(SOCKET))
    }

    fn find<'a>(
        first_process: &str,
        booted: bool,
        mut programs: impl Iterator<Item = &'a Path>,
        socket: &Path,
    ) -> Result<Option<Self>, String> {
        let socket = || PrivateSocket::at(socket, LIMIT);
        if booted && let Some(program) = programs.find(|program| program.is_file()) {
            return Ok(Some(Self::Program(Systemctl::new(program, LIMIT))));
        }
        if let Some(socket) = socket() {
            return Ok(Some(Self::Socket(socket)));
        }
        if booted {
            let programs = systemctl::PROGRAMS.join(" and ");
            return Err(format!("there is none of {programs}, and no socket {SOCKET}"));
        }
        // In a container that sees the host's processes, but not its /run.
        let hidden = first_process == "systemd";
        let reason = || format!("process 1 is systemd, and neither {BOOTED} nor {SOCKET} is there");
        if hidden { Err(reason()) } else { Ok(None) }
    }

    /// What it says of these units, in their order.
    pub fn show(&self, units: &[&UnitName]) -> Result<Vec<UnitState>, SystemdError> {
        let mut states = Vec::with_capacity(units.len());
        for units in units.chunks(AT_A_TIME) {
            states.extend(match self {
                Self::Program(program) => program.show(units)?,
                Self::Socket(socket) => socket.show(units)?,
            });
        }
        Ok(states)
    }

    /// Sets `AllowedCPUs` or `AllowedMemoryNodes` of a unit until the next boot; an empty value resets it.
    pub fn set(&self, unit: &UnitName, property: &str, value: &str) -> Result<(), SystemdError> {
        match self {
            Self::Program(program) => program.set(unit, property, value),
            Self::Socket(socket) => socket.set(unit, property, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn systemd_is_asked_only_where_it_is_process_one_or_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let (program, socket, gone) =
            (dir.path().join("systemctl"), dir.path().join("private"), dir.path().join("gone"));
        fs::write(&program, "").unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        let found = |first: &str, booted: bool, program: &Path, socket: &Path| {
            let found = Systemd::find(first, booted, [program].into_iter(), socket);
            found.map(|found| match found {
                None => "none",
                Some(Systemd::Program(_)) => "program",
                Some(Systemd::Socket(_)) => "socket",
            })
        };
        assert_eq!(found("systemd", true, &program, &socket), Ok("program"));
        assert_eq!(found("systemd", true, &gone, &socket), Ok("socket"));
        // A pod, which sees neither process 1 of the host nor all of its /run.
        assert_eq!(found("numa-enforcer", false, &program, &socket), Ok("socket"));
        assert_eq!(found("init", false, &program, &gone), Ok("none"));
        // What a runtime makes of a mount of a socket that is not there.
        assert_eq!(found("init", false, &program, dir.path()), Ok("none"));
        assert!(found("systemd", false, &program, &gone).unwrap_err().contains(BOOTED));
        assert!(found("systemd", true, &gone, &gone).unwrap_err().contains(systemctl::PROGRAMS[0]));
        assert!(Systemd::of_host(&HostRoot::captured(dir.path())).unwrap().is_none());
    }
}
