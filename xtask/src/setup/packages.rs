//! The Debian packages that the build and the virtual machine need, and how they get here.
//!
//! Root installs them. Another user is shown the commands, and nothing is installed. On another distribution
//! the list shows what to look for.

use std::{
    fs, io,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{command, progress::ProgressStep};

/// Packages for one purpose.
pub(super) struct PackageNeed {
    /// Debian's names.
    packages: &'static [&'static str],
    /// Programs that show elsewhere whether the packages' like is there.
    programs: &'static [&'static str],
}

/// Compilers and libraries of the product's kernel side (docs/adr/0001).
pub(super) const BUILD: PackageNeed = PackageNeed {
    packages: &[
        "gcc",
        "libc6-dev",
        "rustc-web",
        "libstd-rust-web-dev-bpf",
        "llvm-22-dev",
        "libpolly-22-dev",
        "clang-22",
        "libelf-dev",
        "zlib1g-dev",
        "pkg-config",
    ],
    programs: &["cc", "clang"],
};

/// Clippy of the compiler that builds the kernel side.
pub(super) const LINT: PackageNeed = PackageNeed { packages: &["rust-web-clippy"], programs: &[] };

/// Programs that unpack, assemble and start the virtual machine.
pub(super) const RIG: PackageNeed = PackageNeed {
    packages: &[
        "mmdebstrap",
        "e2fsprogs",
        "kmod",
        "cpio",
        "xz-utils",
        "zstd",
        "lz4",
        "binutils",
        "util-linux",
    ],
    programs: &["mmdebstrap", "mke2fs", "depmod", "cpio", "xz", "zstd", "lz4", "strip", "setpriv"],
};

/// What the kernel side is compared with, and what it must not slow down.
pub(super) const COMPARE: PackageNeed =
    PackageNeed { packages: &["bpftrace", "rt-tests"], programs: &["bpftrace", "hackbench"] };

/// A browser, and what drives it: the page is looked at as people see it.
pub(super) const BROWSER: PackageNeed =
    PackageNeed { packages: &["chromium", "chromium-driver"], programs: &["chromium", "chromedriver"] };

/// A terminal in which tests of this host run what people run in one.
pub(super) const TERMINAL: PackageNeed = PackageNeed { packages: &["tmux"], programs: &["tmux"] };

/// What downloads wheels of PyPI, where Python has none of its own.
pub(super) const PIP: PackageNeed = PackageNeed { packages: &["python3-pip"], programs: &["pip3"] };

/// What packs releases.
pub(super) const DIST: PackageNeed = PackageNeed {
    packages: &["tar", "gzip", "xz-utils", "dpkg", "binutils", "coreutils", "git"],
    programs: &["tar", "gzip", "xz", "dpkg-deb", "readelf", "sha256sum", "git"],
};

/// Compilers of C for the other architecture.
pub(super) const CROSS: PackageNeed = PackageNeed {
    packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    programs: &["aarch64-linux-gnu-gcc"],
};

/// What unpacks captured machines.
pub(super) const UNPACKER: PackageNeed = PackageNeed { packages: &["bzip2"], programs: &["bzip2"] };

/// What is to be done about a need.
#[derive(Debug, PartialEq, Eq)]
enum PackageVerdict {
    /// Nothing.
    Met,
    /// Install these.
    Install(Vec<&'static str>),
    /// Say this and stop.
    Stop(String),
}

/// Installs what is missing.
pub(super) fn install(need: &PackageNeed) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let verdict = if is_debian(&release) {
        on_debian(need, &installed(need)?, is_root()?)
    } else {
        elsewhere(need, runs)
    };
    match verdict {
        PackageVerdict::Met => Ok(()),
        PackageVerdict::Stop(why) => bail!(why),
        PackageVerdict::Install(missing) => {
            let step = ProgressStep::begin(format!("install {}", missing.join(" ")));
            command::quietly(apt_get().arg("update"))?;
            command::quietly(apt_get().args(["install", "-y", "--no-install-recommends"]).args(&missing))?;
            step.done();
            Ok(())
        }
    }
}

