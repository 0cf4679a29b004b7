//! Runs a compiler, and says what it complained about.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Runs it to its end.
///
/// # Errors
/// It cannot be started, or fails: with its command line and what it wrote to its standard error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed ({}):\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
