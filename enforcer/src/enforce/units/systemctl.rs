//! Asks systemd through `systemctl`, which speaks D-Bus to it (docs/adr/0010).
//!
//! The program is one of a few fixed paths and is run without a shell, without the daemon's environment and
//! with a limit on its time. The unit's name is a [`UnitName`] behind a `--`, values are lists that we wrote
//! or that systemd told.

use std::{
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use enforcer_core::workload::UnitName;

use super::{UnitError, UnitProperties, UnitState};
use crate::{
    enforce::cpuset::CpusetFile,
    host::{HostRoot, read_text},
};

/// Where the program is.
const PROGRAMS: [&str; 2] = ["/usr/bin/systemctl", "/bin/systemctl"];

/// There while systemd is process 1 (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";

/// systemd answers at once, unless it is busy with something that holds it up.
const LIMIT: Duration = Duration::from_secs(10);

/// Time between two looks at the program.
const PAUSE: Duration = Duration::from_millis(2);

/// Most bytes of an answer that are read: three properties, or why not.
const LONGEST: u64 = 64 << 10;

/// The program.
#[derive(Debug, Clone)]
pub struct Systemctl {
    program: PathBuf,
    limit: Duration,
}

impl Systemctl {
    /// The one of this host; `None` where systemd is not process 1. The error says why it cannot be asked
    /// although it is.
    pub fn of_host(host: &HostRoot) -> Result<Option<Self>, String> {
        if host.captured {
            return Ok(None);
        }
        let first = read_text(&host.proc.join("1/comm")).unwrap_or_default();
        Self::find(first.trim(), Path::new(BOOTED).is_dir(), PROGRAMS.iter().map(Path::new))
    }

    fn find<'a>(
        first_process: &str,
        booted: bool,
        mut programs: impl Iterator<Item = &'a Path>,
    ) -> Result<Option<Self>, String> {
        if !booted {
            // In a container that sees the host's processes, but not its /run.
            let hidden = first_process == "systemd";
            return if hidden {
                Err(format!("process 1 is systemd, and {BOOTED} is not there"))
            } else {
                Ok(None)
            };
        }
        let found = programs.find(|program| program.is_file());
        let program = found.ok_or_else(|| format!("there is none of {}", PROGRAMS.join(" and ")))?;
        Ok(Some(Self { program: program.to_owned(), limit: LIMIT }))
    }

    /// Runs it to its end; returns what it printed.
    fn run(&self, arguments: &[&str]) -> Result<String, UnitError> {
        let named = || format!("{} {}", self.program.display(), arguments.join(" "));
        let failed = |cause| UnitError::Run { command: named(), cause };
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("LC_ALL", "C").current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let begun = Instant::now();
        let status = loop {
            match child.try_wait().map_err(failed)? {
                Some(status) => break status,
                None if begun.elapsed() < self.limit => thread::sleep(PAUSE),
                None => {
                    // Both fail only if it has ended meanwhile.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(UnitError::TimedOut { command: named(), limit: self.limit });
                }
            }
        };
        let (output, complaint) = (text(child.stdout.take()), text(child.stderr.take()));
        if status.success() {
            return Ok(output);
        }
        let reason = format!("{status}: {}", complaint.trim().replace('\n', "; "));
        Err(UnitError::Refused { command: named(), reason })
    }
}

