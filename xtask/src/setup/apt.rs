//! `apt-get` and `apt-cache` for another suite or another architecture, with a state of their own.
//!
//! The machine's package lists, its installed packages and its preferences are neither read nor
//! changed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::suite;
use crate::{architecture::Architecture, command};

/// Lists of another suite or architecture, in a folder of their own.
pub(super) struct Apt {
    state: PathBuf,
    /// What to ask for, as settings of apt.
    settings: Vec<String>,
}

impl Apt {
    /// Fetches the package lists of `suite` for an architecture into `state`.
    pub(super) fn of_suite(suite: &str, architecture: Architecture, state: &Path) -> Result<Self> {
        let sources = state.join("etc");
        fs::create_dir_all(&sources).with_context(|| format!("create {}", sources.display()))?;
        fs::write(sources.join("suite.sources"), suite::sources(suite)?).context("write the sources")?;
        let list = format!("Dir::Etc::SourceList={}", state.join("none").display());
        let mut settings = vec![list, format!("Dir::Etc::SourceParts={}", sources.display())];
        let own = ["APT::Architecture=", "APT::Architectures::="];
        settings.extend(own.map(|setting| format!("{setting}{}", architecture.debian())));
        Self { state: state.to_owned(), settings }.fetch_lists()
    }

    /// Fetches the package lists of the machine's own suites for its architecture and a foreign one.
    pub(super) fn of_architecture(foreign: Architecture, state: &Path) -> Result<Self> {
        let native = command::quietly(Command::new("dpkg").arg("--print-architecture"))?;
        let both = [native.trim(), foreign.debian()];
        let settings = both.map(|name| format!("APT::Architectures::={name}")).into();
        Self { state: state.to_owned(), settings }.fetch_lists()
    }

    fn fetch_lists(self) -> Result<Self> {
        for dir in ["lists/partial", "archives/partial", "etc/preferences.d"] {
            let dir = self.state.join(dir);
            fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        }
        for file in ["status", "none"] {
            fs::write(self.state.join(file), "").with_context(|| format!("write {file}"))?;
        }
        command::quietly(self.program("apt-get").args(["-q", "update"]))?;
        Ok(self)
    }

    /// Names of packages that match a regular expression.
    pub(super) fn names(&self, pattern: &str) -> Result<Vec<String>> {
        Ok(found(&command::quietly(self.program("apt-cache").args(["search", "--names-only", pattern]))?))
    }

    /// Names of the packages that `package` depends on.
    pub(super) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        Ok(depends(&command::quietly(self.program("apt-cache").args(["depends", package]))?))
    }

    /// Downloads packages into `dir`.
    pub(super) fn download(&self, packages: &[String], dir: &Path) -> Result<()> {
        let mut command = self.program("apt-get");
        command::quietly(command.args(["-q", "download"]).args(packages).current_dir(dir)).map(drop)
    }

    /// Downloads packages into `dir`, and unpacks all that are there into `place`. Nothing is installed.
    pub(super) fn unpack(&self, packages: &[&str], dir: &Path, place: &Path) -> Result<()> {
        let packages: Vec<_> = packages.iter().map(|&package| package.to_owned()).collect();
        self.download(&packages, dir)?;
        for entry in fs::read_dir(dir).context("list the downloaded packages")? {
            let package = entry?.path();
            if package.extension().is_some_and(|extension| extension == "deb") {
                command::quietly(Command::new("dpkg-deb").arg("-x").arg(&package).arg(place))?;
            }
        }
        Ok(())
    }

    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, path) in [
            ("Dir::Etc::PreferencesParts", "etc/preferences.d"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::Status", "status"),
            ("Dir::Cache::Archives", "archives"),
            ("Dir::Cache::PkgCache", "pkgcache.bin"),
        ] {
            command.arg("-o").arg(format!("{option}={}", self.state.join(path).display()));
        }
        command.args(["-o", "Dir::Cache::SrcPkgCache=", "-o", "APT::Sandbox::User=root"]);
        for setting in self.settings.iter().map(String::as_str).chain(VALIDITY.iter().copied()) {
            command.args(["-o", setting]);
        }
        command
    }
}

/// A mirror that is a snapshot of the past is as good as today's.
pub(super) const VALIDITY: &[&str] = &["Acquire::Check-Valid-Until=false", "Acquire::Check-Date=false"];

/// The `Depends:` lines of `apt-cache depends`.
fn depends(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.trim().strip_prefix("Depends: ")).map(str::to_owned).collect()
}

/// The names in the lines `NAME - DESCRIPTION` of `apt-cache search`.
fn found(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| Some(line.split_once(" - ")?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_goes_by_its_name() {
        let text = "linux-image-6.1.0-50-cloud-amd64 - Linux 6.1 - for clouds\n\n";
        assert_eq!(found(text), ["linux-image-6.1.0-50-cloud-amd64"]);
        assert!(found("").is_empty());
    }

    #[test]
    fn only_hard_dependencies_count() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.12.1-cloud-amd64\n  Suggests: grub\n";
        assert_eq!(depends(text), ["linux-image-6.12.1-cloud-amd64"]);
    }
}
