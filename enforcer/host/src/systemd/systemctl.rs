//! Asks systemd through `systemctl`, which speaks D-Bus to it (docs/adr/0010).
//!
//! The program is one of a few fixed paths and is run without a shell, without the daemon's environment and
//! with a limit on its time. The unit's name is a [`UnitName`] behind a `--`, values are lists that we wrote
//! or that systemd told.

use std::{
    io::{self, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::workload::UnitName;

use super::{SystemdError, UnitState};

/// Where the program is.
pub(super) const PROGRAMS: [&str; 2] = ["/usr/bin/systemctl", "/bin/systemctl"];

/// Time between two looks at the program.
const PAUSE: Duration = Duration::from_millis(2);

/// Most bytes of an answer that are kept: seven properties of some units, or why not.
const LONGEST: usize = 1 << 20;

/// The program.
#[derive(Debug, Clone)]
pub struct Systemctl {
    program: PathBuf,
    limit: Duration,
}

impl Systemctl {
    pub(super) fn new(program: &Path, limit: Duration) -> Self {
        Self { program: program.to_owned(), limit }
    }

    /// Runs it to its end; returns what it printed.
    fn run(&self, arguments: &[&str]) -> Result<String, SystemdError> {
        let named = || format!("{} {}", self.program.display(), arguments.join(" "));
        let failed = |cause| SystemdError::Run { command: named(), cause };
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("LC_ALL", "C").current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let mut output = Pipe::new(child.stdout.take()).map_err(failed)?;
        let mut complaint = Pipe::new(child.stderr.take()).map_err(failed)?;
        let begun = Instant::now();
        let status = loop {
            output.drain();
            complaint.drain();
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if begun.elapsed() < self.limit => thread::sleep(PAUSE),
                None => {
                    // Both fail only if it has ended meanwhile.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(SystemdError::TimedOut { command: named(), limit: self.limit });
                }
            }
        };
        if status.success() {
            return Ok(output.text());
        }
        let reason = format!("{status}: {}", complaint.text().trim().replace('\n', "; "));
        Err(SystemdError::Refused { command: named(), reason })
    }

    pub(super) fn show(&self, units: &[&UnitName]) -> Result<Vec<UnitState>, SystemdError> {
        let properties =
            "--property=LoadState,ControlGroup,AllowedCPUs,AllowedMemoryNodes,FragmentPath,DropInPaths";
        let mut arguments = vec!["--system", "--no-pager", "show", properties, "--"];
        arguments.extend(units.iter().map(|unit| unit.as_str()));
        let text = self.run(&arguments)?;
        let states = parse(&text);
        if states.len() == units.len() {
            return Ok(states);
        }
        let reason = format!("it tells of {} units and was asked about {}", states.len(), units.len());
        Err(SystemdError::Refused { command: format!("{} show", self.program.display()), reason })
    }

    pub(super) fn set(&self, unit: &UnitName, property: &str, value: &str) -> Result<(), SystemdError> {
        let assignment = format!("{property}={value}");
        let arguments =
            ["--system", "--no-ask-password", "--runtime", "set-property", "--", unit.as_str(), &assignment];
        self.run(&arguments).map(drop)
    }
}

/// What a program prints, read while it runs: a full pipe would hold it up.
struct Pipe<P> {
    pipe: Option<P>,
    bytes: Vec<u8>,
}

impl<P: Read + AsFd> Pipe<P> {
    fn new(pipe: Option<P>) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { pipe, bytes: Vec::new() })
    }

    /// Takes what is there.
    fn drain(&mut self) {
        let mut chunk = [0; 4096];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut chunk) {
                Ok(count) if count > 0 => {
                    let room = LONGEST.saturating_sub(self.bytes.len());
                    self.bytes.extend_from_slice(chunk.get(..count.min(room)).unwrap_or_default());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What was read before an error is still worth showing.
                Ok(_) | Err(_) => self.pipe = None,
            }
        }
    }

    /// All of it, once the program has ended.
    fn text(mut self) -> String {
        self.drain();
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Blocks of lines of `NAME=VALUE`, one for each unit, with an empty line between them; what is not there is
/// empty.
fn parse(text: &str) -> Vec<UnitState> {
    text.trim().split("\n\n").map(parse_one).collect()
}

fn parse_one(text: &str) -> UnitState {
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().trim().to_owned()
    };
    let (fragment, drop_ins) = (value("FragmentPath"), value("DropInPaths"));
    let files = [fragment.as_str()].into_iter().chain(drop_ins.split(' ')).filter(|path| !path.is_empty());
    UnitState {
        known: !matches!(value("LoadState").as_str(), "" | "not-found"),
        control_group: value("ControlGroup"),
        cpus: value("AllowedCPUs"),
        mems: value("AllowedMemoryNodes"),
        files: files.map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    /// A program in a folder of its own, which says what it was called with.
    fn program(dir: &Path, script: &str) -> Systemctl {
        let path = dir.join("systemctl");
        fs::write(
            &path,
            format!("#!/bin/sh\nprintf '%s|' \"$@\" > {0}/called\nenv > {0}/env\n{script}\n", dir.display()),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Systemctl::new(&path, Duration::from_mins(1))
    }

    fn unit() -> UnitName {
        UnitName::new("a.service").unwrap()
    }

    #[test]
    fn it_is_called_with_a_name_that_is_no_option_and_without_our_environment() {
        let dir = tempfile::tempdir().unwrap();
        let systemctl = program(dir.path(), "");
        systemctl.set(&UnitName::new("-x.slice").unwrap(), "AllowedCPUs", "0-3,8").unwrap();
        let called = fs::read_to_string(dir.path().join("called")).unwrap();
        assert_eq!(
            called,
            "--system|--no-ask-password|--runtime|set-property|--|-x.slice|AllowedCPUs=0-3,8|"
        );
        let environment = fs::read_to_string(dir.path().join("env")).unwrap();
        assert!(environment.contains("LC_ALL=C") && !environment.contains("CARGO"), "{environment}");
    }

    #[test]
    fn what_systemd_says_of_units_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = "LoadState=loaded\\nAllowedCPUs=0-3 8\\nAllowedMemoryNodes=\\nControlGroup=/system.slice/a.service\\n\
                    FragmentPath=/usr/lib/a.service\\nDropInPaths=/etc/a.service.d/1.conf /run/a.service.d/2.conf\\n";
        let systemctl = program(dir.path(), &format!("printf '{text}\\nLoadState=not-found\\n'"));
        let wanted = UnitState {
            known: true,
            control_group: "/system.slice/a.service".into(),
            cpus: "0-3 8".into(),
            mems: String::new(),
            files: ["/usr/lib/a.service", "/etc/a.service.d/1.conf", "/run/a.service.d/2.conf"]
                .map(str::to_owned)
                .into(),
        };
        let (a, b) = (unit(), UnitName::new("b.scope").unwrap());
        assert_eq!(systemctl.show(&[&a, &b]).unwrap(), [wanted, UnitState::default()]);
        assert!(systemctl.show(&[&a]).unwrap_err().to_string().contains("2 units"));
        assert_eq!(parse("nonsense\nControlGroupX=/y\nLoadState=not-found\n"), [UnitState::default()]);
    }

    #[test]
    fn more_than_a_pipe_holds_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let script = "printf 'DropInPaths='; i=0; while [ $i -lt 3000 ]; do printf '/etc/systemd/system/a.service.d/%s.conf ' \
                      $i; i=$((i+1)); done; printf '\\nLoadState=loaded\\n'";
        let states = program(dir.path(), script).show(&[&unit()]).unwrap();
        assert_eq!((states[0].files.len(), states[0].known), (3000, true));
    }

    #[test]
    fn what_fails_says_what_was_asked_and_why() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            program(dir.path(), "echo 'Failed: no' >&2; exit 4").show(&[&unit()]).unwrap_err().to_string();
        assert!(
            error.contains("show") && error.contains("a.service") && error.contains("Failed: no"),
            "{error}"
        );
        let slow = Systemctl { limit: Duration::from_millis(50), ..program(dir.path(), "exec sleep 600") };
        let error = slow.show(&[&unit()]).unwrap_err();
        assert!(matches!(error, SystemdError::TimedOut { .. }), "{error}");
        let gone = Systemctl::new(&dir.path().join("gone"), Duration::from_mins(1));
        assert!(matches!(gone.show(&[&unit()]).unwrap_err(), SystemdError::Run { .. }));
    }
}
