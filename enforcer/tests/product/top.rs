//! `top` on a terminal: what is drawn, what keys do, and that the terminal is given back.
//!
//! The terminal is a pseudo-terminal; the test reads its other end and plays it on a screen that knows only
//! what the program uses: moving, clearing, the alternate screen.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::common::{finish, observing_daemon, program};
use rustix::{
    fs::{Mode, OFlags, open},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize},
};

/// A bound on a hang.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at the screen.
const LOOK: Duration = Duration::from_millis(20);

/// A program on a terminal.
struct Session {
    child: Child,
    keys: File,
    written: Arc<Mutex<Vec<u8>>>,
    terminal: OwnedFd,
    modes: LocalModes,
}

impl Session {
    fn start(arguments: &[&str], columns: u16, rows: u16) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        resize(&ours, columns, rows);
        let modes = tcgetattr(&theirs).unwrap().local_modes;
        // A session of its own with this controlling terminal, so that it gets new sizes.
        let mut command = Command::new("/usr/bin/setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_numa-enforcer")).arg("top").args(arguments);
        command.env_clear().env("TERM", "xterm-256color");
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (to, mut from) = (Arc::clone(&written), File::from(ours.try_clone().unwrap()));
        thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut some) {
                to.lock().unwrap().extend_from_slice(&some[..length]);
            }
        });
        Self { child, keys: File::from(ours), written, terminal: theirs, modes }
    }

    fn screen(&self) -> Screen {
        Screen::of(&String::from_utf8_lossy(&self.written.lock().unwrap()))
    }

    /// Waits until the screen is so.
    fn until(&self, what: &str, is: impl Fn(&str) -> bool) {
        let begin = Instant::now();
        loop {
            let text = self.screen().text();
            if is(&text) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "never {what}:\n{text}");
            thread::sleep(LOOK);
        }
    }

    fn shows(&self, words: &str) {
        self.until(words, |text| text.contains(words));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end, and sees to it that the terminal is as it was.
    fn ended(mut self) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "it still runs:\n{}", self.screen().text());
            thread::sleep(LOOK);
        };
        assert_eq!(status.code(), Some(0), "{}", self.screen().text());
        assert_eq!(tcgetattr(&self.terminal).unwrap().local_modes, self.modes);
        // The last bytes may be on their way to us.
        self.until("given back", |_| {
            let Screen { alternate, cursor, .. } = self.screen();
            !alternate && cursor
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

fn resize(terminal: &OwnedFd, columns: u16, rows: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// What is on the screen.
struct Screen {
    cells: Vec<Vec<char>>,
    alternate: bool,
    cursor: bool,
}

impl Screen {
    fn of(written: &str) -> Self {
        let blank = || vec![vec![' '; 300]; 100];
        let mut screen = Self { cells: blank(), alternate: false, cursor: true };
        let (mut x, mut y) = (0, 0);
        let mut rest = written.chars();
        while let Some(c) = rest.next() {
            match c {
                '\u{1b}' if rest.next() == Some('[') => {
                    let mut parameters = String::new();
                    let end = loop {
                        match rest.next() {
                            Some(c @ ('0'..='9' | ';' | '?')) => parameters.push(c),
                            other => break other,
                        }
                    };
                    let number = |at: usize| parameters.split(';').nth(at).and_then(|text| text.parse().ok());
                    match (end, parameters.as_str()) {
                        (Some('H'), _) => (y, x) = (number(0).unwrap_or(1) - 1, number(1).unwrap_or(1) - 1),
                        (Some('J'), _) => screen.cells = blank(),
                        (Some(on @ ('h' | 'l')), "?1049") => {
                            (screen.alternate, screen.cells) = (on == 'h', blank());
                        }
                        (Some(on @ ('h' | 'l')), "?25") => screen.cursor = on == 'h',
                        _ => {}
                    }
                }
                '\u{1b}' => {}
                '\r' => x = 0,
                '\n' => y += 1,
                c => {
                    if let Some(cell) = screen.cells.get_mut(y).and_then(|row: &mut Vec<char>| row.get_mut(x))
                    {
                        *cell = c;
                    }
                    x += 1;
                }
            }
        }
        screen
    }

    fn text(&self) -> String {
        let rows = self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
        rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }
}

/// A socket that gives every client this answer, or none. The returned listener counts the clients
/// afterwards.
fn daemon_that_says(folder: &Path, answer: Option<&'static str>) -> (String, UnixListener) {
    let path = folder.join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    if let Some(answer) = answer {
        let listener = listener.try_clone().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let _request = stream.read(&mut [0; 4096]);
                let length = answer.len();
                let _gone = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{answer}");
            }
        });
    }
    (path.to_str().unwrap().to_owned(), listener)
}

