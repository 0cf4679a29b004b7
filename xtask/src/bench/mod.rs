//! `cargo xtask bench`: the numbers of SPECIFICATION.md, measured on this machine.
//!
//! It prints and judges nothing: these machines are shared, and a bound that holds on a quiet day
//! proves as little as one that fails on a busy one. What can be told as a ratio of two measurements
//! of one run is told so. Everything is measured with the release build.

mod placement;
mod scheduler;
mod table;

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Deserialize;

use self::table::{head, row};
use crate::{
    command,
    product::{self, BuildProfile},
    setup,
    test::{AskedParts, Options, Scenarios, TestTally, plays},
    workspace::Workspace,
};

/// Beginning of the line with which `audit-large` tells what an audit of a crowded guest costs.
const CROWDED: &str = "note audit: ";

/// Beginning of the lines of the bench `tasks`.
const TASKS: &str = "tasks: ";

/// Beginning of the lines of the bench `answers`.
const ANSWERS: &str = "answers: ";

/// Beginning of the lines of the bench `scrape`.
const SCRAPE: &str = "scrape: ";

/// Beginning of the lines of the bench `recording`.
const RECORDING: &str = "recording: ";

/// Beginning of the lines of the bench `claims`.
const CLAIMS: &str = "claims: ";

/// Beginning of the lines of the bench `publish`.
const PUBLISH: &str = "publish: ";

/// Beginning of the lines of the bench `programs`.
const PROGRAMS: &str = "programs: ";

/// What a program costs (`tests/src/measure.rs`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MeasuredCost {
    runs: usize,
    wall_ms: f64,
    wall_min_ms: f64,
    wall_max_ms: f64,
    cpu_ms: f64,
    peak_bytes: u64,
}

/// Arguments of `bench`.
#[derive(clap::Args)]
pub(crate) struct BenchArguments {
    /// Only this part
    part: Option<BenchPart>,
}

/// Parts of the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchPart {
    /// The placement engines, and the answers to a container runtime
    Placement,
    /// The eBPF programs, beside bpftrace, and what they slow down
    Ebpf,
    /// An answer with all metrics
    Scrape,
    /// A turn that is recorded, beside one that is not
    Recording,
    /// The driver of resource claims: latency, memory, and lives of claims with restarts
    Dra,
    /// Publishing the node's state, and a plan of a large cluster
    Publish,
    /// The program itself, on this host and in a crowded guest
    Program,
    /// The scheduler's extender: latency, pods per second, memory, bursts, and a million pods
    Scheduler,
}

/// Measures and prints.
pub(crate) fn run(workspace: &Workspace, arguments: &BenchArguments) -> Result<()> {
    setup::build_tools(workspace)?;
    println!("{}", head());
    let wanted = |part| arguments.part.is_none_or(|only| only == part);
    if wanted(BenchPart::Placement) {
        placement::measure(workspace)?.iter().for_each(|line| println!("{line}"));
        for line in lines_of(workspace, "answers", ANSWERS)? {
            println!("{line}");
        }
    }
    if wanted(BenchPart::Ebpf) {
        setup::comparison_tools()?;
        for line in lines_of(workspace, "programs", PROGRAMS)? {
            println!("{line}");
        }
    }
    if wanted(BenchPart::Scrape) {
        for line in lines_of(workspace, "scrape", SCRAPE)? {
            println!("an answer with all metrics: {line}");
        }
    }
    if wanted(BenchPart::Recording) {
        for line in lines_of(workspace, "recording", RECORDING)? {
            println!("a turn that is recorded: {line}");
        }
    }
    if wanted(BenchPart::Dra) {
        for line in lines_of(workspace, "claims", CLAIMS)? {
            println!("{line}");
        }
    }
    if wanted(BenchPart::Publish) {
        for line in lines_of(workspace, "publish", PUBLISH)? {
            println!("{line}");
        }
        measure_plan(workspace)?;
    }
    if wanted(BenchPart::Program) {
        measure_program(workspace)?;
    }
    // It takes half an hour, and is no part of a run that names no part.
    if arguments.part == Some(BenchPart::Scheduler) {
        scheduler::measure(workspace)?;
    }
    Ok(())
}

