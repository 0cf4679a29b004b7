//! The product, as a client sees it: commands, JSON, metrics.

use std::{
    fs::{self, File},
    io::{self, Read},
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    cgroup::Cgroup,
    check::Checks,
    http,
    process::{self, Output, Running},
    wait,
};

/// Where the guest finds it.
pub const PROGRAM: &str = "/inject/numa-enforcer";

/// Between two turns of a daemon in a scenario that does not say.
const INTERVAL: Duration = Duration::from_secs(2);

/// Journal of the daemon.
pub const STATE: &str = "/tmp/state";

/// Configuration of the daemon.
const CONFIG: &str = "/tmp/numa-enforcer.toml";

/// Where the daemon records its turns, if that is asked for.
const RECORDING: &str = "/tmp/turns.rec";

/// What a daemon may record; what it cannot is degraded, which a scenario may look at.
const RECORDING_LIMIT: &str = "1MiB";

/// Most bytes of a recording that are kept with the tests.
pub const KEPT: u64 = 128 << 10;

/// Where the latest audit is, if that is asked for.
const AUDITED: &str = "/tmp/audit.json";

/// Is every daemon to record its turns, and every audit to be left?
static RECORDS: AtomicBool = AtomicBool::new(false);

/// What the daemon prints; shown when a scenario fails.
const LOG: &str = "/tmp/daemon.log";

/// Panics in the output of commands and of daemons with an overwritten log.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Longest time for a daemon to end when asked: a bound on a hang, not a promise. Its own part takes at most
/// two seconds; then the kernel takes its eBPF programs down, one after another, and waits for every task.
const END: Duration = Duration::from_mins(2);

/// Longest time for a command that ends by itself: emulation is slow, a hang is a failure.
const LIMIT: Duration = Duration::from_mins(5);

/// Where the daemon serves its metrics.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9477);

/// The product with these arguments.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    command
}

/// From now on every daemon records its turns, one behind the other, and the latest audit is left.
pub fn record() {
    RECORDS.store(true, Ordering::Relaxed);
}

/// The first [`KEPT`] bytes of what they have recorded; nothing where no daemon was started.
pub fn recording() -> Result<Vec<u8>> {
    left(RECORDING, KEPT)
}

/// The JSON of the latest audit; nothing where there was none.
pub fn audited() -> Result<Vec<u8>> {
    left(AUDITED, u64::MAX)
}

fn left(path: &str, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("read {path}"))
        }
        _ => Ok(bytes),
    }
}

/// Runs a command of the product to its end.
pub fn run(arguments: &[&str]) -> Result<Output> {
    let output = process::run(&mut command(arguments), LIMIT)?;
    note_panics(&output.stderr);
    Ok(output)
}

/// The output of a command comes to contain these words: it shows what the latest turns have published.
pub fn comes_to_say(checks: &mut Checks, what: &str, command: &[&str], contains: &str) -> Result<()> {
    checks.comes_to_hold(what, LIMIT, || {
        let said = words(&run(command)?.stdout);
        Ok((said.contains(contains), said))
    })
}

/// What the daemon prints comes to contain this text: it is printed by a thread of its own.
pub fn comes_to_print(checks: &mut Checks, what: &str, contains: &str) -> Result<()> {
    checks.comes_to_hold(what, LIMIT, || {
        let printed = Daemon::printed();
        Ok((printed.contains(contains), printed))
    })
}

/// A text without the line ends of a table.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Keeps the lines of this text that tell of a panic.
fn note_panics(text: &str) {
    let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    panics.extend(text.lines().filter(|line| line.contains("panicked at")).map(str::to_owned));
}

