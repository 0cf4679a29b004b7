//! The daemon as its users meet it: HTTP, signals, and what privileges it keeps.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, ChildStderr, ChildStdout},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use crate::common::{finish, program};
use enforcer::threads::ROLES;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Far above what anything here takes; what is not there by then does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// A process that ends with its test, also with one that fails.
pub(crate) struct RunningChild(pub(crate) Child);

impl Drop for RunningChild {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _status = self.0.wait();
    }
}

/// A daemon on this host that can declare nothing that exists, and so changes nothing.
pub(crate) struct Daemon {
    child: RunningChild,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    address: SocketAddr,
    config: TempDir,
}

impl Daemon {
    fn start(mode: &str) -> Self {
        Self::start_on("127.0.0.1:0", &format!("mode = \"{mode}\"\n"))
    }

    /// With further lines of the configuration.
    pub(crate) fn start_on(listen: &str, further: &str) -> Self {
        let mut daemon = Self::spawn_with(listen, further);
        let serving = daemon.said("serving http://");
        let (_, rest) = serving.split_once("http://").unwrap();
        daemon.address = rest.split('/').next().unwrap().parse().unwrap();
        daemon.printed("turn 1: ");
        daemon
    }

    fn spawn(mode: &str, listen: &str) -> Self {
        Self::spawn_with(listen, &format!("mode = \"{mode}\"\n"))
    }

    fn spawn_with(listen: &str, further: &str) -> Self {
        let config = tempfile::tempdir().unwrap();
        let file = config.path().join("config.toml");
        fs::write(&file, format!("interval = \"1h\"\n{further}{}", control(config.path()))).unwrap();
        let mut command = program(&["run", "--metrics-listen", listen, "--config"]);
        command.arg(&file).arg("--state-dir").arg(config.path().join("state"));
        let mut child = command.spawn().unwrap();
        let (stdout, stderr): (ChildStdout, ChildStderr) =
            (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let address = ([127, 0, 0, 1], 0).into();
        let child = RunningChild(child);
        Self { child, stdout: lines(stdout), stderr: lines(stderr), address, config }
    }

    /// Waits for a line on standard error with this text.
    fn said(&self, text: &str) -> String {
        wait_for(&self.stderr, text)
    }

    /// Waits for a line on standard output with this text.
    fn printed(&self, text: &str) -> String {
        wait_for(&self.stdout, text)
    }

    /// Status and body.
    fn ask(&self, path: &str) -> (u16, String) {
        self.ask_with(path, "")
    }

    /// The same with further lines of the request's head.
    fn ask_with(&self, path: &str, head: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// The body, once the daemon gives one and it has this text: a report is served a moment after the
    /// line of its tick is printed.
    pub(crate) fn get(&self, path: &str, text: &str) -> String {
        self.get_with(path, "", text)
    }

    fn get_with(&self, path: &str, head: &str, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.ask_with(path, head) {
                (200, body) if body.contains(text) => return body,
                answer if Instant::now() > until => panic!("{path}: {answer:?}"),
                _ => thread::yield_now(),
            }
        }
    }

    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.config.path().join("config.toml"), text).unwrap();
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.0), signal).unwrap();
    }

    /// Id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Exit code after the signal.
    pub(crate) fn end(mut self, signal: Signal) -> Option<i32> {
        self.signal(signal);
        let (send, receive) = mpsc::channel();
        let pid = Pid::from_child(&self.child.0);
        thread::spawn(move || send.send(self.child.0.wait()));
        let Ok(status) = receive.recv_timeout(PATIENCE) else {
            let _ = kill_process(pid, Signal::KILL);
            panic!("the daemon still runs {PATIENCE:?} after {signal:?}");
        };
        let status = status.unwrap();
        assert_eq!(status.signal(), None, "it ended by itself");
        status.code()
    }
}

