//! What a compiler can say without running anything.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{command, product, setup, workspace::Workspace};

/// A workspace of its own, besides the root.
const KERNEL_SIDE: &str = "enforcer-ebpf";

/// Clippy of the compiler that has a core for BPF; `rust-web-clippy` brings it.
const DEBIAN_CLIPPY: &str = "/usr/bin/cargo-clippy";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

const DENY_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

/// rustfmt has nothing to change in either workspace.
pub(super) fn format(workspace: &Workspace) -> Result<()> {
    setup::component("rustfmt", "fmt")?;
    command::quietly(product::cargo(workspace)?.args(["fmt", "--all", "--check"]))?;
    let mut cargo = product::cargo(workspace)?;
    command::quietly(cargo.args(["fmt", "--check"]).current_dir(workspace.root().join(KERNEL_SIDE))).map(drop)
}

/// Clippy has no warning: everything, as it was built ([`product::lint_all`]), the libraries without
/// features, and what runs in the kernel. What is without BPF is built without a warning ([`without_bpf`]).
pub(super) fn clippy(workspace: &Workspace) -> Result<()> {
    product::lint_all(workspace)?;
    let mut cargo = product::cargo(workspace)?;
    // They need nothing of serde without features, and no feature that another crate turns on.
    cargo.args(["clippy", "--quiet", "--package", "numa-placement", "--package", "numa-topology"]);
    command::visibly(cargo.arg("--no-default-features").args(DENY_WARNINGS))?;
    documentation(workspace)?;
    kernel_side(workspace)
}

/// Links in the documentation of the libraries lead to items that exist.
fn documentation(workspace: &Workspace) -> Result<()> {
    let mut cargo = product::cargo(workspace)?;
    cargo.args(["doc", "--quiet", "--no-deps", "--all-features", "--document-private-items"]);
    cargo.args(["--package", "numa-placement", "--package", "numa-topology"]);
    command::visibly(
        cargo.env("RUSTDOCFLAGS", "-D rustdoc::broken_intra_doc_links -A rustdoc::private_intra_doc_links"),
    )
}

/// Clippy over the eBPF programs, by the compiler that builds them (`enforcer/kernel/build/compiler.rs`).
fn kernel_side(workspace: &Workspace) -> Result<()> {
    setup::lint_tools()?;
    let mut cargo = if Path::new(DEBIAN_CLIPPY).exists() {
        let mut cargo = Command::new(DEBIAN_CLIPPY);
        // aya-ebpf uses inline assembly for BPF, which is unstable.
        cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1").arg("clippy");
        cargo
    } else {
        let mut cargo = Command::new("rustup");
        cargo.args(["run", "nightly", "cargo", "clippy", "-Zbuild-std=core"]);
        cargo
    };
    cargo
        .current_dir(workspace.root().join(KERNEL_SIDE))
        .args(["--quiet", "--release", "--locked", "--target", "bpfel-unknown-none", "--target-dir"])
        .arg(workspace.target().join("lint-ebpf"))
        .args(DENY_WARNINGS)
        .env("RUSTFLAGS", format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH));
    // It would win over the flags above.
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command::visibly(&mut cargo)
}

/// The product without its kernel side builds without a warning, and its audit names what is missing.
pub(super) fn without_bpf(workspace: &Workspace) -> Result<()> {
    let program = product::build_without_bpf(workspace)?;
    let audit = Command::new(&program).args(["audit", "-o", "json"]).stdin(Stdio::null()).output();
    let audit = audit.with_context(|| format!("run {}", program.display()))?;
    let report: serde_json::Value = serde_json::from_slice(&audit.stdout)
        .with_context(|| format!("audit printed no JSON: {}", String::from_utf8_lossy(&audit.stderr)))?;
    let degraded = report["degraded"].as_array().map_or(&[][..], Vec::as_slice);
    ensure!(
        degraded.iter().any(|entry| entry["source"] == "bpf"),
        "the audit does not say that bpf is not built in: {degraded:?}"
    );
    Ok(())
}
