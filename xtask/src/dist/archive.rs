//! Archives with the same bytes each time: entries in the order of their names, owned by root, of the
//! commit's time, without a trace of the machine.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::commit::ReleaseCommit;
use crate::command;

/// Packs entries of a folder.
pub(super) fn tar(folder: &Path, entries: &[&str], commit: &ReleaseCommit, file: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--format=ustar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
        .arg("--mode=u=rwX,go=rX")
        .arg(format!("--mtime=@{}", commit.seconds))
        .arg("--directory")
        .arg(folder)
        .arg("--create")
        .arg("--file")
        .arg(file)
        .args(entries)
        .env("LC_ALL", "C");
    command::quietly(&mut tar).map(drop)
}

/// Compresses a file, which `FILE.gz` takes the place of.
pub(super) fn gzip(file: &Path) -> Result<PathBuf> {
    gzip_with("-9", file)
}

/// The same in a fifth of the time, for what is unpacked once.
pub(super) fn gzip_quickly(file: &Path) -> Result<PathBuf> {
    gzip_with("-1", file)
}

fn gzip_with(level: &str, file: &Path) -> Result<PathBuf> {
    // --no-name: neither name nor time of the file.
    command::quietly(Command::new("gzip").args([level, "--no-name", "--force"]).arg(file))?;
    let mut packed = OsString::from(file);
    packed.push(".gz");
    Ok(packed.into())
}