/// Lines about panics of all daemons and commands so far: a panic fails a scenario, whatever it checks.
pub fn panics() -> Vec<String> {
    note_panics(&Daemon::printed());
    PANICS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The report of `audit -o json`, and the exit status of the command.
pub fn audit(arguments: &[&str]) -> Result<(Report, Option<i32>)> {
    audit_by(command(&arguments_of_audit(arguments)))
}

/// As [`audit`], by a process that has not these capabilities.
pub fn audit_without(capabilities: &[&str], arguments: &[&str]) -> Result<(Report, Option<i32>)> {
    let mut command = Command::new(std::env::current_exe().context("own path")?);
    command.args(["without", &capabilities.join(","), "--", PROGRAM]).args(arguments_of_audit(arguments));
    audit_by(command)
}

/// As [`audit`], by a process that has these capabilities alone, named without `CAP_`.
pub fn audit_with_only(granted: &[&str], arguments: &[&str]) -> Result<(Report, Option<i32>)> {
    let others = others(granted);
    audit_without(&others.iter().map(String::as_str).collect::<Vec<_>>(), arguments)
}

/// As [`doctor`], by such a process.
pub fn doctor_with_only(granted: &[&str]) -> Result<Diagnosis> {
    let mut command = Command::new(std::env::current_exe().context("own path")?);
    command.args(["without", &others(granted).join(","), "--", PROGRAM, "doctor", "-o", "json"]);
    doctor_by(&mut command)
}

/// As [`audit`], by a process that the kernel refuses trampolines.
pub fn audit_without_trampolines(arguments: &[&str]) -> Result<(Report, Option<i32>)> {
    let mut command = Command::new(std::env::current_exe().context("own path")?);
    command.args(["without-trampolines", "--", PROGRAM]).args(arguments_of_audit(arguments));
    audit_by(command)
}

/// As [`doctor`], by a process that the kernel refuses trampolines, with these capabilities alone.
pub fn doctor_without_trampolines(granted: Option<&[&str]>) -> Result<Diagnosis> {
    let own = std::env::current_exe().context("own path")?;
    let mut command = Command::new(&own);
    if let Some(granted) = granted {
        command.args(["without", &others(granted).join(","), "--"]).arg(&own);
    }
    command.args(["without-trampolines", "--", PROGRAM, "doctor", "-o", "json"]);
    doctor_by(&mut command)
}

fn doctor_by(command: &mut Command) -> Result<Diagnosis> {
    let output = process::run(command, LIMIT)?;
    ensure!(output.status == Some(0), "doctor failed: {}", output.stderr);
    Ok(Diagnosis(serde_json::from_str(&output.stdout).context("read the diagnosis")?))
}

/// Every capability but these, of those that the kernel knows.
fn others(granted: &[&str]) -> Vec<String> {
    let known = rustix::thread::CapabilitySet::all();
    known.iter_names().map(|(name, _)| name.to_owned()).filter(|name| !granted.contains(&&**name)).collect()
}

/// The latest turn of a daemon that this scenario has not started itself, as its control socket tells of it;
/// `None` until it has taken one.
pub fn latest_turn() -> Result<Option<Report>> {
    let output = run(&["status", "-o", "json"])?;
    let status: Value = serde_json::from_str(&output.stdout).with_context(|| output.stderr.clone())?;
    Ok(Some(Report(status["latest"].clone())).filter(|turn| turn.0.is_object()))
}

/// A sum of its metrics; `None` until it serves them.
pub fn served_sum(name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let text = http::get(METRICS, "/metrics").ok()?;
    Some(http::values(&text, name, labels).sum())
}

/// The checks of `doctor -o json`.
pub fn doctor() -> Result<Diagnosis> {
    doctor_by(&mut command(&["doctor", "-o", "json"]))
}

/// What works on this machine, and why the rest does not.
#[derive(Debug)]
pub struct Diagnosis(Value);

impl Diagnosis {
    /// `ok`, `degraded`, `missing` or `absent`; `None` if it says nothing of the source.
    pub fn status(&self, source: &str) -> Option<&str> {
        self.check(source)?["status"].as_str()
    }

    /// What was seen.
    pub fn detail(&self, source: &str) -> Option<&str> {
        self.check(source)?["detail"].as_str()
    }

    fn check(&self, source: &str) -> Option<&Value> {
        self.0["checks"].as_array()?.iter().find(|check| check["name"] == source)
    }
}

fn arguments_of_audit<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["audit", "-o", "json"], arguments].concat()
}

fn audit_by(mut command: Command) -> Result<(Report, Option<i32>)> {
    let output = process::run(&mut command, LIMIT)?;
    let json = serde_json::from_str(&output.stdout)
        .with_context(|| format!("audit printed no JSON; standard error: {}", output.stderr.trim()))?;
    if RECORDS.load(Ordering::Relaxed) {
        fs::write(AUDITED, &output.stdout).context("leave the audit")?;
    }
    Ok((Report(json), output.status))
}

/// The JSON of an audit.
#[derive(Debug)]
pub struct Report(Value);