#[test]
fn the_log_begins_with_what_runs_and_ends_with_why() {
    let daemon = Daemon::start("observe");
    let (file, state) = (daemon.config.path().join("config.toml"), daemon.config.path().join("state"));
    let mut command = program(&["run", "--metrics-listen", "off", "--config"]);
    command.arg(&file).arg("--state-dir").arg(&state);
    let mut child = command.spawn().unwrap();
    let (stdout, stderr) = (lines(child.stdout.take().unwrap()), lines(child.stderr.take().unwrap()));
    let address = ([127, 0, 0, 1], 0).into();
    let config = tempfile::tempdir().unwrap();
    let mut second = Daemon { child: RunningChild(child), stdout, stderr, address, config };
    let begins = second.stderr.recv_timeout(PATIENCE).unwrap();
    let expected = format!(
        " INFO numa-enforcer {} starts: mode observe, configuration {}, state directory {}",
        env!("CARGO_PKG_VERSION"),
        file.display(),
        state.display()
    );
    assert_eq!(begins, expected);
    second.printed("turn 1: ");
    let stderr = std::mem::replace(&mut second.stderr, mpsc::channel().1);
    assert_eq!(second.end(Signal::TERM), Some(0));
    assert_eq!(
        stderr.iter().last().unwrap(),
        " INFO numa-enforcer ends on SIGTERM; cpusets stay as they are"
    );
    assert_eq!(daemon.end(Signal::TERM), Some(0));
}

#[test]
fn everything_but_probes_takes_the_token() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "0123456789abcdef\n").unwrap();
    let token = format!("[metrics]\ntoken_file = {:?}\n", file.path());
    let daemon = Daemon::start_on("127.0.0.1:0", &token);
    daemon.get("/live", "");
    for path in ["/metrics", "/report.json", "/report.html"] {
        assert_eq!(daemon.ask(path).0, 401, "{path}");
        assert_eq!(daemon.ask_with(path, "Authorization: Bearer 0123456789abcdeX\r\n").0, 401, "{path}");
        daemon.get_with(path, "Authorization: Bearer 0123456789abcdef\r\n", "");
    }
    assert_eq!(daemon.end(Signal::TERM), Some(0));
    // Beyond loopback and without a token: figures, and no reports.
    let daemon = Daemon::start_on("0.0.0.0:0", "");
    daemon.get("/metrics", "numa_enforcer_");
    for path in ["/report.json", "/report.html"] {
        assert_eq!(daemon.ask(path).0, 403, "{path}");
    }
    assert_eq!(daemon.end(Signal::TERM), Some(0));
}

/// A control socket that no other daemon of this host has.
fn control(directory: &Path) -> String {
    format!("[control]\nsocket = \"{}\"\n", directory.join("control.sock").display())
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            assert!(!line.contains("panicked"), "{line}");
            if send.send(line).is_err() {
                break;
            }
        }
    });
    receive
}

fn wait_for(lines: &Receiver<String>, text: &str) -> String {
    let mut seen = Vec::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(text) => return line,
            Ok(line) => seen.push(line),
            Err(error) => panic!("`{text}`: {error}; so far: {seen:#?}"),
        }
    }
}

#[test]
fn it_answers_over_http_and_ends_when_told_to() {
    for signal in [Signal::TERM, Signal::INT] {
        let daemon = Daemon::start("observe");
        assert_eq!(daemon.ask("/live"), (200, "alive\n".to_owned()));
        daemon.get("/ready", "ready");
        let metrics = daemon.get("/metrics", "");
        let version =
            concat!("numa_enforcer_build_info{commit=\"\",version=\"", env!("CARGO_PKG_VERSION"), "\"} 1");
        for line in [version, "numa_enforcer_ticks_total 1", "numa_enforcer_enforcing 0"] {
            assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
        }
        let report: serde_json::Value = serde_json::from_str(&daemon.get("/report.json", "")).unwrap();
        assert_eq!((&report["schemaVersion"], &report["mode"]), (&2.into(), &"observe".into()));
        assert!(report["audit"]["workloads"].is_array(), "{report}");
        let page = daemon.get("/report.html", "");
        assert!(page.starts_with("<!DOCTYPE html>") && page.contains("id=\"by-node\""), "{page}");
        assert_eq!(daemon.end(signal), Some(0), "{signal:?}");
    }
}

