//! The binary of a release, the same from every folder.
//!
//! Paths of the machine that builds would be in panics, in the C part and in the line information of eBPF
//! programs: each compiler is told another name for them (`enforcer/kernel/build` for the kernel side).
//! Another architecture takes the cross compilers of Debian (`setup/cross.rs`).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use super::{ReleaseDraft, commit::ReleaseCommit};
use crate::{
    architecture::Architecture, command, product, progress::ProgressStep, setup, workspace::Workspace,
};

/// Separates the flags in `CARGO_ENCODED_RUSTFLAGS`, so that paths may have spaces.
const BETWEEN_FLAGS: &str = "\u{1f}";

/// A panic aborts, and backtraces of a stripped program have no names: tables for unwinding, a tenth of it,
/// serve nothing. The line tables of the standard library make LLVM write them for every function of a fat
/// LTO whatever the compiler is told, so the linker drops them. The path counts from the workspace, where
/// Cargo starts the compiler: Cargo hashes it into the names of symbols.
const NO_UNWIND_TABLES: [&str; 2] =
    ["-Clink-arg=-Wl,--no-eh-frame-hdr", "-Clink-arg=-Wl,-T,xtask/src/dist/no_unwind_tables.ld"];

/// Relocations of a static program are a fortieth of it otherwise. LLD packs them, which rustup's compiler
/// links with, and glibc unpacks them from 2.36 on.
const PACKED_RELOCATIONS: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";

/// LLD keeps one of functions with the same code. No comparison of functions' addresses may tell them apart,
/// which Rust never promises.
const FOLDED_FUNCTIONS: &str = "-Clink-arg=-Wl,--icf=all";

/// Bytes of a forbidden path that an error shows.
const SHOWN: usize = 200;

/// Builds the binary; returns where it is.
pub(super) fn build(draft: &ReleaseDraft<'_>, architecture: Architecture) -> Result<PathBuf> {
    let ReleaseDraft { workspace, commit, .. } = draft;
    let cross =
        (!architecture.is_native()).then(|| setup::cross_compiler(workspace, architecture)).transpose()?;
    let step = ProgressStep::begin(format!(
        "build numa-enforcer for {}, which takes many minutes the first time",
        architecture.debian()
    ));
    let renamed = renamed_paths(workspace)?;
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned()];
    flags.extend(renamed.iter().map(|(path, name)| format!("--remap-path-prefix={path}={name}")));
    let prefix_maps: Vec<_> =
        renamed.iter().map(|(path, name)| format!("-ffile-prefix-map={path}={name}")).collect();
    let mut cargo = product::cargo(workspace)?;
    cargo
        .args([
            "rustc",
            "--quiet",
            "--locked",
            "--release",
            "--package",
            "enforcer",
            "--bin",
            "numa-enforcer",
        ])
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join(BETWEEN_FLAGS))
        .env("CARGO_BUILD_TARGET", architecture.triple())
        .env("CARGO_TARGET_DIR", &draft.target)
        .env("CARGO_INCREMENTAL", "0")
        .env(format!("CFLAGS_{}", architecture.triple()), prefix_maps.join(" "))
        .env("SOURCE_DATE_EPOCH", &commit.seconds)
        .env("NUMA_ENFORCER_COMMIT", commit.short());
    if let Some(cross) = &cross {
        cross.adapt(&mut cargo, architecture);
    }
    cargo.arg("--").args(NO_UNWIND_TABLES);
    if cross.is_none() {
        cargo.args([PACKED_RELOCATIONS, FOLDED_FUNCTIONS]);
    }
    command::visibly(&mut cargo)?;
    let binary = draft.built(architecture).join("numa-enforcer");
    ensure!(binary.is_file(), "cargo built no {}", binary.display());
    names_no_path(&binary, &renamed)?;
    is_static(&binary)?;
    let emulator = setup::emulator(workspace, architecture)?;
    says_its_version(emulator.program(&binary), &binary, commit)?;
    step.done();
    Ok(binary)
}

