//! Bursts of pods through the product's extender, by the program of `tests/burst`, which judges itself.
//!
//! Each burst has its own control: the same pods by kube-scheduler alone, of which kubelets have to refuse
//! some. The product really runs, with a stub of an API server behind it.

use std::process::Command;

use anyhow::Result;

use super::tally::TestTally;
use crate::{
    command,
    product::{self, BuildProfile},
    progress::ProgressStep,
    workspace::Workspace,
};

/// Bursts by number of nodes, percent of their CPUs, and seed.
const BURSTS: [[&str; 3]; 2] = [["20", "90", "3"], ["30", "95", "1"]];

/// Sends each burst and counts it.
pub(super) fn run(workspace: &Workspace, tally: &mut TestTally) -> Result<()> {
    let program = product::build(workspace, BuildProfile::Dev)?;
    let burst = product::build_burst(workspace)?;
    let step = ProgressStep::begin("scheduler-burst");
    for [nodes, percent, seed] in BURSTS {
        let mut command = Command::new(&burst);
        command.arg("--check").arg("--product").arg(&program);
        command.args(["--nodes", nodes, "--percent", percent, "--seed", seed]);
        let name = format!("scheduler-burst {nodes} nodes at {percent} %");
        tally.outcome(&name, command::quietly(&mut command).map(|table| print!("{table}")));
    }
    step.done();
    Ok(())
}
