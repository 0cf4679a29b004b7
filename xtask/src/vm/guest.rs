//! One boot, from QEMU's start to the job's exit status, in bounded time.
//!
//! The job's lines come over the second serial port, which is QEMU's standard output. The kernel's
//! console goes to a file, so its messages never cut a line of the job in two. The guest is
//! killed when its job has ended, when its time is over, or when the console says that it is lost.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{
    console::{Console, Trouble},
    disk,
    machine::Machine,
    topology::Topology,
};
use crate::{command, setup::Rig};

/// How often the console is looked at while the job is silent.
const LOOK: Duration = Duration::from_millis(200);

/// Time for a dying kernel to print the rest.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Longest time from QEMU's start to a ready guest; it takes seconds, or never comes.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// Lines of the console that are kept for a report.
const CONSOLE_TAIL: usize = 60;

/// Lines of the guest's last stage.
const READY: &str = "rig: ready";
const EXIT: &str = "rig: exit ";

/// What to boot and what to run in it.
pub(crate) struct Guest<'a> {
    pub(crate) rig: &'a Rig,
    pub(crate) topology: &'a Topology,
    /// Appended to the kernel command line.
    pub(crate) kernel_arguments: &'a str,
    /// ext4 image that appears at `/inject`.
    pub(crate) inject: &'a Path,
    /// Shell text, run as root.
    pub(crate) job: &'a str,
    /// Longest time for the job.
    pub(crate) limit: Duration,
}

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

/// What a boot left.
pub(crate) struct Report {
    pub(crate) ending: Ending,
    /// The end of the kernel's console.
    pub(crate) console: String,
}

impl Guest<'_> {
    /// Boots, runs the job, and hands over each of its lines as it comes.
    pub(crate) fn run(&self, on_line: &mut dyn FnMut(&str)) -> Result<Report> {
        let scratch = tempfile::tempdir().context("create a scratch folder")?;
        let log = scratch.path().join("console.log");
        let mut child = self.start(scratch.path(), Stdio::null(), Stdio::piped())?;
        let stdout = child.0.stdout.take().context("QEMU has no standard output")?;
        let mut console = Console::follow(&log);
        let ending = self.watch(&lines(stdout), &mut console, on_line)?;
        drop(child);
        Ok(Report { ending, console: command::tail(&console.text(), CONSOLE_TAIL) })
    }

    /// Boots with the job's terminal joined to this one, until the job ends.
    pub(crate) fn interact(&self) -> Result<()> {
        let scratch = tempfile::tempdir().context("create a scratch folder")?;
        let mut child = self.start(scratch.path(), Stdio::inherit(), Stdio::inherit())?;
        child.0.wait().context("wait for QEMU")?;
        Ok(())
    }

    fn start(&self, scratch: &Path, stdin: Stdio, stdout: Stdio) -> Result<Killed> {
        let (job, console) = (scratch.join("job"), scratch.join("console.log"));
        disk::job_disk(self.job, &job)?;
        let machine = Machine {
            rig: self.rig,
            topology: self.topology,
            inject: self.inject,
            job: &job,
            console: &console,
            kernel_arguments: self.kernel_arguments,
        };
        let mut qemu = qemu(&self.rig.qemu);
        qemu.args(machine.arguments()).stdin(stdin).stdout(stdout);
        Ok(Killed(qemu.spawn().context("start QEMU")?))
    }

    fn watch(
        &self,
        lines: &Receiver<String>,
        console: &mut Console,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Ending> {
        let mut deadline = Instant::now() + BOOT_LIMIT;
        let mut ready = false;
        loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) if !ready => {
                    if line == READY {
                        ready = true;
                        deadline = Instant::now() + self.limit;
                    } else {
                        on_line(&line);
                    }
                }
                Ok(line) => match exit_status(&line) {
                    Some((rest, status)) => {
                        if !rest.is_empty() {
                            on_line(rest);
                        }
                        return Ok(Ending::Exited(status));
                    }
                    None => on_line(&line),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let trouble = console.trouble()?;
                    return Ok(trouble.map_or_else(|| Ending::Stalled("QEMU ended".to_owned()), ending_of));
                }
            }
            if let Some(trouble) = console.trouble()? {
                // The trace comes behind the line that was recognised.
                thread::sleep(LAST_WORDS);
                return Ok(ending_of(trouble));
            }
            if Instant::now() > deadline {
                let limit = if ready { self.limit } else { BOOT_LIMIT };
                let what = if ready { "the job did not end" } else { "the guest did not boot" };
                return Ok(Ending::Stalled(format!("{what} within {} s", limit.as_secs())));
            }
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

/// QEMU from its folder, with its own loader and libraries: the host's may be older.
fn qemu(folder: &Path) -> Command {
    let at = |path: &str| -> PathBuf { folder.join(path) };
    let mut command = Command::new(at("lib64/ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(at("usr/lib/x86_64-linux-gnu"));
    command.arg(at("usr/bin/qemu-system-x86_64"));
    for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
        command.arg("-L").arg(at(firmware));
    }
    command
}

/// Lines of a pipe, read on a thread of their own so that waiting for one can end.
fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
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

/// A QEMU that does not outlive us.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
