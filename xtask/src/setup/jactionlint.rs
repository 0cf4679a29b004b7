//! jactionlint: what GitHub would refuse in a workflow, and what an outsider could do by one.
//!
//! A fork of actionlint with its checks. actionlint itself is on no registry that this workspace asks: its
//! package of PyPI fetches the program from elsewhere, and that of npm is too old to know attestations.

use std::{env::consts::ARCH, path::PathBuf};

use anyhow::{Result, ensure};

use super::wheel::Wheel;
use crate::workspace::Workspace;

const LINTER: Wheel = Wheel {
    project: "jactionlint",
    version: "2.3.0",
    sha256: "4293053b50800cf5899fca39c2e10a84c4b2926aa68fc2a7610114e37825836f",
    program: "jactionlint/bin/jactionlint",
};

/// Downloads it into the workspace's tools; returns the program.
pub(crate) fn fetch(workspace: &Workspace) -> Result<PathBuf> {
    ensure!(ARCH == "x86_64", "jactionlint is unpacked for x86-64; this machine is {ARCH}");
    LINTER.fetch(&workspace.tools())
}
