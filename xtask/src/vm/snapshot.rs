//! The files of one saved guest.
//!
//! [`super::snapshots`] makes them; a guest is resumed from them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::machine::Start;
use crate::setup;

/// A saved guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    folder: PathBuf,
    root: PathBuf,
    state: PathBuf,
}

impl Snapshot {
    /// The snapshot in a folder.
    pub(super) fn at(folder: PathBuf) -> Self {
        Self { root: folder.join("root.ext4"), state: folder.join("state"), folder }
    }

    /// Its root disk.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Its memory and devices.
    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    /// How a machine starts from it.
    pub(super) fn start(&self) -> Start<'_> {
        Start::Saved { root: &self.root, state: &self.state }
    }

    /// Removes its files, if there are any.
    pub(super) fn discard(&self) -> Result<()> {
        fs::remove_dir_all(&self.folder)
            .or_else(setup::absent_is_fine)
            .with_context(|| format!("remove the snapshot {}", self.folder.display()))
    }
}
