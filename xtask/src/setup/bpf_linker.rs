//! bpf-linker: turns LLVM bitcode of the kernel side into a BPF object.
//!
//! Built from source against the distribution's LLVM 22; its default features want a newer LLVM and
//! fail only at link time.

use std::{env, path::PathBuf};

use anyhow::{Context, Result};

use super::tool::BuiltTool;
use crate::workspace::Workspace;

const LLVM: &str = "/usr/lib/llvm-22";

/// `enforcer/kernel/build/programs.rs` looks for this folder.
const BPF_LINKER: BuiltTool = BuiltTool {
    name: "bpf-linker",
    version: "0.13.0",
    options: &["--no-default-features", "--features", "llvm-22"],
};

/// The folder with the program.
pub(crate) fn bin(workspace: &Workspace) -> PathBuf {
    BPF_LINKER.folder(workspace).join("bin")
}

/// Installs bpf-linker into the workspace's tools.
pub(super) fn install(workspace: &Workspace) -> Result<()> {
    let path = env::join_paths(
        std::iter::once(format!("{LLVM}/bin").into())
            .chain(env::split_paths(&env::var_os("PATH").unwrap_or_default())),
    )
    .context("PATH")?;
    BPF_LINKER.install(workspace, |cargo| {
        cargo.env("LLVM_PREFIX", LLVM).env("PATH", path);
    })?;
    Ok(())
}
