//! The guest's root file system: a few Debian packages, unpacked and not configured.
//!
//! No maintainer script runs and nothing is chrooted into; Debian 13's base-files brings the merged `/usr`
//! links, so that unpacking alone leaves a tree that boots. busybox stands in for every program that no
//! package brings. There is no udev, no systemd and no journal: a scenario starts what it needs. One image
//! has systemd as process 1, for scenarios about systemd: Debian unstable's, the newest, with the strictest
//! daemon-reload.
//!
//! Guests that make containers have another image: a container runtime with its configuration besides, and an
//! archive of container images. It is four times as large, and every snapshot holds a copy.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{
    apt::VALIDITY,
    cache, container_image,
    emulator::{self, ProgramEmulator},
    suite,
};
use crate::{architecture::Architecture, command, containerd::ContainerdPackages};

const SUITE: &str = "trixie";

/// What every guest has.
const PACKAGES: &str = "base-files,busybox-static,kmod,numactl,ndctl,daxctl";
/// What the product is compared with.
const PEERS: &str = "numad";

/// What a guest with containers has besides.
const RUNTIME: &str = "containerd,runc";

/// Further packages of a guest with systemd as process 1: systemd loads libraries when it confines a service,
/// and silently does without missing ones. dpkg installs packages there, for which it asks for tar, and for
/// the `ldconfig` of libc-bin.
const SYSTEMD: &str = "systemd,libseccomp2,libmount1,dpkg,tar,libc-bin";

/// Where it is from.
const SYSTEMD_SUITE: &str = "sid";

/// Files that make a first boot of it like any other.
const SYSTEMD_FILES: &[(&str, &str)] = &[("etc/machine-id", "11111111111111111111111111111111\n")];

/// Size of the image; the file is sparse.
const SIZE: &str = "256M";

/// The same with a container runtime, which unpacks images there.
const RUNTIME_SIZE: &str = "1G";

/// Where containerd looks for its configuration.
const CONFIGURATION: &str = "etc/containerd/config.toml";

/// What says that the runtime makes cgroups by itself, and what that systemd does.
const BY_ITSELF: &str = "SystemdCgroup = false";
const BY_SYSTEMD: &str = "SystemdCgroup = true";

/// Archive of container images; the scenario imports it.
const IMAGES: &str = "usr/share/rig/images.tar";

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

/// Links that maintainer scripts would have made: place and target.
const LINKS: &[(&str, &str)] = &[("var/run", "../run")];

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

/// Builds the root image of guests without containers.
pub(super) fn build(dir: &Path, architecture: Architecture) -> Result<Root> {
    let packages = format!("{PACKAGES},{PEERS}");
    let furniture = furniture();
    let mut recipe = vec![SUITE, &packages, SIZE, &furniture];
    let mut name = "root".to_owned();
    let emulator = emulator::fetch(dir, architecture)?;
    if architecture != Architecture::Amd64 {
        recipe.push(architecture.debian());
        name = format!("root-{}", architecture.debian());
    }
    let made = cache::keep(dir, &name, &recipe, |place| {
        let tree = begin(place, SUITE, &emulator, &packages)?;
        fs::copy(tree.join("usr/bin/busybox"), place.join("busybox")).context("copy busybox")?;
        finish(place, &tree, SIZE)
    })?;
    Ok(Root { image: made.join("root.ext4"), busybox: made.join("busybox") })
}

/// Builds the root image of guests with containers.
pub(super) fn build_with(dir: &Path, containerd: ContainerdPackages) -> Result<PathBuf> {
    let packages = format!("{PACKAGES},{RUNTIME}");
    let images = container_image::recipe();
    let recipe =
        [containerd.suite(), &packages, RUNTIME_SIZE, &furniture(), containerd.configuration(), &images];
    let native = emulator::fetch(dir, Architecture::Amd64)?;
    let made = cache::keep(dir, &format!("root-containerd-{containerd}"), &recipe, |place| {
        let tree = begin(place, containerd.suite(), &native, &packages)?;
        furnish_runtime(&tree, containerd.configuration())?;
        finish(place, &tree, RUNTIME_SIZE)
    })?;
    Ok(made.join("root.ext4"))
}

/// Adds the configuration of a container runtime, and images for it.
fn furnish_runtime(tree: &Path, configuration: &str) -> Result<()> {
    for path in [CONFIGURATION, IMAGES] {
        let folder = tree.join(path);
        fs::create_dir_all(folder.parent().context("a file in no folder")?)?;
    }
    fs::write(tree.join(CONFIGURATION), configuration).with_context(|| format!("write {CONFIGURATION}"))?;
    container_image::build(&tree.join("usr/bin/busybox"), &tree.join(IMAGES))
}

