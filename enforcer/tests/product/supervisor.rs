//! What the daemon tells the service supervisor that started it, played by the test, and that it ends when
//! told to, in the middle of a turn too.

use std::{
    fs,
    io::{ErrorKind, Read},
    os::unix::net::{UnixDatagram, UnixListener},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::common::{full_pipe, program};
use nix::sys::{
    ptrace,
    wait::{WaitPidFlag, waitpid},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Far above what anything here takes; what is not there by then does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// Two seconds are promised; a host that is busy with other tests may not even start a thread in that time.
const END: Duration = Duration::from_secs(20);

/// What systemd is played to wait for.
const WATCHDOG: Duration = Duration::from_secs(2);

/// A thread that stands still until this is dropped, while the others of its process go on (ptrace(2)).
struct Stopped(nix::unistd::Pid);

impl Stopped {
    fn main_thread(child: &Child) -> Self {
        let thread = nix::unistd::Pid::from_raw(child.id().cast_signed());
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Self(thread)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended.
        let _ = ptrace::detach(self.0, None);
    }
}

/// A daemon that was started by a supervisor, and the supervisor's ear.
struct Supervised {
    child: Child,
    socket: UnixDatagram,
    dir: TempDir,
}

impl Supervised {
    fn start(stdout: impl Into<Stdio>) -> Self {
        Self::start_with(stdout, Stdio::null(), "")
    }

    fn start_with(stdout: impl Into<Stdio>, stderr: impl Into<Stdio>, config: &str) -> Self {
        Self::start_as(&["--mode", "observe"], stdout, stderr, config)
    }

    fn start_as(more: &[&str], stdout: impl Into<Stdio>, stderr: impl Into<Stdio>, config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        fs::write(&file, config).unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command: Command = program(&["run", "--metrics-listen", "off"]);
        command.args(more).args(["--interval", "1h", "--state-dir"]).arg(dir.path().join("state"));
        command.arg("--config").arg(file);
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        let child = command.stdout(stdout).stderr(stderr).spawn().unwrap();
        Self { child, socket, dir }
    }

    /// The next message, if one comes in time.
    fn message(&self, patience: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(patience)).unwrap();
        let mut buffer = [0; 4096];
        match self.socket.recv(&mut buffer) {
            Ok(length) => Some(String::from_utf8(buffer[..length].to_vec()).unwrap()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for a message that begins so.
    fn hears(&self, beginning: &str) -> String {
        let mut heard = Vec::new();
        loop {
            match self.message(PATIENCE) {
                Some(message) if message.starts_with(beginning) => return message,
                Some(message) => heard.push(message),
                None => panic!("no {beginning}; heard: {heard:?}"),
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Exit code after SIGTERM.
    fn end(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        let told = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(told.elapsed() < END, "it still runs {END:?} after SIGTERM");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_supervisor_hears_ready_then_reloading_then_ready_then_stopping() {
    let mut daemon = Supervised::start(Stdio::null());
    daemon.hears("READY=1\nSTATUS=");
    assert!(daemon.hears("STATUS=turn 1: ").contains(" workload"));
    daemon.signal(Signal::HUP);
    let told = daemon.hears("RELOADING=1\nMONOTONIC_USEC=");
    assert!(told.lines().nth(1).unwrap()["MONOTONIC_USEC=".len()..].parse::<u64>().unwrap() > 0, "{told}");
    daemon.hears("READY=1\nSTATUS=0 declared workloads");
    daemon.hears("STATUS=turn 2: ");
    assert_eq!(daemon.end(), Some(0));
    daemon.hears("STOPPING=1");
    assert!(daemon.dir.path().exists());
}

#[test]
fn unread_output_does_not_stop_it() {
    let ((reader, stdout), (mut log, stderr)) = (full_pipe(), full_pipe());
    let mut daemon = Supervised::start_with(stdout, stderr, "");
    daemon.hears("READY=1");
    daemon.hears("STATUS=turn 1: ");
    daemon.signal(Signal::HUP);
    daemon.hears("STATUS=turn 2: ");
    daemon.hears("WATCHDOG=1");
    // Waiting lines come in order once there is a reader.
    let mut said = String::new();
    let mut bytes = [0; 4096];
    while !said.contains("the configuration was read again") {
        let length = log.read(&mut bytes).unwrap();
        assert!(length > 0, "{said}");
        said.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    assert_eq!(daemon.end(), Some(0));
    drop(reader);
}

#[test]
fn a_turn_that_hangs_starves_the_watchdog_and_does_not_keep_the_daemon_from_ending() {
    let mut daemon = Supervised::start(Stdio::null());
    daemon.hears("STATUS=turn 1: ");
    daemon.hears("WATCHDOG=1");
    let engine = Stopped::main_thread(&daemon.child);
    // What it had said before is behind us after the first silence.
    let until = Instant::now() + 3 * WATCHDOG;
    let mut late = 0;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        late += usize::from(daemon.message(left).is_some());
    }
    assert!(late <= 1, "the thread that turns stands still, and {late} messages came");
    // The control: the same daemon, once it goes on.
    drop(engine);
    for _ in 0..3 {
        daemon.hears("WATCHDOG=1");
    }
    let _engine = Stopped::main_thread(&daemon.child);
    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn a_start_that_hangs_does_not_keep_the_daemon_from_ending() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kubelet.sock");
    let kubelet = UnixListener::bind(&socket).unwrap();
    let config = format!("kubelet.podresources = {socket:?}\n");
    let mut daemon = Supervised::start_with(Stdio::null(), Stdio::null(), &config);
    // It waits for an answer from now on.
    let _connection = kubelet.accept().unwrap();
    assert_eq!(daemon.end(), Some(0));
    assert_eq!(daemon.message(WATCHDOG), None, "it never was ready");
}

#[test]
fn failed_start_ends_though_its_output_is_not_read() {
    let (_log, stderr) = full_pipe();
    let mut daemon = Supervised::start_with(Stdio::null(), stderr, "frobnicate = 1\n");
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = daemon.child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "it waits for a reader of the reason");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(64));
}

#[test]
fn single_turn_waits_for_its_reader_until_told_to_end() {
    for more in [&["--restore-on-exit"][..], &[]] {
        let (_reader, stdout) = full_pipe();
        let more = [&["--once", "--mode", "enforce"][..], more].concat();
        let mut daemon = Supervised::start_as(&more, stdout, Stdio::piped(), "");
        daemon.hears("STATUS=turn 1: ");
        thread::sleep(WATCHDOG);
        assert!(daemon.child.try_wait().unwrap().is_none(), "{more:?}: it waits for its reader");
        assert_eq!(daemon.end(), Some(0), "{more:?}");
        let mut said = String::new();
        daemon.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(!said.contains("in the middle of a turn"), "{said}");
    }
}
