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

use crate::{HostRoot, ReadError, present};

impl MachineFiles for HostRoot {
    fn sys(&self) -> &Path {
        self.sys.as_path()
    }

    fn proc(&self) -> &Path {
        self.proc.as_path()
    }

    fn text(&self, path: &Path, limit: u64) -> io::Result<Option<String>> {
        present(self.at(path).read_text_within(limit)).map_err(cause)
    }

    fn names(&self, dir: &Path) -> io::Result<Option<Vec<String>>> {
        self.at(dir).list_dir().map_err(cause)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.at(path).read_link()
    }

    fn exists(&self, path: &Path) -> bool {
        self.at(path).exists()
    }

    fn is_dir(&self, path: &Path) -> bool {
        self.at(path).is_dir()
    }
}

/// The cause alone: the reader of the topology names the path.
fn cause(error: ReadError) -> io::Error {
    error.cause
}

#[cfg(test)]
mod tests;
