//! The control socket from outside: commands, exit codes, permissions.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader, Write},
    os::unix::{
        fs::{PermissionsExt, chown},
        net::{UnixListener, UnixStream},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Child,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{Ended, finish, observing_daemon, program, unprivileged};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Far above what anything here takes; what is not there by then does not come.
const PATIENCE: Duration = Duration::from_mins(1);

/// A group without members.
const MEMBERS: u32 = 54_321;

/// A daemon on this host that observes, with its socket in a directory of its own.
struct Daemon {
    child: Child,
    socket: PathBuf,
    root: TempDir,
    lines: Option<Receiver<String>>,
}

impl Daemon {
    fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), |_| {})
    }

    fn start_in(root: TempDir, prepare: impl FnOnce(&Path)) -> Self {
        prepare(root.path());
        let socket = root.path().join("run/control.sock");
        let mut daemon = Self { child: observing_daemon(&root, &socket), socket, root, lines: None };
        daemon.ready();
        daemon
    }

    /// Waits for its first turn.
    fn ready(&mut self) {
        let stdout = self.child.stdout.take().unwrap();
        let (send, receive) = mpsc::channel();
        // Reads on: a full pipe would stop the daemon.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _unheard = send.send(line);
            }
        });
        self.lines = Some(receive);
        assert!(self.printed("turn 1: "), "it never turned");
    }

    /// Waits for a line that begins so.
    fn printed(&self, begin: &str) -> bool {
        let lines = self.lines.as_ref().unwrap();
        std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).any(|line| line.starts_with(begin))
    }

    fn ask(&self, arguments: &[&str]) -> Ended {
        finish(self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = program(arguments);
        command.arg("--socket").arg(&self.socket);
        command
    }

    fn status(&self) -> Value {
        let ended = self.ask(&["status", "-o", "json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        serde_json::from_str(&ended.stdout).unwrap()
    }

    fn end(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

#[test]
fn a_daemon_tells_how_it_fares_and_is_paused_and_resumed() {
    let daemon = Daemon::start();
    let table = daemon.ask(&["status"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    for text in ["Mode      observe", "log level info", "Turns     1, ", "None of them is placed"] {
        assert!(table.stdout.contains(text), "{text}: {}", table.stdout);
    }
    let status = daemon.status();
    assert_eq!((&status["latest"]["mode"], &status["pid"]), (&"observe".into(), &daemon.child.id().into()));

    let paused = daemon.ask(&["pause", "--for", "10m"]);
    let said = "paused, 10m left\nnothing changes by that: this daemon observes, and writes nothing anyway\n";
    assert_eq!((paused.code, paused.stdout.as_str()), (Some(0), said));
    assert!(daemon.status()["paused"]["leftSeconds"].as_u64().unwrap() > 500);
    let shown = daemon.ask(&["status"]).stdout;
    assert!(shown.contains("Mode      observe, paused"), "{shown}");
    assert_eq!(
        daemon.ask(&["resume"]).stdout,
        "no longer paused; this daemon observes, and writes nothing anyway\n"
    );
    assert_eq!(daemon.ask(&["resume"]).stdout, "it was not paused\n");
    assert_eq!(daemon.status()["paused"], Value::Null);

    // A pause with an end expires by itself.
    daemon.ask(&["pause", "--for", "1s"]);
    let until = Instant::now() + PATIENCE;
    while !daemon.status()["paused"].is_null() {
        assert!(Instant::now() < until, "it never ends");
    }
}

#[test]
fn a_daemon_that_is_started_again_is_still_paused() {
    let mut daemon = Daemon::start();
    daemon.ask(&["pause"]);
    for signal in [Signal::KILL, Signal::TERM] {
        daemon.end(signal);
        daemon.child = observing_daemon(&daemon.root, &daemon.socket);
        daemon.ready();
        let paused = &daemon.status()["paused"];
        assert!(paused.is_object() && paused["leftSeconds"].is_null(), "{signal:?}: {paused}");
        let log = fs::read_to_string(daemon.root.path().join("log")).unwrap();
        assert!(log.contains("still paused"), "{log}");
    }
    assert!(daemon.ask(&["resume"]).stdout.starts_with("no longer paused"));
    daemon.end(Signal::TERM);
    daemon.child = observing_daemon(&daemon.root, &daemon.socket);
    daemon.ready();
    assert_eq!(daemon.status()["paused"], Value::Null, "that the last one has ended is no pause");
}

#[test]
fn the_level_of_the_log_is_that_of_the_running_daemon() {
    let daemon = Daemon::start();
    let pauses =
        || fs::read_to_string(daemon.root.path().join("log")).unwrap().matches("until resumed").count();
    assert_eq!(daemon.ask(&["log-level"]).stdout, "info\n");
    assert_eq!(daemon.ask(&["log-level", "error"]).stdout, "error\n");
    daemon.ask(&["pause"]);
    daemon.ask(&["log-level", "debug"]);
    daemon.ask(&["pause"]);
    // The log is written by a thread of its own, in order: the second line is there after the first would be.
    let until = Instant::now() + PATIENCE;
    while pauses() == 0 {
        assert!(Instant::now() < until, "the second pause is not logged");
    }
    assert_eq!(pauses(), 1, "a warning is below the level error");
    assert_eq!(daemon.ask(&["log-level", "loud"]).code, Some(64));
}

#[test]
fn a_workload_is_explained_and_a_wrong_name_says_which_there_are() {
    let daemon = Daemon::start();
    let ended = daemon.ask(&["explain", "no-such-workload"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.starts_with("numa-enforcer: no workload is called `no-such-workload`"), "{ended:?}");
    let hostile = daemon.ask(&["explain", "\u{1b}[31m\nx"]);
    assert!(!hostile.stderr.trim_end().contains(['\u{1b}', '\n']), "{hostile:?}");
}

#[test]
fn without_a_daemon_it_is_said_with_an_exit_code_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let dead = root.path().join("dead");
    drop(UnixListener::bind(&dead).unwrap());
    for socket in [dead, root.path().join("absent")] {
        for arguments in [
            &["status"][..],
            &["explain", "x"],
            &["pause"],
            &["resume"],
            &["log-level"],
            &["log-level", "info"],
        ] {
            let mut command = program(arguments);
            command.arg("--socket").arg(&socket);
            let ended = finish(command);
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(69), ""), "{arguments:?}: {ended:?}");
            let path = socket.display().to_string();
            assert!(
                ended.stderr.contains("no daemon runs") && ended.stderr.contains(&path),
                "{}",
                ended.stderr
            );
        }
    }
    let mut command = program(&["status", "--socket"]);
    command.arg(root.path().join("x".repeat(200)));
    assert_eq!(finish(command).code, Some(2), "no socket can be called that");
}

#[test]
fn answer_of_another_program_is_not_believed_and_not_awaited() {
    let root = tempfile::tempdir().unwrap();
    for (name, answer) in [
        ("nothing", ""),
        ("nonsense", "hello\r\n\r\n"),
        ("other", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        ("html", "HTTP/1.1 500 Oops\r\nContent-Length: 6\r\n\r\n<html>"),
        ("short", "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{}"),
    ] {
        let path = root.path().join(name);
        let listener = UnixListener::bind(&path).unwrap();
        let answering = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = String::new();
            let _read = BufReader::new(stream.try_clone().unwrap()).read_line(&mut head);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let mut command = program(&["status", "--socket"]);
        command.arg(&path);
        let ended = finish(command);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{name}: {ended:?}");
        answering.join().unwrap();
    }
}

#[test]
fn second_daemon_names_the_holder_of_the_socket_and_stale_socket_is_replaced() {
    let mut daemon = Daemon::start();
    let pid = daemon.child.id();
    let root = tempfile::tempdir().unwrap();
    let mut second = Daemon {
        child: observing_daemon(&root, &daemon.socket),
        socket: daemon.socket.clone(),
        root,
        lines: None,
    };
    second.ready();
    let log = fs::read_to_string(second.root.path().join("log")).unwrap();
    let said = format!("{} is taken: another process ({pid}) listens on it", daemon.socket.display());
    assert!(log.contains(&said), "{log}");
    assert_eq!(daemon.status()["pid"], pid, "the first one answers as before");
    second.end(Signal::TERM);
    assert_eq!(daemon.status()["pid"], pid, "and when the second one has ended");

    daemon.end(Signal::KILL);
    assert_eq!(daemon.ask(&["status"]).code, Some(69));
    assert!(daemon.socket.exists(), "no process was left to remove it");
    daemon.child = observing_daemon(&daemon.root, &daemon.socket);
    daemon.ready();
    assert_eq!(daemon.status()["pid"], daemon.child.id());
    daemon.end(Signal::TERM);
    assert!(!daemon.socket.exists());
}

#[test]
fn reader_group_changes_nothing_and_other_users_cannot_read() {
    if !geteuid().is_root() {
        println!("skipped: only root can change its user");
        return;
    }
    // The socket takes the group of its directory.
    let daemon = Daemon::start_in(tempfile::tempdir().unwrap(), |root| {
        let run = root.join("run");
        fs::create_dir(&run).unwrap();
        chown(&run, None, Some(MEMBERS)).unwrap();
        fs::set_permissions(&run, Permissions::from_mode(0o2755)).unwrap();
        fs::set_permissions(root, Permissions::from_mode(0o755)).unwrap();
    });
    let ask = |gid: u32, arguments: &[&str]| {
        let (mut command, _copy) = unprivileged(arguments);
        command.gid(gid).arg("--socket").arg(&daemon.socket);
        finish(command)
    };
    assert_eq!(ask(MEMBERS, &["status"]).code, Some(0));
    for arguments in [&["pause"][..], &["resume"], &["log-level", "debug"]] {
        let ended = ask(MEMBERS, arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(ended.stderr.contains("only root and the daemon's own user may"), "{}", ended.stderr);
    }
    let stranger = ask(65534, &["status"]);
    assert!(stranger.stderr.contains("Permission denied"), "{stranger:?}");
    assert_eq!(stranger.code, Some(2));
    // Rights of the file are not all that protects it.
    fs::set_permissions(&daemon.socket, Permissions::from_mode(0o666)).unwrap();
    for arguments in [&["status"][..], &["pause"]] {
        let ended = ask(65534, arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("only root and members of the socket's group may ask"), "{ended:?}");
    }
    assert_eq!(daemon.status()["paused"], Value::Null);
}

#[test]
fn turns_go_on_beside_a_hostile_crowd() {
    let daemon = Daemon::start();
    let over = Arc::new(AtomicBool::new(false));
    let crowd: Vec<_> = (0..8)
        .map(|_| {
            let (socket, over) = (daemon.socket.clone(), Arc::clone(&over));
            thread::spawn(move || {
                let mut kept = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let Ok(mut stream) = UnixStream::connect(&socket) else { continue };
                    let _ended = stream.write_all(&[b'x'; 64]);
                    kept.push(stream);
                    if kept.len() > 64 {
                        kept.clear();
                    }
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    // A turn is made at once when the configuration is read again.
    kill_process(Pid::from_child(&daemon.child), Signal::HUP).unwrap();
    let turned = daemon.printed("turn 2: ");
    over.store(true, Ordering::Relaxed);
    for one in crowd {
        one.join().unwrap();
    }
    assert!(turned, "no turn beside the crowd");
    // Ours, as root as the crowd is, may have to wait until the last of them is thrown out.
    let until = Instant::now() + PATIENCE;
    while daemon.ask(&["status"]).code != Some(0) {
        assert!(Instant::now() < until, "no client is answered after the crowd");
    }
}
