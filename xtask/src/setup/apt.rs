//! `apt-get` and `apt-cache` for another suite, with a state of their own.
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
use crate::command;

/// Lists of another suite, in a folder of their own.
pub(super) struct Apt {
    state: PathBuf,
}

impl Apt {
    /// Fetches the package lists of `suite` into `state`.
    pub(super) fn of_suite(suite: &str, state: &Path) -> Result<Self> {
        for dir in ["lists/partial", "archives/partial", "etc/preferences.d"] {
            fs::create_dir_all(state.join(dir)).with_context(|| format!("create {}", state.display()))?;
        }
        for (file, text) in [
            ("etc/suite.sources", suite::sources(suite)?),
            ("status", String::new()),
            ("none", String::new()),
        ] {
            fs::write(state.join(file), text).with_context(|| format!("write {file}"))?;
        }
        let apt = Self { state: state.to_owned() };
        command::quietly(apt.program("apt-get").args(["-q", "update"]))?;
        Ok(apt)
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

    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, path) in [
            ("Dir::Etc::SourceList", "none"),
            ("Dir::Etc::SourceParts", "etc"),
            ("Dir::Etc::PreferencesParts", "etc/preferences.d"),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::Status", "status"),
            ("Dir::Cache::Archives", "archives"),
            ("Dir::Cache::PkgCache", "pkgcache.bin"),
        ] {
            command.arg("-o").arg(format!("{option}={}", self.state.join(path).display()));
        }
        command.args(["-o", "Dir::Cache::SrcPkgCache=", "-o", "APT::Sandbox::User=root"]);
        for option in VALIDITY {
            command.args(["-o", option]);
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
