//! Builds the Rust programs of `enforcer-ebpf` with a cargo of their own.
//!
//! What the outer cargo was told (flags, target, wrappers such as clippy's) must not reach the inner
//! one: it builds for another machine. Its target directory is beside the outer build's folders, so the two
//! never wait for each other's lock, and a build by clippy or with other features compiles nothing anew.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, write::GzEncoder};

use crate::{
    compiler::{self, Compiler},
    strip, tool,
};

/// Variables that mean the outer build.
const OUTER: &[&str] = &[
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "CARGO_INCREMENTAL",
    "CARGO_MAKEFLAGS",
];
/// Prefixes of such variables: `CARGO_BUILD_TARGET`, `CARGO_TARGET_X_LINKER`...
const OUTER_PREFIXES: &[&str] =
    &["CARGO_BUILD_", "CARGO_TARGET_", "CARGO_PROFILE_", "CARGO_CFG_", "CARGO_FEATURE_"];

/// Builds the programs and puts the object, packed, at `out/programs.o.gz`.
pub(crate) fn build(workspace: &Path, out: &Path) -> Result<()> {
    let package = workspace.join("enforcer-ebpf");
    for path in [
        "enforcer-ebpf/src",
        "enforcer-ebpf/Cargo.toml",
        "enforcer-ebpf/Cargo.lock",
        "enforcer-ebpf/common/Cargo.toml",
        "common/src",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(path).display());
    }
    let target = match cargo_cfg("TARGET_ENDIAN")?.as_str() {
        "big" => "bpfeb-unknown-none",
        _ => "bpfel-unknown-none",
    };
    let linker = linker(workspace)?;
    let mut cargo = match compiler::choose(target)? {
        Compiler::WithCore(rustc) => {
            let mut cargo = Command::new(env::var_os("CARGO").context("cargo sets CARGO")?);
            without_outer_build(&mut cargo);
            // aya-ebpf uses inline assembly for BPF, which is unstable.
            cargo.env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1").arg("build");
            cargo
        }
        Compiler::Nightly => {
            let mut cargo = Command::new("rustup");
            without_outer_build(&mut cargo);
            cargo.args(["run", "nightly", "cargo", "build", "-Zbuild-std=core"]);
            cargo
        }
    };
    // OUT_DIR is build/PACKAGE-HASH/out below the folder of the profile.
    let profile = out.ancestors().nth(3).context("OUT_DIR is three folders below that of the profile")?;
    let target_dir = profile.join("enforcer-ebpf");
    cargo
        .current_dir(&package)
        .args(["--release", "--locked", "--target", target, "--target-dir"])
        .arg(&target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&linker, workspace)?);
    tool::run(&mut cargo).context("build the eBPF programs")?;
    let object = target_dir.join(target).join("release/enforcer-ebpf");
    let stripped = out.join("programs.o");
    strip::without_dwarf(&object, &stripped)?;
    pack(&stripped)
}

/// Puts the object, packed, beside it: most of it are zeros and repeated names.
fn pack(object: &Path) -> Result<()> {
    let bytes = fs::read(object).with_context(|| format!("reading {}", object.display()))?;
    let mut packer = GzEncoder::new(Vec::new(), Compression::best());
    packer.write_all(&bytes).context("packing in memory")?;
    let packed = object.with_added_extension("gz");
    let bytes = packer.finish().context("packing in memory")?;
    fs::write(&packed, bytes).with_context(|| format!("writing {}", packed.display()))
}

/// Line information, which the verifier prints, names sources by paths that are the same on every machine.
fn flags(linker: &Path, workspace: &Path) -> Result<String> {
    let linker = linker.to_str().with_context(|| format!("{} is not UTF-8", linker.display()))?;
    let flags = [
        format!("-Clinker={linker}"),
        "-Clink-arg=--btf".to_owned(),
        // bpf-linker makes BTF from the debug information; from less than all of it, BTF that the
        // kernel refuses.
        "-Cdebuginfo=2".to_owned(),
        format!("--cfg=bpf_target_arch=\"{}\"", cargo_cfg("TARGET_ARCH")?),
        format!("--remap-path-prefix={}=", workspace.join("").display()),
    ];
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let dependencies = cargo.map(|cargo| format!("--remap-path-prefix={}=", cargo.join("").display()));
    let flags: Vec<_> = flags.into_iter().chain(dependencies).collect();
    Ok(flags.join("\x1f"))
}

/// `BPF_LINKER`, else the one that xtask installed below `target/tools`, else that of `PATH`.
fn linker(workspace: &Path) -> Result<PathBuf> {
    println!("cargo::rerun-if-env-changed=BPF_LINKER");
    if let Some(path) = env::var_os("BPF_LINKER") {
        return Ok(path.into());
    }
    let tools = workspace.join("target/tools");
    let mut installed: Vec<PathBuf> = fs::read_dir(&tools)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("bpf-linker-"))
        .map(|entry| entry.path().join("bin/bpf-linker"))
        .filter(|path| path.is_file())
        .collect();
    installed.sort();
    if let Some(path) = installed.pop() {
        return Ok(path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    if let Some(found) = env::split_paths(&path).map(|dir| dir.join("bpf-linker")).find(|path| path.is_file())
    {
        return Ok(found);
    }
    bail!(
        "bpf-linker is neither in {} nor on PATH. Install it with\n\
         cargo install bpf-linker --version 0.13.0 --no-default-features --features llvm-22 --root \
         target/tools/bpf-linker-0.13.0\n(it needs llvm-22-dev), or set BPF_LINKER. `cargo xtask run` does it. \
         `--no-default-features` builds without the kernel side.",
        tools.display()
    )
}

fn without_outer_build(command: &mut Command) {
    let outer =
        |name: &str| OUTER.contains(&name) || OUTER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(outer) {
            command.env_remove(name);
        }
    }
}

fn cargo_cfg(name: &str) -> Result<String> {
    let name = format!("CARGO_CFG_{name}");
    env::var(&name).with_context(|| format!("cargo sets {name}"))
}
