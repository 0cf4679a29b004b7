//! Building the product and the programs that test it.
//!
//! Everything is built for an explicit target with a static C runtime, so that the binary that passes
//! the host's tests is byte for byte the one that runs in guests. `enforcer/kernel/build.rs` compiles the
//! kernel side; here it only gets its tools.
//!
//! Invariant: what tests and guests need is built in one configuration. Cargo takes the features of a
//! dependency from all packages that a command selects, and from their tests if it builds any: a command for
//! one package would build most dependencies, and the product, a second time. So each selects the whole
//! workspace, and a target that makes the features those of tests ([`FEATURES_OF_TESTS`]). What ships is
//! built without.
//!
//! The same build lints: clippy's driver compiles the crates of the workspace, and the dependencies are
//! compiled once for both. A round of `cargo clippy` would check all of them again. Clippy says of its driver
//! that it may optimise otherwise than the compiler: development builds do not optimise, and what ships is
//! compiled without it.

use std::{env, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};

use crate::{architecture::Architecture, command, progress::ProgressStep, setup, workspace::Workspace};

/// Cargo profiles that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildProfile {
    /// Quick to build: tests and guests.
    Dev,
    /// Quick to build, and quick enough to run: the first look at a host.
    Fast,
    /// Quick to run: what ships, and measurements.
    Release,
}

impl BuildProfile {
    /// As cargo calls it.
    const fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Fast => "fast",
            Self::Release => "release",
        }
    }

    /// Where cargo puts what it builds.
    const fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Fast | Self::Release => self.name(),
        }
    }

    /// What a reader of the progress should expect.
    const fn about(self) -> &'static str {
        match self {
            Self::Dev => "",
            Self::Fast => ", which takes minutes the first time",
            Self::Release => ", optimised, which takes many minutes the first time",
        }
    }
}

/// A selection in which features are those of a build of all tests. The example is one of them, and small.
const FEATURES_OF_TESTS: [&str; 3] = ["--workspace", "--example", "manual"];

/// Arguments of a build of all.
const EVERYTHING: [&str; 4] = ["build", "--quiet", "--workspace", "--all-targets"];

/// Name of the binary that ships.
const PRODUCT: &str = "numa-enforcer";

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

/// `cargo` for what tests and guests run: the crates of the workspace are linted while they are compiled.
fn linting_cargo(workspace: &Workspace) -> Result<Command> {
    setup::component("clippy", "clippy")?;
    let mut cargo = cargo(workspace)?;
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    Ok(cargo)
}

/// The triple of this machine: static glibc, which Debian's libc6-dev brings.
fn triple() -> String {
    format!("{}-unknown-linux-gnu", env::consts::ARCH)
}

/// Builds all that a whole run needs at once, so that few compilers wait for others.
pub(crate) fn build_all(workspace: &Workspace) -> Result<()> {
    let step = ProgressStep::begin("build the product and all tests");
    command::visibly(linting_cargo(workspace)?.args(EVERYTHING))?;
    step.done();
    Ok(())
}

/// Fails with the warnings of that build, which cargo repeats for what is built already.
pub(crate) fn lint_all(workspace: &Workspace) -> Result<()> {
    command::silently(linting_cargo(workspace)?.args(EVERYTHING))
}

/// `cargo test` for the tests of the host, as [`build_all`] builds them.
pub(crate) fn cargo_test(workspace: &Workspace) -> Result<Command> {
    let mut cargo = linting_cargo(workspace)?;
    cargo.args(["test", "--quiet", "--workspace"]);
    Ok(cargo)
}

/// Builds the product with its kernel side; returns the binary.
pub(crate) fn build(workspace: &Workspace, profile: BuildProfile) -> Result<PathBuf> {
    build_binary(workspace, PRODUCT, profile)
}

/// Builds the product without its kernel side, and without a warning; returns the binary.
pub(crate) fn build_without_bpf(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = linting_cargo(workspace)?;
    cargo.args(["build", "--quiet", "--bin", PRODUCT, "--no-default-features"]).args(FEATURES_OF_TESTS);
    command::silently(&mut cargo)?;
    binary(workspace, PRODUCT, BuildProfile::Dev)
}

/// Builds the program that runs scenarios inside a guest.
pub(crate) fn build_scenarios(workspace: &Workspace) -> Result<PathBuf> {
    build_binary(workspace, "scenario", BuildProfile::Dev)
}

/// Builds the API for scenarios, which runs on this host.
pub(crate) fn build_api_front(workspace: &Workspace) -> Result<PathBuf> {
    build_binary(workspace, "api-front", BuildProfile::Dev)
}

/// Builds the program that runs conformance vectors.
pub(crate) fn build_conformance(workspace: &Workspace) -> Result<PathBuf> {
    build_binary(workspace, "conformance", BuildProfile::Dev)
}

/// Builds the program that sends bursts of pods to the product's scheduler.
pub(crate) fn build_burst(workspace: &Workspace) -> Result<PathBuf> {
    build_binary(workspace, "scheduler-burst", BuildProfile::Dev)
}

/// Builds a program of `tests/burst` that measures.
pub(crate) fn build_measuring_burst(workspace: &Workspace, program: &str) -> Result<PathBuf> {
    build_selected(workspace, &["--package", "enforcer-burst"], program, BuildProfile::Release)
}