impl Report {
    /// A value by its JSON pointer (RFC 6901).
    pub fn get(&self, pointer: &str) -> Option<&Value> {
        self.0.pointer(pointer)
    }

    /// The entry of a workload.
    pub fn workload(&self, cgroup: &Cgroup) -> Result<&Value> {
        let entry = self.list("workloads").iter().find(|entry| entry["cgroup"] == cgroup.path());
        entry.with_context(|| format!("the audit has no workload {}", cgroup.path()))
    }

    /// Sources of the degraded entries.
    pub fn degraded(&self) -> Vec<&str> {
        self.list("degraded").iter().filter_map(|entry| entry["source"].as_str()).collect()
    }

    /// Why a source is degraded.
    pub fn reason(&self, source: &str) -> Option<&str> {
        self.list("degraded").iter().find(|entry| entry["source"] == source)?["reason"].as_str()
    }

    fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map_or(&[], Vec::as_slice)
    }
}

/// A daemon with readable metrics.
#[derive(Debug)]
pub struct Daemon {
    process: Running,
    metrics: SocketAddr,
}

impl Daemon {
    /// Starts it with a configuration that declares these workloads.
    pub fn start(mode: &str, workloads: &[&Cgroup]) -> Result<Self> {
        Self::start_with(mode, &rules(workloads))
    }

    /// Starts it with a configuration that declares this workload and the nodes it may be on.
    pub fn start_for(mode: &str, workload: &Cgroup, nodes: &str) -> Result<Self> {
        Self::start_with(mode, &format!("{}numa_nodes = \"{nodes}\"\n", rule(workload)))
    }

    /// Starts it with a configuration that declares these workloads, the last one with `more` about it, and
    /// that has the counters of each told.
    pub fn start_counting(mode: &str, workloads: &[&Cgroup], more: &str) -> Result<Self> {
        Self::start_with(mode, &format!("{}{more}[metrics]\nworkload_counters = true\n", rules(workloads)))
    }

    /// Starts it with this configuration.
    pub fn start_with(mode: &str, config: &str) -> Result<Self> {
        Self::start_every(INTERVAL, mode, config)
    }

    /// Starts it with a configuration that declares these workloads; it shall undo everything when it ends.
    pub fn start_for_a_while(workloads: &[&Cgroup]) -> Result<Self> {
        Self::launch(Some(INTERVAL), "enforce", &rules(workloads), &["--restore-on-exit"])
    }

    /// Starts it with so much time between two turns.
    pub fn start_every(interval: Duration, mode: &str, config: &str) -> Result<Self> {
        Self::launch(Some(interval), mode, config, &[])
    }

    /// Starts it with the time between two turns that it has by itself, which is longer on an idle host.
    pub fn start_by_itself(mode: &str, config: &str) -> Result<Self> {
        Self::launch(None, mode, config, &[])
    }

