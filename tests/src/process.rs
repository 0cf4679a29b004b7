//! Processes that a scenario starts, none of which outlives it or runs for ever.

use std::{
    env,
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::{
    process::{Pid, Signal, kill_process},
    thread::{CapabilitySet, remove_capability_from_bounding_set},
};

use crate::{cgroup::Cgroup, hog::Hog, ids, ids::Ids};

/// Time between two looks at a process that should end.
const PAUSE: Duration = Duration::from_millis(50);

/// Longest time for the end of a process that was killed.
const KILLED: Duration = Duration::from_secs(10);

/// Functions of a thread in the kernel that are told where it does not end.
const CALLS: usize = 6;

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a hog in a cgroup and waits until its memory is there.
    pub fn hog(cgroup: &Cgroup, mebibytes: usize) -> Result<Self> {
        // It rests now and then: two hogs that spin would take both CPUs of a small host from the product.
        let cgroup = cgroup.folder();
        Self::hog_of(&Hog { cgroup, mebibytes, threads: 1, pause_ms: 10, mebibytes_per_second: 0 })
    }

    /// Starts a hog that grows by this many MiB per second (0: as fast as it can), and returns at once.
    pub fn growing(cgroup: &Cgroup, mebibytes: usize, mebibytes_per_second: usize) -> Result<Self> {
        let cgroup = cgroup.folder();
        let hog = Hog { cgroup, mebibytes, threads: 1, pause_ms: 100, mebibytes_per_second };
        Self::spawn(hog_command(&hog)?.stdout(Stdio::null()))
    }

    /// The same, with all of its memory bound to a node (`MPOL_BIND`, by numactl).
    pub fn growing_bound(
        cgroup: &Cgroup,
        node: u32,
        mebibytes: usize,
        mebibytes_per_second: usize,
    ) -> Result<Self> {
        let cgroup = cgroup.folder();
        let hog = hog_command(&Hog { cgroup, mebibytes, threads: 1, pause_ms: 100, mebibytes_per_second })?;
        let mut bound = Command::new("numactl");
        bound.arg(format!("--membind={node}")).arg(hog.get_program()).args(hog.get_args());
        Self::spawn(bound.stdout(Stdio::null()))
    }

    /// Starts a hog under a policy of numactl (`membind=1`) and waits until its memory is there.
    pub fn under_policy(cgroup: &Cgroup, policy: &str, mebibytes: usize) -> Result<Self> {
        let cgroup = cgroup.folder();
        let hog = Hog { cgroup, mebibytes, threads: 1, pause_ms: 100, mebibytes_per_second: 0 };
        let hog = hog_command(&hog)?;
        let mut bound = Command::new("numactl");
        bound.arg(format!("--{policy}")).arg(hog.get_program()).args(hog.get_args());
        Self::when_ready(bound.stdout(Stdio::piped()))
    }

    /// Starts any hog and waits until its memory is there.
    pub fn hog_of(hog: &Hog) -> Result<Self> {
        Self::when_ready(hog_command(hog)?.stdout(Stdio::piped()))
    }

    /// Starts a hog with its memory in huge pages (by glibc's tunables), and waits until it is there.
    pub fn huge_hog(hog: &Hog) -> Result<Self> {
        let mut command = hog_command(hog)?;
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2");
        Self::when_ready(command.stdout(Stdio::piped()))
    }

    fn when_ready(command: &mut Command) -> Result<Self> {
        let mut running = Self::spawn(command)?;
        let stdout = running.0.stdout.take().context("a hog without standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("wait for the hog")?;
        if line.trim() != "ready" {
            bail!("{command:?} did not start a hog: {line:?}");
        }
        Ok(running)
    }

    /// Starts any program.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        child.map(Self).with_context(|| format!("run {}", command.get_program().display()))
    }

    /// Starts any program and talks to it: what it reads, what it prints.
    pub fn with_pipes(command: &mut Command) -> Result<(Self, ChildStdin, ChildStdout)> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("run {}", command.get_program().display()))?;
        let mut running = Self(child);
        let pipes = running.0.stdin.take().zip(running.0.stdout.take());
        let (stdin, stdout) = pipes.context("a program without pipes")?;
        Ok((running, stdin, stdout))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// CPUs it may run on, by `/proc/PID/status`.
    pub fn cpus_allowed(&self) -> Result<Ids> {
        self.status_list("Cpus_allowed_list:")
    }

    /// Nodes it may allocate on, by `/proc/PID/status`.
    pub fn mems_allowed(&self) -> Result<Ids> {
        self.status_list("Mems_allowed_list:")
    }

    fn status_list(&self, field: &str) -> Result<Ids> {
        let path = format!("/proc/{}/status", self.pid());
        let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
        let value = text.lines().find_map(|line| line.strip_prefix(field));
        ids::parse(value.with_context(|| format!("{path} has no {field}"))?)
    }

    /// Has it ended by itself?
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait().context("look at a process")?.is_some())
    }

    /// Asks it to end and waits for it; returns its exit status, `None` after a signal.
    pub fn terminate(mut self, limit: Duration) -> Result<Option<i32>> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).context("send SIGTERM")?;
        self.wait(limit)
    }

    /// Ends it as a crash would.
    pub fn kill(mut self) -> Result<()> {
        self.0.kill().context("send SIGKILL")?;
        self.0.wait().map(drop).context("wait for a killed process")
    }

    fn wait(&mut self, limit: Duration) -> Result<Option<i32>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.0.try_wait().context("wait for a process")? {
                return Ok(status.code());
            }
            if Instant::now() > end {
                let (pid, seconds) = (self.pid(), limit.as_secs());
                bail!("process {pid} did not end within {seconds} s; its threads: {}", threads_at(pid));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Each thread of a process, with its state and the innermost functions of the kernel that it is in.
fn threads_at(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads = tasks.map(|task| {
        let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let stack = read("stack");
        let calls: Vec<&str> = stack.lines().take(CALLS).filter_map(|line| line.split(' ').nth(1)).collect();
        format!("{} ({}) in {}", field("Name:"), field("State:"), calls.join(" < "))
    });
    threads.collect::<Vec<_>>().join("; ")
}

fn hog_command(hog: &Hog) -> Result<Command> {
    let mut command = Command::new(env::current_exe().context("own path")?);
    command.args(["hog", "--mebibytes", &hog.mebibytes.to_string(), "--cgroup"]).arg(&hog.cgroup);
    command.args(["--threads", &hog.threads.to_string(), "--pause-ms", &hog.pause_ms.to_string()]);
    command.args(["--mebibytes-per-second", &hog.mebibytes_per_second.to_string()]);
    Ok(command)
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.0.kill();
        // One that the kernel keeps at its end is left to the end of the guest.
        let _ = self.wait(KILLED);
    }
}

