//! Build tools from crates.io, each in a folder of its own version under `target/tools`.
//!
//! They run on this machine and nowhere else, so they are built with neither the flags nor the
//! triple of the product. Each runs for seconds, and its build is waited for, so nothing is optimised
//! ([`QUICKLY`]). What their build leaves is thrown away.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::cache;
use crate::{command, progress::ProgressStep, workspace::Workspace};

/// A program and how it is built.
pub(super) struct BuiltTool {
    pub(super) name: &'static str,
    /// Version that is known to work.
    pub(super) version: &'static str,
    /// Further arguments of `cargo install`.
    pub(super) options: &'static [&'static str],
}

/// Overrides what the program's own release profile says.
const QUICKLY: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
    ("CARGO_PROFILE_RELEASE_INCREMENTAL", "false"),
];

impl BuiltTool {
    /// Its folder; the program is in `bin`.
    pub(super) fn folder(&self, workspace: &Workspace) -> PathBuf {
        workspace.tools().join(format!("{}-{}", self.name, self.version))
    }

    /// Builds it if it is not there; `adapt` may change the environment of the build.
    pub(super) fn install(&self, workspace: &Workspace, adapt: impl FnOnce(&mut Command)) -> Result<PathBuf> {
        let folder = self.folder(workspace);
        let program = folder.join("bin").join(self.name);
        if !program.is_file() {
            cache::aside(&workspace.tools(), &folder, |unfinished| {
                self.build(&workspace.target().join(format!("{}-build", self.name)), unfinished, adapt)
            })?;
        }
        Ok(program)
    }

    fn build(&self, scratch: &Path, place: &Path, adapt: impl FnOnce(&mut Command)) -> Result<()> {
        let step = ProgressStep::begin(format!("build {} {}", self.name, self.version));
        let mut cargo = Command::new("cargo");
        cargo
            .args(["install", self.name, "--version", self.version, "--locked", "--no-track", "--root"])
            .arg(place)
            .arg("--target-dir")
            .arg(scratch)
            .args(self.options);
        for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(variable);
        }
        cargo.envs(QUICKLY);
        adapt(&mut cargo);
        command::quietly(&mut cargo)?;
        fs::remove_dir_all(scratch).with_context(|| format!("remove {}", scratch.display()))?;
        step.done();
        Ok(())
    }
}
