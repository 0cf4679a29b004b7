//! What a release is made from: version, commit, and its time.

use std::process::Command;

use anyhow::Result;

use crate::{command, workspace::Workspace};

/// Digits of a short hash.
const SHORT: usize = 12;

/// The commit that is checked out.
#[derive(Debug, Clone)]
pub(crate) struct ReleaseCommit {
    /// Version of the workspace.
    pub(crate) version: String,
    /// Hash in hexadecimal digits.
    pub(crate) hash: String,
    /// Whether tracked files differ from it.
    pub(crate) is_dirty: bool,
    /// Time of the commit in seconds since 1970: the time of everything in a release (`SOURCE_DATE_EPOCH`).
    pub(crate) seconds: String,
}

impl ReleaseCommit {
    /// The commit of the working copy. Its version is that of this program: both are of one workspace.
    pub(crate) fn of(workspace: &Workspace) -> Result<Self> {
        let git = |arguments: &[&str]| -> Result<String> {
            let mut git = Command::new("git");
            Ok(command::quietly(git.args(arguments).current_dir(workspace.root()))?.trim().to_owned())
        };
        Ok(Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hash: git(&["rev-parse", "HEAD"])?,
            is_dirty: !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty(),
            seconds: git(&["log", "-1", "--format=%ct"])?,
        })
    }

    /// The hash, and whether files differ from it.
    pub(super) fn revision(&self) -> String {
        format!("{}{}", self.hash, self.suffix())
    }

    /// The same with a short hash.
    pub(super) fn short(&self) -> String {
        format!("{}{}", &self.hash[..SHORT.min(self.hash.len())], self.suffix())
    }

    fn suffix(&self) -> &'static str {
        if self.is_dirty { "-dirty" } else { "" }
    }

    /// The time as RFC 3339 writes it, in UTC.
    pub(super) fn time(&self) -> Result<String> {
        self.date(&["--utc", "+%Y-%m-%dT%H:%M:%SZ"])
    }

    /// The time as mails and Debian's changelogs write it.
    pub(super) fn mail_time(&self) -> Result<String> {
        self.date(&["--utc", "--rfc-email"])
    }

    fn date(&self, format: &[&str]) -> Result<String> {
        let mut date = Command::new("date");
        date.args(format).arg(format!("--date=@{}", self.seconds)).env("LC_ALL", "C");
        Ok(command::quietly(&mut date)?.trim().to_owned())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A commit of no repository.
    pub(crate) fn commit() -> ReleaseCommit {
        ReleaseCommit {
            version: "1.2.3".to_owned(),
            hash: "a1".repeat(20),
            is_dirty: false,
            seconds: "1700000000".to_owned(),
        }
    }

    #[test]
    fn changed_files_are_told_with_the_commit() {
        let clean = commit();
        assert_eq!((clean.revision(), clean.short()), ("a1".repeat(20), "a1".repeat(6)));
        let dirty = ReleaseCommit { is_dirty: true, ..clean };
        assert_eq!(dirty.short(), format!("{}-dirty", "a1".repeat(6)));
        assert_eq!(dirty.revision(), format!("{}-dirty", "a1".repeat(20)));
    }

    #[test]
    fn the_time_is_that_of_the_commit_in_utc() {
        assert_eq!(commit().time().unwrap(), "2023-11-14T22:13:20Z");
        assert_eq!(commit().mail_time().unwrap(), "Tue, 14 Nov 2023 22:13:20 +0000");
    }
}
