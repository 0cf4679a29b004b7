//! QEMU of Debian 13, for this machine, unpacked beside its own libc and never installed.
//!
//! Debian 12's QEMU 7.2 kills Linux guests at random under TCG: `cmpxchg16b` leaves rubbish in the
//! flags, and patching of running code races between virtual CPUs. Both are mended in 8.1 and later.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{cache, root_image::unpack};
use crate::architecture::Architecture;

const SUITE: &str = "trixie";

/// What emulates an architecture, with its firmware.
const fn packages(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Amd64 => "base-files,qemu-system-x86,seabios,ipxe-qemu",
        // It starts kernels itself.
        Architecture::Arm64 => "base-files,qemu-system-arm",
    }
}

/// Parts that a headless guest never opens: graphics drivers, documentation, UEFI firmware.
const UNUSED: &[&str] =
    &["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/icons", "usr/share/ovmf", "var"];

/// A folder with the QEMU for an architecture, its libraries and its firmware.
pub(super) fn fetch(dir: &Path, architecture: Architecture) -> Result<PathBuf> {
    let packages = packages(architecture);
    cache::keep(dir, "qemu", &[SUITE, packages, &UNUSED.concat()], |place| {
        unpack(SUITE, Architecture::Amd64, packages, place)?;
        for path in UNUSED {
            fs::remove_dir_all(place.join(path)).or_else(super::root_image::absent_is_fine)?;
        }
        for (folder, prefixes) in [
            ("usr/lib/x86_64-linux-gnu", &["libLLVM", "libgallium", "libz3"][..]),
            ("usr/share/qemu", &["edk2-"][..]),
        ] {
            remove_by_prefix(&place.join(folder), prefixes)?;
        }
        Ok(())
    })
}

/// Removes files of one folder by the beginning of their names.
fn remove_by_prefix(dir: &Path, prefixes: &[&str]) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if prefixes.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            fs::remove_file(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}
