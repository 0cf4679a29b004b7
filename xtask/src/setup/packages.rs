//! The Debian packages that the build and the virtual machine need, and how they get here.
//!
//! Root installs them; anybody else is shown the commands. On another distribution the list says
//! what to look for.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{command, progress::Step};

/// Compilers and libraries of the product's kernel side (docs/adr/0001).
pub(super) const BUILD: &[&str] = &[
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
];

/// Programs that unpack and assemble the parts of the virtual machine.
pub(super) const RIG: &[&str] = &["mmdebstrap", "e2fsprogs", "kmod", "cpio", "xz-utils", "zstd"];

/// Installs those of `wanted` that are missing.
pub(super) fn install(wanted: &[&str]) -> Result<()> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !is_debian(&release) {
        return without_apt(wanted);
    }
    let missing = missing(wanted)?;
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !is_root()? {
        bail!(
            "these packages are missing; run as root, then try again:\n  apt-get update\n  \
             apt-get install -y --no-install-recommends {list}"
        );
    }
    let step = Step::begin(format!("install {list}"));
    command::quietly(apt_get().arg("update"))?;
    command::quietly(apt_get().args(["install", "-y", "--no-install-recommends"]).args(&missing))?;
    step.done();
    Ok(())
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("-q");
    command
}

/// On another distribution: nothing to do if everything was put there by hand.
fn without_apt(wanted: &[&str]) -> Result<()> {
    let programs = ["clang", "mmdebstrap", "mke2fs", "depmod", "cpio", "xz", "zstd"];
    let absent: Vec<_> = programs.into_iter().filter(|program| !runs(program)).collect();
    if absent.is_empty() {
        return Ok(());
    }
    bail!(
        "this is not Debian, so nothing was installed; missing programs: {}. Install what these Debian \
         packages stand for: {}. The kernel side builds with rustup's nightly and rust-src; `cargo build -p \
         enforcer --no-default-features` needs none of it",
        absent.join(", "),
        wanted.join(" ")
    );
}

fn runs(program: &str) -> bool {
    let status = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok()
}

/// Is it Debian itself? Derivatives name other suites and lack `rustc-web`.
fn is_debian(os_release: &str) -> bool {
    os_release.lines().any(|line| line.trim() == "ID=debian")
}

fn missing<'a>(wanted: &[&'a str]) -> Result<Vec<&'a str>> {
    let output = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .args(wanted)
        .output()
        .context("run dpkg-query")?;
    // It fails when any package is unknown, and still prints the others.
    let known = String::from_utf8_lossy(&output.stdout);
    Ok(wanted.iter().copied().filter(|package| !is_installed(&known, package)).collect())
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

    #[test]
    fn only_debian_is_debian() {
        assert!(is_debian("NAME=\"Debian GNU/Linux\"\nID=debian\n"));
        assert!(!is_debian("ID=ubuntu\nID_LIKE=debian\n"));
        assert!(!is_debian(""));
    }

    #[test]
    fn a_removed_package_is_missing() {
        let dpkg = "installed kmod\nconfig-files zstd\n";
        assert!(is_installed(dpkg, "kmod"));
        assert!(!is_installed(dpkg, "zstd"));
        assert!(!is_installed(dpkg, "cpio"));
    }
}