/// Builds the root image of guests with systemd as process 1. With `containerd`, it has a container runtime
/// with systemd's cgroup driver.
pub(super) fn build_systemd(dir: &Path, containerd: Option<ContainerdPackages>) -> Result<PathBuf> {
    let runtime = containerd.map_or(String::new(), |_| format!(",{RUNTIME}"));
    let packages = format!("{PACKAGES},{SYSTEMD}{runtime}");
    let configuration = containerd.map(|line| line.configuration().replace(BY_ITSELF, BY_SYSTEMD));
    let files: String = SYSTEMD_FILES.iter().flat_map(|(path, text)| [*path, "=", *text]).collect();
    let (furniture, images) = (furniture(), container_image::recipe());
    let mut recipe = vec![SYSTEMD_SUITE, &packages, RUNTIME_SIZE, &furniture, &files];
    if let Some(configuration) = &configuration {
        recipe.extend([configuration.as_str(), &images]);
    }
    let native = emulator::fetch(dir, Architecture::Amd64)?;
    let name = if containerd.is_some() { "root-systemd-containerd" } else { "root-systemd" };
    let made = cache::keep(dir, name, &recipe, |place| {
        let tree = begin(place, SYSTEMD_SUITE, &native, &packages)?;
        for (path, text) in SYSTEMD_FILES {
            fs::write(tree.join(path), text).with_context(|| format!("write {path}"))?;
        }
        if let Some(configuration) = &configuration {
            furnish_runtime(&tree, configuration)?;
        }
        finish(place, &tree, RUNTIME_SIZE)
    })?;
    Ok(made.join("root.ext4"))
}

/// What is done to the packages of any root.
fn furniture() -> String {
    let files: String = FILES.iter().chain(LINKS).flat_map(|(path, text)| [*path, "=", *text]).collect();
    [UNUSED.concat(), FOLDERS.concat(), files].concat()
}

/// The furnished tree in a new folder.
fn begin(place: &Path, suite: &str, emulator: &ProgramEmulator, packages: &str) -> Result<PathBuf> {
    fs::create_dir(place).with_context(|| format!("create {}", place.display()))?;
    let tree = place.join("tree");
    unpack(suite, emulator.architecture, packages, &tree)?;
    furnish(&tree, emulator)?;
    Ok(tree)
}

/// Makes the image of the tree, and removes the tree.
fn finish(place: &Path, tree: &Path, size: &str) -> Result<()> {
    command::quietly(
        Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum,^64bit,^resize_inode"])
            .args(["-m", "0", "-L", "root", "-E", "nodiscard,lazy_itable_init=1", "-d"])
            .arg(tree)
            .arg(place.join("root.ext4"))
            .arg(size)
            .env("PATH", with_sbin()),
    )?;
    fs::remove_dir_all(tree).context("remove the unpacked tree")
}

/// Unpacks packages of a suite with what they depend on into `place`.
pub(super) fn unpack(suite: &str, architecture: Architecture, packages: &str, place: &Path) -> Result<()> {
    let sources = tempfile::Builder::new().suffix(".sources").tempfile().context("create a source list")?;
    fs::write(sources.path(), suite::sources(suite)?).context("write a source list")?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=extract", "--skip=cleanup/tmp"]);
    command.arg(format!("--architectures={}", architecture.debian()));
    for option in VALIDITY {
        command.arg(format!("--aptopt={}", as_configuration(option)));
    }
    command.arg(format!("--include={packages}")).arg(suite).arg(place).arg(sources.path());
    command::quietly(&mut command).map(drop)
}

/// An option of apt-get's `-o` as a line of its configuration: mmdebstrap takes it for one, and apt passes
/// over what it does not understand there.
fn as_configuration(option: &str) -> String {
    option.split_once('=').map_or_else(|| option.to_owned(), |(name, value)| format!("{name} \"{value}\""))
}

fn furnish(tree: &Path, emulator: &ProgramEmulator) -> Result<()> {
    for path in UNUSED {
        fs::remove_dir_all(tree.join(path)).or_else(absent_is_fine)?;
    }
    let applets = command::quietly(emulator.program(&tree.join("usr/bin/busybox")).arg("--list"))?;
    for applet in applets.lines() {
        if !tree.join("usr/bin").join(applet).exists() && !tree.join("usr/sbin").join(applet).exists() {
            symlink("busybox", tree.join("usr/bin").join(applet))
                .with_context(|| format!("link {applet}"))?;
        }
    }
    for folder in FOLDERS {
        fs::create_dir_all(tree.join(folder)).with_context(|| format!("create {folder}"))?;
    }
    for (path, target) in LINKS {
        // The packages bring an empty folder.
        fs::remove_dir(tree.join(path)).or_else(absent_is_fine).with_context(|| format!("replace {path}"))?;
        symlink(target, tree.join(path)).with_context(|| format!("link {path}"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_written_as_apt_reads_its_configuration() {
        let lines: Vec<_> = VALIDITY.iter().map(|option| as_configuration(option)).collect();
        assert_eq!(lines, ["Acquire::Check-Valid-Until \"false\"", "Acquire::Check-Date \"false\""]);
    }
}