#[test]
fn a_bad_configuration_is_said_and_the_old_one_stays() {
    let daemon = Daemon::start("observe");
    daemon.configure("interval = \"1h\"\nfrobnicate = 1\n");
    let said = daemon.said("the configuration stays as it was");
    assert!(said.contains("config.toml:2:1: unknown field `frobnicate`"), "{said}");
    daemon.said("2 | frobnicate = 1");
    daemon.said("  | ^^^^^^^^^^");
    daemon.printed("turn 2: ");
    daemon.get("/metrics", "numa_enforcer_config_last_reload_successful 0\n");

    // What its keys hold is shown in one line.
    daemon.configure("\"a\\n\\u202eb\" = 1\n");
    let said = daemon.said("the configuration stays as it was");
    assert!(said.contains(r"unknown field `a\n\u{202e}b`"), "{said}");

    daemon.configure("mode = \"observe\"\ninterval = \"2h\"\n");
    daemon.said("the configuration was read again");
    daemon.get("/metrics", "numa_enforcer_config_last_reload_successful 1\n");
    assert_eq!(daemon.end(Signal::TERM), Some(0));
}

#[test]
fn a_port_that_is_taken_is_said_and_does_not_stop_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let daemon = Daemon::spawn("observe", &address);
    let said = daemon.said("no metrics are served");
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
    daemon.printed("metrics");
    daemon.printed("turn 1: ");
    assert_eq!(daemon.end(Signal::TERM), Some(0));
}

#[test]
fn a_log_that_cannot_be_written_does_not_end_it() {
    let config = tempfile::tempdir().unwrap();
    let mut command = program(&["run", "--once", "--metrics-listen", "127.0.0.1:0", "--state-dir"]);
    command.arg(config.path().join("state")).stderr(full());
    let ended = finish(command);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("turn 1: "), "{ended:?}");
}

#[test]
fn closed_output_does_not_end_it() {
    let mut daemon = Daemon::spawn("observe", "127.0.0.1:0");
    daemon.printed("turn 1: ");
    // The reading thread ends at the first line without a receiver.
    daemon.stdout = mpsc::channel().1;
    daemon.configure(&format!("interval = \"1s\"\n{}", control(daemon.config.path())));
    daemon.said("lines of turns are lost: printing: Broken pipe");
    // The last words cannot be written either, for which a quiet end is right.
    assert_eq!(daemon.end(Signal::TERM), Some(0));
}

#[test]
fn a_disk_that_is_full_of_its_lines_does_not_end_it() {
    let config = tempfile::tempdir().unwrap();
    let mut command = program(&["run", "--interval", "1s", "--metrics-listen", "127.0.0.1:0", "--state-dir"]);
    command.arg(config.path().join("state")).stdout(full());
    let mut child = command.spawn().unwrap();
    let (address, config) = (([127, 0, 0, 1], 0).into(), config);
    let stderr = lines(child.stderr.take().unwrap());
    let mut daemon =
        Daemon { child: RunningChild(child), stdout: mpsc::channel().1, stderr, address, config };
    let serving = daemon.said("serving http://");
    daemon.address = serving.split_once("http://").unwrap().1.split('/').next().unwrap().parse().unwrap();
    daemon.said("lines of turns are lost: printing: No space left on device");
    daemon.get("/metrics", "numa_enforcer_degraded{feature=\"stdout\"} 1");
    assert_eq!(daemon.end(Signal::TERM), Some(0));
}

#[test]
fn what_was_to_be_restored_is_restored_after_an_error_too() {
    let state = tempfile::tempdir().unwrap();
    let arguments =
        ["run", "--once", "--restore-on-exit", "--mode", "enforce", "--metrics-listen", "off", "--state-dir"];
    let mut command = program(&arguments);
    command.arg(state.path()).stdout(full());
    let ended = finish(command);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    for said in ["printing: No space left on device", "everything was put back"] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
}

/// A disk that is full.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// Bits of capabilities in `include/uapi/linux/capability.h`.
const CAPABILITIES: [(&str, u64); 4] =
    [("CAP_DAC_OVERRIDE", 1 << 1), ("CAP_SYS_PTRACE", 1 << 19), ("CAP_SYS_NICE", 1 << 23), ("CAP_BPF", BPF)];
