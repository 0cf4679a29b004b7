//! The machine's topology, read through a [`HostRoot`].
//!
//! [`numa_topology::sysfs`] knows the files and what they mean; a [`HostRoot`] confines each read to a
//! captured tree and notes it for `capture`.

use std::{
    io,
    path::{Path, PathBuf},
};

use numa_topology::sysfs::MachineFiles;
pub use numa_topology::sysfs::{TopologyError, read_topology};

use crate::{HostRoot, ReadError, exists, is_dir, list_dir, present, read_link, read_text_within};

impl MachineFiles for HostRoot {
    fn sys(&self) -> &Path {
        &self.sys
    }

    fn proc(&self) -> &Path {
        &self.proc
    }

    fn text(&self, path: &Path, limit: u64) -> io::Result<Option<String>> {
        present(read_text_within(path, limit)).map_err(cause)
    }

    fn names(&self, dir: &Path) -> io::Result<Option<Vec<String>>> {
        list_dir(dir).map_err(cause)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        read_link(path)
    }

    fn exists(&self, path: &Path) -> bool {
        exists(path)
    }

    fn is_dir(&self, path: &Path) -> bool {
        is_dir(path)
    }
}

/// The cause alone: the reader of the topology names the path.
fn cause(error: ReadError) -> io::Error {
    error.cause
}

#[cfg(test)]
mod tests;
