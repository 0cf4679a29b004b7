//! Programs of another architecture on this machine: QEMU's emulator of one process.

use std::{path::Path, process::Command};

use anyhow::Result;

use super::packages;
use crate::architecture::Architecture;

/// A program of an architecture, ready for its arguments.
pub(crate) fn program(binary: &Path, architecture: Architecture) -> Result<Command> {
    if architecture.is_native() {
        return Ok(Command::new(binary));
    }
    packages::install(&packages::EMULATOR)?;
    let mut emulator = Command::new(format!("qemu-{}-static", architecture.kernel()));
    emulator.arg(binary);
    Ok(emulator)
}
