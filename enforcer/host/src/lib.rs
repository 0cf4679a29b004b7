//! Where the host's files are, and how they are read.
//!
//! A [`HostRoot`] is a value that is handed in, so that every reader works on the running host, on a
//! captured tree (`--root DIR`) and on a fixture alike. [`workloads`], [`units`], [`sandboxes`] and
//! [`topology`] turn files into values of the core. Nothing is written here, but [`systemd`] asks for
//! properties of units.

pub mod cgroup;
pub mod cgroup_dir;
pub mod cgroup_tree;
mod confined;
pub mod file_error;
pub mod host_facts;
pub mod lockdown;
pub mod owned_file;
pub mod processes;
pub mod recording;
pub mod repeated;
pub mod sandboxes;
pub mod systemd;
pub mod topology;
pub mod units;
pub mod workloads;

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use thiserror::Error;

use self::confined::kind_of;

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

    /// A captured tree with `sys` and `proc` below `root`. Its symlinks do not lead out of it.
    pub fn captured(root: &Path) -> Self {
        confined::confine(root);
        Self {
            sys: root.join("sys"),
            proc: root.join("proc"),
            cgroup: root.join("sys/fs/cgroup"),
            captured: true,
        }
    }
}

/// The most that is read of a kernel file; `numa_maps` of a large process is the longest of them.
pub const READ_LIMIT: u64 = 16 << 20;

/// Room for the first read of a file: nearly every kernel file fits, and is read in one call.
const FIRST_READ: usize = 4_096;

/// The most entries of a directory that are listed.
const ENTRY_LIMIT: usize = 1 << 17;

/// The whole text of a file; invalid UTF-8 is replaced.
///
/// Kernel files have no length to trust: a file longer than [`READ_LIMIT`] is an error, and so is
/// anything that is not a regular file (a FIFO in a captured tree would block).
pub fn read_text(path: &Path) -> Result<String, ReadError> {
    read_text_within(path, READ_LIMIT)
}

/// [`read_text`] with a limit of its own, in bytes.
pub fn read_text_within(path: &Path, limit: u64) -> Result<String, ReadError> {
    let bytes = read_bytes(path, limit).map_err(|cause| ReadError { path: path.to_owned(), cause })?;
    let text = as_text(bytes);
    recording::note_text(path, &text);
    Ok(text)
}

fn as_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// [`read_text`] where the file may be absent (`None`); one that is there and cannot be read is an
/// error.
pub fn read_optional(path: &Path) -> Result<Option<String>, ReadError> {
    present(read_text(path))
}

/// Names in a directory, in ascending order; `None` where there is no such directory. Names that
/// are not UTF-8 are no kernel names and are left out.
pub fn list_dir(path: &Path) -> Result<Option<Vec<String>>, ReadError> {
    let names = || -> io::Result<Vec<String>> {
        let entries = read_dir(path)?;
        recording::note_directory(path);
        let mut names = Vec::new();
        for (name, kind) in entries {
            if kind != FileType::RegularFile {
                recording::note_directory(&path.join(&name));
            }
            names.extend(name.into_string());
        }
        names.sort_unstable();
        Ok(names)
    };
    present(names().map_err(|cause| ReadError { path: path.to_owned(), cause }))
}

/// The entries of a directory with what they are, symlinks not followed; at most [`ENTRY_LIMIT`].
pub fn read_dir(path: &Path) -> io::Result<Vec<(OsString, FileType)>> {
    let dir = confined::open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == ENTRY_LIMIT {
            break;
        }
        let kind = match entry.file_type() {
            // Some file systems do not say.
            FileType::Unknown => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        entries.push((OsStr::from_bytes(name.to_bytes()).to_owned(), kind));
    }
    Ok(entries)
}

/// Is there a directory? Symlinks are followed.
pub fn is_dir(path: &Path) -> bool {
    kind_of(path) == Some(FileType::Directory)
}

/// Is there anything? Symlinks are followed.
pub fn exists(path: &Path) -> bool {
    kind_of(path).is_some()
}

/// What a symbolic link says; `None` where there is no link.
pub fn read_link(path: &Path) -> Option<PathBuf> {
    let link = confined::open(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
    let target = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
    recording::note_link(path, &target);
    Some(target)
}

/// `None` where the file or directory is absent.
pub fn present<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    use io::ErrorKind::{NotADirectory, NotFound};
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.cause.kind(), NotFound | NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The bytes of a file of at most `limit` bytes; anything that is not a regular file is an error.
pub fn read_bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = File::from(confined::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    read_within(file, limit)
}

/// All that a reader has, if that is at most `limit` bytes.
pub fn read_within(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(FIRST_READ);
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_long(limit));
    }
    Ok(bytes)
}

fn too_long(limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {limit} bytes"))
}

/// What a person wrote, as text; unlike the kernel's it must be UTF-8.
pub fn written_text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8: {}", error.utf8_error()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn reads_no_more_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_text_within(&path, 5).unwrap(), "12345");
        let error = read_text_within(&path, 4).unwrap_err().to_string();
        assert_eq!(error, format!("reading {}: longer than 4 bytes", path.display()));
    }

    #[test]
    fn refuses_what_would_block_or_never_end() {
        for path in ["/dev/zero", "/dev/null", "/"] {
            assert!(read_text(Path::new(path)).is_err(), "{path}");
        }
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(read_text(&fifo).is_err());
    }

    #[test]
    fn tells_absent_from_unreadable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, [b'a', 0xff]).unwrap();
        assert_eq!(read_optional(&file).unwrap().unwrap(), "a\u{fffd}");
        assert!(read_optional(&dir.path().join("none")).unwrap().is_none());
        assert!(read_optional(&file.join("below")).unwrap().is_none());
        assert!(read_optional(dir.path()).is_err());
        assert_eq!(list_dir(dir.path()).unwrap().unwrap(), ["file"]);
        assert!(list_dir(&dir.path().join("none")).unwrap().is_none());
    }
}
