//! Where things are in the working copy.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process,
};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The working copy that `cargo xtask` was built from.
#[derive(Debug, Clone)]
pub(crate) struct Workspace {
    root: PathBuf,
    target: PathBuf,
}

impl Workspace {
    /// The workspace that holds this crate.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is not in a workspace")?;
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        Ok(Self { root: root.to_owned(), target })
    }

    /// Another working copy, with a build folder of its own.
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), target: root.join("target") }
    }

    /// The folder of the workspace's `Cargo.toml`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Cargo's build folder.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Build tools that are not packaged by the distribution.
    pub(crate) fn tools(&self) -> PathBuf {
        self.target.join("tools")
    }

    /// Everything that the virtual machine is made of.
    pub(crate) fn rig(&self) -> PathBuf {
        self.target.join("rig")
    }

    /// A folder for what this run alone needs; what killed runs left is removed.
    pub(crate) fn scratch(&self) -> Result<TempDir> {
        let place = self.target.join("scratch");
        fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
        sweep(&place, |process| Path::new("/proc").join(process).exists())?;
        tempfile::Builder::new()
            .prefix(&format!("{}-", process::id()))
            .tempdir_in(&place)
            .with_context(|| format!("create a scratch folder in {}", place.display()))
    }

    /// Topologies that ship with the workspace.
    pub(crate) fn topologies(&self) -> PathBuf {
        self.root.join("xtask/topologies")
    }
}

/// Removes the scratch folders of processes that are no more; a folder's name begins with the process.
fn sweep(place: &Path, lives: impl Fn(&str) -> bool) -> Result<()> {
    for entry in fs::read_dir(place).with_context(|| format!("list {}", place.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.split_once('-').is_some_and(|(process, _)| !lives(process)) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_left_is_swept() {
        let place = tempfile::tempdir().unwrap();
        for name in ["1-alive", "2-dead", "unrelated"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        sweep(place.path(), |process| process == "1").unwrap();
        let mut left: Vec<_> =
            fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["1-alive", "unrelated"]);
    }
}
