//! Where things are in the working copy.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

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

    /// Topologies that ship with the workspace.
    pub(crate) fn topologies(&self) -> PathBuf {
        self.root.join("xtask/topologies")
    }
}
