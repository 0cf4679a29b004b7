//! The guest's container runtime, started by the scenario and not by the boot, so that a snapshot of a guest
//! is the same for all.
//!
//! It runs in a cgroup of its own, where systemd would put it. Containers outlive it, as they do on a node.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};

use crate::{
    cgroup::Cgroup,
    cri::Cri,
    process::{self, Running},
    systemd, wait,
};

/// Where plugins connect.
pub const NRI: &str = "/var/run/nri/nri.sock";

/// Its own cgroup.
const CGROUP: &str = "/system.slice/containerd.service";

/// Its unit, as its package brings it.
const UNIT: &str = "containerd.service";

/// Images that the root file system brings (`xtask/src/setup/root_image.rs`).
const IMAGES: &str = "/usr/share/rig/images.tar";

/// What it prints.
const LOG: &str = "/tmp/containerd.log";

/// Longest time until it answers, and until it ends: emulation is slow, a hang is a failure.
const LIMIT: Duration = Duration::from_mins(3);

/// Lines of its log that are worth showing.
const TAIL: usize = 30;

/// containerd, killed when this is dropped.
#[derive(Debug)]
pub struct Containerd {
    process: Running,
}

impl Containerd {
    /// Starts it for the first time, with its images.
    pub fn start() -> Result<(Self, Cri)> {
        let cri = Cri::new()?;
        let started = Self::launch(&cri)?;
        import_images(&cri)?;
        Ok((started, cri))
    }

    /// Starts its unit for the first time, with its images, where systemd is process 1 and makes the cgroups
    /// of containers.
    pub fn start_unit() -> Result<Cri> {
        let cri = Cri::new()?;
        systemd::must(&["start", UNIT])?;
        import_images(&cri)?;
        Ok(cri)
    }

    /// Restarts that unit; containers go on meanwhile.
    pub fn restart_unit(cri: &Cri) -> Result<()> {
        systemd::must(&["restart", UNIT])?;
        wait::until("containerd answers", LIMIT, || cri.version().map(Some)).map(drop)
    }

    /// Gives it the images of an archive.
    pub fn import(cri: &Cri, archive: &str) -> Result<()> {
        let before = cri.images()?.len();
        let mut import = Command::new("ctr");
        // It gives up a busy runtime after ten seconds unless it is told.
        import.args([
            "--connect-timeout",
            "3m",
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--local",
            archive,
        ]);
        let output = process::run(&mut import, LIMIT)?;
        ensure!(output.status == Some(0), "import {archive}: {}", output.stderr.trim());
        // It hears of its own images by an event.
        wait::until("an image is known", LIMIT, || Ok((cri.images()?.len() > before).then_some(())))
    }

    /// Ends it and starts it again; containers go on meanwhile.
    pub fn restart(self, cri: &Cri) -> Result<Self> {
        self.stop()?;
        Self::launch(cri)
    }

    /// Asks it to end; containers go on.
    pub fn stop(self) -> Result<()> {
        let status = self.process.terminate(LIMIT)?;
        ensure!(status == Some(0), "containerd ended with {status:?}: {}", Self::printed());
        Ok(())
    }

    /// Ends it as a crash would.
    pub fn kill(self) -> Result<()> {
        self.process.kill()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The end of what it printed since it was last started.
    pub fn printed() -> String {
        let text = fs::read_to_string(LOG).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    fn launch(cri: &Cri) -> Result<Self> {
        let cgroup = Cgroup::create(CGROUP)?;
        let mut command = Command::new("containerd");
        let mut process = Running::spawn(command.stdout(process::log(LOG)?).stderr(process::log_more(LOG)?))?;
        cgroup.adopt(process.pid())?;
        let answers = wait::until("containerd answers", LIMIT, || {
            ensure!(!process.has_ended()?, "containerd has ended");
            cri.version().map(Some)
        });
        answers.with_context(|| format!("containerd printed:\n{}", Self::printed()))?;
        Ok(Self { process })
    }
}

/// Gives it the images that the root file system brings.
fn import_images(cri: &Cri) -> Result<()> {
    Containerd::import(cri, IMAGES)?;
    wait::until("both images are known", LIMIT, || Ok((cri.images()?.len() >= 2).then_some(())))
}
