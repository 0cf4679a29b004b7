//! Where the host's files are, and the only way to read them.
//!
//! A [`HostRoot`] is a value that is handed in, so that every reader works on the running host, on a
//! captured tree (`--root DIR`) and on a fixture alike. Nothing else opens a kernel file for reading.

pub mod cgroup;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// The three trees that readers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoot {
    /// `/sys`
    pub sys: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys/fs/cgroup`
    pub cgroup: PathBuf,
    /// A copy of another machine: live sources (BPF, system calls) say nothing about it.
    pub captured: bool,
}

/// A file that could not be read.
#[derive(Debug, Error)]
#[error("reading {path}: {cause}", path = path.display())]
pub struct ReadError {
    /// Which file.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

impl HostRoot {
    /// The running host.
    pub fn live() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into(), captured: false }
    }

    /// A captured tree with `sys` and `proc` below `root`.
    pub fn captured(root: &Path) -> Self {
        Self {
            sys: root.join("sys"),
            proc: root.join("proc"),
            cgroup: root.join("sys/fs/cgroup"),
            captured: true,
        }
    }
}

/// The whole text of a file; invalid UTF-8 is replaced.
///
/// Kernel files have no length to trust, so at most `READ_LIMIT` bytes are read.
pub fn read_text(path: &Path) -> Result<String, ReadError> {
    let bytes = fs::read(path).map_err(|cause| ReadError { path: path.to_owned(), cause })?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
