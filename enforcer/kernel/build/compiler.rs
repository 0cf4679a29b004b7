//! Which Rust compiler builds the eBPF programs.
//!
//! The BPF target is tier 3: rustup ships no `core` for it. Either a compiler brings one (Debian's
//! `rustc-web` with `libstd-rust-web-dev-bpf`), or rustup's nightly builds it from `rust-src`.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

/// A compiler that can build for a BPF target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// A `rustc` with a ready-made `core`; needs no nightly.
    WithCore(PathBuf),
    /// rustup's nightly, which builds `core` itself.
    Nightly,
}

/// A compiler of this machine and where its libraries are.
#[derive(Debug)]
pub(crate) struct Installed {
    /// Its `rustc`.
    pub(crate) rustc: PathBuf,
    /// What it prints as its sysroot.
    pub(crate) sysroot: PathBuf,
}

/// Chooses the compiler for `target`: `BPF_RUSTC`, `/usr/bin/rustc` or the `rustc` of this build when
/// it has a `core`, else rustup's nightly with `rust-src`.
pub(crate) fn choose(target: &str) -> Result<Compiler> {
    println!("cargo::rerun-if-env-changed=BPF_RUSTC");
    let candidates = [env::var_os("BPF_RUSTC"), Some("/usr/bin/rustc".into()), env::var_os("RUSTC")];
    let installed: Vec<Installed> = candidates
        .into_iter()
        .flatten()
        .map(PathBuf::from)
        .filter_map(|rustc| Some(Installed { sysroot: sysroot(&mut Command::new(&rustc))?, rustc }))
        .collect();
    let nightly = sysroot(Command::new("rustup").args(["run", "nightly", "rustc"]));
    choose_among(target, installed, nightly.as_deref())
}

/// [`choose`] among what is installed; `nightly` is the sysroot of rustup's nightly.
pub(crate) fn choose_among(
    target: &str,
    installed: Vec<Installed>,
    nightly: Option<&Path>,
) -> Result<Compiler> {
    let libraries = Path::new("lib/rustlib").join(target).join("lib");
    let mut with_core = installed.into_iter().filter(|one| has_entries(&one.sysroot.join(&libraries)));
    if let Some(found) = with_core.next() {
        return Ok(Compiler::WithCore(found.rustc));
    }
    let rustup = match nightly {
        Some(root) if root.join("lib/rustlib/src/rust/library/core").is_dir() => {
            return Ok(Compiler::Nightly);
        }
        Some(root) => format!(
            "with rustup: rustup component add rust-src --toolchain nightly\n  (the nightly in {} has no rust-src)",
            root.display()
        ),
        None => {
            "with rustup: rustup toolchain install nightly --profile minimal --component rust-src".to_owned()
        }
    };
    bail!(
        "no Rust compiler here can build for {target}. Install one of:\n\
         - Debian and Ubuntu: apt-get install rustc-web libstd-rust-web-dev-bpf\n\
         - {rustup}\n\
         `cargo xtask run` does it. `--no-default-features` builds without the kernel side."
    )
}

fn sysroot(rustc: &mut Command) -> Option<PathBuf> {
    let output = rustc.args(["--print", "sysroot"]).output().ok().filter(|output| output.status.success())?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(path.trim()))
}

fn has_entries(directory: &Path) -> bool {
    directory.read_dir().is_ok_and(|mut entries| entries.next().is_some())
}
