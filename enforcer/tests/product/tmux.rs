//! `top` in a terminal that people have: tmux, at 80 by 24, with colours and without.
//!
//! The screen of `top.rs` knows only the sequences that the program uses. tmux knows what terminals
//! know, so this test shows that those sequences mean there what they should. Each test has its own tmux
//! server, without a user's configuration.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// A bound on a hang.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two looks at the screen.
const LOOK: Duration = Duration::from_millis(50);

/// Bold, reversed, and back to what the terminal's owner has: all that is no colour.
const COLOURLESS: [&str; 7] = ["", "0", "1", "7", "27", "39", "49"];
/// Faint, which is written only where there are colours.
const FAINT: &str = "2";

/// A terminal of tmux, with `top` in it.
struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// None where there is no tmux, which CI must have.
    fn start(variables: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let terminal = Self { folder };
        if let Err(error) = Command::new("tmux").arg("-V").output() {
            assert_ne!(
                std::env::var("CI").as_deref(),
                Ok("true"),
                "must not be skipped in CI: no tmux: {error}"
            );
            // Not by `println!`, which tests that pass keep to themselves.
            let mut shown = io::stderr();
            writeln!(shown, "skipped: top in tmux: tmux cannot be run: {error}").unwrap();
            return None;
        }
        let (program, socket) = (env!("CARGO_BIN_EXE_numa-enforcer"), terminal.folder.path().join("no.sock"));
        let (variables, socket) = (variables.join(" "), socket.display());
        // What was there before must be there again, and the terminal stays for a look at it.
        let shell = format!(
            "echo before; env {variables} '{program}' top --interval 500ms --socket '{socket}'; echo ended: $?; exec cat"
        );
        terminal.tmux(&["-f", "/dev/null", "-u", "new-session", "-d", "-x", "80", "-y", "24", &shell]);
        Some(terminal)
    }

    /// What a command of tmux prints.
    fn tmux(&self, arguments: &[&str]) -> String {
        let home = self.folder.path();
        let mut tmux = Command::new("tmux");
        tmux.env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", home)
            .env("SHELL", "/bin/sh")
            .env("LC_ALL", "C.UTF-8");
        let output = tmux.arg("-S").arg(home.join("tmux.sock")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is so.
    fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(begin.elapsed() < PATIENCE, "never {what}:\n{screen}");
            thread::sleep(LOOK);
        }
    }

    fn shows(&self, words: &str) -> String {
        self.until(words, |screen| screen.contains(words))
    }

    /// Presses keys, as tmux names them.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"][..], keys].concat());
    }

    /// What tmux knows of the terminal.
    fn state(&self) -> String {
        self.tmux(&["display-message", "-p", "alternate #{alternate_on}, cursor #{cursor_flag}"])
    }

    /// The attributes that cells have, as numbers of SGR (ECMA-48).
    fn attributes(&self) -> BTreeSet<String> {
        let screen = self.tmux(&["capture-pane", "-p", "-e"]);
        let sequences = screen.split("\u{1b}[").skip(1).filter_map(|rest| rest.split_once('m'));
        sequences.flat_map(|(numbers, _)| numbers.split(';')).map(str::to_owned).collect()
    }

    /// Sees to it that the terminal is as it was, and what is on it.
    fn ended(&self) {
        let screen = self.shows("ended: 0");
        // tmux itself leaves lines above where it was resized meanwhile.
        assert!(screen.trim_end().ends_with("before\nended: 0"), "{screen}");
        assert_eq!(self.state(), "alternate 0, cursor 1\n");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It fails only where there is none.
        let mut tmux = Command::new("tmux");
        let _ended = tmux.arg("-S").arg(self.folder.path().join("tmux.sock")).arg("kill-server").output();
    }
}

#[test]
fn a_host_without_a_daemon_is_shown_in_eighty_columns_and_keys_do_what_they_say() {
    let Some(terminal) = Terminal::start(&[]) else { return };
    terminal.shows("numa-enforcer top: no daemon, looks by itself every ");
    let screen = terminal.shows(">traffic");
    assert_eq!(terminal.state(), "alternate 1, cursor 0\n");
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines.len(), 24, "{screen}");
    assert!(lines[2].starts_with("node CPUs ") && lines[23].starts_with("q end  enter details"), "{screen}");
    assert!(!screen.contains("before"), "{screen}");
    terminal.press(&["b"]);
    terminal.shows(">misplaced");
    terminal.press(&["/", "no such workload"]);
    terminal.shows("filter: no such workload_");
    terminal.press(&["Escape"]);
    terminal.shows("q end  enter details");
    terminal.press(&["?"]);
    terminal.shows("q back  up, down, PgUp, PgDn scroll");
    terminal.press(&["PageDown"]);
    terminal.press(&["Escape"]);
    terminal.shows("q end  enter details");
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.until("as high as the terminal", |screen| {
        screen.lines().nth(29).is_some_and(|line| line.starts_with("q end"))
    });
    terminal.press(&["q"]);
    terminal.ended();
}

#[test]
fn colours_are_left_out_with_no_color() {
    for (variables, colours) in [(&[][..], true), (&["NO_COLOR=1"], false)] {
        let Some(terminal) = Terminal::start(variables) else { return };
        terminal.shows(">traffic");
        let attributes = terminal.attributes();
        assert_eq!(attributes.contains(FAINT), colours, "{variables:?}: {attributes:?}");
        let coloured = attributes.iter().any(|one| !COLOURLESS.contains(&one.as_str()));
        assert_eq!(coloured, colours, "{variables:?}: {attributes:?}");
        assert!(attributes.contains("1") && attributes.contains("7"), "{variables:?}: {attributes:?}");
        terminal.press(&["C-c"]);
        terminal.ended();
    }
}
