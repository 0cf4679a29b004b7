//! The guest's root file system: a few Debian packages, unpacked and not configured.
//!
//! No maintainer script runs and nothing is chrooted into; Debian 13's base-files brings the merged
//! `/usr` links, so that unpacking alone leaves a tree that boots. busybox stands in for every
//! program that no package brings. There is no udev, no systemd and no journal: a scenario starts what
//! it needs.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{apt::VALIDITY, cache, suite};
use crate::command;

const SUITE: &str = "trixie";

/// What every guest has. Container runtimes join this list, with their configuration, when the first
/// scenario needs a container.
const PACKAGES: &str = "base-files,busybox-static,kmod,numactl,ndctl,daxctl";

/// Size of the image; the file is sparse.
const SIZE: &str = "256M";

/// Folders that are not worth their bytes in a guest.
const UNUSED: &[&str] = &[
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/bash-completion",
    "usr/share/lintian",
    "usr/share/perl5",
    "var/cache/apt",
    "var/lib/apt",
    "boot",
];

/// Mount points.
const FOLDERS: &[&str] = &["inject", "tmp", "run", "dev", "proc", "sys", "lib/modules", "root"];

/// Files that maintainer scripts would have made.
const FILES: &[(&str, &str)] = &[
    ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost rig\n"),
    ("etc/hostname", "rig\n"),
];

/// Root image and the static busybox in it.
pub(super) struct Root {
    /// ext4 image.
    pub(super) image: PathBuf,
    /// For the initrd.
    pub(super) busybox: PathBuf,
}

/// Builds the root image.
pub(super) fn build(dir: &Path) -> Result<Root> {
    let files: String = FILES.iter().flat_map(|(path, text)| [*path, "=", *text]).collect();
    let recipe = [SUITE, PACKAGES, SIZE, &UNUSED.concat(), &FOLDERS.concat(), &files];
    let made = cache::keep(dir, "root", &recipe, |place| {
        fs::create_dir(place)?;
        let tree = place.join("tree");
        unpack(SUITE, PACKAGES, &tree)?;
        furnish(&tree)?;
        fs::copy(tree.join("usr/bin/busybox"), place.join("busybox")).context("copy busybox")?;
        command::quietly(
            Command::new("mke2fs")
                .args(["-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum,^64bit,^resize_inode"])
                .args(["-m", "0", "-L", "root", "-E", "nodiscard,lazy_itable_init=1", "-d"])
                .arg(&tree)
                .arg(place.join("root.ext4"))
                .arg(SIZE)
                .env("PATH", with_sbin()),
        )?;
        fs::remove_dir_all(&tree).context("remove the unpacked tree")
    })?;
    Ok(Root { image: made.join("root.ext4"), busybox: made.join("busybox") })
}

/// Unpacks packages of a suite with what they depend on into `place`.
pub(super) fn unpack(suite: &str, packages: &str, place: &Path) -> Result<()> {
    let sources = tempfile::Builder::new().suffix(".sources").tempfile().context("create a source list")?;
    fs::write(sources.path(), suite::sources(suite)?).context("write a source list")?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=extract", "--skip=cleanup/tmp"]);
    for option in VALIDITY {
        command.arg(format!("--aptopt={option}"));
    }
    command.arg(format!("--include={packages}")).arg(suite).arg(place).arg(sources.path());
    command::quietly(&mut command).map(drop)
}

fn furnish(tree: &Path) -> Result<()> {
    for path in UNUSED {
        fs::remove_dir_all(tree.join(path)).or_else(absent_is_fine)?;
    }
    let applets = command::quietly(Command::new(tree.join("usr/bin/busybox")).arg("--list"))?;
    for applet in applets.lines() {
        if !tree.join("usr/bin").join(applet).exists() && !tree.join("usr/sbin").join(applet).exists() {
            symlink("busybox", tree.join("usr/bin").join(applet))
                .with_context(|| format!("link {applet}"))?;
        }
    }
    for folder in FOLDERS {
        fs::create_dir_all(tree.join(folder)).with_context(|| format!("create {folder}"))?;
    }
    for (path, text) in FILES {
        fs::write(tree.join(path), text).with_context(|| format!("write {path}"))?;
    }
    Ok(())
}

/// For removals.
pub(crate) fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// `PATH` with the folders of system programs, which a plain user's lacks.
pub(crate) fn with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}
