//! The guest's kernel: Debian's, as it is installed in clouds.
//!
//! Which package of a suite it is follows from its name alone: `linux-image-6.1.0-50-cloud-amd64` is of the
//! series 6.1, and of several the one with the highest numbers is the newest. The suite's own choice
//! (`linux-image-cloud-amd64`) would be another series one day. Kernels of arm64 are named alike.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use super::{apt::Apt, bz_image, cache, root_image::with_sbin};
use crate::{architecture::Architecture, command, series::Series};

const IMAGE: &str = "linux-image-";

/// An unpacked kernel.
pub(super) struct GuestKernel {
    /// `uname -r`.
    pub(super) release: String,
    /// What QEMU starts: for amd64 the ELF image inside of Debian's.
    pub(super) image: PathBuf,
    /// Folder that holds `lib/modules`.
    pub(super) tree: PathBuf,
}

/// Debian's name of the kernels for clouds.
fn flavour(architecture: Architecture) -> String {
    format!("cloud-{}", architecture.debian())
}

/// Downloads and unpacks the newest kernel of a series.
pub(super) fn fetch(dir: &Path, architecture: Architecture, series: Series) -> Result<GuestKernel> {
    let flavour = flavour(architecture);
    let recipe = [&[series.name(), &flavour], series.suites()].concat();
    let made = cache::keep(dir, &format!("kernel-{series}"), &recipe, |place| {
        fs::create_dir(place)?;
        let scratch = place.join("download");
        let (release, packages) = download(&scratch, architecture, series)?;
        unpack(&packages, place, &release, architecture)?;
        fs::write(place.join("release"), &release).context("write the release")?;
        fs::remove_dir_all(&scratch).context("remove the packages")
    })?;
    let release = fs::read_to_string(made.join("release")).context("read the kernel's release")?;
    Ok(GuestKernel { release, image: made.join("vmlinux"), tree: made.join("tree") })
}

/// Downloads from the first suite that has the series; returns the release and the folder of its packages.
fn download(scratch: &Path, architecture: Architecture, series: Series) -> Result<(String, PathBuf)> {
    let mut reasons = Vec::new();
    for suite in series.suites() {
        let packages = scratch.join(suite);
        match download_from(suite, &packages, architecture, series) {
            Ok(release) => return Ok((release, packages)),
            Err(error) => reasons.push(format!("{suite}: {error:#}")),
        }
    }
    bail!("no suite has a kernel {series}: {}", reasons.join("; "))
}

fn download_from(suite: &str, scratch: &Path, architecture: Architecture, series: Series) -> Result<String> {
    let apt = Apt::of_suite(suite, architecture, &scratch.join("apt"))?;
    let flavour = flavour(architecture);
    let names = apt.names(&format!(r"^{IMAGE}{}\..*-{flavour}$", series.name().replace('.', r"\.")))?;
    let release = newest(&names, series, &flavour).context("no package of that name")?;
    let image = format!("{IMAGE}{release}");
    // Later suites put the image and the modules into packages of their own.
    let mut packages: Vec<String> =
        apt.dependencies(&image)?.into_iter().filter(|package| is_part(package)).collect();
    packages.push(image);
    apt.download(&packages, scratch)?;
    Ok(release.to_owned())
}

/// The newest release of a series among packages.
fn newest<'a>(packages: &'a [String], series: Series, flavour: &str) -> Option<&'a str> {
    let prefix = format!("{series}.");
    let suffix = format!("-{flavour}");
    packages
        .iter()
        .filter_map(|package| package.strip_prefix(IMAGE))
        .filter(|release| release.starts_with(&prefix) && release.ends_with(&suffix))
        .max_by_key(|release| numbers(release.trim_end_matches(&suffix)))
}

/// The numbers in a release, which order those of one series.
fn numbers(release: &str) -> Vec<u64> {
    let runs = release.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.map(|run| run.parse().unwrap_or(u64::MAX)).collect()
}

fn is_part(package: &str) -> bool {
    ["linux-binary-", "linux-modules-", "linux-base-"].iter().any(|prefix| {
        package.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

fn unpack(packages: &Path, place: &Path, release: &str, architecture: Architecture) -> Result<()> {
    let tree = place.join("tree");
    for entry in fs::read_dir(packages).context("list the downloaded packages")? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            command::quietly(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree))?;
        }
    }
    let image = find_image(&tree, release)?;
    let mut kernel = fs::read(&image).with_context(|| format!("read {}", image.display()))?;
    if architecture == Architecture::Amd64 {
        kernel = bz_image::unpacked(&kernel).with_context(|| format!("unpack {}", image.display()))?;
    }
    fs::write(place.join("vmlinux"), kernel).context("write vmlinux")?;
    // kmod looks below /lib or /usr/lib, as the distribution was built.
    if !tree.join("lib").exists() {
        symlink("usr/lib", tree.join("lib")).context("link lib")?;
    }
    command::quietly(Command::new("depmod").arg("-b").arg(&tree).arg(release).env("PATH", with_sbin()))
        .map(drop)
}

fn find_image(tree: &Path, release: &str) -> Result<PathBuf> {
    let places = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")];
    let found = places.iter().map(|place| tree.join(place)).find(|path| path.is_file());
    found.with_context(|| format!("no kernel image in the packages of {release}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_series_is_taken_and_no_other_flavour() {
        let names = |list: &[&str]| -> Vec<String> {
            list.iter().map(|release| format!("{IMAGE}{release}")).collect()
        };
        for (series, releases, wanted) in [
            (
                "6.18",
                &["6.18.9+deb13-cloud-amd64", "6.18.15+deb13-cloud-amd64", "6.19.1+deb13-cloud-amd64"][..],
                Some("6.18.15+deb13-cloud-amd64"),
            ),
            ("5.10", &["5.10.0-9-cloud-amd64", "5.10.0-32-cloud-amd64"], Some("5.10.0-32-cloud-amd64")),
            (
                "6.12",
                &["6.12.90+deb12-cloud-amd64", "6.12.90+deb12.1-cloud-amd64"],
                Some("6.12.90+deb12.1-cloud-amd64"),
            ),
            ("6.1", &["6.12.107+deb13-cloud-amd64", "6.1.0-50-amd64", "6.1.0-50-cloud-amd64-dbg"], None),
            ("6.1", &[], None),
        ] {
            let series = series.parse().unwrap();
            let found = [Architecture::Amd64, Architecture::Arm64].map(|architecture| {
                newest(&names(releases), series, &flavour(architecture)).map(str::to_owned)
            });
            assert_eq!(found, [wanted.map(str::to_owned), None], "{series}");
        }
        let arm64 = names(&["6.12.107+deb13-cloud-arm64", "6.12.117+deb13-cloud-arm64"]);
        let found = newest(&arm64, "6.12".parse().unwrap(), &flavour(Architecture::Arm64));
        assert_eq!(found, Some("6.12.117+deb13-cloud-arm64"));
    }

    #[test]
    fn split_packages_are_recognised() {
        assert!(is_part("linux-modules-7.2.13-cloud-amd64"));
        assert!(!is_part("linux-base"));
        assert!(!is_part("kmod"));
        // No package any more, only a name.
        assert!(!is_part("<linux-base-6.18.15-cloud-amd64>"));
    }
}
