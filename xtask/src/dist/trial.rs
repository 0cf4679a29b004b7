//! Packages and image of a product that a run of tests has built, for scenarios that install them.
//!
//! They are made as those of a release, of another binary: a release takes many minutes to build.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{ReleaseBinary, ReleaseDraft, commit::ReleaseCommit, image, package};
use crate::{architecture::Architecture, setup, workspace::Workspace};

/// Names under which scenarios find the packages.
const PACKAGES: [&str; 2] = ["older.deb", "newer.deb"];

/// Name under which scenarios find the image.
const IMAGE: &str = "image.tar";

/// Behind the version of the older package: `~` sorts before the end of a version (deb-version(7)).
const OLDER: &str = "~older";

/// What a release is made of, with a binary of tests.
pub(crate) struct TrialRelease<'a> {
    workspace: &'a Workspace,
    binary: PathBuf,
    architecture: Architecture,
    commit: ReleaseCommit,
}

impl<'a> TrialRelease<'a> {
    /// Of a binary of this machine.
    pub(crate) fn of(workspace: &'a Workspace, binary: &Path) -> Result<Self> {
        setup::dist_tools()?;
        let (architecture, commit) = (Architecture::native()?, ReleaseCommit::of(workspace)?);
        Ok(Self { workspace, binary: binary.to_owned(), architecture, commit })
    }

    /// Leaves two packages in `place` that differ in their version: `older.deb` and `newer.deb`.
    pub(crate) fn packages(&self, place: &Path) -> Result<()> {
        let version = &self.commit.version;
        for (name, version) in PACKAGES.into_iter().zip([format!("{version}{OLDER}"), version.clone()]) {
            let scratch = self.workspace.scratch()?;
            let draft = self.draft(version, scratch.path());
            let built = draft.built(self.architecture);
            fs::create_dir_all(&built).with_context(|| format!("create {}", built.display()))?;
            fs::copy(&self.binary, built.join("numa-enforcer")).context("copy the binary")?;
            keep(&package::build(&draft, self.architecture)?, &place.join(name))?;
        }
        Ok(())
    }

    /// Leaves the image in `place`: `image.tar`.
    pub(crate) fn image(&self, place: &Path) -> Result<()> {
        let scratch = self.workspace.scratch()?;
        let draft = self.draft(self.commit.version.clone(), scratch.path());
        keep(&image::write(&draft)?, &place.join(IMAGE))
    }

    /// A release in a folder that nothing of it is published from.
    fn draft(&self, version: String, folder: &Path) -> ReleaseDraft<'a> {
        let binary = ReleaseBinary { architecture: self.architecture, path: self.binary.clone() };
        ReleaseDraft {
            workspace: self.workspace,
            commit: ReleaseCommit { version, ..self.commit.clone() },
            place: folder.to_owned(),
            binaries: vec![binary],
            target: folder.join("target"),
            is_published: false,
        }
    }
}

fn keep(file: &Path, place: &Path) -> Result<()> {
    fs::copy(file, place).with_context(|| format!("copy {}", file.display())).map(drop)
}