/// Cargo's target folder of releases: other flags than those of tests.
pub(super) fn target(workspace: &Workspace) -> PathBuf {
    workspace.target().join("dist-build")
}

/// Folders of this machine, and what takes their place: sources, what is built from them, dependencies,
/// rustup's compiler. The last that matches wins.
fn renamed_paths(workspace: &Workspace) -> Result<Vec<(String, &'static str)>> {
    let home = env::var_os("HOME").map(PathBuf::from).context("HOME is not set")?;
    let cargo = env::var_os("CARGO_HOME").map_or_else(|| home.join(".cargo"), PathBuf::from);
    let rustup = env::var_os("RUSTUP_HOME").map_or_else(|| home.join(".rustup"), PathBuf::from);
    let folders = [
        (workspace.root().to_owned(), "/src/numa-enforcer"),
        (workspace.target().to_owned(), "/src/numa-enforcer/target"),
        (cargo, "/src/cargo"),
        (rustup, "/src/rustup"),
    ];
    let mut renamed = Vec::new();
    for (folder, name) in folders {
        let resolved = fs::canonicalize(&folder).unwrap_or_else(|_absent| folder.clone());
        let is_link = resolved != folder;
        for path in [Some(folder), is_link.then_some(resolved)].into_iter().flatten() {
            let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            renamed.push((text.to_owned(), name));
        }
    }
    Ok(renamed)
}

/// Fails if one of these folders is in the binary: another machine would build another one.
fn names_no_path(binary: &Path, renamed: &[(String, &'static str)]) -> Result<()> {
    let bytes = fs::read(binary).with_context(|| format!("read {}", binary.display()))?;
    for (path, _) in renamed {
        if let Some(at) = bytes.windows(path.len()).position(|window| window == path.as_bytes()) {
            let rest = String::from_utf8_lossy(&bytes[at..bytes.len().min(at + SHOWN)]).into_owned();
            let shown: String = rest.chars().take_while(|c| !c.is_control()).collect();
            bail!("{} names a path of this machine: {shown}", binary.display());
        }
    }
    Ok(())
}

/// Fails if the binary asks for a loader, and so for libraries of the machine that it runs on.
fn is_static(binary: &Path) -> Result<()> {
    let mut readelf = Command::new("readelf");
    let headers =
        command::quietly(readelf.args(["--wide", "--program-headers"]).arg(binary).env("LC_ALL", "C"))?;
    ensure!(headers.contains(" LOAD "), "{} has no program headers:\n{headers}", binary.display());
    ensure!(!headers.contains("INTERP"), "{} is linked dynamically", binary.display());
    Ok(())
}

/// Runs the binary, emulated if it is of another architecture: it must name this version and commit.
fn says_its_version(mut program: Command, binary: &Path, commit: &ReleaseCommit) -> Result<()> {
    let said = command::quietly(program.arg("--version"))?;
    let expected = format!("numa-enforcer {} ({})", commit.version, commit.short());
    ensure!(said.trim() == expected, "{}: --version says {said:?}, not {expected:?}", binary.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_machine_in_a_binary_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let binary = folder.path().join("binary");
        fs::write(&binary, b"\0/src/cargo/a.rs\0/home/x/y.rs\0/z").unwrap();
        let renamed = |path: &str| [(path.to_owned(), "/src")];
        names_no_path(&binary, &renamed("/home/other")).unwrap();
        let error = names_no_path(&binary, &renamed("/home/x")).unwrap_err().to_string();
        assert!(error.ends_with("names a path of this machine: /home/x/y.rs"), "{error}");
    }

    #[test]
    fn a_program_of_this_machine_is_not_static() {
        let error = is_static(Path::new("/bin/sh")).unwrap_err().to_string();
        assert!(error.contains("is linked dynamically"), "{error}");
    }
}
