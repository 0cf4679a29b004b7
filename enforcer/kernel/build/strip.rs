//! Objects for the kernel without their DWARF.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

/// Names under which LLVM's strip is installed; binutils' does not know BPF.
const STRIPS: &[&str] = &["llvm-strip-22", "llvm-strip"];

/// Copies the object without its DWARF, nine tenths of it, where a tool is there to do that. The kernel
/// wants BTF, which stays.
pub(crate) fn without_dwarf(object: &Path, to: &Path) -> Result<()> {
    for strip in STRIPS {
        let done = Command::new(strip).args(["--strip-debug", "-o"]).arg(to).arg(object).output();
        if done.is_ok_and(|output| output.status.success()) {
            return Ok(());
        }
    }
    fs::copy(object, to).with_context(|| format!("copying {}", object.display())).map(drop)
}