/// What fits in a pipe is there when its writer has ended; more than that it could not have written.
fn text(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    // What was read before an error is still worth showing.
    let _ = pipe.map(|pipe| pipe.take(LONGEST).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

impl UnitProperties for Systemctl {
    fn show(&self, unit: &UnitName) -> Result<UnitState, UnitError> {
        let properties = "--property=LoadState,ControlGroup,AllowedCPUs,AllowedMemoryNodes";
        Ok(parse(&self.run(&["--system", "--no-pager", "show", properties, "--", unit.as_str()])?))
    }

    fn set(&self, unit: &UnitName, property: CpusetFile, value: &str) -> Result<(), UnitError> {
        let assignment = format!("{}={value}", property.name());
        let arguments =
            ["--system", "--no-ask-password", "--runtime", "set-property", "--", unit.as_str(), &assignment];
        self.run(&arguments).map(drop)
    }
}

/// Lines of `NAME=VALUE`; what is not there is empty.
fn parse(text: &str) -> UnitState {
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_default().trim().to_owned()
    };
    UnitState {
        control_group: value("ControlGroup"),
        cpus: value("AllowedCPUs"),
        mems: value("AllowedMemoryNodes"),
        known: !matches!(value("LoadState").as_str(), "" | "not-found"),
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
        Systemctl { program: path, limit: Duration::from_mins(1) }
    }

    fn unit() -> UnitName {
        UnitName::new("a.service").unwrap()
    }

    #[test]
    fn it_is_called_with_a_name_that_is_no_option_and_without_our_environment() {
        let dir = tempfile::tempdir().unwrap();
        let systemctl = program(dir.path(), "");
        systemctl.set(&UnitName::new("-x.slice").unwrap(), CpusetFile::AllowedCpus, "0-3,8").unwrap();
        let called = fs::read_to_string(dir.path().join("called")).unwrap();
        assert_eq!(
            called,
            "--system|--no-ask-password|--runtime|set-property|--|-x.slice|AllowedCPUs=0-3,8|"
        );
        let environment = fs::read_to_string(dir.path().join("env")).unwrap();
        assert!(environment.contains("LC_ALL=C") && !environment.contains("CARGO"), "{environment}");
    }

    #[test]
    fn what_systemd_says_of_a_unit_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = "LoadState=loaded\\nAllowedCPUs=0-3 8\\nAllowedMemoryNodes=\\nControlGroup=/system.slice/a.service\\n";
        let systemctl = program(dir.path(), &format!("printf '{text}'"));
        let wanted = UnitState {
            control_group: "/system.slice/a.service".into(),
            cpus: "0-3 8".into(),
            mems: String::new(),
            known: true,
        };
        assert_eq!(systemctl.show(&unit()).unwrap(), wanted);
        assert_eq!(parse("nonsense\nControlGroupX=/y\nLoadState=not-found\n"), UnitState::default());
    }

    #[test]
    fn what_fails_says_what_was_asked_and_why() {
        let dir = tempfile::tempdir().unwrap();
        let error =
            program(dir.path(), "echo 'Failed: no' >&2; exit 4").show(&unit()).unwrap_err().to_string();
        assert!(
            error.contains("show") && error.contains("a.service") && error.contains("Failed: no"),
            "{error}"
        );
        let slow = Systemctl { limit: Duration::from_millis(50), ..program(dir.path(), "exec sleep 600") };
        let error = slow.show(&unit()).unwrap_err();
        assert!(matches!(error, UnitError::TimedOut { .. }), "{error}");
        let gone = Systemctl { program: dir.path().join("gone"), limit: LIMIT };
        assert!(matches!(gone.show(&unit()).unwrap_err(), UnitError::Run { .. }));
    }

    #[test]
    fn systemd_is_asked_only_where_it_is_process_one() {
        let dir = tempfile::tempdir().unwrap();
        let here = program(dir.path(), "").program;
        let found = |first: &str, booted: bool, program: &Path| {
            Systemctl::find(first, booted, [program].into_iter())
                .map(|found| found.map(|found| found.program))
        };
        assert_eq!(found("systemd", true, &here), Ok(Some(here.clone())));
        assert_eq!(found("init", false, &here), Ok(None));
        assert!(found("systemd", false, &here).unwrap_err().contains(BOOTED));
        assert!(found("systemd", true, &dir.path().join("gone")).unwrap_err().contains(PROGRAMS[0]));
        assert!(Systemctl::of_host(&HostRoot::captured(dir.path())).unwrap().is_none());
    }
}
