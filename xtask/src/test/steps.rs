//! The steps that need no virtual machine.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use super::{libtest, tally::Tally};
use crate::{arch, command, product, progress::Step as Progress, workspace::Workspace};

/// One step by name.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    run: fn(&Workspace) -> Result<()>,
}

/// Name under which the host's tests run as one step.
const HOST: &str = "host";

/// All steps, quick ones first. `host` is counted test by test.
pub(super) const STEPS: &[Step] = &[
    Step { name: "format", about: "rustfmt has nothing to change", run: format },
    Step { name: "arch", about: "the invariants of ARCHITECTURE.md", run: |w| arch::run(w.root()) },
    Step { name: "lint", about: "clippy without a warning", run: lint },
    Step { name: "without-bpf", about: "the product builds without its kernel side", run: without_bpf },
    Step { name: HOST, about: "every test that runs on this host", run: |_| Ok(()) },
];

/// Steps whose name begins with `prefix`.
pub(super) fn matching(prefix: &str) -> Vec<&'static Step> {
    STEPS.iter().filter(|step| step.name.starts_with(prefix)).collect()
}

/// Runs one step and counts it; only a broken machine is an error.
pub(super) fn run(workspace: &Workspace, step: &Step, tally: &mut Tally) -> Result<()> {
    if step.name == HOST {
        return host_tests(workspace, None, tally);
    }
    let progress = Progress::begin(step.name);
    let outcome = (step.run)(workspace);
    match &outcome {
        Ok(()) => progress.done(),
        Err(error) => {
            drop(progress);
            println!("{error:#}");
        }
    }
    tally.count(step.name, outcome.is_ok());
    Ok(())
}

fn format(workspace: &Workspace) -> Result<()> {
    component("rustfmt", "fmt")?;
    command::quietly(product::cargo(workspace)?.args(["fmt", "--all", "--check"])).map(drop)
}

fn lint(workspace: &Workspace) -> Result<()> {
    component("clippy", "clippy")?;
    let mut cargo = product::cargo(workspace)?;
    cargo.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    command::visibly(&mut cargo)
}

fn without_bpf(workspace: &Workspace) -> Result<()> {
    let mut cargo = product::cargo(workspace)?;
    cargo.args(["build", "--quiet", "--package", "enforcer", "--no-default-features"]);
    command::visibly(&mut cargo)
}

/// A component of the toolchain; a minimal installation lacks it.
fn component(component: &str, subcommand: &str) -> Result<()> {
    let probe = Command::new("cargo").args([subcommand, "--version"]).output().context("run cargo")?;
    if probe.status.success() {
        return Ok(());
    }
    command::quietly(Command::new("rustup").args(["component", "add", component])).map(drop)
}

/// Runs the host's tests, all or those whose name holds `filter`, and counts each.
pub(super) fn host_tests(workspace: &Workspace, filter: Option<&str>, tally: &mut Tally) -> Result<()> {
    let progress = Progress::begin("host tests");
    let mut cargo = product::cargo(workspace)?;
    cargo.args(["test", "--quiet", "--workspace", "--no-fail-fast", "--"]).args(filter);
    // Without it the quiet harness prints a dot for each test.
    cargo.arg("--format=pretty");
    let mut child = cargo.stdout(Stdio::piped()).spawn().context("run cargo test")?;
    let stdout = child.stdout.take().context("cargo test has no standard output")?;
    let (mut ended, mut failed) = (0, 0);
    for line in BufReader::new(stdout).lines() {
        let line = line.context("read cargo test's output")?;
        match libtest::read(&line) {
            libtest::Line::Ended { name, passed } => {
                ended += 1;
                failed += usize::from(!passed);
                tally.count(name, passed);
            }
            libtest::Line::Count => {}
            libtest::Line::Other => println!("{line}"),
        }
    }
    let status = child.wait().context("wait for cargo test")?;
    // It did not compile, or a test killed its process: no line tells that.
    if !status.success() && failed == 0 {
        tally.count("cargo test", false);
    }
    progress.done();
    println!("host tests: {ended} ran, {failed} failed");
    Ok(())
}

/// Names of the host's tests.
pub(super) fn list_host_tests(workspace: &Workspace) -> Result<Vec<String>> {
    let mut cargo = product::cargo(workspace)?;
    cargo.args(["test", "--quiet", "--workspace", "--", "--list", "--format=terse"]);
    let text = command::quietly(&mut cargo)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
