//! What the scheduler's extender costs, by the programs of `tests/burst`, and bursts by each arm.
//!
//! The driver and the stub of an API server take their part of the machine, so times are upper bounds.

use std::{path::Path, process::Command};

use anyhow::Result;

use crate::{
    command,
    product::{self, BuildProfile},
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

/// Measures; the lines to print.
pub(super) fn measure(workspace: &Workspace) -> Result<Vec<String>> {
    let program = product::build(workspace, BuildProfile::Release)?;
    let load = product::build_measuring_burst(workspace, "scheduler-load")?;
    let burst = product::build_measuring_burst(workspace, "scheduler-burst")?;
    let mut lines = Vec::new();
    let mut take = |of: &Path, words: &[&str], further: &[&str]| -> Result<()> {
        let mut command = Command::new(of);
        command.args(words).args(further);
        let text = command::quietly(&mut command)?;
        lines.extend(text.lines().map(|line| format!("{}: {line}", words.join(" "))));
        Ok(())
    };
    let program = program.to_string_lossy();
    for words in LOADS {
        take(&load, words, &[&program])?;
    }
    for words in BURSTS {
        take(&burst, words, &["--product", &program])?;
    }
    for words in ENDURANCES {
        take(&load, words, &[])?;
    }
    Ok(lines)
}
