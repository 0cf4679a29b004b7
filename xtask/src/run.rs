//! `cargo xtask run`: from a fresh working copy to the product on this host.
//!
//! What counts is the time to the first audit, so the product is built quickly, and optimised only where it
//! is shipped or measured: `--release`.

use std::{
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result};

use crate::{
    product::{self, BuildProfile},
    setup,
    workspace::Workspace,
};

/// Arguments of `run`.
#[derive(clap::Args)]
pub(crate) struct RunArguments {
    /// Stop after the first turn
    #[arg(long, conflicts_with = "arguments")]
    once: bool,
    /// Build what ships, optimised, which takes longer
    #[arg(long)]
    release: bool,
    /// Arguments for numa-enforcer; without any, the daemon in observe mode
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Becomes the product; returns only if that failed.
pub(crate) fn run(workspace: &Workspace, arguments: &RunArguments) -> Result<ExitCode> {
    setup::build_tools(workspace)?;
    let profile = if arguments.release { BuildProfile::Release } else { BuildProfile::Fast };
    let binary = product::build(workspace, profile)?;
    let mut product = Command::new(&binary);
    if arguments.arguments.is_empty() {
        product.arg("run");
        product.args(arguments.once.then_some("--once"));
    } else {
        product.args(&arguments.arguments);
    }
    Err(product.exec()).with_context(|| format!("run {}", binary.display()))
}
