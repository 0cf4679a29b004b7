//! bpf-linker: turns LLVM bitcode of the kernel side into a BPF object.
//!
//! Built from source against the distribution's LLVM 22; its default features want a newer LLVM and
//! fail only at link time.

use std::{env, ffi::OsString, process::Command};

use anyhow::{Context, Result};

use super::cache;
use crate::{command, progress::Step, workspace::Workspace};

/// Version that the build is known to work with; `enforcer/build.rs` looks for this folder.
pub(crate) const FOLDER: &str = "bpf-linker-0.13.0";
const VERSION: &str = "0.13.0";
const LLVM: &str = "/usr/lib/llvm-22";

/// Installs bpf-linker into the workspace's tools.
pub(super) fn install(workspace: &Workspace) -> Result<()> {
    let place = workspace.tools().join(FOLDER);
    if place.join("bin/bpf-linker").exists() {
        return Ok(());
    }
    cache::aside(&workspace.tools(), &place, |unfinished| {
        let step = Step::begin(format!("build bpf-linker {VERSION}"));
        let path = env::join_paths(
            std::iter::once(format!("{LLVM}/bin").into())
                .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
        )
        .context("PATH")?;
        command::quietly(
            Command::new("cargo")
                .args(["install", "bpf-linker", "--version", VERSION, "--no-default-features"])
                .args(["--features", "llvm-22", "--no-track", "--root"])
                .arg(unfinished)
                .arg("--target-dir")
                .arg(workspace.target().join("bpf-linker-build"))
                .env("LLVM_PREFIX", LLVM)
                .env("PATH", path)
                // The host's own flags and triple: it runs here and nowhere else.
                .env("RUSTFLAGS", OsString::new())
                .env_remove("CARGO_BUILD_TARGET"),
        )?;
        step.done();
        Ok(())
    })
}
