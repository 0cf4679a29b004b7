//! The tests that run on this host, through `cargo test`, counted one by one.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, Result};

use super::{
    api_front::CRD_API,
    libtest::{self, LibtestOutput},
    tally::TestTally,
};
use crate::{command, product, progress::ProgressStep, setup, workspace::Workspace};

/// Runs the host's tests, all or those with `filter` in their name, and counts each.
pub(super) fn run(workspace: &Workspace, filter: Option<&str>, tally: &mut TestTally) -> Result<()> {
    // Tests that need it fail in CI, and say elsewhere that they were skipped.
    if let Err(why) = setup::terminal() {
        println!("{why:#}");
    }
    let crd_api = setup::crd_api(workspace);
    if let Err(why) = &crd_api {
        println!("no API server for custom resources: {why:#}");
    }
    let step = ProgressStep::begin("host tests");
    let mut cargo = product::cargo_test(workspace)?;
    if let Ok(crd_api) = &crd_api {
        cargo.env(CRD_API, crd_api.folder());
    }
    cargo.args(["--no-fail-fast", "--"]).args(filter);
    // Without it the quiet harness prints a dot for each test.
    cargo.arg("--format=pretty");
    let mut child = cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("run cargo test")?;
    let stdout = child.stdout.take().context("cargo test has no standard output")?;
    let (mut ended, mut failed) = (0, Vec::new());
    let mut told = LibtestOutput::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("read cargo test's output")?;
        let line = String::from_utf8_lossy(&line);
        match libtest::read(&line) {
            libtest::LibtestLine::Ended { name, passed } => {
                ended += 1;
                if passed {
                    tally.pass();
                } else {
                    failed.push(name.to_owned());
                }
            }
            libtest::LibtestLine::Count => {}
            libtest::LibtestLine::Other => {
                println!("{line}");
                told.line(&line);
            }
        }
    }
    let status = child.wait().context("wait for cargo test")?;
    // It did not compile, or a test killed its process: no line tells that.
    if !status.success() && failed.is_empty() {
        tally.fail("cargo test", format!("it ended with {status}, and named no test"));
    }
    step.done();
    println!("host tests: {ended} ran, {} failed", failed.len());
    for name in failed {
        tally.fail(&name, told.of(&name));
    }
    Ok(())
}

/// Names of the host's tests.
pub(super) fn names(workspace: &Workspace) -> Result<Vec<String>> {
    let mut cargo = product::cargo_test(workspace)?;
    cargo.args(["--", "--list", "--format=terse"]);
    let step = ProgressStep::begin("build the tests of this host, to name them");
    let text = command::quietly(&mut cargo)?;
    step.done();
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
