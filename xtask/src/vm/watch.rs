//! Waiting for a guest's job, in bounded time.
//!
//! Three things end the wait: the job's exit status, a console that says the guest is lost, and the
//! clock. Lines are taken from a channel, so a silent guest cannot hold the wait up.

use std::{
    io::{BufRead, BufReader, Read},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::console::{Console, Trouble};

/// How often the console is looked at while the job is silent.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Lines of the guest's last stage (`xtask/guest/stage2`).
const READY: &str = "rig: ready";
const EXIT: &str = "rig: exit ";
/// Instead of them: the machine is not whole, and no verdict on a job would be one.
const STARVED: &str = "rig: starved: ";

/// How a boot ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The job ended with this status.
    Exited(i32),
    /// The kernel broke.
    Broken(String),
    /// No status came: time was over, the guest was starved, or QEMU ended. Worth one more try.
    Stalled(String),
}

/// How long each part of a boot may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// From QEMU's start to a guest that is ready for its job.
    pub(super) up: Duration,
    /// From there to the job's exit status.
    pub(super) job: Duration,
    /// For a dying kernel to print the rest.
    pub(super) last_words: Duration,
}

/// Hands over each line of the job as it comes, until the boot ends one way or another.
pub(super) fn watch(
    lines: &Receiver<String>,
    console: &mut Console,
    limits: Limits,
    on_line: &mut dyn FnMut(&str),
) -> Result<Ending> {
    let mut deadline = Instant::now() + limits.up;
    let mut ready = false;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) if !ready && line == READY => {
                ready = true;
                deadline = Instant::now() + limits.job;
            }
            Ok(line) if !ready && line.starts_with(STARVED) => return Ok(Ending::Stalled(line)),
            Ok(line) => match exit_status(&line) {
                Some((rest, status)) if ready => {
                    if !rest.is_empty() {
                        on_line(rest);
                    }
                    return Ok(Ending::Exited(status));
                }
                _ => on_line(&line),
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let trouble = console.trouble()?;
                return Ok(trouble.map_or_else(|| Ending::Stalled("QEMU ended".to_owned()), ending_of));
            }
        }
        if let Some(trouble) = console.trouble()? {
            // The trace comes behind the line that was recognised.
            thread::sleep(limits.last_words);
            return Ok(ending_of(trouble));
        }
        if Instant::now() > deadline {
            let (what, limit) = if ready {
                ("the job did not end", limits.job)
            } else {
                ("the guest did not come up", limits.up)
            };
            return Ok(Ending::Stalled(format!("{what} within {} s", limit.as_secs())));
        }
    }
}

/// The status of the job, and what the job printed before it without ending the line.
fn exit_status(line: &str) -> Option<(&str, i32)> {
    let (rest, status) = line.rsplit_once(EXIT)?;
    Some((rest, status.parse().ok()?))
}

fn ending_of(trouble: Trouble) -> Ending {
    match trouble {
        Trouble::Broken(line) => Ending::Broken(line),
        Trouble::Starved(line) => Ending::Stalled(line),
    }
}

/// Lines of a pipe, read on a thread of their own so that waiting for one can end.
pub(super) fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
            if sender.send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A guest that says `said` and has `console` on its console; it hangs then, or QEMU ends.
    fn boot(said: &[&str], console: &str, hangs: bool, limits: Limits) -> (Ending, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        fs::write(&path, console).unwrap();
        let (sender, receiver) = mpsc::channel();
        for line in said {
            sender.send((*line).to_owned()).unwrap();
        }
        let _sender = hangs.then_some(sender);
        let mut seen = Vec::new();
        let mut on_line = |line: &str| seen.push(line.to_owned());
        let ending = watch(&receiver, &mut Console::follow(&path), limits, &mut on_line).unwrap();
        (ending, seen)
    }

    const PATIENT: Limits =
        Limits { up: Duration::from_mins(10), job: Duration::from_mins(10), last_words: Duration::ZERO };

    #[test]
    fn a_guest_that_lacks_processors_is_no_verdict() {
        let line = "rig: starved: CPUs 0-6 of 0-7 came up";
        let (ending, seen) = boot(&["early", line, READY, "rig: exit 1"], "", true, PATIENT);
        assert_eq!(ending, Ending::Stalled(line.to_owned()));
        assert_eq!(seen, ["early"]);
        let (ending, seen) = boot(&[READY, line, "rig: exit 1"], "", true, PATIENT);
        assert_eq!(ending, Ending::Exited(1), "what a job says is no word of the rig");
        assert_eq!(seen, [line]);
    }

    #[test]
    fn the_status_ends_the_wait() {
        let (ending, seen) = boot(&["early", READY, "one", "tworig: exit 3", "late"], "", true, PATIENT);
        assert_eq!(ending, Ending::Exited(3));
        assert_eq!(seen, ["early", "one", "two"]);
    }

    #[test]
    fn a_job_that_sleeps_is_a_stall() {
        let limits = Limits { job: Duration::ZERO, ..PATIENT };
        let (ending, seen) = boot(&[READY, "zzz"], "all is well\n", true, limits);
        assert_eq!(ending, Ending::Stalled("the job did not end within 0 s".to_owned()));
        assert!(seen.len() <= 1, "{seen:?}");
    }

    #[test]
    fn a_guest_that_never_boots_is_a_stall() {
        let limits = Limits { up: Duration::ZERO, ..PATIENT };
        // A job cannot end before it began.
        let (ending, _) = boot(&["rig: exit 0"], "", true, limits);
        assert_eq!(ending, Ending::Stalled("the guest did not come up within 0 s".to_owned()));
    }

    #[test]
    fn a_silent_guest_is_judged_by_its_console() {
        for (console, broken) in
            [("Kernel panic - not syncing: x\n", true), ("watchdog: BUG: soft lockup - CPU#1\n", false)]
        {
            let (ending, _) = boot(&[READY], console, true, PATIENT);
            let line = console.trim().to_owned();
            assert_eq!(ending, if broken { Ending::Broken(line) } else { Ending::Stalled(line) });
        }
    }

    #[test]
    fn a_qemu_that_ends_without_a_word_is_a_stall() {
        let (ending, _) = boot(&[READY], "", false, PATIENT);
        assert_eq!(ending, Ending::Stalled("QEMU ended".to_owned()));
        let (ending, _) = boot(&[READY], "Kernel panic - not syncing: x\n", false, PATIENT);
        assert!(matches!(ending, Ending::Broken(_)), "{ending:?}");
    }

    #[test]
    fn the_status_may_follow_an_unfinished_line() {
        assert_eq!(exit_status("rig: exit 0"), Some(("", 0)));
        assert_eq!(exit_status("12 MiBrig: exit 3"), Some(("12 MiB", 3)));
        assert_eq!(exit_status("rig: exit soon"), None);
        assert_eq!(exit_status("exit 0"), None);
    }

    #[test]
    fn lines_lose_their_line_ends_and_survive_bad_bytes() {
        let received: Vec<_> = lines(&b"one\r\ntwo\n\xff\nlast"[..]).iter().collect();
        assert_eq!(received, ["one", "two", "\u{fffd}", "last"]);
    }
}