/// Builds the tests of the kernel side (`enforcer/tests/kernel_side`) without running them.
pub(crate) fn build_kernel_side_tests(workspace: &Workspace) -> Result<PathBuf> {
    let step = ProgressStep::begin("build the tests of the kernel side");
    let mut cargo = linting_cargo(workspace)?;
    cargo.args(["build", "--quiet", "--workspace", "--test", KERNEL_SIDE_TESTS]);
    let messages = command::quietly(cargo.arg("--message-format=json"))?;
    step.done();
    executable_of_kernel_side_tests(&messages)
}

/// What cargo says in JSON that it has built of the tests of the kernel side.
fn executable_of_kernel_side_tests(messages: &str) -> Result<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message.pointer("/target/name").is_some_and(|name| name == KERNEL_SIDE_TESTS))
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo named no executable of the tests of the kernel side")
}

/// What guests of another architecture run. Debian's compiler builds it: neither are its crates linted, nor
/// has it the features of tests.
pub(crate) struct ForeignPrograms {
    /// The product.
    pub(crate) product: PathBuf,
    /// The program that runs scenarios.
    pub(crate) scenarios: PathBuf,
}

/// Builds the programs of guests of another architecture.
pub(crate) fn build_foreign(
    workspace: &Workspace,
    architecture: Architecture,
    profile: BuildProfile,
) -> Result<ForeignPrograms> {
    let (mut cargo, step) = foreign_cargo(workspace, architecture, profile)?;
    cargo.args(["build", "--quiet", "--profile", profile.name()]);
    cargo.args([
        "--package",
        "enforcer",
        "--package",
        "enforcer-tests",
        "--bin",
        PRODUCT,
        "--bin",
        "scenario",
    ]);
    command::visibly(&mut cargo)?;
    step.done();
    let folder = workspace.target().join(architecture.triple()).join(profile.folder());
    Ok(ForeignPrograms { product: folder.join(PRODUCT), scenarios: folder.join("scenario") })
}

/// Builds the tests of the kernel side for guests of another architecture.
pub(crate) fn build_foreign_kernel_side_tests(
    workspace: &Workspace,
    architecture: Architecture,
) -> Result<PathBuf> {
    let (mut cargo, step) = foreign_cargo(workspace, architecture, BuildProfile::Dev)?;
    cargo.args(["build", "--quiet", "--package", "enforcer", "--test", KERNEL_SIDE_TESTS]);
    let messages = command::quietly(cargo.arg("--message-format=json"))?;
    step.done();
    executable_of_kernel_side_tests(&messages)
}

fn foreign_cargo(
    workspace: &Workspace,
    architecture: Architecture,
    profile: BuildProfile,
) -> Result<(Command, ProgressStep)> {
    let cross = setup::cross_compiler(workspace, architecture)?;
    let mut cargo = cargo(workspace)?;
    cargo.env("CARGO_BUILD_TARGET", architecture.triple());
    cross.adapt(&mut cargo, architecture);
    let step =
        ProgressStep::begin(format!("build for guests of {}{}", architecture.debian(), profile.about()));
    Ok((cargo, step))
}

/// `cargo xtask build-ebpf`: the kernel side, through the crate that embeds it.
pub(crate) fn build_ebpf(workspace: &Workspace) -> Result<()> {
    setup::build_tools(workspace)?;
    build(workspace, BuildProfile::Dev).map(drop)
}

/// Builds the example that writes man pages and completions. They are the same without the kernel side.
pub(crate) fn build_manual_example(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = cargo(workspace)?;
    // Of the whole workspace, as above: dependencies are those of tests.
    command::visibly(cargo.args([
        "build",
        "--quiet",
        "--workspace",
        "--no-default-features",
        "--example",
        "manual",
    ]))?;
    Ok(example(workspace, "manual"))
}

/// Builds the example that draws the page of an audit.
pub(crate) fn build_page_example(workspace: &Workspace) -> Result<PathBuf> {
    let mut cargo = linting_cargo(workspace)?;
    // Of the whole workspace, as all tests are: with the features of one package its dependencies would be
    // built again.
    command::visibly(cargo.args(["build", "--quiet", "--workspace", "--example", "page"]))?;
    Ok(example(workspace, "page"))
}

/// Where cargo has put an example.
fn example(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.target().join(triple()).join(BuildProfile::Dev.folder()).join("examples").join(name)
}

fn build_binary(workspace: &Workspace, binary: &str, profile: BuildProfile) -> Result<PathBuf> {
    match profile {
        BuildProfile::Dev => build_selected(workspace, &FEATURES_OF_TESTS, binary, profile),
        BuildProfile::Fast | BuildProfile::Release => {
            build_selected(workspace, &["--package", "enforcer"], binary, profile)
        }
    }
}

fn build_selected(
    workspace: &Workspace,
    selection: &[&str],
    binary: &str,
    profile: BuildProfile,
) -> Result<PathBuf> {
    let step = ProgressStep::begin(format!("build {binary}{}", profile.about()));
    let mut cargo = match profile {
        BuildProfile::Dev => linting_cargo(workspace)?,
        BuildProfile::Fast | BuildProfile::Release => cargo(workspace)?,
    };
    cargo.args(["build", "--quiet", "--bin", binary, "--profile", profile.name()]).args(selection);
    command::visibly(&mut cargo)?;
    step.done();
    self::binary(workspace, binary, profile)
}

/// Where cargo has put a binary.
fn binary(workspace: &Workspace, name: &str, profile: BuildProfile) -> Result<PathBuf> {
    let path = workspace.target().join(triple()).join(profile.folder()).join(name);
    ensure!(path.is_file(), "cargo built no {}", path.display());
    Ok(path)
}
