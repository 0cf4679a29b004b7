//! Starting a touching program and asking it what it did.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{ChildStdin, ChildStdout, Command},
};

use anyhow::{Context, Result};

use super::{Counts, Plan};
use crate::{cgroup::Cgroup, process::Running};

/// A touching program that runs until this is dropped.
#[derive(Debug)]
pub struct Touching {
    process: Running,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Touching {
    /// Starts it in a cgroup and waits until it holds its memory; it does not touch it yet.
    pub fn start(cgroup: &Cgroup, threads: &[Plan], small_pages: bool) -> Result<Self> {
        Self::start_in(&cgroup.folder(), threads, &[], small_pages)
    }

    /// The same with small pages, and with a child that it starts itself once it is set going.
    pub fn with_child(cgroup: &Cgroup, threads: &[Plan], child: &[Plan]) -> Result<Self> {
        Self::start_in(&cgroup.folder(), threads, child, true)
    }

    pub(super) fn start_in(
        cgroup: &Path,
        threads: &[Plan],
        child: &[Plan],
        small_pages: bool,
    ) -> Result<Self> {
        let mut command = Command::new(env::current_exe().context("own path")?);
        command.args(["touch", "--cgroup"]).arg(cgroup);
        command.args(small_pages.then_some("--small-pages"));
        for (option, plans) in [("--thread", threads), ("--child", child)] {
            for plan in plans {
                command.arg(option).arg(serde_json::to_string(plan)?);
            }
        }
        let (process, stdin, stdout) = Running::with_pipes(&mut command)?;
        let mut touching = Self { process, stdin, stdout: BufReader::new(stdout) };
        let line = touching.line()?;
        anyhow::ensure!(line == "ready", "the program in {} did not start: {line:?}", cgroup.display());
        Ok(touching)
    }

    /// What it has done so far. The first call sets it going.
    pub fn counts(&mut self) -> Result<Counts> {
        writeln!(self.stdin).context("ask a touching program")?;
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("a touching program says {line:?}"))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).context("listen to a touching program")?;
        Ok(line.trim().to_owned())
    }
}