fn on_debian(need: &PackageNeed, dpkg: &str, root: bool) -> PackageVerdict {
    let missing: Vec<_> = need.packages.iter().copied().filter(|name| !is_installed(dpkg, name)).collect();
    if missing.is_empty() {
        return PackageVerdict::Met;
    }
    if root {
        return PackageVerdict::Install(missing);
    }
    PackageVerdict::Stop(format!(
        "these packages are missing; run as root, then try again:\n  apt-get update\n  \
         apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    ))
}

/// On another distribution: nothing to do if everything was put there by hand.
fn elsewhere(need: &PackageNeed, runs: impl Fn(&str) -> bool) -> PackageVerdict {
    let absent: Vec<_> = need.programs.iter().copied().filter(|program| !runs(program)).collect();
    if absent.is_empty() {
        return PackageVerdict::Met;
    }
    PackageVerdict::Stop(format!(
        "this is not Debian, so nothing was installed; missing programs: {}. Install what these Debian \
         packages stand for: {}. The kernel side builds with rustup's nightly and rust-src; `cargo build -p \
         enforcer --no-default-features` needs none of it",
        absent.join(" "),
        need.packages.join(" ")
    ))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("-q");
    command
}

fn runs(program: &str) -> bool {
    let mut probe = Command::new(program);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.env("PATH", super::with_sbin()).status().is_ok()
}

/// Is it Debian itself? Derivatives name other suites and lack `rustc-web`.
fn is_debian(os_release: &str) -> bool {
    os_release.lines().any(|line| line.trim() == "ID=debian")
}

/// Version of a package that is installed; `None` without it, and on another distribution.
pub(super) fn version(package: &str) -> Result<Option<String>> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${db:Status-Status} ${Version}\n", package]).stderr(Stdio::null());
    match query.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("run dpkg-query"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(text.lines().find_map(|line| line.strip_prefix("installed ")).map(str::to_owned))
        }
    }
}

/// State and name of the packages, one in a line.
fn installed(need: &PackageNeed) -> Result<String> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .args(need.packages)
        .output()
        .context("run dpkg-query")?;
    // It fails when any package is unknown, and still prints the others.
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn is_installed(dpkg: &str, package: &str) -> bool {
    dpkg.lines().any(|line| line.split_once(' ') == Some(("installed", package)))
}

/// Effective user id 0, by `id`: a build tool needs no libc binding for this.
fn is_root() -> Result<bool> {
    Ok(command::quietly(Command::new("id").arg("-u"))?.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEED: PackageNeed =
        PackageNeed { packages: &["kmod", "cpio", "zstd"], programs: &["depmod", "cpio"] };

    /// `cpio` is unknown to dpkg, `zstd` was removed.
    const DPKG: &str = "installed kmod\nconfig-files zstd\n";

    #[test]
    fn only_debian_is_debian() {
        assert!(is_debian("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(!is_debian("ID=ubuntu\nID_LIKE=debian\n"));
        assert!(!is_debian(""));
    }

    #[test]
    fn root_installs_exactly_what_is_missing() {
        assert_eq!(on_debian(&NEED, DPKG, true), PackageVerdict::Install(vec!["cpio", "zstd"]));
    }

    #[test]
    fn other_users_are_shown_the_commands() {
        let PackageVerdict::Stop(why) = on_debian(&NEED, DPKG, false) else { panic!("it goes on") };
        let commands: Vec<_> = why.lines().skip(1).map(str::trim).collect();
        assert_eq!(
            commands,
            ["apt-get update", "apt-get install -y --no-install-recommends cpio zstd"],
            "{why}"
        );
    }

    #[test]
    fn installed_packages_are_not_asked_for() {
        let all = "installed kmod\ninstalled cpio\ninstalled zstd\n";
        for root in [false, true] {
            assert_eq!(on_debian(&NEED, all, root), PackageVerdict::Met, "root: {root}");
        }
        assert_eq!(elsewhere(&NEED, |_| true), PackageVerdict::Met);
    }

    #[test]
    fn on_another_distribution_programs_and_packages_are_named() {
        let PackageVerdict::Stop(why) = elsewhere(&NEED, |program| program == "cpio") else {
            panic!("it goes on")
        };
        assert!(why.contains("missing programs: depmod. ") && why.contains("kmod cpio zstd"), "{why}");
    }
}
