//! cargo-deb: the Debian package of a release.

use std::path::PathBuf;

use anyhow::Result;

use super::tool::BuiltTool;
use crate::workspace::Workspace;

/// Without its default features it compresses by the program xz.
const CARGO_DEB: BuiltTool =
    BuiltTool { name: "cargo-deb", version: "3.8.0", options: &["--no-default-features"] };

/// Installs cargo-deb into the workspace's tools; returns the program.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf> {
    CARGO_DEB.install(workspace, |_| ())
}
