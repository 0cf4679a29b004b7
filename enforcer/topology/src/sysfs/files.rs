//! The files of a machine, as the reader asks for them.
//!
//! A daemon confines its reads, records them or reads a copy of another machine; a tool reads `/sys` and
//! `/proc`. Both are a [`MachineFiles`]. A file or directory that is absent is `None`; one that is there and
//! cannot be read is an error, which the reader turns into a [`Degraded`](crate::degraded::Degraded) entry.

#![expect(clippy::disallowed_types, reason = "the one place of this crate that opens files")]

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// Reads below `/sys` and `/proc` of one machine. Paths are those of the machine's files in full.
pub trait MachineFiles {
    /// Where sysfs is.
    fn sys(&self) -> &Path;
    /// Where procfs is.
    fn proc(&self) -> &Path;
    /// The text of a file of at most `limit` bytes; a longer one is an error.
    ///
    /// # Errors
    /// Where the file exists and cannot be read.
    fn text(&self, path: &Path, limit: u64) -> io::Result<Option<String>>;
    /// The names in a directory, ascending.
    ///
    /// # Errors
    /// Where the directory exists and cannot be read.
    fn names(&self, dir: &Path) -> io::Result<Option<Vec<String>>>;
    /// The target of a symbolic link.
    fn link(&self, path: &Path) -> Option<PathBuf>;
    /// Whether the path leads to anything; links are followed.
    fn exists(&self, path: &Path) -> bool;
    /// Whether the path leads to a directory; links are followed.
    fn is_dir(&self, path: &Path) -> bool;
}

/// The files of the running machine, or of a copy below a directory that the caller trusts: links in it are
/// followed as the operating system follows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    sys: PathBuf,
    proc: PathBuf,
}

impl Directory {
    /// `/sys` and `/proc`.
    pub fn live() -> Self {
        Self::at("/")
    }

    /// `sys` and `proc` below a directory.
    pub fn at(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        Self { sys: root.join("sys"), proc: root.join("proc") }
    }
}

impl MachineFiles for Directory {
    fn sys(&self) -> &Path {
        &self.sys
    }

    fn proc(&self) -> &Path {
        &self.proc
    }

    fn text(&self, path: &Path, limit: u64) -> io::Result<Option<String>> {
        let Some(file) = present(File::open(path))? else { return Ok(None) };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes")));
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn names(&self, dir: &Path) -> io::Result<Option<Vec<String>>> {
        let Some(entries) = present(fs::read_dir(dir))? else { return Ok(None) };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        names.sort_unstable();
        Ok(Some(names))
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        fs::read_link(path).ok()
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn is_dir(&self, path: &Path) -> bool {
        path.is_dir()
    }
}

fn present<T>(opened: io::Result<T>) -> io::Result<Option<T>> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match opened {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}
