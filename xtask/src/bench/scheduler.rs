//! What the scheduler's extender costs, by the programs of `tests/burst`, and bursts by each arm.
//!
//! The driver and the stub of an API server take their part of the machine, so times are upper bounds.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    command,
    product::{self, BuildProfile},
    progress::ProgressStep,
    workspace::Workspace,
};

/// Measurements of the load, with the product as their last word.
const LOADS: [&[&str]; 5] = [
    &["latency", "--nodes", "500"],
    &["latency", "--nodes", "5000", "--small-pods", "--calls", "100"],
    &["throughput", "--nodes", "500"],
    &["throughput", "--nodes", "500", "--filter-only"],
    &["throughput", "--nodes", "5000", "--pods", "2000"],
];

/// Pods against the decisions alone, where the extender binds and where the scheduler does.
const ENDURANCES: [&[&str]; 2] = [&["endurance"], &["endurance", "--filter-only"]];

/// Bursts.
const BURSTS: [&[&str]; 4] = [
    &["--nodes", "100", "--percent", "80"],
    &["--nodes", "100", "--percent", "95"],
    &["--nodes", "100", "--percent", "100"],
    &["--nodes", "100", "--percent", "95", "--policy", "best-effort"],
];

/// Measures, and prints what each program says as soon as it ends: together they take most of an hour.
pub(super) fn measure(workspace: &Workspace) -> Result<()> {
    let program = product::build(workspace, BuildProfile::Release)?;
    let load = product::build_measuring_burst(workspace, "scheduler-load")?;
    let burst = product::build_measuring_burst(workspace, "scheduler-burst")?;
    let program = program.to_string_lossy();
    for words in LOADS {
        print(&load, words, &[&program])?;
    }
    for words in BURSTS {
        print(&burst, words, &["--product", &program])?;
    }
    for words in ENDURANCES {
        print(&load, words, &[])?;
    }
    Ok(())
}

/// Runs a program, and prints its lines with its words before them.
fn print(program: &Path, words: &[&str], further: &[&str]) -> Result<()> {
    let words_text = words.join(" ");
    let step = ProgressStep::begin(format!("measure {words_text}"));
    let text = command::quietly(Command::new(program).args(words).args(further))?;
    step.done();
    text.lines().for_each(|line| println!("{words_text}: {line}"));
    Ok(())
}
