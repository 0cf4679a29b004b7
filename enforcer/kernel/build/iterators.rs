//! Builds the C iterators of `enforcer-ebpf/bpf` with clang, through libbpf-cargo.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};
use libbpf_cargo::SkeletonBuilder;

/// Names under which a clang with a BPF backend is installed, the preferred first.
const CLANGS: &[&str] =
    &["clang-22", "clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-16", "clang-14"];

/// Compiles each iterator to an object of its name in `out`.
pub(crate) fn build(workspace: &Path, out: &Path) -> Result<()> {
    let sources = workspace.join("enforcer-ebpf/bpf");
    println!("cargo::rerun-if-changed={}", sources.display());
    let arch = env::var("CARGO_CFG_TARGET_ARCH").context("cargo sets CARGO_CFG_TARGET_ARCH")?;
    let clang = clang()?;
    for name in ["task", "vma"] {
        SkeletonBuilder::new()
            .source(sources.join(format!("{name}.bpf.c")))
            .obj(out.join(format!("{name}.o")))
            .clang(&clang)
            .clang_args(arguments(&arch))
            .build()
            .with_context(|| format!("building the iterator {name}"))?;
    }
    Ok(())
}

fn arguments(arch: &str) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = ["-Wall", "-Wextra", "-Werror"].map(OsString::from).into();
    // <linux/types.h> needs <asm/types.h>, which Debian keeps where no BPF compiler looks.
    let multiarch = PathBuf::from(format!("/usr/include/{arch}-linux-gnu"));
    if multiarch.is_dir() {
        arguments.extend(["-idirafter".into(), multiarch.into_os_string()]);
    }
    arguments
}

fn clang() -> Result<OsString> {
    println!("cargo::rerun-if-env-changed=CLANG");
    if let Some(clang) = env::var_os("CLANG") {
        return Ok(clang);
    }
    CLANGS.iter().find(|name| runs(name)).map(OsString::from).context(
        "no clang is installed. On Debian and Ubuntu: apt-get install clang-22 (any version from 14 on will do); \
         or set CLANG. `cargo xtask run` does it. `--no-default-features` builds without the kernel side.",
    )
}

fn runs(command: &str) -> bool {
    Command::new(command)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
