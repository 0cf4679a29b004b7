//! Builds the C iterators of `enforcer-ebpf/bpf` with clang.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result};

use crate::{strip, tool};

/// Names under which a clang with a BPF backend is installed, the preferred first.
const CLANGS: &[&str] =
    &["clang-22", "clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-16", "clang-14"];

/// Compiles each iterator to an object of its name in `out`.
pub(crate) fn build(workspace: &Path, out: &Path) -> Result<()> {
    let sources = workspace.join("enforcer-ebpf/bpf");
    println!("cargo::rerun-if-changed={}", sources.display());
    let clang = clang()?;
    let arguments = arguments(workspace)?;
    for name in ["task", "vma"] {
        let (with_dwarf, object) = (out.join(format!("{name}.dwarf.o")), out.join(format!("{name}.o")));
        let mut compile = Command::new(&clang);
        compile
            .args(&arguments)
            .arg("-c")
            .arg(sources.join(format!("{name}.bpf.c")))
            .arg("-o")
            .arg(&with_dwarf);
        tool::run(&mut compile)?;
        strip::without_dwarf(&with_dwarf, &object)?;
    }
    Ok(())
}

/// Where libbpf's headers are is told by libbpf-sys, which compiles the same version into the daemon.
fn arguments(workspace: &Path) -> Result<Vec<OsString>> {
    let headers = env::var_os("DEP_BPF_INCLUDE").context("libbpf-sys tells where libbpf's headers are")?;
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").context("cargo sets CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86".to_owned(),
        "aarch64" => "arm64".to_owned(),
        other => other.to_owned(),
    };
    // -g: BTF is made from the debug information.
    let flags = ["-Wall", "-Wextra", "-Werror", "-target", "bpf", "-g", "-O2", "-fno-stack-protector"];
    let mut arguments: Vec<OsString> = flags.map(OsString::from).into();
    arguments.push(format!("-D__TARGET_ARCH_{arch}").into());
    // Line information, which the verifier prints, is the same on every machine.
    for folder in [workspace.join("").as_os_str(), &headers] {
        let mut renamed = OsString::from("-ffile-prefix-map=");
        renamed.push(folder);
        renamed.push("=");
        arguments.push(renamed);
    }
    arguments.extend(["-I".into(), headers]);
    // <linux/types.h> needs <asm/types.h>, which Debian keeps where no BPF compiler looks. Its types are
    // those of all 64-bit machines.
    let multiarch = PathBuf::from(format!("/usr/include/{}-linux-gnu", env::consts::ARCH));
    if multiarch.is_dir() {
        arguments.extend(["-idirafter".into(), multiarch.into_os_string()]);
    }
    Ok(arguments)
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
