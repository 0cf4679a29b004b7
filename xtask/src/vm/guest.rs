//! One boot, from QEMU's start to the job's exit status.
//!
//! The job's lines come over the second serial port, which is QEMU's standard output. The kernel's
//! console goes to a file, so its messages never cut a line of the job in two. The guest is
//! killed when its job has ended, when its time is over, when the console says that it is lost, and
//! when this program ends.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};

use super::{
    console::Console,
    disk,
    machine::{GuestMachine, Start},
    platform::GuestPlatform,
    qemu::{self, Killed},
    snapshot::Snapshot,
    topology::GuestTopology,
    watch::{self, Ending, Limits},
};
use crate::{command, setup::GuestRig};

/// Longest time from QEMU's start to a ready guest: a bound on a hang. It takes seconds, or minutes where the
/// host has ten times as much to do as it has CPUs.
pub(super) const BOOT_LIMIT: Duration = Duration::from_mins(4);

/// The same for a guest that is resumed.
const RESUME_LIMIT: Duration = Duration::from_secs(90);

/// Time for a dying kernel to print the rest.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Lines of the console that are kept for a report.
const CONSOLE_TAIL: usize = 60;

/// Name of the disk with the job.
const JOB: &str = "job";

/// What to boot and what to run in it.
#[derive(Clone)]
pub(crate) struct Guest<'a> {
    pub(crate) rig: &'a GuestRig,
    pub(crate) topology: &'a GuestTopology,
    /// Appended to the kernel command line.
    pub(crate) kernel_arguments: &'a str,
    /// ext4 image that appears at `/inject`.
    pub(crate) inject: &'a Path,
    /// Shell text, run as root.
    pub(crate) job: &'a str,
    /// Longest time for the job.
    pub(crate) limit: Duration,
    /// Whether it reaches this host.
    pub(crate) has_network: bool,
    /// Resumed instead of booted, if there is one.
    pub(crate) snapshot: Option<Snapshot>,
}

/// What a boot left.
pub(crate) struct GuestReport {
    pub(crate) ending: Ending,
    /// The end of the kernel's console.
    pub(crate) console: String,
}

impl Guest<'_> {
    /// Boots or resumes, runs the job, and hands over each of its lines as it comes.
    ///
    /// A resumed guest that does not end by itself is told of and its snapshot removed. Whatever the
    /// reason, it has stalled: only a guest that booted can accuse the job.
    pub(crate) fn run(&self, on_line: &mut dyn FnMut(&str)) -> Result<GuestReport> {
        let scratch = self.scratch()?;
        let mut child = self.start(scratch.path(), Stdio::null(), Stdio::piped())?;
        let mut console = Console::follow(&Self::console(scratch.path()));
        let up = if self.snapshot.is_some() { RESUME_LIMIT } else { BOOT_LIMIT };
        let limits = Limits { up, job: self.limit, last_words: LAST_WORDS };
        let mut ending = watch::watch(&watch::lines(child.stdout()?), &mut console, limits, on_line)?;
        drop(child);
        if let (Some(snapshot), Ending::Broken(why) | Ending::Stalled(why)) = (&self.snapshot, &ending) {
            on_line(&format!("rig: the resumed guest misbehaves ({why}); its snapshot is removed"));
            snapshot.discard()?;
            ending = Ending::Stalled(format!("after a resume: {why}"));
        }
        Ok(GuestReport { ending, console: command::tail(&console.text(), CONSOLE_TAIL) })
    }

    /// Boots or resumes with the job's terminal joined to this one, until the job ends.
    pub(crate) fn interact(&self) -> Result<()> {
        let scratch = self.scratch()?;
        let mut child = self.start(scratch.path(), Stdio::inherit(), Stdio::inherit())?;
        child.0.wait().context("wait for QEMU")?;
        Ok(())
    }

    /// A folder beside the disk of files, so that one cleaning finds all.
    fn scratch(&self) -> Result<tempfile::TempDir> {
        let place = self.inject.parent().context("the disk of files is in no folder")?;
        tempfile::tempdir_in(place).with_context(|| format!("create a scratch folder in {}", place.display()))
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
        let platform = GuestPlatform::of(self.rig.architecture);
        platform.check(self.topology)?;
        disk::job_disk(job, &scratch.join(JOB))?;
        let mut qemu = qemu::command(&self.rig.qemu, platform);
        qemu.args(self.arguments(start, scratch)).stdin(stdin).stdout(stdout);
        Ok(Killed(qemu.spawn().context("start QEMU")?))
    }

    /// QEMU's arguments for files in `scratch`.
    pub(super) fn arguments(&self, start: Start, scratch: &Path) -> Vec<String> {
        let machine = GuestMachine {
            rig: self.rig,
            topology: self.topology,
            inject: self.inject,
            job: &scratch.join(JOB),
            console: &Self::console(scratch),
            kernel_arguments: self.kernel_arguments,
            has_network: self.has_network,
            start,
        };
        machine.arguments()
    }

    /// Log of the kernel's console.
    pub(super) fn console(scratch: &Path) -> PathBuf {
        scratch.join("console.log")
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::{architecture::Architecture, workspace::Workspace};

    #[test]
    fn a_resumed_guest_that_ends_without_a_status_loses_its_snapshot_and_is_no_verdict() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("qemu/lib64")).unwrap();
        symlink("/bin/false", at("qemu/lib64/ld-linux-x86-64.so.2")).unwrap();
        fs::create_dir(at("snapshot")).unwrap();
        let rig = GuestRig {
            architecture: Architecture::Amd64,
            qemu: at("qemu"),
            kernel: at("vmlinux"),
            initrd: at("initrd"),
            root: at("root.ext4"),
        };
        let topology = GuestTopology::load(&Workspace::find().unwrap().topologies(), "2s").unwrap();
        let guest = Guest {
            rig: &rig,
            topology: &topology,
            kernel_arguments: "",
            inject: &at("inject"),
            job: "true",
            limit: BOOT_LIMIT,
            has_network: false,
            snapshot: Some(Snapshot::at(at("snapshot"))),
        };
        let mut said = String::new();
        let report = guest.run(&mut |line| said.push_str(line)).unwrap();
        assert_eq!(report.ending, Ending::Stalled("after a resume: QEMU ended".to_owned()));
        assert!(said.contains("its snapshot is removed"), "{said}");
        assert!(!at("snapshot").exists());
    }
}