/// What a program left.
#[derive(Debug)]
pub struct Output {
    /// Exit status; `None` after a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs a program to its end, or fails after `limit`.
pub fn run(command: &mut Command, limit: Duration) -> Result<Output> {
    let mut running = Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = collect(running.0.stdout.take());
    let stderr = collect(running.0.stderr.take());
    let status = running.wait(limit)?;
    let text = |reader: thread::JoinHandle<String>| reader.join().ok().context("a reader panicked");
    Ok(Output { status, stdout: text(stdout)?, stderr: text(stderr)? })
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is still worth showing.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A file that takes what a daemon prints.
pub fn log(path: &str) -> Result<Stdio> {
    Ok(File::create(path).with_context(|| format!("create {path}"))?.into())
}

/// The same file for a second stream.
pub fn log_more(path: &str) -> Result<Stdio> {
    let file = File::options().append(true).open(path);
    Ok(file.with_context(|| format!("open {path}"))?.into())
}

/// Takes capabilities from this process and from what it runs, by their names without `CAP_`.
pub fn drop_capabilities(names: &[String]) -> Result<()> {
    for name in names {
        let set = CapabilitySet::from_name(name).with_context(|| format!("no capability {name}"))?;
        remove_capability_from_bounding_set(set).with_context(|| format!("drop {name}"))?;
    }
    Ok(())
}
