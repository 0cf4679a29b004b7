//! `cargo xtask bench`: the numbers of SPECIFICATION.md, measured on this machine.
//!
//! It prints and judges nothing: these machines are shared, and a bound that holds on a quiet day
//! proves as little as one that fails on a busy one. What can be told as a ratio of two measurements
//! of one run is told so. Everything is measured with the release build.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};

use crate::{
    command,
    product::{self, Profile},
    setup,
    test::{Options, Scenarios, Tally},
    workspace::Workspace,
};

/// Measures and prints.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    setup::build_tools(workspace)?;
    let program = product::build(workspace, Profile::Release)?;
    let scenarios = Scenarios::build(workspace)?;
    let bytes = fs::metadata(&program).with_context(|| format!("look at {}", program.display()))?.len();
    println!("binary: {bytes} bytes");
    println!("audit on this host: {}", measure(scenarios.program(), &program, &["audit"])?);
    println!(
        "audit -o json on this host: {}",
        measure(scenarios.program(), &program, &["audit", "-o", "json"])?
    );
    tasks(workspace)?;
    let mut tally = Tally::default();
    scenarios.run(
        workspace,
        &scenarios.matching("audit-large"),
        Options { profile: Profile::Release, cold: true },
        &mut tally,
        &mut |_| (),
    )?;
    anyhow::ensure!(tally.succeeded(), "the crowded host was not audited");
    Ok(())
}

/// Cost of a command as JSON.
fn measure(scenario: &Path, program: &Path, arguments: &[&str]) -> Result<String> {
    let mut measured = Command::new(scenario);
    measured.args(["measure", "--"]).arg(program).args(arguments);
    command::quietly(&mut measured).map(|json| json.trim().to_owned())
}

/// The task iterator against `/proc`, in one process and one run.
fn tasks(workspace: &Workspace) -> Result<()> {
    let mut bench = product::cargo(workspace)?;
    bench.args(["bench", "--quiet", "--package", "enforcer", "--bench", "tasks"]);
    command::visibly(&mut bench)
}
