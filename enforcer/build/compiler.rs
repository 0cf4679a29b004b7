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
pub(crate) enum Compiler {
    /// A `rustc` with a ready-made `core`; needs no nightly.
    WithCore(PathBuf),
    /// rustup's nightly, which builds `core` itself.
    Nightly,
}

/// Chooses the compiler for `target`: `BPF_RUSTC`, `/usr/bin/rustc` or the `rustc` of this build when
/// it has a `core`, else rustup's nightly with `rust-src`.
pub(crate) fn choose(target: &str) -> Result<Compiler> {
    println!("cargo::rerun-if-env-changed=BPF_RUSTC");
    let candidates = [env::var_os("BPF_RUSTC"), Some("/usr/bin/rustc".into()), env::var_os("RUSTC")]
        .map(|path| path.map(PathBuf::from));
    for rustc in candidates.into_iter().flatten() {
        let core =
            sysroot(&mut Command::new(&rustc)).map(|root| root.join("lib/rustlib").join(target).join("lib"));
        if core.is_some_and(|core| has_entries(&core)) {
            return Ok(Compiler::WithCore(rustc));
        }
    }
    let nightly = sysroot(Command::new("rustup").args(["run", "nightly", "rustc"]));
    if nightly.is_some_and(|root| root.join("lib/rustlib/src/rust/library/core").is_dir()) {
        return Ok(Compiler::Nightly);
    }
    bail!(
        "no Rust compiler here can build for {target}. Install one of:\n\
         - Debian and Ubuntu: apt-get install rustc-web libstd-rust-web-dev-bpf\n\
         - with rustup: rustup toolchain install nightly --component rust-src\n\
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