const BPF: u64 = 1 << 39;

const PRIVILEGES: &str = include_str!("../../../docs/privileges.md");

/// What the documentation says that a mode keeps, always.
fn documented(mode: &str) -> u64 {
    let (_, table) = PRIVILEGES.split_once("\n| kept |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let mut rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
    // What is behind a mode is a condition more.
    rows.retain(|row| row[2].ends_with(&format!("{mode} mode")));
    assert!(!rows.is_empty(), "docs/privileges.md says nothing of {mode} mode");
    let bit = |name: &str| match name.trim_matches('`') {
        "nothing" => 0,
        name => CAPABILITIES.iter().find(|(known, _)| *known == name).unwrap().1,
    };
    rows.iter().map(|row| bit(row[1])).sum()
}

/// The most that a thread of that name keeps, of what the daemon has.
fn kept_by(name: &str) -> u64 {
    match ROLES.iter().find(|role| role.name() == name) {
        Some(role) => role.keeps().bits(),
        // The last two belong to `placement`.
        None if ["signals", "stdout", "log", "departures", "exposure"].contains(&name) => 0,
        // The one that turns the engine.
        None => u64::MAX,
    }
}

/// Some threads give up what they do not need a moment after they were started.
fn comes_to_be(expected: u64, read: impl Fn() -> u64) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(30);
    while read() != expected && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
    }
    read()
}

#[test]
fn each_thread_keeps_what_its_role_needs() {
    let own = mask(Path::new("/proc/self/status"), "CapPrm:");
    for mode in ["observe", "enforce"] {
        let kept = documented(mode);
        let daemon = Daemon::start(mode);
        let tasks = format!("/proc/{}/task", daemon.id());
        let tasks: Vec<_> = fs::read_dir(tasks).unwrap().map(|entry| entry.unwrap().path()).collect();
        let mut names = BTreeSet::new();
        for task in tasks {
            let status = task.join("status");
            let comm = fs::read_to_string(task.join("comm")).unwrap();
            let name = comm.trim_end();
            names.insert(name.to_owned());
            let kept = kept & own & kept_by(name);
            for set in ["CapEff:", "CapPrm:"] {
                // Kernels before 5.19 need CAP_BPF to read maps.
                let found = comes_to_be(kept, || mask(&status, set) & !BPF);
                assert_eq!(found, kept, "{mode}: {set} of {name}");
            }
            assert_eq!(mask(&status, "CapInh:"), 0, "{mode}");
            assert_eq!(mask(&status, "NoNewPrivs:"), 1, "{mode}");
        }
        let expected: &[&str] = match mode {
            "observe" => &["serve", "kubelet", "nri", "placement", "signals", "stdout", "log"],
            _ => &["serve", "kubelet", "nri", "placement", "widening", "relief", "brake", "cold-pages"],
        };
        assert!(expected.iter().all(|name| names.contains(*name)), "{mode}: {names:?}");
        // It goes on seeing what it saw, and reading what the programs count.
        daemon.configure(&format!("interval = \"1h\"\nmode = \"{mode}\"\n"));
        let line = daemon.printed("turn 2: ");
        assert!(!line.contains(" 0 workloads"), "{line}");
        let report = daemon.get("/report.json", "\"turns\":2");
        assert!(!report.contains("bpf:counters"), "{report}");
        assert_eq!(daemon.end(Signal::TERM), Some(0));
    }
}

#[test]
fn writing_needs_a_restart_once_the_privileges_are_gone() {
    let daemon = Daemon::start("observe");
    daemon.configure("interval = \"1h\"\nmode = \"enforce\"\n");
    daemon.said("from observe to enforce needs a restart");
    daemon.get("/metrics", "numa_enforcer_enforcing 0\n");
    assert_eq!(daemon.end(Signal::TERM), Some(0));
}

fn mask(status: &Path, field: &str) -> u64 {
    let text = fs::read_to_string(status).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    u64::from_str_radix(value.trim(), 16).unwrap()
}
