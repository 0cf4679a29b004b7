//! A one-liner of bpftrace, and what its programs cost.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

/// Longest time until it is attached.
const START: Duration = Duration::from_mins(1);

/// It wants tracefs, which is mounted for it alone where this host does not have it.
const COMMAND: &str = "mountpoint -q /sys/kernel/tracing || \
                       mount -t tracefs nodev /sys/kernel/tracing; exec bpftrace -e \"$0\"";

/// Runs and nanoseconds.
pub(super) type Cost = (u64, u64);

/// Attached until it is dropped.
pub(super) struct Bpftrace(Child);

impl Bpftrace {
    /// Waits until a program of it ran, for which `load` is put on.
    pub(super) fn attach(line: &str, load: impl Fn() -> Result<()>) -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", COMMAND, line]);
        // What it says goes to the caller's own errors.
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("start bpftrace")?;
        let started = Self(child);
        let start = Instant::now();
        while started.cost()?.0 == 0 {
            ensure!(start.elapsed() < START, "bpftrace attached nothing for {line}");
            load()?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(started)
    }

    /// Sum over its programs.
    pub(super) fn cost(&self) -> Result<Cost> {
        let mut sum = (0, 0);
        let dir = PathBuf::from(format!("/proc/{}/fdinfo", self.0.id()));
        for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
            // Descriptors come and go.
            let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
            let field = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
                line.and_then(|value| value.trim().parse::<u64>().ok())
            };
            if let (Some(runs), Some(ns)) = (field("run_cnt"), field("run_time_ns")) {
                sum = (sum.0 + runs, sum.1 + ns);
            }
        }
        Ok(sum)
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            println!("bpftrace is not ended: {error}");
        }
    }
}
