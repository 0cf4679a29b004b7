//! The Debian package, by cargo-deb from `[package.metadata.deb]` of enforcer/Cargo.toml.
//!
//! What is made for the package alone (man pages, completions, Debian's changelog) is laid beside the binary,
//! in cargo's target folder: the metadata names it by `target/release/package`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{ReleaseDraft, archive, bounds, commit::ReleaseCommit};
use crate::{architecture::Architecture, command, docs, progress::ProgressStep, setup, workspace::Workspace};

/// Revision of the packaging of one version.
const REVISION: u32 = 1;

/// The name in Debian's changelog, as `maintainer` of the metadata.
const MAINTAINER: &str = "The numa-enforcer developers <maintainers@numa-enforcer.io>";

/// Makes the package of the binary that is built; returns the file.
pub(super) fn build(draft: &ReleaseDraft<'_>, architecture: Architecture) -> Result<PathBuf> {
    let ReleaseDraft { workspace, commit, place, .. } = draft;
    let cargo_deb = setup::cargo_deb(workspace)?;
    let version = format!("{}-{REVISION}", commit.version);
    lay_out(workspace, &draft.built(architecture).join("package"), commit, &version)?;
    let step = ProgressStep::begin(format!("make the Debian package for {}", architecture.debian()));
    let package = place.join(format!("numa-enforcer_{version}_{}.deb", architecture.debian()));
    let mut deb = Command::new(cargo_deb);
    deb.current_dir(workspace.root())
        .args(["--quiet", "--locked", "--no-build", "--no-strip", "--package", "enforcer", "--target"])
        .arg(architecture.triple())
        .arg("--deb-version")
        .arg(&version)
        .arg("--output")
        .arg(&package)
        .env("CARGO_TARGET_DIR", &draft.target)
        .env("SOURCE_DATE_EPOCH", &commit.seconds);
    if !draft.is_published {
        deb.arg("--fast");
    }
    command::quietly(&mut deb)?;
    draft.check(&package, bounds::PACKED)?;
    step.done();
    Ok(package)
}

/// Writes what the package has besides files of the repository.
fn lay_out(workspace: &Workspace, folder: &Path, commit: &ReleaseCommit, version: &str) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    docs::manuals(workspace, folder)?;
    let man = folder.join("man");
    for page in fs::read_dir(&man).with_context(|| format!("list {}", man.display()))? {
        archive::gzip(&page?.path())?;
    }
    let changelog: PathBuf = folder.join("changelog.Debian");
    let text = changelog_text(version, &commit.mail_time()?);
    fs::write(&changelog, text).with_context(|| format!("write {}", changelog.display()))?;
    archive::gzip(&changelog)?;
    let changes = folder.join("changelog");
    fs::copy(workspace.root().join("CHANGELOG.md"), &changes).context("copy CHANGELOG.md")?;
    archive::gzip(&changes)?;
    Ok(())
}

/// Debian's changelog (deb-changelog(5)), which leads to ours.
fn changelog_text(version: &str, time: &str) -> String {
    format!(
        "numa-enforcer ({version}) unstable; urgency=medium\n\n  * See changelog.gz beside this file.\n\n \
         -- {MAINTAINER}  {time}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_reads_the_version_from_the_changelog() {
        let text = changelog_text("1.2.3-1", "Tue, 14 Nov 2023 22:13:20 +0000");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "numa-enforcer (1.2.3-1) unstable; urgency=medium");
        assert_eq!(lines[4], format!(" -- {MAINTAINER}  Tue, 14 Nov 2023 22:13:20 +0000"));
    }

    #[test]
    fn the_changelog_and_the_metadata_name_one_maintainer() {
        let path = Workspace::find().unwrap().root().join("enforcer/Cargo.toml");
        let manifest: toml::Table = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(manifest["package"]["metadata"]["deb"]["maintainer"].as_str(), Some(MAINTAINER));
    }
}
