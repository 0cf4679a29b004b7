//! Building the product and the programs that test it.
//!
//! Everything is built for an explicit target with a static C runtime, so that the binary that passes
//! the host's tests is byte for byte the one that runs in guests. `enforcer/kernel/build.rs` compiles the
//! kernel side; here it only gets its tools.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};

use crate::{command, progress::ProgressStep, setup, workspace::Workspace};

/// Cargo profiles that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildProfile {
    /// Quick to build: tests and guests.
    Dev,
    /// Quick to run: people and measurements.
    Release,
}

/// Name of the tests that need a kernel.
const KERNEL_SIDE_TESTS: &str = "kernel_side";

/// `cargo` with the environment of every build of the product.
pub(crate) fn cargo(workspace: &Workspace) -> Result<Command> {
    let path = env::var_os("PATH").unwrap_or_default();
    let linker = setup::bpf_linker_bin(workspace);
    let path = env::join_paths(std::iter::once(linker).chain(env::split_paths(&path))).context("PATH")?;
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(workspace.root())
        .env("PATH", path)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_BUILD_TARGET", triple())
        .env("CARGO_TARGET_DIR", workspace.target());
    // It would win over the flags above.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    Ok(cargo)
}

/// The triple of this machine: static glibc, which Debian's libc6-dev brings.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// Builds the product with its kernel side; returns the binary.
pub(crate) fn build(workspace: &Workspace, profile: BuildProfile) -> Result<PathBuf> {
    build_binary(workspace, "enforcer", "numa-enforcer", profile, &[])
}

/// Builds the product without its kernel side, for tests; returns the binary.
pub(crate) fn build_without_bpf(workspace: &Workspace) -> Result<PathBuf> {
    let options = ["--no-default-features"];
    build_binary(workspace, "enforcer", "numa-enforcer", BuildProfile::Dev, &options)
}

/// Builds the program that runs scenarios inside a guest.
pub(crate) fn build_scenarios(workspace: &Workspace) -> Result<PathBuf> {
    build_binary(workspace, "enforcer-tests", "scenario", BuildProfile::Dev, &[])
}

/// Builds the program that runs conformance vectors.
pub(crate) fn build_conformance(workspace: &Workspace) -> Result<PathBuf> {
    build_binary(workspace, "enforcer-conformance", "conformance", BuildProfile::Dev, &[])
}

/// Builds the tests of the kernel side (`enforcer/tests/kernel_side`) without running them.
pub(crate) fn build_kernel_side_tests(workspace: &Workspace) -> Result<PathBuf> {
    let step = ProgressStep::begin("build the tests of the kernel side");
    let mut cargo = cargo(workspace)?;
    cargo.args(["test", "--no-run", "--quiet", "--package", "enforcer", "--test", KERNEL_SIDE_TESTS]);
    let messages = command::quietly(cargo.arg("--message-format=json"))?;
    step.done();
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message.pointer("/target/name").is_some_and(|name| name == KERNEL_SIDE_TESTS))
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo named no executable of the tests of the kernel side")
}

/// `cargo xtask build-ebpf`: the kernel side, through the crate that embeds it.
pub(crate) fn build_ebpf(workspace: &Workspace) -> Result<()> {
    setup::build_tools(workspace)?;
    build(workspace, BuildProfile::Dev).map(drop)
}

fn build_binary(
    workspace: &Workspace,
    package: &str,
    binary: &str,
    profile: BuildProfile,
    options: &[&str],
) -> Result<PathBuf> {
    let how =
        if profile == BuildProfile::Release { ", optimised, which takes minutes the first time" } else { "" };
    let step = ProgressStep::begin(format!("build {binary}{how}"));
    let mut cargo = cargo(workspace)?;
    cargo.args(["build", "--quiet", "--package", package, "--bin", binary]).args(options);
    if profile == BuildProfile::Release {
        cargo.arg("--release");
    }
    command::visibly(&mut cargo)?;
    step.done();
    let folder = if profile == BuildProfile::Release { "release" } else { "debug" };
    let path = workspace.target().join(triple()).join(folder).join(binary);
    ensure!(path.is_file(), "cargo built no {}", path.display());
    Ok(path)
}