fn measure_program(workspace: &Workspace) -> Result<()> {
    let program = product::build(workspace, BuildProfile::Release)?;
    let scenarios = Scenarios::build(workspace)?;
    let bytes = fs::metadata(&program).with_context(|| format!("look at {}", program.display()))?.len();
    let host = measure(scenarios.program(), &program, &["audit"])?;
    let json = measure(scenarios.program(), &program, &["audit", "-o", "json"])?;
    // The task iterator against `/proc`, in one process.
    let tasks = lines_of(workspace, "tasks", TASKS)?;
    let crowded = crowded(workspace, &scenarios)?;

    println!("{}", row(["release binary", &megabytes(bytes), "", "", "MB"]));
    for (name, cost) in
        [("audit here", &host), ("audit -o json here", &json), ("audit -o json, crowded guest", &crowded)]
    {
        print(name, cost);
    }
    println!("the crowded guest has 200 cgroups and 10,200 threads, and is emulated: quote it as such");
    for line in tasks {
        println!("snapshot of all threads: {line}");
    }
    Ok(())
}

/// A plan of 500 pods for a cluster of 5,000 nodes.
fn measure_plan(workspace: &Workspace) -> Result<()> {
    let program = product::build(workspace, BuildProfile::Release)?;
    let scenarios = Scenarios::build(workspace)?;
    let pods = workspace.target().join("plan-pods.yaml");
    let of_pod = |at: usize| {
        let amounts = format!("{{cpu: {}, memory: {}Gi}}", 1 + at % 16, 1 + at % 7);
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{at}}}\nspec: {{containers: [{{name: main, \
             image: none, resources: {{requests: {amounts}, limits: {amounts}}}}}]}}\n"
        )
    };
    fs::write(&pods, (0..500).map(of_pod).collect::<String>())
        .with_context(|| format!("write {}", pods.display()))?;
    let machines = "machines:5000 sockets:2 nodes:2 cores:16 threads:2 memory:256GiB";
    let pods = pods.to_string_lossy();
    let cost = measure(
        scenarios.program(),
        &program,
        &["plan", &pods, "--cluster", "--synthetic", machines, "-o", "json"],
    )?;
    print("plan of 500 pods for 5,000 nodes", &cost);
    Ok(())
}

fn print(name: &str, cost: &MeasuredCost) {
    let ms = |value: f64| format!("{value:.1}");
    let wall = format!("{name}, wall time of {} runs", cost.runs);
    println!("{}", row([&wall, &ms(cost.wall_ms), &ms(cost.wall_min_ms), &ms(cost.wall_max_ms), "ms"]));
    println!("{}", row([&format!("{name}, CPU time"), &ms(cost.cpu_ms), "", "", "ms"]));
    println!("{}", row([&format!("{name}, peak memory"), "", "", &megabytes(cost.peak_bytes), "MB"]));
}

fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Cost of a command on this host.
fn measure(scenario: &Path, program: &Path, arguments: &[&str]) -> Result<MeasuredCost> {
    let mut measured = Command::new(scenario);
    measured.args(["measure", "--"]).arg(program).args(arguments);
    let json = command::quietly(&mut measured)?;
    serde_json::from_str(&json).with_context(|| format!("what a run costs: {}", json.trim()))
}

/// Lines that a bench of the product prints as its result.
fn lines_of(workspace: &Workspace, bench: &str, start: &str) -> Result<Vec<String>> {
    let mut command = product::cargo(workspace)?;
    command.args(["bench", "--quiet", "--package", "enforcer", "--bench", bench]);
    let text = command::quietly(&mut command)?;
    let lines: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix(start)).map(str::to_owned).collect();
    anyhow::ensure!(!lines.is_empty(), "the bench `{bench}` printed no result: {text}");
    Ok(lines)
}

/// Cost of an audit in a crowded guest.
fn crowded(workspace: &Workspace, scenarios: &Scenarios) -> Result<MeasuredCost> {
    let (mut tally, mut noted) = (TestTally::default(), None);
    let chosen = scenarios.matching("audit-large");
    let options = Options { profile: BuildProfile::Release, cold: true, record: None, runs: None };
    scenarios.run(workspace, &plays(&chosen, AskedParts::NONE), &options, &mut tally, &mut |line| {
        noted = line.strip_prefix(CROWDED).map(str::to_owned).or(noted.take());
    })?;
    anyhow::ensure!(tally.succeeded(), "the crowded host was not audited");
    let json = noted.context("audit-large told no cost")?;
    serde_json::from_str(&json).with_context(|| format!("what an audit costs: {json}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_tenths_of_a_megabyte() {
        assert_eq!(megabytes(8_584_128), "8.5");
        assert_eq!(megabytes(99_999), "0.0");
    }
}