#[test]
fn a_daemon_that_does_not_answer_is_asked_once_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, listener) = daemon_that_says(folder.path(), None);
    let printed = finish(program(&["top", "--once", "--interval", "500ms", "--socket", &socket]));
    let said = "control.sock: the daemon does not answer within 3s; top looks by itself\n";
    assert!(printed.stderr.ends_with(said), "{}", printed.stderr);
    let head = "numa-enforcer top: a daemon cannot be asked, looks by itself every ";
    assert!(printed.stdout.starts_with(head), "{}", printed.stdout);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.incoming().map_while(Result::ok).count(), 1);
}

#[test]
fn a_daemon_of_another_schema_version_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, _listener) =
        daemon_that_says(folder.path(), Some(r#"{"schemaVersion": 99, "version": "7.0", "turn": []}"#));
    let printed = finish(program(&["top", "--once", "--interval", "500ms", "--socket", &socket]));
    assert!(printed.stderr.contains("the daemon, 7.0, answers in schema version 99, "), "{}", printed.stderr);
    assert!(printed.stdout.contains("a daemon cannot be asked"), "{}", printed.stdout);
    let refused = finish(program(&["status", "--socket", &socket]));
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("schema version 99"), "{}", refused.stderr);
}

#[test]
fn a_terminal_that_claims_to_be_huge_is_drawn_in_part() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(&["--socket", &nowhere(folder.path())], u16::MAX, u16::MAX);
    session.shows("node CPUs");
    let terminal = session.terminal.try_clone().unwrap();
    resize(&terminal, u16::MAX, 10);
    session.until("as high as the terminal", |text| text.lines().count() == 10);
    session.press("?");
    session.shows("sort by misplaced bytes");
    session.press("qq");
    session.ended();
}

fn nowhere(folder: &Path) -> String {
    folder.join("no.sock").to_str().unwrap().to_owned()
}

#[test]
fn a_host_without_a_daemon_is_shown_keys_work_and_the_screen_is_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(&["--socket", &nowhere(folder.path())], 80, 24);
    session.shows("numa-enforcer top: no daemon, looks by itself every ");
    session.shows("node CPUs");
    session.shows(">traffic");
    session.press("b");
    session.shows(">misplaced");
    session.press("?");
    session.shows("sort by misplaced bytes");
    let terminal = session.terminal.try_clone().unwrap();
    resize(&terminal, 40, 10);
    session.until("as high as the terminal", |text| {
        text.lines().nth(9).is_some_and(|line| line.contains("more line")) && text.lines().count() == 10
    });
    resize(&terminal, 100, 30);
    session.until("as high as the terminal", |text| {
        text.lines().nth(29).is_some_and(|line| line.starts_with("q back"))
    });
    session.press("qq");
    session.ended();
}

#[test]
fn signals_end_it_and_give_the_screen_back() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let session = Session::start(&["--socket", &nowhere(folder.path())], 80, 24);
        session.shows("numa-enforcer top: ");
        kill_process(Pid::from_child(&session.child), signal).unwrap();
        session.ended();
    }
    let mut session = Session::start(&["--socket", &nowhere(folder.path())], 80, 24);
    session.shows("numa-enforcer top: ");
    session.press("\u{3}");
    session.ended();
}

#[test]
fn a_daemon_that_goes_and_comes_back_is_told() {
    let root = tempfile::tempdir().unwrap();
    let socket = root.path().join("run/control.sock");
    let stop = |mut daemon: Child| {
        kill_process(Pid::from_child(&daemon), Signal::KILL).unwrap();
        daemon.wait().unwrap();
    };
    let daemon = observing_daemon(&root, &socket);
    let begin = Instant::now();
    let path = socket.to_str().unwrap();
    while finish(program(&["status", "--socket", path])).code != Some(0) {
        assert!(begin.elapsed() < PATIENCE, "the daemon never answered");
        thread::sleep(LOOK);
    }
    let mut session = Session::start(&["--socket", path, "--interval", "500ms"], 120, 30);
    session.shows("numa-enforcer top: daemon ");
    session.shows(", observe, turn 1, ");
    stop(daemon);
    session.shows("no answer for ");
    session.until("what was seen before", |text| text.contains("turn 1, ") && text.contains("node CPUs"));
    let daemon = observing_daemon(&root, &socket);
    session.shows("another daemon answers now");
    session.press("q");
    session.ended();
    stop(daemon);
}

#[test]
fn without_a_terminal_one_frame_is_printed_and_a_screen_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = nowhere(folder.path());
    let refused = finish(program(&["top", "--socket", &socket]));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""));
    assert!(refused.stderr.contains("standard output is not a terminal; `top --once`"), "{}", refused.stderr);

    let printed = finish(program(&["top", "--once", "--interval", "500ms", "--socket", &socket]));
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""));
    assert!(
        printed.stdout.starts_with("numa-enforcer top: no daemon, looks by itself "),
        "{}",
        printed.stdout
    );
    assert!(
        printed.stdout.contains("\nnode CPUs") && !printed.stdout.contains('\u{1b}'),
        "{}",
        printed.stdout
    );
}
