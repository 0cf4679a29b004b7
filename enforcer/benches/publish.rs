//! What publishing costs: the time from a change of the kubelet's file to the node's object on a server,
//! writes while the file never rests, and what the daemon takes beside one that does not publish.
//!
//! The server is a stub in this process, and the kubelet a process of that name with files as it writes them.
//! States here are inexact, because nothing answers on the kubelet's socket: that costs no less.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use enforcer_test_api::{StubbedNode, cpu_time_of, memory_of};
use serde_json::{Value, json};

/// Changes that are timed.
const CHANGES: u64 = 100;
/// Time between two of them: a little more than a publisher's rate allows.
const APART: Duration = Duration::from_millis(5_250);
/// How long the file changes without rest, and the time between two of these changes.
const RESTLESS: (Duration, Duration) = (Duration::from_mins(1), Duration::from_millis(50));
/// How long the daemon rests.
const REST: Duration = Duration::from_mins(1);
/// Far above what anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);
/// A process that ends with its value.
struct RunningProcess(Child);

impl RunningProcess {
    /// Memory that is its own.
    fn memory_kib(&self) -> Result<u64> {
        Ok(memory_of(self.0.id(), "RssAnon")? >> 10)
    }

    fn cpu_time(&self) -> Result<Duration> {
        cpu_time_of(self.0.id())
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    // cargo test runs benches too, to see that they start; it does not pass --bench.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (changes, shorter) = if is_bench { (CHANGES, 1) } else { (1, 60) };
    let node = StubbedNode::start();
    node.report("2099-01-01T00:00:00Z");
    change(&node, false);
    let silent = daemon(&node, "silent", "")?;
    let publishing = daemon(&node, "publishing", &node.lines())?;
    becomes(&node, "published", &|_| true)?;
    let before = [silent.cpu_time()?, publishing.cpu_time()?];
    thread::sleep(REST / shorter);
    let [alone, beside] = [&silent, &publishing].map(RunningProcess::memory_kib);
    let [alone, beside] = [alone?, beside?];
    let took =
        [silent.cpu_time()?.saturating_sub(before[0]), publishing.cpu_time()?.saturating_sub(before[1])];
    let percent = |took: Duration| took.as_secs_f64() * 100.0 / (REST / shorter).as_secs_f64();
    println!(
        "publish: at rest {:.3} % of a CPU and {beside} KiB, without publishing {:.3} % and {alone} KiB",
        percent(took[1]),
        percent(took[0]),
    );
    drop(silent);

    let mut times = Vec::new();
    for at in 0..changes {
        let began = Instant::now();
        let is_odd = at % 2 == 0;
        change(&node, is_odd);
        becomes(&node, "the change", &|state| is_shown(state, is_odd))?;
        times.push(began.elapsed());
        thread::sleep((APART / shorter).saturating_sub(began.elapsed()));
    }
    times.sort_unstable();
    let percentile = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64();
    println!(
        "publish: {} changes {APART:?} apart: shown after {:.2} s in the middle, {:.2} s p99, {:.2} s at most",
        times.len(),
        percentile(50),
        percentile(99),
        percentile(100),
    );

    let (writes, began) = (node.stub.writes(), Instant::now());
    let mut at = 0;
    while began.elapsed() < RESTLESS.0 / shorter {
        at += 1;
        change(&node, at % 2 == 1);
        thread::sleep(RESTLESS.1);
    }
    let (writes, seconds) = (node.stub.writes() - writes, began.elapsed().as_secs_f64());
    let began = Instant::now();
    becomes(&node, "the last change", &|state| is_shown(state, at % 2 == 1))?;
    println!(
        "publish: {at} changes in {seconds:.0} s: {writes} writes, leases included; the last one shown after {:.2} s",
        began.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// CPUs of all pods together, after an odd change or another one.
const fn shared(is_odd: bool) -> &'static str {
    if is_odd { "0" } else { "0-1" }
}

fn is_shown(state: &Value, is_odd: bool) -> bool {
    state["sharedCpus"] == shared(is_odd)
}

/// A daemon after its first turn, the only one.
fn daemon(node: &StubbedNode, name: &str, lines: &str) -> Result<RunningProcess> {
    let dir = node.dir().join(name);
    fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
    let (config, socket) = (dir.join("config.toml"), dir.join("control.sock"));
    let text = format!("interval = \"1h\"\n{lines}[control]\nsocket = \"{}\"\n", socket.display());
    fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"))
        .args(["run", "--config"])
        .arg(&config)
        .arg("--state-dir")
        .arg(dir.join("state"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("run the product")?;
    let output = child.stdout.take().context("the product has no standard output")?;
    let child = RunningProcess(child);
    let mut output = BufReader::new(output).lines().map_while(Result::ok);
    ensure!(output.any(|line| line.contains("turn 1: ")), "the {name} daemon has ended");
    // Its output has to be read, or it would wait for its reader.
    thread::spawn(move || output.for_each(drop));
    Ok(child)
}

fn change(node: &StubbedNode, is_odd: bool) {
    node.write_cpus(shared(is_odd), &json!({}));
}

fn becomes(node: &StubbedNode, what: &str, is: &dyn Fn(&Value) -> bool) -> Result<()> {
    let began = Instant::now();
    while !node.state().is_some_and(|state| is(&state)) {
        ensure!(began.elapsed() < PATIENCE, "never {what}: {:?}", node.state());
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
