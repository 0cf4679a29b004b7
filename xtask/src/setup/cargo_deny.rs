//! cargo-deny: licences, duplicates and sources of the dependencies (deny.toml).

use std::path::PathBuf;

use anyhow::Result;

use super::tool::BuiltTool;
use crate::workspace::Workspace;

/// Without its default features it links no TLS and no git: it is asked for nothing from the network.
const CARGO_DENY: BuiltTool =
    BuiltTool { name: "cargo-deny", version: "0.20.2", options: &["--no-default-features"] };

/// Installs cargo-deny into the workspace's tools; returns the program.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf> {
    CARGO_DENY.install(workspace, |_| ())
}
