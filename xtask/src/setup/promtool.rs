//! Prometheus of Debian 13, unpacked beside its own libc and never installed: promtool judges rules and
//! metrics, the server scrapes the daemon in a guest.
//!
//! Its package depends on many others for its web pages, which are not used here, so the packages that the
//! programs need are fetched by name. Nothing of it is started as a service of this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{apt::Apt, cache};
use crate::architecture::Architecture;

const SUITE: &str = "trixie";
const PACKAGES: [&str; 3] = ["prometheus", "promtool", "libc6"];

/// All that is kept of them.
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const PROGRAMS: [&str; 2] = ["usr/bin/prometheus", "usr/bin/promtool"];

/// The folder of an unpacked Prometheus.
#[derive(Debug)]
pub(crate) struct PrometheusTools(PathBuf);

impl PrometheusTools {
    /// The server, for a guest of the same suite.
    pub(crate) fn server(&self) -> PathBuf {
        self.0.join(PROGRAMS[0])
    }

    /// promtool on this machine, by its own loader: the machine's may be older.
    pub(crate) fn promtool(&self) -> Command {
        let mut command = Command::new(self.0.join(LOADER));
        command.arg("--library-path").arg(self.0.join(LIBRARIES)).arg(self.0.join(PROGRAMS[1]));
        command
    }
}

/// Downloads and unpacks it.
pub(super) fn fetch(dir: &Path) -> Result<PrometheusTools> {
    let recipe = [&[SUITE, LOADER, LIBRARIES][..], &PACKAGES, &PROGRAMS].concat();
    let made = cache::keep(dir, "prometheus", &recipe, |place| {
        fs::create_dir(place).with_context(|| format!("create {}", place.display()))?;
        let scratch = place.join("download");
        Apt::of_suite(SUITE, Architecture::Amd64, &scratch.join("apt"))?
            .unpack(&PACKAGES, &scratch, place)?;
        for path in PROGRAMS.into_iter().chain([LOADER]) {
            ensure!(place.join(path).is_file(), "the packages have no {path}");
        }
        for path in [scratch, place.join("usr/share"), place.join("etc"), place.join("var")] {
            fs::remove_dir_all(&path).or_else(super::absent_is_fine).context("remove what is not used")?;
        }
        Ok(())
    })?;
    Ok(PrometheusTools(made))
}
