//! One boot, from QEMU's start to the job's exit status, in bounded time.
//!
//! The job's lines come over the second serial port, which is QEMU's standard output. The kernel's
//! console goes to a file, so its messages never cut a line of the job in two. The guest is
//! killed when its job has ended, when its time is over, or when the console says that it is lost.

use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};

use super::{
    console::{Console, Trouble},
    disk,
    machine::{Machine, Start},
    snapshot::Snapshot,
    topology::Topology,
};
use crate::{command, setup::Rig};

/// How often the console is looked at while the job is silent.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// Time for a dying kernel to print the rest.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Longest time from QEMU's start to a ready guest; it takes seconds, or never comes.
pub(super) const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// The same for a guest that is resumed.
const RESUME_LIMIT: Duration = Duration::from_secs(30);

/// Lines of the console that are kept for a report.
const CONSOLE_TAIL: usize = 60;

/// Name of the disk with the job.
const JOB: &str = "job";

/// Lines of the guest's last stage.
const READY: &str = "rig: ready";
const EXIT: &str = "rig: exit ";

/// What to boot and what to run in it.
#[derive(Clone)]
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
    /// Resumed instead of booted, if there is one.
    pub(crate) snapshot: Option<Snapshot>,
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
    /// Boots or resumes, runs the job, and hands over each of its lines as it comes.
    ///
    /// A resumed guest that did not end by itself is told of, and its snapshot removed: the caller may
    /// boot a cold one.
    pub(crate) fn run(&self, on_line: &mut dyn FnMut(&str)) -> Result<Report> {
        let scratch = tempfile::tempdir().context("create a scratch folder")?;
        let mut child = self.start(scratch.path(), Stdio::null(), Stdio::piped())?;
        let mut console = Console::follow(&Self::console(scratch.path()));
        let ending = self.watch(&lines(child.stdout()?), &mut console, on_line)?;
        drop(child);
        if let (Some(snapshot), Ending::Broken(why) | Ending::Stalled(why)) = (&self.snapshot, &ending) {
            on_line(&format!("rig: the resumed guest misbehaves ({why}); its snapshot is removed"));
            snapshot.discard()?;
        }
        Ok(Report { ending, console: command::tail(&console.text(), CONSOLE_TAIL) })
    }

    /// Boots or resumes with the job's terminal joined to this one, until the job ends.
    pub(crate) fn interact(&self) -> Result<()> {
        let scratch = tempfile::tempdir().context("create a scratch folder")?;
        let mut child = self.start(scratch.path(), Stdio::inherit(), Stdio::inherit())?;
        child.0.wait().context("wait for QEMU")?;
        Ok(())
    }

    fn start(&self, scratch: &Path, stdin: Stdio, stdout: Stdio) -> Result<Killed> {
        match &self.snapshot {
            None => self.launch(scratch, self.job, Start::Cold, stdin, stdout),
            Some(snapshot) => {
                // The guest's wall clock stands where it was saved.
                let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
                let job = format!("date -u -s @{} > /dev/null\n{}", now.as_secs(), self.job);
                self.launch(scratch, &job, snapshot.start(), stdin, stdout)
            }
        }
    }

    /// Starts QEMU with a job.
    pub(super) fn launch(
        &self,
        scratch: &Path,
        job: &str,
        start: Start,
        stdin: Stdio,
        stdout: Stdio,
    ) -> Result<Killed> {
        disk::job_disk(job, &scratch.join(JOB))?;
        let mut qemu = qemu(&self.rig.qemu);
        qemu.args(self.arguments(start, scratch)).stdin(stdin).stdout(stdout);
        Ok(Killed(qemu.spawn().context("start QEMU")?))
    }

    /// QEMU's arguments for files in `scratch`.
    pub(super) fn arguments(&self, start: Start, scratch: &Path) -> Vec<String> {
        let machine = Machine {
            rig: self.rig,
            topology: self.topology,
            inject: self.inject,
            job: &scratch.join(JOB),
            console: &Self::console(scratch),
            kernel_arguments: self.kernel_arguments,
            start,
        };
        machine.arguments()
    }

    /// Log of the kernel's console.
    pub(super) fn console(scratch: &Path) -> PathBuf {
        scratch.join("console.log")
    }

    fn watch(
        &self,
        lines: &Receiver<String>,
        console: &mut Console,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<Ending> {
        let start_limit = if self.snapshot.is_some() { RESUME_LIMIT } else { BOOT_LIMIT };
        let mut deadline = Instant::now() + start_limit;
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
                let limit = if ready { self.limit } else { start_limit };
                let what = if ready { "the job did not end" } else { "the guest did not come up" };
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

/// A QEMU that does not outlive us.
pub(super) struct Killed(Child);

impl Killed {
    /// Its standard output, once.
    pub(super) fn stdout(&mut self) -> Result<ChildStdout> {
        self.0.stdout.take().context("QEMU has no standard output")
    }
}

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
