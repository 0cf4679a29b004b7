//! A daemon of the product that runs on this host for a test: in observe mode, with one turn, on a port of
//! its own.
//!
//! It is asked over plain HTTP, and ended when it is dropped. Its state is in the test's own folder.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

/// Longest wait for an answer of it.
const LIMIT: Duration = Duration::from_mins(1);

/// A daemon that is killed when this is dropped.
pub(super) struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    /// Starts it; it serves already, and its first turn is under way.
    pub(super) fn start(program: &Path, scratch: &Path) -> Result<Self> {
        let config = scratch.join("numa-enforcer.toml");
        let control = scratch.join("control.sock");
        fs::write(&config, format!("interval = \"1h\"\n[control]\nsocket = '{}'\n", control.display()))
            .context("write a configuration")?;
        let mut command = Command::new(program);
        command
            .args(["run", "--mode", "observe", "--metrics-listen", "127.0.0.1:0", "--config"])
            .arg(&config);
        command.arg("--state-dir").arg(scratch.join("state"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("run {}", program.display()))?;
        let mut daemon = Self { child, address: String::new() };
        daemon.address = daemon.says_where()?;
        Ok(daemon)
    }

    /// Where it serves: `127.0.0.1:PORT`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// What it serves there when its first turn is over.
    pub(super) fn get(&self, path: &str) -> Result<String> {
        for _ in 0..LIMIT.as_secs() {
            if let Some(body) = self.ask(path)? {
                return Ok(body);
            }
            thread::sleep(Duration::from_secs(1));
        }
        bail!("the daemon did not serve {path} within {} s", LIMIT.as_secs())
    }

    /// An answer, or nothing where it is not ready for it.
    fn ask(&self, path: &str) -> Result<Option<String>> {
        let address = &self.address;
        let mut stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
        stream.set_read_timeout(Some(LIMIT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).with_context(|| format!("read from {address}"))?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its header")?;
        Ok(head.starts_with("HTTP/1.1 200").then(|| body.to_owned()))
    }

    /// The address that it logs. What it says later is left unread; it outlives that.
    fn says_where(&mut self) -> Result<String> {
        let stderr = self.child.stderr.take().context("the daemon has no standard error")?;
        let mut said = Vec::new();
        for line in BufReader::new(stderr).lines() {
            let line = line.context("read what the daemon says")?;
            let serving =
                line.split_once("serving http://").and_then(|(_, rest)| rest.split_once("/metrics"));
            if let Some((address, _)) = serving {
                return Ok(address.to_owned());
            }
            said.push(line);
        }
        bail!("the daemon ended:\n{}", said.join("\n"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
