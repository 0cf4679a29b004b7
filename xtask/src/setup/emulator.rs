//! Programs of another architecture on this machine: QEMU's emulator of one process, of Debian 13.
//!
//! Debian 12's QEMU 7.2 does not know openat2(2), by which the product reads the files of captured machines.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{apt::Apt, cache};
use crate::architecture::Architecture;

const SUITE: &str = "trixie";
/// Linked statically.
const PACKAGE: &str = "qemu-user";

/// What runs programs of an architecture.
pub(crate) struct ProgramEmulator {
    pub(super) architecture: Architecture,
    /// `None` if it is the machine's own.
    emulator: Option<PathBuf>,
}

/// Fetches the emulator of an architecture into a folder.
pub(super) fn fetch(dir: &Path, architecture: Architecture) -> Result<ProgramEmulator> {
    if architecture.is_native() {
        return Ok(ProgramEmulator { architecture, emulator: None });
    }
    let name = format!("qemu-{}", architecture.kernel());
    let emulator = cache::keep(dir, "qemu-user", &[SUITE, PACKAGE, &name], |place| {
        let scratch = tempfile::tempdir().context("create a scratch folder")?;
        let (packages, tree) = (scratch.path().join("packages"), scratch.path().join("tree"));
        fs::create_dir(&packages).context("create a folder for the package")?;
        let apt = Apt::of_suite(SUITE, Architecture::native()?, &packages.join("apt"))?;
        apt.unpack(&[PACKAGE], &packages, &tree)?;
        // The package emulates all architectures there are, in half a gigabyte.
        fs::copy(tree.join("usr/bin").join(&name), place).with_context(|| format!("copy {name}")).map(drop)
    })?;
    Ok(ProgramEmulator { architecture, emulator: Some(emulator) })
}

impl ProgramEmulator {
    /// A program, ready for its arguments.
    pub(crate) fn program(&self, binary: &Path) -> Command {
        let Some(emulator) = &self.emulator else { return Command::new(binary) };
        let mut command = Command::new(emulator);
        command.arg(binary);
        command
    }
}