    /// Starts it in enforce mode with these capabilities alone, named without `CAP_`.
    pub fn start_with_only(granted: &[&str], config: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("own path")?);
        command.args(["without", &others(granted).join(","), "--", PROGRAM]);
        Self::launch_by(command, Some(INTERVAL), "enforce", config, &[])
    }

    fn launch(interval: Option<Duration>, mode: &str, config: &str, more: &[&str]) -> Result<Self> {
        Self::launch_by(command(&[]), interval, mode, config, more)
    }

    fn launch_by(
        mut daemon: Command,
        interval: Option<Duration>,
        mode: &str,
        config: &str,
        more: &[&str],
    ) -> Result<Self> {
        fs::write(CONFIG, config).context("write the configuration")?;
        daemon.args(["run", "--mode", mode, "--config", CONFIG, "--state-dir", STATE]);
        if let Some(interval) = interval {
            daemon.args(["--interval", &format!("{}s", interval.as_secs())]);
        }
        daemon.args(["--metrics-listen", &METRICS.to_string()]).args(more);
        if RECORDS.load(Ordering::Relaxed) {
            daemon.args(["--record", RECORDING, "--record-limit", RECORDING_LIMIT]);
        }
        // The log of the daemon before is overwritten.
        note_panics(&Self::printed());
        daemon.stdout(process::log(LOG)?).stderr(process::log(&format!("{LOG}.err"))?);
        Ok(Self { process: Running::spawn(&mut daemon)?, metrics: METRICS })
    }

    /// Gives it another configuration, which it reads at once.
    pub fn reload(&self, config: &str) -> Result<()> {
        fs::write(CONFIG, config).context("write the configuration")?;
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("a process id")?;
        kill_process(pid, Signal::HUP).context("send SIGHUP")
    }

    /// Remote share of a workload's accesses by the daemon's metrics; `None` if it has not seen it yet.
    pub fn remote_traffic(&self, cgroup: &Cgroup) -> Result<Option<f64>> {
        self.metric("numa_enforcer_workload_remote_traffic_ratio", cgroup)
    }

    /// Remote share of a workload's memory by the daemon's metrics; `None` if it has not seen it yet.
    pub fn remote_residency(&self, cgroup: &Cgroup) -> Result<Option<f64>> {
        self.metric("numa_enforcer_workload_remote_residency_ratio", cgroup)
    }

    /// Ticks since its start.
    pub fn ticks(&self) -> Result<Option<f64>> {
        self.value("numa_enforcer_ticks_total")
    }

    /// A metric with these labels; `None` if there is no such series yet.
    pub fn labelled(&self, name: &str, labels: &[(&str, &str)]) -> Result<Option<f64>> {
        Ok(http::metric(&http::get(self.metrics, "/metrics")?, name, labels))
    }

    /// A metric without labels; `None` if there is no such series yet.
    pub fn value(&self, name: &str) -> Result<Option<f64>> {
        Ok(http::metric(&http::get(self.metrics, "/metrics")?, name, &[]))
    }

    /// Why a source is degraded, by its report; `None` if it is not.
    pub fn degraded(&self, source: &str) -> Result<Option<String>> {
        let report: Value = serde_json::from_str(&http::get(self.metrics, "/report.json")?)?;
        let audit = Report(report["audit"].clone());
        Ok(audit.reason(source).map(str::to_owned))
    }

    fn metric(&self, name: &str, cgroup: &Cgroup) -> Result<Option<f64>> {
        Ok(http::metric(&http::get(self.metrics, "/metrics")?, name, &[label(cgroup)]))
    }

    /// Its metrics after it has taken so many further turns: all that happened before is in them.
    pub fn metrics_after_ticks(&self, turns: u32) -> Result<Metrics> {
        let ticks = || wait::until("the daemon serves its metrics", LIMIT, || self.ticks());
        let end = ticks()? + f64::from(turns);
        wait::until("the daemon takes its turns", LIMIT, || Ok((ticks()? >= end).then_some(())))?;
        Ok(Metrics(http::get(self.metrics, "/metrics")?))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process.
    pub fn process(self) -> Running {
        self.process
    }

    /// Asks it to end and waits for it; returns its exit status, `None` after a signal.
    pub fn end(self) -> Result<Option<i32>> {
        self.process.terminate(END)
    }

    /// As [`Self::end`], and it ends without a fault.
    pub fn ends_well(self, checks: &mut Checks) -> Result<()> {
        checks.equal("exit status of the daemon after SIGTERM", Some(0), self.end()?);
        Ok(())
    }

    /// What it printed, for people.
    pub fn printed() -> String {
        [LOG.to_owned(), format!("{LOG}.err")]
            .iter()
            .filter_map(|path| fs::read_to_string(path).ok())
            .collect()
    }
}

/// Label of a workload's series if it has no name but that of its cgroup.
pub fn label(cgroup: &Cgroup) -> (&'static str, &str) {
    ("workload", cgroup.path())
}

/// The daemon's metrics at one moment.
#[derive(Debug)]
pub struct Metrics(String);

impl Metrics {
    /// Is there a series of `name` for this workload?
    pub fn has(&self, name: &str, workload: &Cgroup) -> bool {
        http::metric(&self.0, name, &[label(workload)]).is_some()
    }

    /// Sum of all series of `name` that have these labels; 0 if there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        http::values(&self.0, name, labels).sum()
    }
}

/// Declares these workloads.
pub fn rules(workloads: &[&Cgroup]) -> String {
    workloads.iter().map(|cgroup| rule(cgroup)).collect()
}

fn rule(workload: &Cgroup) -> String {
    let path = workload.path();
    format!("[[workload]]\nname = \"{path}\"\ncgroup = \"{path}\"\ncpus = 2\nmemory = \"64MiB\"\n")
}
