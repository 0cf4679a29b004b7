//! kustomize of Debian unstable, unpacked beside its own libc and never installed, for the presets.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{apt::Apt, cache};
use crate::{architecture::Architecture, command};

const SUITE: &str = "sid";
const PACKAGES: [&str; 2] = ["kustomize", "libc6"];

/// All that is used of them.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const PROGRAM: &str = "usr/bin/kustomize";

/// The folder of an unpacked kustomize.
#[derive(Debug)]
pub(crate) struct Kustomize(PathBuf);

impl Kustomize {
    /// The objects of a folder with a kustomization, as one manifest.
    pub(crate) fn build(&self, folder: &Path) -> Result<String> {
        let mut program = Command::new(self.0.join(LOADER));
        program.arg("--library-path").arg(self.0.join(LIBRARIES)).arg(self.0.join(PROGRAM));
        command::quietly(program.arg("build").arg(folder))
    }
}

/// Downloads and unpacks it.
pub(super) fn fetch(dir: &Path) -> Result<Kustomize> {
    let recipe = [&[SUITE, LOADER, LIBRARIES, PROGRAM][..], &PACKAGES].concat();
    let made = cache::keep(dir, "kustomize", &recipe, |place| {
        fs::create_dir(place).with_context(|| format!("create {}", place.display()))?;
        let scratch = place.join("download");
        Apt::of_suite(SUITE, Architecture::Amd64, &scratch.join("apt"))?
            .unpack(&PACKAGES, &scratch, place)?;
        for path in [PROGRAM, LOADER] {
            ensure!(place.join(path).is_file(), "the packages have no {path}");
        }
        fs::remove_dir_all(&scratch).context("remove what was downloaded")
    })?;
    Ok(Kustomize(made))
}
