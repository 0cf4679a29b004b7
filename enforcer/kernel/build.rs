//! Builds the kernel side into `OUT_DIR`, where `bpf` embeds it.
//!
//! `programs.o` comes from `enforcer-ebpf/src` (Rust, see `build/programs.rs`), `task.o` and `vma.o` from
//! `enforcer-ebpf/bpf` (C, see `build/iterators.rs`). Without the feature `bpf` there is nothing to
//! do, and no BPF tool is needed.

#[cfg(feature = "bpf")]
#[path = "build/compiler.rs"]
mod compiler;
#[cfg(feature = "bpf")]
#[path = "build/iterators.rs"]
mod iterators;
#[cfg(feature = "bpf")]
#[path = "build/programs.rs"]
mod programs;
#[cfg(feature = "bpf")]
#[path = "build/strip.rs"]
mod strip;
#[cfg(feature = "bpf")]
#[path = "build/tool.rs"]
mod tool;

#[cfg(feature = "bpf")]
fn main() -> anyhow::Result<()> {
    use std::{env, path::PathBuf};

    use anyhow::Context as _;

    let out = PathBuf::from(env::var_os("OUT_DIR").context("cargo sets OUT_DIR")?);
    let workspace =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").context("cargo sets CARGO_MANIFEST_DIR")?)
            .ancestors()
            .nth(2)
            .context("the package is two folders below the workspace")?
            .to_owned();
    iterators::build(&workspace, &out)?;
    programs::build(&workspace, &out)
}

#[cfg(not(feature = "bpf"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}
