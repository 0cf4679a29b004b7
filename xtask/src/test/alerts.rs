//! What Prometheus itself says of deploy/prometheus, and of what the product gives it to read.
//!
//! The rules are checked, and their tests run, by Debian's promtool; so are the metrics of a daemon that really runs
//! here, in observe mode, and the file that `audit` writes for `node_exporter`. Each counts one. Without
//! promtool it fails: rules that nobody has evaluated are not tested.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use super::tally::Tally;
use crate::{
    command,
    product::{self, Profile},
    progress::Step,
    setup::{self, Prometheus},
    workspace::Workspace,
};

/// Longest wait for an answer of a daemon on this machine.
const LIMIT: Duration = Duration::from_mins(1);

/// Checks and runs all of it, and counts each.
pub(super) fn run(workspace: &Workspace, tally: &mut Tally) -> Result<()> {
    let prometheus = setup::prometheus(workspace)?;
    let step = Step::begin("alerts");
    let folder = workspace.root().join("deploy/prometheus");
    let rules = files(&folder)?;
    let (scrape, rules): (Vec<_>, Vec<_>) =
        rules.into_iter().partition(|path| path.file_name().is_some_and(|name| name == "scrape.yml"));
    count(tally, "alerts check rules", promtool(&prometheus, &["check", "rules"], &rules));
    count(
        tally,
        "alerts check config",
        promtool(&prometheus, &["check", "config", "--syntax-only"], &scrape),
    );
    for test in files(&folder.join("tests"))? {
        let name = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        count(tally, &format!("alerts test {name}"), promtool(&prometheus, &["test", "rules"], &[test]));
    }
    let program = product::build(workspace, Profile::Dev)?;
    let scratch = workspace.scratch()?;
    let audited = audited(&program, scratch.path());
    count(tally, "alerts metrics of an audit", audited.and_then(|path| lint(&prometheus, &path)));
    let scraped = scraped(&program, scratch.path());
    count(tally, "alerts metrics of a daemon", scraped.and_then(|path| lint(&prometheus, &path)));
    step.done();
    Ok(())
}

fn count(tally: &mut Tally, name: &str, outcome: Result<()>) {
    let passed = outcome.is_ok();
    if let Err(error) = outcome {
        println!("{name}: {error:#}");
    }
    tally.count(name, passed);
}

/// The YAML files of a folder, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        files.extend(path.extension().is_some_and(|extension| extension == "yml").then_some(path));
    }
    ensure!(!files.is_empty(), "there is no file in {}", folder.display());
    files.sort();
    Ok(files)
}

fn promtool(prometheus: &Prometheus, arguments: &[&str], files: &[PathBuf]) -> Result<()> {
    command::quietly(prometheus.promtool().args(arguments).args(files)).map(drop)
}

/// What promtool thinks of names, types and help.
fn lint(prometheus: &Prometheus, metrics: &Path) -> Result<()> {
    let mut command = prometheus.promtool();
    let file = File::open(metrics).with_context(|| format!("open {}", metrics.display()))?;
    let output = command.args(["check", "metrics"]).stdin(file).output().context("run promtool")?;
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "promtool check metrics ({}):\n{said}", output.status);
    Ok(())
}

/// The file that `audit` writes for `node_exporter`.
fn audited(program: &Path, scratch: &Path) -> Result<PathBuf> {
    let path = scratch.join("audit.prom");
    let mut audit = Command::new(program);
    audit.args(["audit", "-o", "prometheus", "--write"]).arg(&path).stdin(Stdio::null());
    let output = audit.output().context("run an audit")?;
    let text =
        fs::read_to_string(&path).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(text.contains("numa_enforcer_build_info{"), "the audit wrote no metrics:\n{text}");
    Ok(path)
}

/// What a daemon on this host serves, as a file.
fn scraped(program: &Path, scratch: &Path) -> Result<PathBuf> {
    let mut daemon = Daemon::start(program, scratch)?;
    let address = daemon.address()?;
    // The first turn ends a while after it serves.
    for _ in 0..LIMIT.as_secs() {
        if let Some(text) = get(&address)? {
            ensure!(text.contains("numa_enforcer_ticks_total 1\n"), "no turn is told of:\n{text}");
            let path = scratch.join("daemon.prom");
            fs::write(&path, text).context("keep the metrics")?;
            return Ok(path);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    bail!("the daemon served no metrics within {} s", LIMIT.as_secs())
}

/// A daemon that is killed when this is dropped.
struct Daemon(Child);

impl Daemon {
    fn start(program: &Path, scratch: &Path) -> Result<Self> {
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
        child.map(Self).with_context(|| format!("run {}", program.display()))
    }

    /// Where it serves, as it says. What it says later is left unread; it outlives that.
    fn address(&mut self) -> Result<String> {
        let stderr = self.0.stderr.take().context("the daemon has no standard error")?;
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
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The metrics; `None` before the first turn is over.
fn get(address: &str) -> Result<Option<String>> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("read from {address}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its header")?;
    Ok(head.starts_with("HTTP/1.1 200").then(|| body.to_owned()))
}
