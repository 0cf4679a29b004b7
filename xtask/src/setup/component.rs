//! Components of the Rust toolchain that a minimal installation lacks: rustfmt and clippy.

use std::process::Command;

use anyhow::{Context, Result};

use crate::command;

/// Makes sure that this component is there, which brings the `subcommand` of cargo.
pub(crate) fn component(component: &str, subcommand: &str) -> Result<()> {
    let probe = Command::new("cargo").args([subcommand, "--version"]).output().context("run cargo")?;
    if probe.status.success() {
        return Ok(());
    }
    command::quietly(Command::new("rustup").args(["component", "add", component])).map(drop).with_context(
        || {
            format!(
                "{component} is not installed and could not be fetched; with a network, run \
                 `rustup component add {component}`"
            )
        },
    )
}
